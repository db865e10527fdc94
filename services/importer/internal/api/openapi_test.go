package api_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/openapi"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/internal/api"
	"github.com/expediter-io/expediter/services/importer/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDescriptionIsCurrent compares openapi.json with the operations. `go generate` runs it with -update.
func TestDescriptionIsCurrent(t *testing.T) {
	t.Parallel()
	text := openapi.Node{"type": "string"}
	doc, err := openapi.Document("../../../..", openapi.Config{
		Title: "Importer", Summary: "Turns recipe videos and pages into recipes.",
		Description: "Each job ends in one recipe, or in a failure with a code and a message. Every change of a job can be followed.",
		Tags:        [][2]string{{"imports", "Jobs."}, {"recipes", "The results of jobs."}},
		Names:       map[string]string{"store.Stored": "StoredRecipe", "store.Summary": "RecipeSummary"},
		Optional:    map[string][]string{"Submission": {"job_id"}},
		Schemas: openapi.Node{"SubmissionForm": openapi.Node{
			"type":        "object",
			"description": "A job with its source, of up to 8 MiB. The other fields are those of a Submission.",
			"required":    []string{"file", "owner_id"},
			"properties": openapi.Node{
				"file":   openapi.Node{"type": "string", "contentMediaType": "application/octet-stream"},
				"job_id": text, "owner_id": text, "source_type": text, "language": text, "encoding": text,
				"priority": openapi.Node{"type": "string", "enum": []string{"high", "normal", "low"}},
			},
		}},
	}, api.Operations(nil, nil, &store.Bucket{}))
	check.OK(t, err)
	testbed.Golden(t, "openapi.json", doc)
}
