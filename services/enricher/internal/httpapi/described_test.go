package httpapi_test

import (
	"strconv"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/internal/httpapi"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d := servicetest.Described(t, httpapi.Docs)
	d.Routes(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Router: r}) }, ".", "../../../../pkg/service")
	d.Types(t, map[string]any{
		"Notice": enrich.Notice{}, "Problem": service.Problem{}, "FieldError": contracts.FieldError{}, "Snapshot": enrich.Snapshot{},
		"SnapshotPlace": enrich.SnapshotPlace{}, "Update": nil,
	})
}

func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{works: true})
	for n := range 20 { // as many places as a request may have
		list := places(contracts.MaxResults)
		for k := range list {
			list[k].PlaceID += strconv.Itoa(n)
		}
		i.ask(t, contracts.EnrichRequest{RequestID: "full", Results: list})
	}
	i.described.Examples(t, i.Client(), i.URL, nil, map[string]servicetest.Case{
		"POST /v1/enrich 409": {Body: `{"requestId":"full","results":[{"placeId":"one more","name":"Alma"}]}`},
	})
}
