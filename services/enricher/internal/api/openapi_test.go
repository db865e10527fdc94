package api_test

import (
	"testing"

	"github.com/expediter-io/expediter/internal/openapi"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/internal/api"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// TestDescriptionIsCurrent compares openapi.json with the operations. `go generate` runs it with -update.
func TestDescriptionIsCurrent(t *testing.T) {
	t.Parallel()
	update := []openapi.Node{
		{"$ref": "#/components/schemas/Snapshot"}, {"$ref": "#/components/schemas/ResultPatch"}, {"$ref": "#/components/schemas/Notice"},
	}
	doc, err := openapi.Document("../../../..", openapi.Config{
		Title: "Enricher", Summary: "Attaches delivery links to restaurants.",
		Description: "A request names places; the answer has the same places with what is known of each. A place that is not known becomes one " +
			"job, however many requests name it. The answer says PENDING for it, and the result follows as an event.",
		Tags:  [][2]string{{"requests", "Places that are looked up."}},
		Types: []any{enrich.Notice{}},
		Schemas: openapi.Node{
			"Update": openapi.Node{"description": "An event of a request.", "anyOf": update},
			"Frame": openapi.Node{
				"description": "An event of the request, as a frame of the WebSocket.",
				"allOf":       []openapi.Node{{"$ref": "#/components/schemas/Update"}},
				"properties": openapi.Node{"eventId": openapi.Node{
					"type": "string", "description": "The id of the event, with which a client comes back. Only for clients that give last_event_id.",
				}},
			},
		},
	}, api.Operations(nil))
	check.OK(t, err)
	testbed.Golden(t, "openapi.json", doc)
}
