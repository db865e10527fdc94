package api_test

import (
	"testing"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
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
