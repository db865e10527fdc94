package enrich

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const pizzaKey = "wolt.id-Pizza-House"

// deadLetter returns the only dead dead.
func deadLetter(t *testing.T, i *instance) contracts.DeadLetter {
	t.Helper()
	stream := check.Must(i.js.Stream(t.Context(), contracts.StreamDead))(t)
	n := stream.CachedInfo().State.Msgs
	check.Require(t, n == 1, "%d dead letters, want one", n)
	msg := check.Must(stream.GetMsg(t.Context(), stream.CachedInfo().State.FirstSeq))(t)
	return check.Must(worker.ParseDeadLetter(msg.Data))(t)
}

// panics is a search that panics where another fails.
func panics(search func(context.Context, match.Place) ([]provider.Venue, error)) func(context.Context, match.Place) ([]provider.Venue, error) {
	return func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
		venues, err := search(ctx, place)
		if err != nil {
			panic(err)
		}
		return venues, err
	}
}

// scriptOnce is a search whose first answer must not be stored: its URL is a script.
func scriptOnce() func(context.Context, match.Place) ([]provider.Venue, error) {
	first := failTimes(1, errBroken)
	return func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
		venues, err := first(ctx, place)
		if errors.Is(err, errBroken) {
			return []provider.Venue{{Place: place, ID: "v", URL: "javascript:alert(1)"}}, nil
		}
		return venues, err
	}
}

func TestProviderFailsThenAnswers(t *testing.T) {
	for name, search := range map[string]func(context.Context, match.Place) ([]provider.Venue, error){
		"error": failTimes(2, errBroken),
		"panic": panics(failTimes(2, errBroken)),
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &fakeProvider{search: search}
			i := newInstance(t, srv, p)
			i.work(t)
			began := time.Now()
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
			wantTook(t, began, 4*time.Second, 8*time.Second) // backoffs of 2 s and 4 s, ±20 %; a lease that is kept would take longer
			check.Equal(t, p.total(), 3, "asked, times")
			check.Equal(t, i.deadLetters(t), 0, "dead letters")
			check.Equal(t, len(i.log.events("wolt_provider_fail")), 2, "failures were logged")
		})
	}
}

// TestProviderFailsForGood: the place stays PENDING with a reason, the job is a dead letter, and the place is looked up
// again when it is asked for after a minute, and not before.
func TestProviderFailsForGood(t *testing.T) {
	for name, c := range map[string]struct {
		search func(context.Context, match.Place) ([]provider.Venue, error)
		calls  int
		reason worker.Reason
		stack  bool
	}{
		"error":     {failTimes(3, errBroken), 3, worker.ReasonDiscarded, false},
		"panic":     {panics(failTimes(3, errBroken)), 3, worker.ReasonDiscarded, true},
		"permanent": {failTimes(1, &provider.Error{Kind: provider.KindUnsupported, Provider: "wolt"}), 1, worker.ReasonDiscarded, false},
		"script":    {scriptOnce(), 1, worker.ReasonDiscarded, false},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &fakeProvider{search: c.search}
			i := newInstance(t, srv, p)
			i.work(t)
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			got := i.outcomes(t, "req-1")["id-Pizza-House"]
			check.That(t, got.Status == contracts.StatusPending && got.Reason == "provider_error", "got %+v, want PENDING for the provider", got)
			check.Equal(t, p.total(), c.calls, "asked, times")
			natstest.Pass(time.Second) // the dead letter comes after the result
			dead := deadLetter(t, i)
			check.That(t, dead.Reason == c.reason && dead.Attempts == c.calls && (dead.Stack != "") == c.stack,
				"dead letter is %s after %d attempts with a stack of %d bytes", dead.Reason, dead.Attempts, len(dead.Stack))
			natstest.Pass(50 * time.Second)
			resp := i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
			got = state(t, resp, 0)
			check.That(t, got.Reason == "provider_error" && resp.Pending == 0, "within the minute it is %+v with %d pending", got, resp.Pending)
			natstest.Pass(10 * time.Second)
			i.ask(t, "req-3", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, i.outcomes(t, "req-3")["id-Pizza-House"], contracts.StatusFound)
		})
	}
}

// TestRateLimited: the provider is left alone for as long as it asks, and that uses no attempt, and needs no second job, although the
// place waits for longer than the stream remembers message ids.
func TestRateLimited(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		var asked []time.Time
		answer := failTimes(5, &provider.Error{Kind: provider.KindRateLimited, Provider: "wolt", RetryAfter: 50 * time.Second})
		p := &fakeProvider{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			asked = append(asked, time.Now())
			return answer(ctx, place)
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		check.Require(t, len(asked) == 6, "asked %d times, want 6", len(asked))
		for n := range asked[1:] {
			pause := asked[n+1].Sub(asked[n])
			check.That(t, pause >= 50*time.Second && pause <= time.Minute, "asked again after %s, want 50 s", pause)
		}
		i.wantJobs(t, 1)
		check.Equal(t, i.Stats().Jobs, 1, "jobs were counted")
	})
}

// TestClaimLostInMidSearch: the claim is taken away while the provider is asked. Its answer is stored all the same,
// and it is not asked again.
func TestClaimLostInMidSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		p := &fakeProvider{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			venues, err := held.search(ctx, place)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return venues, err
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		<-held.begun
		check.OK(t, i.flight.Invalidate(t.Context(), pizzaKey))
		natstest.Pass(8 * time.Second) // the renewal finds out
		i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
		close(held.open)
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		wantStatus(t, i.outcomes(t, "req-2")["id-Pizza-House"], contracts.StatusFound)
		natstest.Pass(time.Minute)
		check.Equal(t, p.total(), 1, "asked, times")
	})
}

// TestStoreAwayAfterTheSearch: the server is away when the provider has answered, for longer than an operation may take.
// The result is stored when it is back, and the provider is not asked again.
func TestStoreAwayAfterTheSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		p := &fakeProvider{search: held.search}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		<-held.begun
		// A bucket that is full does not answer, as far as anybody can tell.
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 })
		close(held.open)
		natstest.Pass(6 * time.Second)
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		natstest.Pass(time.Minute)
		check.Equal(t, p.total(), 1, "asked, times")
	})
}

// TestRedelivery: the server gives the job of a live worker to another, because it missed the signs of life. The other
// one leaves the place alone.
func TestRedelivery(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		p := &fakeProvider{search: held.search}
		first, second := newInstance(t, srv, p), newInstance(t, srv, p)
		first.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		_, args := queuedJob(t, first)
		job := &worker.Job[contracts.EnrichJob]{Args: args, Info: worker.Info{Attempt: 1, EnqueuedAt: time.Now()}}
		done := make(chan error, 1)
		go func() { done <- first.Work(t.Context(), job) }()
		<-held.begun
		for range 10 { // for longer than any lease
			natstest.Pass(3 * time.Second)
			again := &worker.Job[contracts.EnrichJob]{Args: args, Info: worker.Info{Attempt: 2, EnqueuedAt: time.Now()}}
			err := second.Work(t.Context(), again)
			snooze, ok := errors.AsType[*worker.SnoozeError](err)
			check.Require(t, ok && snooze.Delay >= minHeldSnooze && snooze.Delay <= maxHeldSnooze, "the second delivery came to %v", err)
		}
		close(held.open)
		check.ErrorIs(t, <-done, nil)
		check.ErrorIs(t, second.Work(t.Context(), job), nil)
		wantStatus(t, first.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		check.Equal(t, p.total(), 1, "asked, times")
	})
}

// TestDeadWorker: a worker dies in mid-search without a word. Another one takes over when the lease has run out, and
// asks once more.
func TestDeadWorker(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		entry := check.Must(i.flight.Get(t.Context(), pizzaKey))(t)
		claims := i.log.events("wolt_lock_acquired")
		check.Require(t, len(claims) == 1 && claims[0]["claim"] == entry.Claim, "claims %v, entry %+v", claims, entry)
		_, args := queuedJob(t, i)
		check.OK(t, check.Err(i.flight.Resume(t.Context(), pizzaKey, args.Claim, flight.ResumeOptions{TTL: i.cfg.LeaseTTL})))
		began := time.Now()
		i.work(t)
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		wantTook(t, began, 10*time.Second, 11*time.Second) // right after the lease
	})
}

// TestShutdownInMidSearch: the job is handed back with its claim, uses no attempt, and another instance goes on at once.
func TestShutdownInMidSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		begun := make(chan struct{}, 1)
		slow := &fakeProvider{search: func(ctx context.Context, _ match.Place) ([]provider.Venue, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		first := newInstance(t, srv, slow)
		stop := first.work(t)
		first.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		<-begun
		stop()
		entry, err := first.flight.Get(t.Context(), pizzaKey)
		check.That(t, err == nil && entry.State == flight.Pending && entry.HandOff,
			"after the stop the entry is %+v, %v, want one that waits to be resumed", entry, err)
		var attempt int
		second := newInstance(t, srv, &fakeProvider{})
		began := time.Now()
		second.work(t, func(c *worker.Config) { c.Hooks.Started = func(i worker.Info) { attempt = i.Attempt } })
		wantStatus(t, second.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		wantTook(t, began, 0, time.Second)
		check.Equal(t, attempt, 1, "it was attempt")
		check.Equal(t, len(first.log.events("wolt_provider_fail")), 0, "failures were logged: the provider did nothing wrong")
	})
}

// requeueTime is the time within which a claim without a job has to get one.
const requeueTime = requeueAge + requeueSpread + time.Second

// dyingQueue is the queue of a process that dies when it is about to queue a job.
type dyingQueue struct{ jetstream.JetStream }

func (m dyingQueue) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	m.Conn().Close()
	return nil, nats.ErrConnectionClosed
}

// abandonClaim leaves a claim of the place behind whose holder has died before it queued the job.
func abandonClaim(t *testing.T, srv *natsrun.Server, p provider.Provider) {
	t.Helper()
	i := newInstance(t, srv, p)
	i.client = check.Must(worker.NewClient(dyingQueue{i.js}, worker.ClientConfig{
		RequestTimeout: publishTry, SettleTimeout: claimTimeout, Stream: contracts.StreamEnrichJobs,
	}))(t)
	i.ask(t, "req-0", []contracts.Restaurant{place("Pizza House")})
	check.Require(t, len(i.log.events("wolt_lock_acquired")) == 1 && len(i.log.events("wolt_job_enqueued")) == 0,
		"did not die between claim and job")
}

// TestDeathBetweenClaimAndJob: a process claims a place and dies before it queues the job. The next process that learns of
// the place, in any way, has it looked up within seconds, with the name and address of its own request.
func TestDeathBetweenClaimAndJob(t *testing.T) {
	asked := []contracts.Restaurant{place("Pizza House")} // another spelling of the same address, with more known of it
	asked[0].Address, asked[0].Phone = "7 Harbour Rd", "+972 4 123 4567"
	asked[0].Location = &contracts.Location{Lat: 32.8, Lng: 35}
	for name, outcome := range map[string]func(t *testing.T, i *instance, asked []contracts.Restaurant) contracts.ProviderState{
		"listener": func(t *testing.T, i *instance, asked []contracts.Restaurant) contracts.ProviderState {
			t.Helper()
			i.ask(t, "req-1", asked)
			return i.outcomes(t, "req-1")["id-Pizza-House"]
		},
		"later requests": func(t *testing.T, i *instance, asked []contracts.Restaurant) contracts.ProviderState {
			t.Helper()
			i.ask(t, "req-1", asked)
			entry := check.Must(i.flight.Get(t.Context(), pizzaKey))(t)
			natstest.Pass(requeueAge - entry.Age() - 10*time.Millisecond)
			i.ask(t, "req-2", asked)
			i.background.Wait()
			i.wantJobs(t, 0) // of a claim whose holder may still be at it
			natstest.Pass(20 * time.Millisecond)
			i.ask(t, "req-3", asked)
			natstest.Pass(100 * time.Millisecond)
			return state(t, i.ask(t, "req-4", asked), 0)
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			var searched match.Place
			p := &fakeProvider{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
				searched = place
				return venueOf(place)
			}}
			abandonClaim(t, srv, p)
			i := newInstance(t, srv, p)
			i.work(t)
			began := time.Now()
			wantStatus(t, outcome(t, i, asked), contracts.StatusFound)
			wantTook(t, began, 0, requeueTime)
			check.That(t, searched.Address == asked[0].Address && searched.Phone == asked[0].Phone && searched.Location != nil,
				"searched for %+v, want the place as this request describes it", searched)
			i.background.Wait() // the worker may be done before the acknowledgement of the queued job comes
			i.wantJobs(t, 1)
			check.That(t, i.Stats().Jobs == 1 && p.total() == 1, "%d jobs counted, the provider was asked %d times", i.Stats().Jobs, p.total())
			e := i.log.events("wolt_job_enqueued")
			check.That(t, len(e) == 1 && e[0]["reason"] == reasonRequeued, "logged %v", e)
		})
	}
}

// TestPlaceAtWorkIsNotQueuedAgain: a listener who saw the place wait sees that it is worked on, for long.
func TestPlaceAtWorkIsNotQueuedAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
			natstest.Pass(25 * time.Second)
			return venueOf(place)
		}}
		sent := countMessages(t, srv, contracts.EnrichJobsSubjects)
		i := newInstance(t, srv, p)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		outcome := make(chan error)
		go func() { outcome <- check.Err(i.follow(t.Context(), "req-1")) }()
		natstest.Pass(time.Second)
		i.work(t)
		check.ErrorIs(t, <-outcome, nil)
		check.Equal(t, sent(), 1, "messages were sent to the queue")
	})
}

// TestBacklogGetsNoSecondJob: a place waits in a backlog while many listen, at two processes, and ask again. Each process
// makes sure once that the place is queued; nothing is queued, counted or searched for twice.
func TestBacklogGetsNoSecondJob(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{}
		sent := countMessages(t, srv, contracts.EnrichJobsSubjects)
		instances := []*instance{newInstance(t, srv, p), newInstance(t, srv, p)}
		outcome := make(chan contracts.ProviderState)
		const listeners = 10
		for n := range listeners {
			i, id := instances[n%2], fmt.Sprintf("req-%d", n)
			i.ask(t, id, []contracts.Restaurant{place("Pizza House")})
			go func() {
				states, err := i.follow(t.Context(), id)
				check.ErrorIs(t, err, nil)
				outcome <- states["id-Pizza-House"]
			}()
		}
		for range 11 { // as long as the claim lives, almost
			natstest.Pass(5 * time.Second)
			for n, i := range instances {
				i.ask(t, fmt.Sprintf("again-%d", n), []contracts.Restaurant{place("Pizza House")})
			}
		}
		ever, now := instances[0].jobs(t)
		check.That(t, ever == 1 && now == 1, "%d jobs were queued and %d are, want one and the same", ever, now)
		check.Equal(t, sent(), 1+len(instances), "messages were sent to the queue")
		instances[0].work(t)
		for range listeners {
			wantStatus(t, <-outcome, contracts.StatusFound)
		}
		natstest.Pass(time.Second) // the job is confirmed after the result
		ever, now = instances[0].jobs(t)
		check.That(t, ever == 1 && now == 0, "%d jobs were queued and %d are, want one that is done", ever, now)
		check.Equal(t, instances[0].Stats().Jobs+instances[1].Stats().Jobs, 1, "jobs were counted")
		check.Equal(t, p.total(), 1, "the provider was asked, times")
	})
}

// TestRequeueWithoutAQueue: the queue is away when the job is missed. It is tried now and then, and gets the job when it is
// there again.
func TestRequeueWithoutAQueue(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{}
		abandonClaim(t, srv, p)
		sent := countMessages(t, srv, contracts.EnrichJobsSubjects)
		i := newInstance(t, srv, p)
		bringBack := takeQueueAway(t, i)
		const listeners, away = 20, 30 * time.Second
		done := make(chan error)
		for n := range listeners {
			id := fmt.Sprintf("req-%d", n)
			i.ask(t, id, []contracts.Restaurant{place("Pizza House")})
			go func() { done <- check.Err(i.follow(t.Context(), id)) }()
		}
		natstest.Pass(away)
		const perTry = 3 // nobody answers
		n := sent()
		check.That(t, n != 0 && n <= int(away/requeueAge)*perTry, "%d messages were sent within %s by %d listeners", n, away, listeners)
		bringBack()
		began := time.Now()
		i.work(t)
		for range listeners {
			check.ErrorIs(t, <-done, nil)
		}
		wantTook(t, began, 0, requeueTime)
		check.Equal(t, p.total(), 1, "the provider was asked, times")
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
		natstest.Pass(2 * time.Minute)
		again.Claim = "a"
		check.That(t, r.begin(again, time.Minute) && len(r.until) == 1, "%d claims are remembered", len(r.until))
	})
}

const conformJobs = 20

// TestWorkConforms runs the handler of look-ups in the conformance suite of the worker. The effect of a job is the
// result in its entry; the suite intercepts it in the provider.
func TestWorkConforms(t *testing.T) {
	workertest.Conform(t, workertest.Suite{
		Prepare: func(ctx context.Context, js jetstream.JetStream) error {
			return check.Err(provision.Apply(ctx, js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{}))
		},
		Effects: conformEffects, Job: conformJob, Jobs: conformJobs, Service: conformService,
		Stream: contracts.StreamEnrichJobs,
	})
}

func conformPlace(n int) string { return fmt.Sprintf("kitchen-%d", n) }

// conformJob is a job whose claim has expired, which the worker takes over.
func conformJob(n int) *nats.Msg {
	job := contracts.EnrichJob{
		Provider: contracts.ProviderWolt, PlaceID: conformPlace(n), RequestID: "r", Name: conformPlace(n), Address: fmt.Sprintf("Harbour Road %d", n+1),
		CityText: "Haifa", Claim: fmt.Sprintf("claim%017d.%d.1", n, n+1), RequestedAt: time.Now(),
	}
	subject, err := contracts.EnrichJobSubject(job.Provider, job.PlaceID)
	if err != nil {
		panic(err)
	}
	header, body, err := jobMessage(job, job.Claim)
	if err != nil {
		panic(err)
	}
	header.Set(nats.MsgIdHdr, conformPlace(n))
	return &nats.Msg{Subject: subject, Header: header, Data: body}
}

func conformService(ctx context.Context, env workertest.Env) error {
	recorded := &fakeProvider{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
		if err := env.Recorder.Reach(ctx, place.Name); err != nil {
			return nil, err
		}
		return venueOf(place)
	}}
	s, err := New(ctx, env.JS, Config{
		Enabled: true, LeaseTTL: 2 * time.Second, Logger: env.Logger, Providers: []provider.Provider{recorded}, // a lease is waited for
	})
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := worker.New(env.JS, worker.Config{
		AckWait: env.AckWait, AutoCreate: true, Bucket: contracts.BucketJobs, Consumer: "enricher", Hooks: worker.Hooks{Settled: s.Settled},
		Logger: env.Logger, Stream: contracts.StreamEnrichJobs,
	})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, contracts.EnrichJobsSubjects, s.Policy(), s.Work); err != nil {
		return err
	}
	return w.Run(ctx)
}

// conformEffects counts the places that have a link.
func conformEffects(ctx context.Context, js jetstream.JetStream) (map[string]int, error) {
	s, err := New(ctx, js, Config{Enabled: true, Providers: []provider.Provider{&fakeProvider{}}})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	req := contracts.EnrichRequest{CityText: "Haifa"}
	for n := range 2 * conformJobs {
		req.Results = append(req.Results, contracts.Restaurant{
			PlaceID: conformPlace(n), Name: conformPlace(n), Address: fmt.Sprintf("Harbour Road %d", n+1),
		})
	}
	results, err := s.Results(ctx, contracts.ProviderWolt, req)
	effects := map[string]int{}
	for id, r := range results {
		if r.Outcome == contracts.OutcomeFound && r.URL != nil && strings.HasSuffix(*r.URL, id) {
			effects[id] = 1
		}
	}
	return effects, err
}

// TestOneJobForAPlace: a new place is claimed and queued once, answered PENDING, looked up once, and told, however many ask for it at
// the same moment, and at however many instances.
func TestOneJobForAPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ requests, instances int }{
		"one request": {1, 1}, "concurrent requests": {3, 1}, "several instances": {3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, srv := &fakeProvider{}, natstest.Server(t)
			var instances []*instance
			for range c.instances {
				instances = append(instances, newInstance(t, srv, p))
			}
			var wg sync.WaitGroup
			for n := range c.requests {
				wg.Go(func() {
					resp := instances[n%c.instances].ask(t, fmt.Sprintf("req-%d", n), []contracts.Restaurant{place("Pizza House")})
					wantStatus(t, state(t, resp, 0), contracts.StatusPending)
					check.Equal(t, resp.Pending, 1, "pending")
				})
			}
			wg.Wait()
			instances[0].wantJobs(t, 1)
			var jobs, held int64
			for _, i := range instances {
				jobs, held = jobs+i.Stats().Jobs, held+i.Stats().Skipped[SkipLockHeld]
			}
			check.That(t, jobs == 1 && held == int64(c.requests-1), "%d jobs, and %d requests that found the lock held", jobs, held)
			instances[c.instances-1].work(t)
			want := map[string]contracts.ProviderState{"id-Pizza-House": {Status: contracts.StatusFound, URL: new(linkOf("Pizza House"))}}
			for n := range c.requests {
				other := instances[(n+1)%c.instances] // a client may ask one instance and listen to another
				check.Equal(t, other.outcomes(t, fmt.Sprintf("req-%d", n)), want)
			}
			check.Equal(t, p.total(), 1, "the provider was asked, times")
		})
	}
}
