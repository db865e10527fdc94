package enrich

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// patience ends a test that waits in vain. No test's outcome depends on it otherwise.
const patience = time.Minute

// fakeProvider is a provider that counts, and answers as the test says: by default each place has one venue, its own.
type fakeProvider struct {
	name   string
	search func(ctx context.Context, place match.Place) ([]provider.Venue, error)

	mu    sync.Mutex
	calls map[string]int
}

func (f *fakeProvider) Name() string {
	if f.name == "" {
		return contracts.ProviderWolt
	}
	return f.name
}

func (f *fakeProvider) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
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
func (f *fakeProvider) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func (f *fakeProvider) total() (n int) {
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

var errBroken = errors.New("the provider is out of order")

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

// forgets turns off the memory of results, which asks the server for changes every second. In fake time that is most of a test's work.
func forgets(cfg *Config) { cfg.MemoryBytes = -1 }

func newInstance(t *testing.T, srv *natsrun.Server, p provider.Provider, mutate ...func(*Config)) *instance {
	t.Helper()
	return newInstanceOn(t, srv, p, nil, mutate...)
}

// newInstanceOn is newInstance, with options for its connection.
func newInstanceOn(t *testing.T, srv *natsrun.Server, p provider.Provider, options []nats.Option, mutate ...func(*Config)) *instance {
	t.Helper()
	_, js := natstest.Connect(t, srv, options...)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
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
	w := check.Must(worker.New(i.js, cfg))(t)
	check.OK(t, worker.Handle(w, contracts.EnrichJobsSubjects, i.Policy(), i.Work))
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

// outcomes is follow, which must not fail.
func (i *instance) outcomes(t *testing.T, id string) map[string]contracts.ProviderState {
	t.Helper()
	states, err := i.follow(t.Context(), id)
	check.Require(t, err == nil, "request %s: %v", id, err)
	return states
}

// follow follows a request to its end, and returns the last state of each place of wolt.
func (i *instance) follow(ctx context.Context, id string) (map[string]contracts.ProviderState, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Hour) // in fake time that is soon; else the test binary ends first
	defer cancel()
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

// jobs returns how many jobs were ever queued, and how many are.
func (i *instance) jobs(t *testing.T) (ever, now uint64) {
	t.Helper()
	return streamCount(t, i.js, contracts.StreamEnrichJobs)
}

// wantJobs checks how many jobs were ever queued.
func (i *instance) wantJobs(t *testing.T, want uint64) {
	t.Helper()
	ever, _ := i.jobs(t)
	check.Equal(t, ever, want, "jobs were queued")
}

// deadLetters returns how many dead letters there are.
func (i *instance) deadLetters(t *testing.T) uint64 {
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

// wantTook checks how long ago something began.
func wantTook(t *testing.T, began time.Time, least, most time.Duration) {
	t.Helper()
	took := time.Since(began)
	check.That(t, took >= least && took <= most, "took %s, want %s to %s", took, least, most)
}

// takeQueueAway deletes the stream of jobs, until bringBack.
func takeQueueAway(t *testing.T, i *instance) (bringBack func()) {
	t.Helper()
	stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
	check.OK(t, i.js.DeleteStream(t.Context(), contracts.StreamEnrichJobs))
	return func() { check.OK(t, check.Err(i.js.CreateStream(t.Context(), stream.CachedInfo().Config))) }
}

// countMessages counts the messages that are sent to a subject, under fake time, whether a stream takes them or not.
func countMessages(t *testing.T, srv *natsrun.Server, subject string) (count func() int) {
	t.Helper()
	nc, _ := natstest.Connect(t, srv)
	sub := check.Must(nc.SubscribeSync(subject))(t)
	check.OK(t, nc.Flush())
	return func() int {
		synctest.Wait()
		n, _, err := sub.Pending()
		check.ErrorIs(t, err, nil)
		return n
	}
}

// queuedJob returns the message with the job of the Pizza House, and the job.
func queuedJob(t *testing.T, i *instance) (*jetstream.RawStreamMsg, contracts.EnrichJob) {
	t.Helper()
	stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
	msg := check.Must(stream.GetLastMsgForSubject(t.Context(), "jobs.enrich."+pizzaKey))(t)
	return msg, check.Must(contracts.Decode[contracts.EnrichJob](msg.Data))(t)
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
	entry := map[string]string{"level": r.Level.String(), "msg": r.Message}
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

// take reads n events of a subscription.
func take(t *testing.T, sub *Subscription, n int) []Update {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var updates []Update
	for len(updates) < n && !sub.Over() {
		update, err := sub.Next(ctx)
		check.Require(t, err == nil, "after %d events: %v", len(updates), err)
		updates = append(updates, update)
	}
	return updates
}

// body decodes the data of an event.
func body[T any](t *testing.T, update Update) T {
	t.Helper()
	b, ok := update.Body.(T)
	check.Require(t, ok, "event %s has a body of type %T", update.Type, update.Body)
	return b
}

func types(updates []Update) []string {
	var list []string
	for _, u := range updates {
		list = append(list, u.Type)
	}
	return list
}

func subscribe(t *testing.T, i *instance, id, last string) *Subscription {
	t.Helper()
	return check.Must(i.Subscribe(t.Context(), id, last))(t)
}

func wantTypes(t *testing.T, updates []Update, want ...string) {
	t.Helper()
	check.Equal(t, types(updates), want)
}

// TestSubscription: a snapshot, the changes, the end; and a subscription from each of their ids.
func TestSubscription(t *testing.T) {
	t.Parallel()
	held := newGate()
	srv := natstest.Server(t)
	p := &fakeProvider{search: held.search}
	i, other := newInstance(t, srv, p), newInstance(t, srv, p)
	i.work(t)
	i.ask(t, "req-1", places(2))
	i.ask(t, "req-2", places(1))
	sub := subscribe(t, i, "req-1", "")
	first := take(t, sub, 1)
	wantTypes(t, first, TypeSnapshot)
	s := body[Snapshot](t, first[0])
	check.That(t, s.Pending == 2 && len(s.Places) == 2 && s.RequestID == "req-1" && len(s.Patches()) == 0, "snapshot is %+v", s)
	close(held.open)
	rest := take(t, sub, 10)
	wantTypes(t, rest, contracts.TypeResultPatch, contracts.TypeResultPatch, TypeComplete)
	check.ErrorIs(t, check.Err(sub.Next(t.Context())), io.EOF)
	sub.Close()

	// Resumed elsewhere after each event, it is told the rest.
	for n, last := range append(slices.Clone(first), rest...) {
		sub := subscribe(t, other, "req-1", last.ID)
		got := take(t, sub, 10)
		sub.Close()
		var want []string
		for _, u := range rest[min(n, len(rest)):] {
			want = append(want, u.Type)
		}
		if n >= 2 { // everything has been told; the last event is not worth a connection
			want = nil
		}
		wantTypes(t, got, want...)
	}

	// Anything else is a reset and a snapshot, and the id of the reset starts over.
	foreign := take(t, subscribe(t, i, "req-2", ""), 1)[0].ID
	nonce, bits, _ := strings.Cut(rest[0].ID, ".")
	for _, id := range []string{
		"?", ".", "AAAA.AA", foreign, nonce, nonce + ".?", nonce + ".A", nonce + "." + bits + "==", nonce + ".AA." + bits, "." + bits,
		rest[0].ID + "AAAA", "x" + rest[0].ID,
	} {
		sub := subscribe(t, i, "req-1", id)
		got := take(t, sub, 10)
		sub.Close()
		wantTypes(t, got, TypeReset, TypeSnapshot, TypeComplete)
		check.Equal(t, got[0].ID, "", "the id of a reset : a client that comes back with it would miss the snapshot")
		s = body[Snapshot](t, got[1])
		check.That(t, s.Pending == 0 && len(s.Patches()) == 2, "snapshot is %+v, want two that are found", s)
	}
	check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "nobody", "")), ErrUnknownRequest)
	check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "", "")), ErrUnknownRequest)
}

// TestRequestGrows: the same id is used for more places. States that were sent before are not sent again, and earlier
// ids stay valid.
func TestRequestGrows(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	i := newInstance(t, srv, &fakeProvider{})
	stop := i.work(t)
	i.ask(t, "req-1", places(2))
	sub := subscribe(t, i, "req-1", "")
	updates := take(t, sub, 10)
	sub.Close()
	last := updates[len(updates)-1]
	check.Require(t, last.Type == TypeComplete, "events are %q", types(updates))
	stop()
	i.ask(t, "req-1", places(4))
	i.ask(t, "req-1", places(4)) // nothing new
	sub = subscribe(t, i, "req-1", last.ID)
	defer sub.Close()
	check.Require(t, !sub.Over(), "a request that has grown is over")
	i.work(t)
	got := take(t, sub, 10)
	wantTypes(t, got, contracts.TypeResultPatch, contracts.TypeResultPatch, TypeComplete)
	told := []string{body[contracts.ResultPatch](t, got[0]).PlaceID, body[contracts.ResultPatch](t, got[1]).PlaceID}
	slices.Sort(told)
	check.Equal(t, told, []string{"id-Kitchen-002", "id-Kitchen-003"})
	another := take(t, subscribe(t, i, "req-1", ""), 1)
	check.Equal(t, len(body[Snapshot](t, another[0]).Places), 4, "snapshot has places")
}

// TestConcurrentRecords: requests with one id and different places, at the same moment, are all recorded.
func TestConcurrentRecords(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() { i.ask(t, "req-1", places(6)[n:n+1]) })
	}
	all.Wait()
	sub := subscribe(t, i, "req-1", "")
	defer sub.Close()
	check.Equal(t, len(body[Snapshot](t, take(t, sub, 1)[0]).Places), 6, "places are recorded")
}

// TestUnresolvedThenFound: a place that was told to have no answer is told again when it has one, and is not looked up
// again for that subscriber in the meantime.
func TestUnresolvedThenFound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		answer := failTimes(3, errBroken)
		p := &fakeProvider{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			if place.Name == "Slow Kitchen" {
				<-held.open
				return venueOf(place)
			}
			return answer(ctx, place)
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Slow Kitchen")})
		sub := subscribe(t, i, "req-1", "")
		defer sub.Close()
		got := take(t, sub, 2)
		wantTypes(t, got, TypeSnapshot, contracts.TypeResultPatch)
		check.Equal(t, body[contracts.ResultPatch](t, got[1]).Patch.Providers["wolt"].Reason, "provider_error", "told")
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second) // the result expires in the meantime
		defer cancel()
		_, err := sub.Next(ctx)
		check.That(t, errors.Is(err, context.DeadlineExceeded), "told something: %v", err)
		check.Equal(t, p.count("Pizza House"), 3, "searched for, times")
		i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
		got = take(t, sub, 1)
		wantStatus(t, body[contracts.ResultPatch](t, got[0]).Patch.Providers["wolt"], contracts.StatusFound)
		close(held.open)
		wantTypes(t, take(t, sub, 10), contracts.TypeResultPatch, TypeComplete)
	})
}

// TestMaxSubscriptions: one more than allowed is refused, and a place is free again after Close and after a failure.
func TestMaxSubscriptions(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{}, func(c *Config) { c.MaxSubscriptions = 2 })
	i.ask(t, "req-1", places(1))
	a, b := subscribe(t, i, "req-1", ""), subscribe(t, i, "req-1", "")
	defer b.Close()
	check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "req-1", "")), ErrTooManySubscriptions)
	a.Close()
	check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "nobody", "")), ErrUnknownRequest)
	subscribe(t, i, "req-1", "").Close()
}

// TestCloseEndsSubscriptions that wait.
func TestCloseEndsSubscriptions(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	i.ask(t, "req-1", places(1))
	sub := subscribe(t, i, "req-1", "")
	take(t, sub, 1)
	ended := make(chan error, 1)
	go func() { ended <- check.Err(sub.Next(t.Context())) }()
	i.Close()
	check.ErrorIs(t, <-ended, kvlock.ErrClosed)
	sub.Close()
}

// TestRequestTTL: a request is forgotten in time, also one that has grown.
func TestRequestTTL(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &fakeProvider{}, func(c *Config) { c.RequestTTL = 10 * time.Minute })
		i.ask(t, "req-1", places(1))
		i.ask(t, "req-2", places(1))
		natstest.Pass(9 * time.Minute)
		i.ask(t, "req-2", places(2))
		natstest.Pass(2 * time.Minute)
		check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "req-1", "")), ErrUnknownRequest)
		subscribe(t, i, "req-2", "").Close()
		natstest.Pass(9 * time.Minute)
		check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "req-2", "")), ErrUnknownRequest)
	})
}

// TestUnreadableRecord: a record that cannot be read is nobody's request.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	for _, value := range []string{"?", ""} {
		check.OK(t, check.Err(i.js.Publish(t.Context(), i.requests.Key("req-1"), []byte(value))))
		check.ErrorIs(t, check.Err(i.Subscribe(t.Context(), "req-1", "")), ErrUnknownRequest, value)
	}
	i.ask(t, "req-1", places(1)) // is answered all the same
}

// TestWait: an answer that waits comes when everything is settled, or when its time is over, with the results
// so far.
func TestWait(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
			switch place.Name {
			case "Slow Kitchen":
				natstest.Pass(20 * time.Second)
			case "Nowhere":
				return nil, nil
			}
			natstest.Pass(time.Second)
			return venueOf(place)
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		began := time.Now()
		resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Slow Kitchen"), place("Nowhere")},
			func(r *contracts.EnrichRequest) { r.WaitMS = 5000 })
		wantTook(t, began, 5*time.Second, 5500*time.Millisecond)
		wantStatus(t, state(t, resp, 0), contracts.StatusFound)
		wantStatus(t, state(t, resp, 1), contracts.StatusPending)
		wantStatus(t, state(t, resp, 2), contracts.StatusNotFound)
		check.Equal(t, resp.Pending, 1, "pending")
		resp = i.ask(t, "req-2", []contracts.Restaurant{place("Slow Kitchen")}, func(r *contracts.EnrichRequest) { r.WaitMS = 60_000 })
		wantTook(t, began, 21*time.Second, 22*time.Second) // until the place is found
		wantStatus(t, state(t, resp, 0), contracts.StatusFound)
		began = time.Now()
		i.ask(t, "req-3", []contracts.Restaurant{place("Slow Kitchen")}, func(r *contracts.EnrichRequest) { r.WaitMS = 60_000 })
		wantTook(t, began, 0, time.Second) // a hit
	})
}

// TestWaitEndsWithItsCaller: a caller that has gone is not waited for.
func TestWaitEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	ctx, cancel := context.WithCancel(t.Context())
	i.ask(t, "req-1", places(1))
	time.AfterFunc(10*time.Millisecond, cancel)
	resp, err := i.Enrich(ctx, contracts.EnrichRequest{RequestID: "req-1", Results: places(1), WaitMS: 60_000})
	check.That(t, err == nil && resp.Pending == 1, "answer has %d pending, %v", resp.Pending, err)
}
