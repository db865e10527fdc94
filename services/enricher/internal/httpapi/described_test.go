package httpapi_test

import (
	"log/slog"
	"strconv"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/internal/httpapi"
	"github.com/expediter-io/expediter/services/enricher/internal/natsapi"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d := servicetest.Described(t, httpapi.Docs)
	d.Routes(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Router: r}) }, ".", "../../../../pkg/service")
	d.Types(t, map[string]any{
		"Frame": nil, "GetRequest": nil, "Lookup": enrich.Lookup{}, "Notice": enrich.Notice{}, "PlaceLookups": nil, "PlaceRequest": nil, "Problem": service.Problem{}, "FieldError": contracts.FieldError{}, "Snapshot": enrich.Snapshot{},
		"SnapshotPlace": enrich.SnapshotPlace{}, "Update": nil,
	})
}

func TestEveryRequestIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	i := start(t, srv, options{works: true})
	nc, _ := natstest.Connect(t, srv)
	endpoints := natsapi.Endpoints(i.service)
	m, err := service.StartMicro(nc, service.MicroConfig{
		Description: "Attaches delivery links", Endpoints: endpoints, Errors: enrich.Problem, Logger: slog.New(slog.DiscardHandler), Name: "enricher",
		Version: "1.2.3",
	})
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, m.Stop()) })
	i.described.Requests(t, nc, endpoints, "enrich")
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
