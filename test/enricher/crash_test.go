package enricher_test

import (
	"context"
	"errors"
	"fmt"
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
	far := newProviderServer(t, moved)
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
		check.ErrorIs(t, err, nil)
	}
	again := checkOnce(t, clients, lookUps{before: before, all: far.counts(), killed: q.Instance})
	check.That(t, slices.Contains(again, victim), "%s was looked up by %s alone, which was killed before it had an answer", victim, q.Instance)
	now := results(ctx, t, srv)
	for key, value := range stored { // if its write was not confirmed, the record may have been rewritten with a new TTL
		check.Equal(t, now[key], value, fmt.Sprintf("the result of %s was before the restart, and is after it", key))
	}
	resumes := 0
	for _, c := range clients {
		resumes += c.resumes
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
