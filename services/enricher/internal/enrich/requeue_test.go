package enrich

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// requeueTime is the time within which a claim without a job has to get one.
const requeueTime = requeueAge + requeueSpread + time.Second

// dyingQueue is the queue of a process that dies when it is about to queue a job.
type dyingQueue struct{ jetstream.JetStream }

func (m dyingQueue) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	m.Conn().Close()
	return nil, nats.ErrConnectionClosed
}

// queueThrough has the jobs of the instance inserted through js.
func (i *instance) queueThrough(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	var err error
	i.client, err = worker.NewClient(js, worker.ClientConfig{
		RequestTimeout: publishTry, SettleTimeout: claimTimeout, Stream: contracts.StreamEnrichJobs,
	})
	check.OK(t, err)
}

// abandonClaim leaves a claim of the place behind whose holder has died before it queued the job.
func abandonClaim(t *testing.T, srv *natsrun.Server, p provider.Provider) {
	t.Helper()
	i := newInstance(t, srv, p)
	i.queueThrough(t, dyingQueue{i.js})
	i.ask(t, "req-0", []contracts.Restaurant{place("Pizza House")})
	check.Require(t, len(i.log.events("wolt_lock_acquired")) == 1 && len(i.log.events("wolt_job_enqueued")) == 0,
		"did not die between claim and job")
}

// jobMessages counts the messages that are sent to the queue, whether it takes them or not.
func jobMessages(t *testing.T, srv *natsrun.Server) (count func() int) {
	t.Helper()
	nc, _ := natstest.Connect(t, srv)
	sub, err := nc.SubscribeSync(contracts.EnrichJobsSubjects)
	if err == nil {
		err = nc.Flush()
	}
	check.OK(t, err)
	return func() int {
		n, _, err := sub.Pending()
		check.Is(t, err, nil)
		return n
	}
}

// TestDeathBetweenClaimAndJob: a process claims a place and dies before it queues the job. The next process that learns of
// the place, in any way, has it looked up within seconds, with the name and address of its own request.
func TestDeathBetweenClaimAndJob(t *testing.T) {
	for name, outcome := range map[string]func(t *testing.T, i *instance) contracts.ProviderState{
		"listener": func(t *testing.T, i *instance) contracts.ProviderState {
			t.Helper()
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			return i.outcomes(t, "req-1")["id-Pizza-House"]
		},
		"waiting request": func(t *testing.T, i *instance) contracts.ProviderState {
			t.Helper()
			resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")}, func(r *contracts.EnrichRequest) { r.WaitMS = 20_000 })
			return state(t, resp, 0)
		},
		"later requests": func(t *testing.T, i *instance) contracts.ProviderState {
			t.Helper()
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			entry := check.Must(i.flight.Get(t.Context(), pizzaKey))(t)
			elapse(requeueAge - entry.Age() - 10*time.Millisecond)
			i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
			i.background.Wait()
			ever, _ := i.jobs(t)
			check.That(t, ever == 0, "a claim whose holder may still be at it was not left alone")
			elapse(20 * time.Millisecond)
			i.ask(t, "req-3", []contracts.Restaurant{place("Pizza House")})
			elapse(100 * time.Millisecond)
			return state(t, i.ask(t, "req-4", []contracts.Restaurant{place("Pizza House")}), 0)
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &far{}
			abandonClaim(t, srv, p)
			i := newInstance(t, srv, p)
			i.work(t)
			began := time.Now()
			wantStatus(t, outcome(t, i), contracts.StatusFound)
			took := time.Since(began)
			check.That(t, took <= requeueTime, "told after %s, want within seconds", took)
			i.background.Wait() // the worker may be done before the acknowledgement of the queued job comes
			if ever, _ := i.jobs(t); ever != 1 || i.Stats().Jobs != 1 || p.total() != 1 {
				t.Errorf("%d jobs were queued, %d counted, and the provider was asked %d times, want one each", ever, i.Stats().Jobs, p.total())
			}
			e := i.log.events("wolt_job_enqueued")
			check.That(t, len(e) == 1 && e[0]["reason"] == reasonRequeued, "logged %v", e)
		})
	}
}

// drowsy is the queue of a process that is stopped for a while when it is about to queue a job.
type drowsy struct {
	jetstream.JetStream

	d time.Duration
}

func (q drowsy) PublishMsg(_ context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	elapse(q.d)
	return q.JetStream.PublishMsg(context.Background(), msg, opts...) // the caller's is over
}

// TestLateJob: a process is stopped between claim and job, and goes on after somebody else has had the place looked up.
// Its job is known to the queue.
func TestLateJob(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		slow, i := newInstance(t, srv, p), newInstance(t, srv, p)
		slow.queueThrough(t, drowsy{slow.js, 30 * time.Second})
		slow.ask(t, "req-0", []contracts.Restaurant{place("Pizza House")})
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		slow.background.Wait()
		elapse(time.Second)
		if ever, _ := i.jobs(t); ever != 1 || p.total() != 1 {
			t.Errorf("%d jobs were queued, and the provider was asked %d times, want one each", ever, p.total())
		}
	})
}

// TestPlaceAtWorkIsNotQueuedAgain: a listener who saw the place wait sees that it is worked on, for long.
func TestPlaceAtWorkIsNotQueuedAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
			elapse(25 * time.Second)
			return venueOf(place)
		}}
		sent := jobMessages(t, srv)
		i := newInstance(t, srv, p)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		outcome := make(chan error)
		go func() {
			_, err := i.hear(t.Context(), "req-1")
			outcome <- err
		}()
		elapse(time.Second)
		i.work(t)
		check.Is(t, <-outcome, nil)
		check.Same(t, "messages were sent to the queue", sent(), 1)
	})
}

// TestBacklogGetsNoSecondJob: a place waits in a backlog while many listen, at two processes, and ask again. Each process
// makes sure once that the place is queued; nothing is queued, counted or searched for twice.
func TestBacklogGetsNoSecondJob(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		sent := jobMessages(t, srv)
		instances := []*instance{newInstance(t, srv, p), newInstance(t, srv, p)}
		outcome := make(chan contracts.ProviderState)
		const listeners = 10
		for n := range listeners {
			i, id := instances[n%2], fmt.Sprintf("req-%d", n)
			i.ask(t, id, []contracts.Restaurant{place("Pizza House")})
			go func() {
				states, err := i.hear(t.Context(), id)
				check.Is(t, err, nil)
				outcome <- states["id-Pizza-House"]
			}()
		}
		for range 11 { // as long as the claim lives, almost
			elapse(5 * time.Second)
			for n, i := range instances {
				i.ask(t, fmt.Sprintf("again-%d", n), []contracts.Restaurant{place("Pizza House")})
			}
		}
		ever, now := instances[0].jobs(t)
		check.That(t, ever == 1 && now == 1, "%d jobs were queued and %d are, want one and the same", ever, now)
		check.Same(t, "messages were sent to the queue", sent(), 1+len(instances))
		instances[0].work(t)
		for range listeners {
			wantStatus(t, <-outcome, contracts.StatusFound)
		}
		elapse(time.Second) // the job is confirmed after the result
		ever, now = instances[0].jobs(t)
		check.That(t, ever == 1 && now == 0, "%d jobs were queued and %d are, want one that is done", ever, now)
		if n := instances[0].Stats().Jobs + instances[1].Stats().Jobs; n != 1 || p.total() != 1 {
			t.Errorf("%d jobs were counted, and the provider was asked %d times, want one each", n, p.total())
		}
	})
}

// TestRetriesGetNoSecondJob: a place waits for its provider's limit longer than the stream remembers message ids.
func TestRetriesGetNoSecondJob(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const limited = 5
		limit := &provider.Error{Provider: "wolt", Kind: provider.KindRateLimited, Detail: "slowly", RetryAfter: 50 * time.Second}
		p := &far{search: failTimes(limited, limit)}
		i := newInstance(t, srv, p)
		i.work(t)
		began := time.Now()
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		i.drain(t, "req-1")
		took := time.Since(began)
		check.Require(t, took >= limited*limit.RetryAfter, "told after %s", took)
		if ever, _ := i.jobs(t); ever != 1 || i.Stats().Jobs != 1 || p.total() != limited+1 {
			t.Errorf("%d jobs were queued, %d counted, and the provider was asked %d times, want 1, 1, %d",
				ever, i.Stats().Jobs, p.total(), limited+1)
		}
	})
}

// TestRequeueWithoutAQueue: the queue is away when the job is missed. It is tried now and then, and gets the job when it is
// there again.
func TestRequeueWithoutAQueue(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		abandonClaim(t, srv, p)
		sent := jobMessages(t, srv)
		i := newInstance(t, srv, p)
		stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
		check.OK(t, i.js.DeleteStream(t.Context(), contracts.StreamEnrichJobs))
		const listeners, away = 20, 30 * time.Second
		done := make(chan error)
		for n := range listeners {
			id := fmt.Sprintf("req-%d", n)
			i.ask(t, id, []contracts.Restaurant{place("Pizza House")})
			go func() {
				_, err := i.hear(t.Context(), id)
				done <- err
			}()
		}
		elapse(away)
		const perTry = 3 // nobody answers
		n := sent()
		check.That(t, n != 0 && n <= int(away/requeueAge)*perTry, "%d messages were sent within %s by %d listeners", n, away, listeners)
		check.OK(t, check.Err(i.js.CreateStream(t.Context(), stream.CachedInfo().Config)))
		began := time.Now()
		i.work(t)
		for range listeners {
			check.Is(t, <-done, nil)
		}
		took := time.Since(began)
		check.That(t, took <= requeueTime, "told %s after the queue was back", took)
		check.Same(t, "the provider was asked, times", p.total(), 1)
	})
}

// TestPlaceOfARequeuedJob: the job that is queued for another process's claim has the description of the present request.
func TestPlaceOfARequeuedJob(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		var got match.Place
		p := &far{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
			got = place
			return venueOf(place)
		}}
		abandonClaim(t, srv, p)
		i := newInstance(t, srv, p)
		i.work(t)
		r := place("Pizza House")
		r.Address, r.Phone, r.Location = "Mountain Street 9", "+972 4 123 4567", &contracts.Location{Lat: 32.8, Lng: 35}
		i.ask(t, "req-1", []contracts.Restaurant{r})
		i.outcomes(t, "req-1")
		check.That(t, got.Address == r.Address && got.Phone == r.Phone && got.City == r.CityText && got.Location != nil && got.Location.Lat == 32.8,
			"searched for %+v, want the place as it was asked for", got)
	})
}

// TestRequeuesAreForgotten: the list of claims that were queued again does not grow for ever.
func TestRequeuesAreForgotten(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natsrun.Server) {
		var r requeues
		for n := range 100 {
			entry := flight.Entry{Key: fmt.Sprintf("wolt.%d", n), Claim: "a"}
			check.Require(t, r.begin(entry, time.Minute) && !r.begin(entry, time.Minute), "not once")
			r.done(entry, time.Minute)
		}
		again := flight.Entry{Key: "wolt.0", Claim: "b"}
		check.That(t, r.begin(again, time.Minute), "another claim of the place was taken for the same")
		elapse(2 * time.Minute)
		again.Claim = "a"
		check.That(t, r.begin(again, time.Minute) && len(r.until) == 1, "%d claims are remembered", len(r.until))
	})
}
