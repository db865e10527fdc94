package importer_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/importer/internal/httpapi"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	job := `{"owner_id":"theirs","url":"https://example.org/soup.vtt","source_type":"captions","job_id":"j"}`
	servicetest.Callers(t, func(r *service.Router) { httpapi.Add(r, nil, nil, &kvstore.Store{}) },
		map[string]servicetest.Foreign{"POST /v1/imports": {Body: job}, "GET /v1/recipes": {Query: "?owner=theirs"}},
		// The owner of these is in the store, see TestACallerReachesItsOwnImportsOnly.
		"GET /v1/imports/{job}", "GET /v1/imports/{job}/events", "POST /v1/imports/{job}/cancel", "POST /v1/imports/{job}/retry",
		"GET /v1/recipes/{recipe}")
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { httpapi.Add(r, nil, nil, &kvstore.Store{}) }, "GET /health")
}
