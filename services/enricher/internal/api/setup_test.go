package api_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/internal/api"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain.
const patience = 5 * time.Minute

// fakeProvider is a provider that answers each search when the test lets it.
type fakeProvider struct{ let chan struct{} }

func (fakeProvider) Name() string { return contracts.ProviderWolt }

func (f fakeProvider) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	if f.let != nil {
		select {
		case <-f.let:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return []provider.Venue{{Place: place, ID: "v", URL: linkOf(place.Name)}}, nil
}

func linkOf(name string) string { return "https://wolt.test/" + strings.ReplaceAll(name, " ", "-") }

// instance is the API over its own service.
type instance struct {
	*httptest.Server

	described *servicetest.Description
	service   *enrich.Service
	router    *service.Router
}

type options struct {
	enrich.Config

	heartbeat time.Duration
	origins   []string
	works     bool
}

// start serves. With works it also works jobs.
func start(t *testing.T, srv *natsrun.Server, o options) *instance {
	t.Helper()
	described := servicetest.Described(t, api.OpenAPI)
	_, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	o.Logger = slog.New(slog.DiscardHandler)
	o.Enabled, o.Deprecated = true, true
	o.StoreTimeout = cmp.Or(o.StoreTimeout, patience)
	if o.Providers == nil {
		o.Providers = []provider.Provider{fakeProvider{}}
	}
	enricher := check.Must(enrich.New(t.Context(), js, o.Config))(t)
	t.Cleanup(enricher.Close)
	if o.works {
		work(t, js, enricher)
	}
	router := service.NewRouter(service.RouterConfig{
		Heartbeat: o.heartbeat, OpenAPI: api.OpenAPI, Logger: o.Logger, Name: "enricher", Errors: enrich.Problem,
		Exports: &export.Exports{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })},
		Origins: o.origins, Ready: func() map[string]error { return map[string]error{"nats": nil} }, Version: "1.2.3",
	})
	router.Add(api.Operations(enricher)...)
	server := httptest.NewUnstartedServer(router)
	base, end := context.WithCancel(context.WithoutCancel(t.Context()))
	server.Config.BaseContext = func(net.Listener) context.Context { return base }
	server.Start()
	server.Client().Transport = described.Transport(t, server.Client().Transport)
	t.Cleanup(func() {
		end()
		server.Close()
		router.Wait()
	})
	return &instance{server, described, enricher, router}
}

func work(t *testing.T, js jetstream.JetStream, enricher *enrich.Service) {
	t.Helper()
	w := check.Must(worker.New(js, worker.Config{
		AutoCreate: true, Bucket: contracts.BucketJobs, Concurrency: 200, Consumer: "enricher", SoftStop: -1,
		Logger: slog.New(slog.DiscardHandler), Stream: contracts.StreamEnrichJobs, Hooks: worker.Hooks{Settled: enricher.Settled},
	}))(t)
	check.OK(t, worker.Handle(w, contracts.EnrichJobsSubjects, enricher.Policy(), enricher.Work))
	natstest.Background(t, w.Run)
}

func places(n int) []contracts.Restaurant {
	list := make([]contracts.Restaurant, n)
	for i := range list {
		list[i] = contracts.Restaurant{
			PlaceID: fmt.Sprintf("place-%03d", i), Name: fmt.Sprintf("Kitchen %03d", i), Address: fmt.Sprintf("Harbour Road %d", i+1), CityText: "Haifa",
		}
	}
	return list
}

// ask makes a request for new places, which must be answered.
func (i *instance) ask(t *testing.T, req contracts.EnrichRequest) contracts.EnrichResponse {
	t.Helper()
	body := check.Must(contracts.Encode(req))(t)
	status, _, data := i.do(t, http.MethodPost, "/v1/enrich", string(body), nil)
	check.Require(t, status == http.StatusOK, "%d: %s", status, data)
	return check.Must(contracts.Decode[contracts.EnrichResponse](data))(t)
}

// do makes one call and reads the whole answer. Data end a line, so that a shell's prompt comes on its own line.
func (i *instance) do(t *testing.T, method, path, body string, header http.Header) (int, http.Header, []byte) {
	t.Helper()
	req := check.Must(http.NewRequestWithContext(t.Context(), method, i.URL+path, strings.NewReader(body)))(t)
	if header != nil {
		req.Header = header
	}
	resp := check.Must(i.Client().Do(req))(t)
	defer resp.Body.Close()
	data := check.Must(io.ReadAll(resp.Body))(t)
	isData := len(data) > 0 && strings.Contains(resp.Header.Get("Content-Type"), "json")
	check.That(t, !isData || bytes.IndexByte(data, '\n') == len(data)-1, "%s %.40s is %q, want one line", method, path, data)
	return resp.StatusCode, resp.Header, data
}

// event is one server-sent event.
type event struct{ id, kind, data string }

var errEnd = errors.New("the stream has ended")

// events reads a stream to its end, or until each returns false. An event that is cut off is dropped, as the
// standard says.
func events(r io.Reader, each func(event) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var e event
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "" && e.kind != "":
			if !each(e) {
				return nil
			}
			e = event{}
		case field == "id":
			e.id = value
		case field == "event":
			e.kind = value
		case field == "data":
			e.data = value
		}
	}
	return errors.Join(errEnd, lines.Err())
}

// listener is the state of a client: the last state of each place, and how often it got one.
type listener struct {
	mu     sync.Mutex
	last   string
	states map[string]contracts.ProviderState
	told   map[string]int
	resets int
	over   bool
}

func newListener() *listener {
	return &listener{states: map[string]contracts.ProviderState{}, told: map[string]int{}}
}

// take takes one event in.
func (l *listener) take(id, kind string, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = id
	switch kind {
	case "reset":
		l.resets++
	case "complete":
		l.over = true
	case "snapshot":
		var s enrich.Snapshot
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		for _, p := range s.Places {
			l.states[p.PlaceID] = p.Providers["wolt"]
		}
	case contracts.TypeResultPatch:
		patch, err := contracts.Decode[contracts.ResultPatch](data)
		if err != nil {
			return err
		}
		if l.states[patch.PlaceID].Status != contracts.StatusPending {
			return fmt.Errorf("told of %s again", patch.PlaceID)
		}
		l.told[patch.PlaceID]++
		l.states[patch.PlaceID] = patch.Patch.Providers["wolt"]
	default:
		return fmt.Errorf("unknown event %q", kind)
	}
	return nil
}

// check wants that everything was told, and nothing twice.
func (l *listener) check(t *testing.T, results []contracts.Restaurant) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		s := l.states[r.PlaceID]
		check.That(t, s.Status == contracts.StatusFound, "told %+v of %s, want FOUND", s, r.PlaceID)
		n := l.told[r.PlaceID]
		check.That(t, n <= 1, "told %d times of %s", n, r.PlaceID)
	}
}

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	servicetest.Callers(t, func(r *service.Router) { r.Add(api.Operations(nil)...) }, map[string]servicetest.Foreign{
		"POST /v1/enrich": {Body: `{"requestId":"theirs:1","results":[]}`},
	})
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { r.Add(api.Operations(nil)...) })
}
