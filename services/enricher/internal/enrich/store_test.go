package enrich

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	check.OK(t, json.Unmarshal([]byte(a), &x))
	check.OK(t, json.Unmarshal([]byte(b), &y))
	return reflect.DeepEqual(x, y)
}

// answerTime is the time within which a request has to be answered, whichever server is down.
const answerTime = 2 * time.Second

// TestStoreDown stops the server: everything is PENDING, in time.
func TestStoreDown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		i.ask(t, "req-0", places(1))
		srv.Stop()
		began := time.Now()
		resp := i.ask(t, "req-1", places(100))
		took := time.Since(began)
		check.That(t, took <= answerTime, "answered after %s, want at most %s", took, answerTime)
		check.Same(t, "skipped for : nobody can subscribe to the request, and the answer does", resp.Skipped, contracts.SkippedStoreDown)
		check.That(t, resp.Pending == 100 && i.Stats().Skipped[SkipStoreDown] == 100,
			"%d pending, %d skipped as store_down, want 100 each", resp.Pending, i.Stats().Skipped[SkipStoreDown])
		for n := range resp.Results {
			wantStatus(t, state(t, resp, n), contracts.StatusPending)
		}
		e := i.log.events("wolt_enqueue_skipped")[0]
		check.That(t, e["reason"] == "store_down" && e["placeId"] != "" && e["requestId"] == "req-1", "logged %v", e)
	})
}

// TestRequestThatIsNotRecorded: its places are claimed and queued, but nobody can subscribe to it. The answer says so, unless
// there is nothing to subscribe to.
func TestRequestThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	check.OK(t, i.js.DeleteKeyValue(t.Context(), contracts.BucketRequests))
	short := func(r *contracts.EnrichRequest) { r.WaitMS = 1 }
	if resp := i.ask(t, "req-1", places(2), short); resp.Skipped != contracts.SkippedStoreDown || resp.Pending != 2 {
		t.Errorf("skipped for %q with %d pending, want store_down with 2", resp.Skipped, resp.Pending)
	}
	i.work(t)
	long := func(r *contracts.EnrichRequest) { r.WaitMS = int(contracts.MaxWait.Milliseconds()) }
	if resp := i.ask(t, "req-2", places(2), long); resp.Skipped != "" || resp.Pending != 0 {
		t.Errorf("skipped for %q with %d pending, want nothing left to subscribe to", resp.Skipped, resp.Pending)
	}
}

// TestQueueUnavailable takes the queue away: the claim is given back, so that the next request queues the place.
func TestQueueUnavailable(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
		check.OK(t, i.js.DeleteStream(t.Context(), contracts.StreamEnrichJobs))
		began := time.Now()
		resp := i.ask(t, "req-1", places(claimsAtOnce))
		took := time.Since(began)
		check.That(t, took <= answerTime, "answered after %s, want at most %s", took, answerTime)
		if n := i.Stats().Skipped[SkipQueueUnavailable]; n != claimsAtOnce || resp.Pending != claimsAtOnce {
			t.Errorf("%d skipped as queue_unavailable and %d pending, want all", n, resp.Pending)
		}
		wantEvent(t, &instance{log: &journal{entries: i.log.events("wolt_enqueue_skipped")[:1]}}, "wolt_enqueue_skipped",
			map[string]string{"requestId": "req-1", "reason": "queue_unavailable"})
		check.OK(t, check.Err(i.js.CreateStream(t.Context(), stream.CachedInfo().Config)))
		i.background.Wait()
		i.ask(t, "req-2", places(claimsAtOnce))
		i.wantJobs(t, claimsAtOnce)
	})
}

// TestQueueFull: a stream that is full is not a place that is queued.
func TestQueueFull(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	updateStream(t, i, contracts.StreamEnrichJobs, func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 })
	i.ask(t, "req-1", places(1))
	i.ask(t, "req-2", places(2)[1:])
	n := i.Stats().Skipped[SkipQueueUnavailable]
	check.That(t, n == 1, "skipped %v, want one as queue_unavailable", i.Stats().Skipped)
	updateStream(t, i, contracts.StreamEnrichJobs, func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	i.background.Wait()
	i.ask(t, "req-3", places(2)[1:])
	i.wantJobs(t, 2)
}

// TestSubscribersQueueAgain: a subscription has the place queued soon after there is a queue again, however long there was
// none, without another request.
func TestSubscribersQueueAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		i := newInstance(t, srv, p)
		stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
		check.OK(t, i.js.DeleteStream(t.Context(), contracts.StreamEnrichJobs))
		i.ask(t, "req-1", places(10))
		outcome := make(chan map[string]contracts.ProviderState, 1)
		failed := make(chan error, 1)
		go func() {
			states, err := i.listen(t.Context(), "req-1")
			outcome <- states
			failed <- err
		}()
		elapse(10 * time.Minute)
		i.triesInVain()
		check.OK(t, check.Err(i.js.CreateStream(t.Context(), stream.CachedInfo().Config)))
		i.work(t)
		up := time.Now()
		states := <-outcome
		check.OK(t, <-failed)
		took := time.Since(up)
		check.That(t, took <= soon, "told after %s", took)
		for _, r := range places(10) {
			wantStatus(t, states[r.PlaceID], contracts.StatusFound)
		}
		check.Same(t, "the provider was asked, times", p.total(), 10)
	})
}

// triesInVain lets time pass until the instance has failed once more to claim or to queue a place.
func (i *instance) triesInVain() {
	for before := i.Stats().Skipped; maps.Equal(i.Stats().Skipped, before); {
		elapse(10 * time.Millisecond)
	}
	elapse(time.Second) // for all that it tries together
}

// TestSubscribersClaimAgain: the same with a bucket that takes no claims for a while.
func TestSubscribersClaimAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		i.work(t)
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 })
		i.ask(t, "req-1", places(3))
		n := i.Stats().Skipped[SkipLockError]
		check.That(t, n == 3, "skipped %v, want 3 for a lock error", i.Stats().Skipped)
		outcome := make(chan error, 1)
		go func() {
			_, err := i.listen(t.Context(), "req-1")
			outcome <- err
		}()
		elapse(10 * time.Minute)
		i.triesInVain()
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
		up := time.Now()
		check.Is(t, <-outcome, nil)
		took := time.Since(up)
		check.That(t, took <= soon, "told after %s", took)
	})
}

// TestSlowQueue: the queue acknowledges after the request had to be answered. The job is queued all the same, in the
// background, and the claim is its own.
func TestSlowQueue(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
		check.OK(t, i.js.DeleteStream(t.Context(), contracts.StreamEnrichJobs))
		deaf, err := i.js.Conn().SubscribeSync(contracts.EnrichJobsSubjects) // takes jobs, acknowledges nothing
		check.OK(t, err)
		began := time.Now()
		i.ask(t, "req-1", places(2))
		took := time.Since(began)
		check.That(t, took <= answerTime, "answered after %s, want at most %s", took, answerTime)
		elapse(500 * time.Millisecond)
		check.OK(t, deaf.Unsubscribe())
		check.OK(t, check.Err(i.js.CreateStream(t.Context(), stream.CachedInfo().Config)))
		i.background.Wait()
		i.wantJobs(t, 2)
		i.work(t)
		i.outcomes(t, "req-1")
		took = time.Since(began)
		check.That(t, took <= 10*time.Second, "told after %s: the claim had no job", took)
	})
}

// TestLostJob: a claim whose job never reached the queue, because its holder did not learn that it has it, blocks its
// place for seconds only while a subscription is open.
func TestLostJob(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		i.work(t)
		check.OK(t, check.Err(i.flight.Begin(t.Context(), "wolt.id-Pizza-House", flight.BeginOptions{Handoff: true})))
		began := time.Now()
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		i.drain(t, "req-1")
		took := time.Since(began)
		check.That(t, took >= requeueAge && took <= requeueTime, "told after %s, want when the claim has waited for long", took)
	})
}

// TestGoneCaller: the caller goes away while its places are claimed. Each claim still gets its job.
func TestGoneCaller(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.OK(t, check.Err(i.Enrich(ctx, contracts.EnrichRequest{RequestID: "req-1", Results: places(20)})))
	i.wantJobs(t, 20)
}

// TestCorruptEntry: a record that cannot be read, and a result in one that can, are looked up again.
func TestCorruptEntry(t *testing.T) {
	t.Parallel()
	for name, corrupt := range map[string]func(t *testing.T, i *instance){
		"record": func(t *testing.T, i *instance) {
			t.Helper()
			check.OK(t, check.Err(i.js.Publish(t.Context(), "$KV.enrich.wolt.id-Pizza-House", []byte("?"))))
		},
		"result":         func(t *testing.T, i *instance) { t.Helper(); put(t, i, `not JSON`) },
		"other result":   func(t *testing.T, i *instance) { t.Helper(); put(t, i, `{"status":"FOUND","url":null}`) },
		"unknown status": func(t *testing.T, i *instance) { t.Helper(); put(t, i, `{"status":"MAYBE","url":null}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstance(t, natstest.Server(t), &far{})
			corrupt(t, i)
			resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, state(t, resp, 0), contracts.StatusPending)
			i.wantJobs(t, 1)
			i.work(t)
			wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		})
	}
}

// put makes value the result of a place.
func put(t *testing.T, i *instance, value string) {
	t.Helper()
	claim, err := i.flight.Begin(t.Context(), "wolt.id-Pizza-House", flight.BeginOptions{})
	if err == nil {
		_, err = claim.Complete(t.Context(), []byte(value), time.Hour)
	}
	check.OK(t, err)
}

// TestCorruptEntryWhileListening: a subscription has it looked up again too.
func TestCorruptEntryWhileListening(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	claim := check.Must(i.flight.Begin(t.Context(), "wolt.id-Pizza-House", flight.BeginOptions{}))(t)
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	sub := check.Must(i.Subscribe(t.Context(), "req-1", ""))(t)
	defer sub.Close()
	check.OK(t, check.Err(claim.Complete(t.Context(), []byte("not JSON"), time.Hour)))
	i.work(t)
	for !sub.Over() {
		update := check.Must(sub.Next(t.Context()))(t)
		if patch, is := update.Body.(contracts.ResultPatch); is {
			wantStatus(t, patch.Patch.Providers["wolt"], contracts.StatusFound)
		}
	}
}
