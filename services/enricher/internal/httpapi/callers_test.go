package httpapi_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/enricher/internal/httpapi"
)

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	servicetest.Callers(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Router: r}) }, map[string]servicetest.Foreign{
		"POST /v1/enrich": {Body: `{"requestId":"theirs:1","results":[]}`},
	})
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Router: r}) })
}
