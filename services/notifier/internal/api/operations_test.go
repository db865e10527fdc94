package api_test

import (
	"encoding/json"
	"testing"

	"github.com/expediter-io/expediter/internal/openapi"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	servicetest.Callers(t, func(r *service.Router) { r.Add(api.Operations(nil, nil)...) }, map[string]servicetest.Foreign{
		"PATCH /v1/memberships/{type}/{user}": {Body: `{}`}, "POST /v1/users/{user}/inbox": {Body: `{"state":"read"}`},
		"PATCH /v1/users/{user}/inbox/{event}": {Body: `{"state":"read"}`},
	})
}

func TestOnlyCallersWithTheScopePublishAddresses(t *testing.T) {
	t.Parallel()
	event := `{"event_id":"e","event_type":"T","aggregate_type":"A","recipients":[{"recipient_type":"CUSTOMER","user_id":"u"}]}`
	servicetest.Refused(t, func(r *service.Router) { r.Add(api.Operations(nil, nil)...) }, "POST /v1/events", event)
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { r.Add(api.Operations(nil, nil)...) },
		"DELETE /v1/events", "DELETE /v1/events/{event}", "POST /v1/notifications/replay", "GET /v1/endpoints", "POST /v1/endpoints/enable",
		"POST /v1/templates/test")
}

// TestDescriptionIsCurrent compares openapi.json with the operations. `go generate` runs it with -update.
func TestDescriptionIsCurrent(t *testing.T) {
	t.Parallel()
	doc, err := openapi.Document("../../../..", openapi.Config{
		Title: "Notifier", Summary: "Delivers events to people.",
		Description: "An event becomes one plan, a plan becomes notifications (one for each user and channel), and a notification becomes one " +
			"message. Operations that list, cancel and replay refuse parameters that they do not take.",
		Tags: [][2]string{
			{"events", "What happened."},
			{"notifications", "Notifications, with their outcomes."},
			{"endpoints", "Addresses that do not answer."},
			{"templates", "Texts."},
			{"people", "Profiles, addresses, preferences and memberships."},
			{"inbox", "What a user sees in the application."},
		},
		Names: map[string]string{
			"api.EndpointPage": "FailingEndpoints", "api.Page": "NotificationPage", "health.Endpoint": "FailingEndpoint",
			"recipient.Member": "Membership",
		},
		Schemas: openapi.Node{
			"Notify": json.RawMessage(`{
				"type": "object", "required": ["recipients", "channels"], "additionalProperties": true,
				"description": "Users, and what to notify them of. The other members are those of a route in the rules.",
				"properties": {
					"event_id": {"type": "string", "description": "The id of the event."},
					"event_type": {"type": "string", "description": "The type of the event. Defaults to NOTIFICATION."},
					"not_before": {"type": "string", "format": "date-time", "description": "The earliest time of delivery, at most 21 days ahead."},
					"payload": {"description": "The data of the texts."},
					"recipients": {"type": "array", "items": {"$ref": "#/components/schemas/Recipient"}, "maxItems": 10000, "description": "The users."},
					"channels": {"type": "array", "items": {"type": "string"}, "description": "The names of channels."},
					"template": {"type": "string", "description": "The name of the text."}
				}}`),
			"Profile": json.RawMessage(`{
				"type": "object", "additionalProperties": true,
				"description": "A user: the fields of a Recipient, and what the application stores there besides.",
				"properties": {
					"user_id": {"type": "string"}, "recipient_type": {"type": "string"},
					"locale": {"type": ["string", "null"], "description": "A BCP 47 tag."},
					"time_zone": {"type": ["string", "null"], "description": "The name of a zone in the IANA database."}
				}}`),
			"UserPage": json.RawMessage(`{
				"type": "object", "required": ["users"], "description": "A part of the directory, in the form of an import.",
				"properties": {
					"next": {"type": "string", "description": "The cursor of the next page, absent when there is none."},
					"users": {"type": "array", "items": {"$ref": "#/components/schemas/UserLine"}}
				}}`),
			"UserLine": json.RawMessage(`{
				"type": "object", "required": ["user_id", "recipient_type"], "additionalProperties": true,
				"description": "A Recipient with memberships. With \"unlisted\":true the line adds nobody.",
				"properties": {
					"user_id": {"type": "string", "minLength": 1}, "recipient_type": {"type": "string", "minLength": 1},
					"memberships": {"type": "array", "items": {"$ref": "#/components/schemas/Membership"}}
				}}`),
		},
	}, api.Operations(nil, nil))
	check.OK(t, err)
	testbed.Golden(t, "openapi.json", doc)
}
