package api_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/internal/api"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// startMicro serves an instance over NATS, on the connection own, and connects a client.
func startMicro(t *testing.T, srv *natsrun.Server, o options) (m *service.Micro, own, client *nats.Conn) {
	t.Helper()
	i := start(t, srv, o)
	own, _ = natstest.Connect(t, srv)
	m = check.Must(service.StartMicro(own, service.MicroConfig{
		Description: "Attaches delivery links", Endpoints: service.Endpoints(api.Operations(i.service)), Errors: enrich.Problem,
		Logger: slog.New(slog.DiscardHandler), Name: "enricher", Version: "1.2.3",
	}))(t)
	t.Cleanup(func() { check.ErrorIs(t, m.Stop(), nil) })
	check.OK(t, own.Flush())
	client, _ = natstest.Connect(t, srv)
	return m, own, client
}

func request(t *testing.T, nc *nats.Conn, subject, body string) *nats.Msg {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), patience)
	check.Require(t, err == nil, "%s: %v", subject, err)
	return msg
}

func TestEnrichAndGet(t *testing.T) {
	t.Parallel()
	_, _, nc := startMicro(t, natstest.Server(t), options{})
	msg := request(t, nc, "enricher.v1.enrich", `{"requestId":"r","results":[{"x":1.0,"placeId":"ChIJ123","name":"Pizza House"}]}`)
	const want = `{"requestId":"r","results":[{"x":1.0,"placeId":"ChIJ123","name":"Pizza House","providers":{"wolt":{"status":"PENDING","url":null}},` +
		`"wolt":{"status":"PENDING","url":null}}],"pending":1}`
	diff := cmp.Diff(want, string(msg.Data))
	check.That(t, diff == "" && msg.Header.Get(micro.ErrorCodeHeader) == "", "answer %v (-want +got):\n%s", msg.Header, diff)
	msg = request(t, nc, "enricher.v1.get", `{"requestId":"r"}`)
	var s enrich.Snapshot
	err := json.Unmarshal(msg.Data, &s)
	check.That(t, err == nil && s.Pending == 1 && s.Places[0].PlaceID == "ChIJ123", "snapshot is %s, %v", msg.Data, err)
	var place struct {
		Lookups []enrich.Lookup `json:"lookups"`
	}
	msg = request(t, nc, "enricher.v1.place", `{"placeId":"ChIJ123"}`)
	err = json.Unmarshal(msg.Data, &place)
	check.That(t, err == nil && len(place.Lookups) == 1 && place.Lookups[0].State == "pending", "the place is %s, %v", msg.Data, err)
	check.Equal(t, string(request(t, nc, "enricher.v1.place", `{"placeId":"x"}`).Data), `{"lookups":[],"placeId":"x"}`,
		"a place that nobody asked about")
}

// TestErrorsOverNATS have the headers of ADR-32, and the failing fields in the body.
func TestErrorsOverNATS(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.MaxPayload = 4 << 20 })
	})
	_, _, nc := startMicro(t, srv, options{})
	for name, c := range map[string]struct {
		subject, body, code string
		fields              []string
	}{
		"not JSON":         {"enrich", `hello`, "400", []string{""}},
		"missing fields":   {"enrich", `{"results":[{}]}`, "400", []string{"/results/0/name", "/results/0/placeId"}},
		"over 1 MiB":       {"enrich", `{"results":[],"x":"` + strings.Repeat("x", 1<<20) + `"}`, "413", nil},
		"unknown provider": {"enrich", `{"results":[],"providers":["wolt","yelp"]}`, "400", nil},
		"no id":            {"get", `{}`, "400", []string{"/requestId"}},
		"no place":         {"place", `{}`, "400", []string{"/placeId"}},
		"long place":       {"place", `{"placeId":"` + strings.Repeat("x", 10<<10) + `"}`, "400", []string{"/placeId"}},
		"no object":        {"get", `r`, "400", []string{""}},
		"unknown request":  {"get", `{"requestId":"nobody"}`, "404", nil},
		"hostile request":  {"get", `{"requestId":"../*.>\u0000"}`, "404", nil},
		"long request":     {"get", `{"requestId":"` + strings.Repeat("x", 10<<10) + `"}`, "404", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := request(t, nc, "enricher.v1."+c.subject, c.body)
			check.Equal(t, msg.Header.Get(micro.ErrorCodeHeader), c.code, "code")
			text := msg.Header.Get(micro.ErrorHeader)
			check.That(t, text != "" && len(text) <= 8192, "error is %q", text)
			check.That(t, name != "unknown provider" || strings.Contains(text, `"yelp" at providers/1: have ["wolt"]`), "error is %q", text)
			var body struct {
				Errors []contracts.FieldError `json:"errors"`
			}
			if len(msg.Data) > 0 {
				check.OK(t, json.Unmarshal(msg.Data, &body))
			}
			var fields []string
			for _, e := range body.Errors {
				fields = append(fields, e.Path)
			}
			slices.Sort(fields)
			check.Equal(t, fields, c.fields)
		})
	}
}

// TestDiscovery: the nats command line finds the service and its endpoints.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	_, _, nc := startMicro(t, natstest.Server(t), options{})
	request(t, nc, "enricher.v1.enrich", `{"results":[]}`)
	request(t, nc, "enricher.v1.enrich", `{}`)
	var info micro.Info
	check.OK(t, json.Unmarshal(request(t, nc, "$SRV.INFO.enricher", "").Data, &info))
	var subjects []string
	for _, e := range info.Endpoints {
		subjects = append(subjects, e.Name+" "+e.Subject)
		check.That(t, e.Metadata["request"] != "" && e.Metadata["response"] != "", "metadata of %s is %v", e.Name, e.Metadata)
	}
	check.Equal(t, subjects, []string{"enrich enricher.v1.enrich", "get enricher.v1.get", "place enricher.v1.place"})
	check.Equal(t, info.Version, "1.2.3", "version")
	var stats micro.Stats
	check.OK(t, json.Unmarshal(request(t, nc, "$SRV.STATS.enricher", "").Data, &stats))
	check.That(t, len(stats.Endpoints) == 3 && stats.Endpoints[0].NumRequests == 2, "stats are %+v, want two requests", stats.Endpoints)
}

// TestStopOfMicro: Stop answers waiting requests with the results so far, before it returns: the connection may be
// closed then.
func TestStopOfMicro(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	m, own, nc := startMicro(t, srv, options{})
	replies := check.Must(nc.SubscribeSync("replies"))(t)
	for range 3 {
		check.OK(t, nc.PublishRequest("enricher.v1.enrich", "replies", []byte(`{"waitMs":60000,"results":[{"placeId":"a","name":"A"}]}`)))
	}
	// An answer to a later request says that the earlier ones have begun.
	request(t, nc, "enricher.v1.enrich", `{"results":[]}`)
	check.OK(t, m.Stop())
	own.Close()
	for n := range 3 {
		msg, err := replies.NextMsg(patience)
		check.Require(t, err == nil, "answer %d: %v", n, err)
		check.Equal(t, check.Must(contracts.Decode[contracts.EnrichResponse](msg.Data))(t).Pending, 1, "pending in the results so far")
	}
	check.ErrorIs(t, m.Stop(), nil)
}
