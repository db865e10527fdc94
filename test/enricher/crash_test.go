package enricher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// nPlaces is how many places each client asks about.
const nPlaces = 50

func places(n int) []contracts.Restaurant {
	list := make([]contracts.Restaurant, n)
	for i := range list {
		list[i] = contracts.Restaurant{
			PlaceID: fmt.Sprintf("place-%02d", i), Name: fmt.Sprintf("Kitchen-%02d", i), Address: fmt.Sprintf("Harbour Road %d", i+1), CityText: "Haifa",
		}
	}
	return list
}

// stall is for how long nothing may happen before a test is given up. How long all of it takes is up to the machine.
const stall = 90 * time.Second

var errStalled = fmt.Errorf("nothing has happened for %s", stall)

// untilStalled returns a context that ends when moved has not been called for too long.
func untilStalled(t *testing.T) (ctx context.Context, moved func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	t.Cleanup(func() {
		timer.Stop()
		cancel(nil)
	})
	return ctx, func() { timer.Reset(stall) }
}

// TestCrash has three instances asked 200 times each, at the same moment, for the same 50 new places. One instance is
// killed in the middle of a look-up, and the server is restarted in the middle of everything. Each place is looked up
// once, but for those that the killed instance had begun; every client gets every answer, and none twice.
func TestCrash(t *testing.T) {
	t.Parallel()
	const requestsPerInstance, restartAfter, retriesAtOnce = 200, 20, 8
	ctx, moved := untilStalled(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	far := newFarSide(t, moved)
	var urls []string
	started := map[string]*crash.Process{}
	for _, name := range []string{"a", "b", "c"} {
		started[name] = instances.Start(t, instance{Name: name, NATS: srv.URL(), Provider: far.URL})
		urls = append(urls, started[name].Line())
	}
	victim := "Kitchen-25"
	release := far.holdFirst(victim)

	httpClient, retrying := newHTTP(t), make(chan struct{}, retriesAtOnce)
	clients := make([]*client, 3*requestsPerInstance)
	var wg sync.WaitGroup
	errs := make(chan error, len(clients))
	for i := range clients {
		clients[i] = &client{
			http: httpClient, instances: urls, retrying: retrying,
			req: contracts.EnrichRequest{RequestID: fmt.Sprintf("r%03d", i), Results: places(nPlaces)},
		}
		wg.Go(func() {
			errs <- clients[i].run(ctx)
			moved()
		})
	}

	// Wait until the victim's place is being looked up, and kill the instance that does it.
	var q question
	select {
	case q = <-far.held:
	case <-ctx.Done():
		t.Fatal("nobody looked up", victim)
	}
	before := far.counts()
	started[q.Instance].Kill()
	close(release)
	// Restart the server once some look-ups have come back.
	for n := 0; n < restartAfter; {
		select {
		case n = <-far.served:
		case <-ctx.Done():
			t.Fatal("too few look-ups came back")
		}
	}
	stored := results(ctx, t, srv)
	check.OK(t, srv.Restart(ctx))

	wg.Wait()
	close(errs)
	for err := range errs {
		check.Is(t, err, nil)
	}
	again := checkOnce(t, clients, lookUps{before: before, all: far.counts(), killed: q.Instance})
	check.That(t, slices.Contains(again, victim), "%s was looked up by %s alone, which was killed before it had an answer", victim, q.Instance)
	now := results(ctx, t, srv)
	for key, value := range stored { // its record may have been written once more, with a new TTL, if it was not confirmed
		check.Same(t, fmt.Sprintf("the result of %s was before the restart, and is after it", key), now[key], value)
	}
	resumes := 0
	for _, c := range clients {
		resumes += c.resumes
	}
	if t.Failed() {
		t.Log(describe(t, srv))
	}
	t.Logf("killed %s in the middle of %d look-ups; clients came back %d times", q.Instance, len(again), resumes)
}

// results returns the results that are stored, by key.
func results(ctx context.Context, t *testing.T, srv *natsrun.Server) map[string]string {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	kv := check.Must(js.KeyValue(ctx, contracts.BucketEnrich))(t)
	stored := map[string]string{}
	for _, p := range places(nPlaces) {
		key := check.Must(contracts.EnrichEntryKey("wolt", p.PlaceID))(t)
		entry, err := kv.Get(ctx, key)
		check.Require(t, err == nil || errors.Is(err, jetstream.ErrKeyNotFound), "%v", err)
		if err != nil {
			continue
		}
		if record, value, _ := strings.Cut(string(entry.Value()), "\n"); strings.Contains(record, `"state":"done"`) {
			stored[key] = value
		}
	}
	return stored
}

// describe returns the content of the server, for a failure.
func describe(t *testing.T, srv *natsrun.Server) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, js := natstest.Connect(t, srv)
	var b strings.Builder
	stream, err := js.Stream(ctx, contracts.StreamEnrichJobs)
	if err != nil {
		return err.Error()
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err.Error()
	}
	fmt.Fprintf(&b, "jobs: %+v\n", info.State)
	if consumer, err := stream.Consumer(ctx, "enricher"); err == nil {
		fmt.Fprintf(&b, "consumer: %+v\n", *consumer.CachedInfo())
	}
	kv, err := js.KeyValue(ctx, contracts.BucketEnrich)
	if err != nil {
		return err.Error()
	}
	keys, err := kv.Keys(ctx)
	if err != nil {
		return err.Error()
	}
	for _, key := range keys {
		entry, err := kv.Get(ctx, key)
		if err == nil && strings.Contains(string(entry.Value()), `"pending"`) {
			fmt.Fprintf(&b, "%s at %d (%s): %s\n", key, entry.Revision(), time.Since(entry.Created()), entry.Value())
		}
	}
	return b.String()
}

// slowProvider is a provider without a venue that counts: when each call came, and how many were under way.
type slowProvider struct {
	*httptest.Server

	mu    sync.Mutex
	came  []time.Time
	most  int
	under int
}

func newSlowProvider(t *testing.T, slow time.Duration, moved func()) *slowProvider {
	t.Helper()
	w := &slowProvider{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		defer w.enter()()
		moved()
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-timer.C:
			out.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(out, `{"venues":[]}`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *slowProvider) enter() (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came = append(w.came, time.Now())
	w.under++
	w.most = max(w.most, w.under)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.under--
	}
}

// await waits until there have been n calls.
func (w *slowProvider) await(t *testing.T, n int) {
	t.Helper()
	for ticker := time.NewTicker(10 * time.Millisecond); ; <-ticker.C {
		w.mu.Lock()
		got := len(w.came)
		w.mu.Unlock()
		if got >= n {
			ticker.Stop()
			return
		}
		check.Require(t, t.Context().Err() == nil, "%d calls, want %d", got, n)
	}
}

// TestKilledInstanceLeavesTheRateAsItIs has three instances look places up, one of which is killed in the middle. Over all of
// them the far side never gets more calls than its rate, nor more at once than searches that may be under way.
func TestKilledInstanceLeavesTheRateAsItIs(t *testing.T) {
	t.Parallel()
	const (
		rate, burst, searches = 4, 2, 32    // of the default Timeout
		late                  = time.Second // how late a busy machine may make a call after its turn
	)
	ctx, moved := untilStalled(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	far := newSlowProvider(t, 3*time.Second, moved)
	var started []*crash.Process
	var urls []string
	for _, name := range []string{"a", "b", "c"} {
		p := instances.Start(t, instance{Name: name, NATS: srv.URL(), Provider: far.URL, Rate: rate})
		started, urls = append(started, p), append(urls, p.Line())
	}
	req := contracts.EnrichRequest{RequestID: "r", Results: places(40), WaitMS: int(contracts.MaxWait / time.Millisecond)}
	body := check.Must(json.Marshal(req))(t)
	httpClient, killed := newHTTP(t), make(chan struct{})
	go func() {
		defer close(killed)
		far.await(t, 15)
		started[1].Kill()
	}()
	for pending := true; pending; {
		r := check.Must(http.NewRequestWithContext(ctx, http.MethodPost, urls[0]+"/v1/enrich", bytes.NewReader(body)))(t)
		answer, err := httpClient.Do(r)
		check.OK(t, err)
		var resp contracts.EnrichResponse
		err = json.NewDecoder(answer.Body).Decode(&resp)
		closeErr := answer.Body.Close()
		check.Require(t, err == nil && closeErr == nil, "%v %v", err, closeErr)
		pending = resp.Pending > 0
		for _, place := range resp.Results {
			state, _ := place.State(contracts.ProviderWolt)
			check.That(t, pending || state.Status == contracts.StatusNotFound, "%s is %+v, want NOT_FOUND", place.PlaceID, state)
		}
	}
	<-killed
	far.mu.Lock()
	defer far.mu.Unlock()
	check.That(t, far.most <= searches, "%d calls were under way, want at most %d", far.most, searches)
	slices.SortFunc(far.came, time.Time.Compare)
	for i, first := range far.came {
		for j, last := range far.came[i:] {
			allowed := burst + int((last.Sub(first)+late)*rate/time.Second) + 1
			check.Require(t, j < allowed, "%d calls in %s, want at most %d", j+1, last.Sub(first), allowed)
		}
	}
	t.Logf("%d calls in %s, %d at once", len(far.came), far.came[len(far.came)-1].Sub(far.came[0]), far.most)
}
