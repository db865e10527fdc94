package httpapi_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/services/notifier/internal/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	servicetest.Callers(t, func(r *service.Router) { httpapi.Add(r, nil, nil) }, nil)
}

func TestOnlyCallersWithTheScopePublishAddresses(t *testing.T) {
	t.Parallel()
	event := `{"event_id":"e","event_type":"T","aggregate_type":"A","recipients":[{"recipient_type":"CUSTOMER","user_id":"u"}]}`
	servicetest.Refused(t, func(r *service.Router) { httpapi.Add(r, nil, nil) }, "POST /v1/events", event)
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { httpapi.Add(r, nil, nil) },
		"DELETE /v1/events", "DELETE /v1/events/{event}", "POST /v1/notifications/replay", "GET /v1/endpoints", "POST /v1/endpoints/enable",
		"POST /v1/templates/test")
}
