package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain. No test's outcome depends on it otherwise.
const patience = time.Minute

// far is a provider that counts, and answers as the test says: by default each place has one venue, its own.
type far struct {
	name   string
	search func(ctx context.Context, place match.Place) ([]provider.Venue, error)

	mu    sync.Mutex
	calls map[string]int
}

func (f *far) Name() string {
	if f.name == "" {
		return contracts.ProviderWolt
	}
	return f.name
}

func (f *far) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[place.Name]++
	f.mu.Unlock()
	if f.search != nil {
		return f.search(ctx, place)
	}
	return venueOf(place)
}

// count returns how often a place was searched for.
func (f *far) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func (f *far) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

// venueOf is the one venue that is the place.
func venueOf(place match.Place) ([]provider.Venue, error) {
	return []provider.Venue{{Place: place, ID: "v-" + place.Name, URL: linkOf(place.Name)}}, nil
}

func linkOf(name string) string { return "https://wolt.test/" + strings.ReplaceAll(name, " ", "-") }

func noVenue(context.Context, match.Place) ([]provider.Venue, error) { return nil, nil }

// twoVenues could both be a place whose address is not known.
func twoVenues(_ context.Context, place match.Place) ([]provider.Venue, error) {
	here, there := place, place
	here.Address, there.Address = "Harbour Road 1", "Mountain Street 99"
	return []provider.Venue{{Place: here, ID: "here", URL: linkOf("here")}, {Place: there, ID: "there", URL: linkOf("there")}}, nil
}

var errFar = errors.New("the far side is out of order")

// failTimes fails that many searches before it answers.
func failTimes(n int, err error) func(context.Context, match.Place) ([]provider.Venue, error) {
	var mu sync.Mutex
	return func(_ context.Context, place match.Place) ([]provider.Venue, error) {
		mu.Lock()
		defer mu.Unlock()
		n--
		if n >= 0 {
			return nil, err
		}
		return venueOf(place)
	}
}

// gate is a search that signals its begin, and waits to be let go, even when its context ends.
type gate struct {
	begun chan string
	open  chan struct{}
}

func newGate() *gate { return &gate{begun: make(chan string, 100), open: make(chan struct{})} }

func (g *gate) search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	g.begun <- place.Name
	<-g.open
	return venueOf(place)
}

// instance is a service with the connection that an instance has.
type instance struct {
	*Service

	cutOff bool // it may complain when it stops

	js  jetstream.JetStream
	log *journal
}

func newInstance(t *testing.T, srv *natsrun.Server, p provider.Provider, mutate ...func(*Config)) *instance {
	t.Helper()
	return newInstanceOn(t, srv, p, nil, mutate...)
}

// newInstanceOn is newInstance, with options for its connection.
func newInstanceOn(t *testing.T, srv *natsrun.Server, p provider.Provider, options []nats.Option, mutate ...func(*Config)) *instance {
	t.Helper()
	_, js := natstest.Connect(t, srv, options...)
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	log := &journal{}
	cfg := Config{Deprecated: true, Enabled: true, Logger: slog.New(log), Providers: []provider.Provider{p}}
	if time.Now().Year() > 2000 { // not under fake time: a busy machine is not a store that is down
		cfg.StoreTimeout = patience
	}
	for _, m := range mutate {
		m(&cfg)
	}
	s := check.Must(New(t.Context(), js, cfg))(t)
	t.Cleanup(s.Close)
	return &instance{Service: s, js: js, log: log}
}

// work has the instance work jobs until stop, or the end of the test.
func (i *instance) work(t *testing.T, mutate ...func(*worker.Config)) (stop func()) {
	t.Helper()
	cfg := worker.Config{
		AckWait: 5 * time.Second, AutoCreate: true, Bucket: contracts.BucketJobs, Consumer: "enricher",
		Logger: slog.New(i.log), SoftStop: -1, Stream: contracts.StreamEnrichJobs, Hooks: worker.Hooks{Settled: i.Settled},
	}
	for _, m := range mutate {
		m(&cfg)
	}
	w, err := worker.New(i.js, cfg)
	if err == nil {
		err = worker.Handle(w, contracts.EnrichJobsSubjects, i.Policy(), i.Work)
	}
	check.OK(t, err)
	return natstest.Background(t, func(ctx context.Context) error {
		err := w.Run(ctx)
		if i.cutOff {
			return nil
		}
		return err
	})
}

// ask makes a request, which must not fail.
func (i *instance) ask(t *testing.T, id string, results []contracts.Restaurant, mutate ...func(*contracts.EnrichRequest)) contracts.EnrichResponse {
	t.Helper()
	req := contracts.EnrichRequest{RequestID: id, CityText: "Haifa", Results: results}
	for _, m := range mutate {
		m(&req)
	}
	check.OK(t, req.Validate())
	return check.Must(i.Enrich(t.Context(), req))(t)
}

// outcomes reads a request to its end, and returns the last state of each place of wolt.
func (i *instance) outcomes(t *testing.T, id string) map[string]contracts.ProviderState {
	t.Helper()
	states, err := i.hear(t.Context(), id)
	check.Require(t, err == nil, "request %s: %v", id, err)
	return states
}

func (i *instance) hear(ctx context.Context, id string) (map[string]contracts.ProviderState, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return i.listen(ctx, id)
}

// listen is hear for as long as ctx lasts.
func (i *instance) listen(ctx context.Context, id string) (map[string]contracts.ProviderState, error) {
	sub, err := i.Subscribe(ctx, id, "")
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	states := map[string]contracts.ProviderState{}
	for !sub.Over() {
		update, err := sub.Next(ctx)
		if err != nil {
			return states, err
		}
		switch body := update.Body.(type) {
		case Snapshot:
			for _, p := range body.Places {
				states[p.PlaceID] = p.Providers[contracts.ProviderWolt]
			}
		case contracts.ResultPatch:
			states[body.PlaceID] = body.Patch.Providers[contracts.ProviderWolt]
		}
	}
	return states, nil
}

// until asks and listens until everything is told, as a client should: a request that is not known, because the machine
// was too slow for the store to answer in time, is made again.
func (i *instance) until(t *testing.T, id string, results []contracts.Restaurant) map[string]contracts.ProviderState {
	t.Helper()
	for wait := 50 * time.Millisecond; t.Context().Err() == nil; wait = min(2*wait, 2*time.Second) {
		resp := i.ask(t, id, results)
		states := map[string]contracts.ProviderState{}
		for n, r := range resp.Results {
			states[r.PlaceID] = state(t, resp, n)
		}
		if resp.Pending == 0 {
			return states
		}
		if resp.Skipped != "" {
			pause.For(t.Context(), wait)
			continue
		}
		told, err := i.hear(t.Context(), id)
		if errors.Is(err, ErrUnknownRequest) || errors.Is(err, kvlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			pause.For(t.Context(), wait)
			continue
		}
		check.Is(t, err, nil, id)
		maps.Copy(states, told)
		return states
	}
	return nil
}

// jobs returns how many jobs were ever queued, and how many are.
func (i *instance) jobs(t *testing.T) (ever, now uint64) {
	t.Helper()
	return streamCount(t, i.js, contracts.StreamEnrichJobs)
}

// wantJobs checks how many jobs were ever queued.
func (i *instance) wantJobs(t *testing.T, want uint64) {
	t.Helper()
	ever, _ := i.jobs(t)
	check.Same(t, "jobs were queued", ever, want)
}

// letters returns how many dead letters there are.
func (i *instance) letters(t *testing.T) uint64 {
	t.Helper()
	_, now := streamCount(t, i.js, contracts.StreamDead)
	return now
}

func streamCount(t *testing.T, js jetstream.JetStream, name string) (ever, now uint64) {
	t.Helper()
	stream := check.Must(js.Stream(t.Context(), name))(t)
	state := stream.CachedInfo().State
	return state.LastSeq, state.Msgs
}

// place is a new place with that name.
func place(name string) contracts.Restaurant {
	return contracts.Restaurant{PlaceID: "id-" + strings.ReplaceAll(name, " ", "-"), Name: name, Address: "Harbour Road 7", CityText: "Haifa"}
}

func places(n int) []contracts.Restaurant {
	list := make([]contracts.Restaurant, n)
	for i := range list {
		list[i] = place(fmt.Sprintf("Kitchen %03d", i))
		list[i].Address = fmt.Sprintf("Harbour Road %d", i+1)
	}
	return list
}

// state returns the state of one restaurant of an answer.
func state(t *testing.T, resp contracts.EnrichResponse, n int) contracts.ProviderState {
	t.Helper()
	s, ok := resp.Results[n].State(contracts.ProviderWolt)
	check.Require(t, ok, "result %d has no state of wolt", n)
	return s
}

func wantStatus(t *testing.T, got contracts.ProviderState, want contracts.ProviderStatus) {
	t.Helper()
	check.That(t, got.Status == want, "state is %+v, want %s", got, want)
}

// journal is a log that is read by tests.
type journal struct {
	mu      sync.Mutex
	entries []map[string]string
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	entry := map[string]string{"msg": r.Message}
	r.Attrs(func(a slog.Attr) bool {
		entry[a.Key] = a.Value.String()
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
	return nil
}

// events returns the entries of one event.
func (j *journal) events(event string) []map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []map[string]string
	for _, e := range j.entries {
		if e["event"] == event {
			found = append(found, e)
		}
	}
	return found
}

// reasons returns the reasons of all skipped jobs, sorted, each once.
func (j *journal) reasons() []string {
	var reasons []string
	for _, e := range j.events("wolt_enqueue_skipped") {
		reasons = append(reasons, e["reason"])
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
