package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

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

const pizzaKey = "wolt.id-Pizza-House"

// deadLetter returns the only dead letter.
func deadLetter(t *testing.T, i *instance) contracts.DeadLetter {
	t.Helper()
	stream := check.Must(i.js.Stream(t.Context(), contracts.StreamDead))(t)
	n := stream.CachedInfo().State.Msgs
	check.Require(t, n == 1, "%d dead letters, want one", n)
	msg := check.Must(stream.GetMsg(t.Context(), stream.CachedInfo().State.FirstSeq))(t)
	return check.Must(worker.ParseDeadLetter(msg.Data))(t)
}

func TestProviderFailsThenAnswers(t *testing.T) {
	for name, search := range map[string]func(context.Context, match.Place) ([]provider.Venue, error){
		"error": failTimes(2, errFar),
		"panic": func() func(context.Context, match.Place) ([]provider.Venue, error) {
			answer := failTimes(2, errFar)
			return func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
				venues, err := answer(ctx, place)
				if err != nil {
					panic(err)
				}
				return venues, nil
			}
		}(),
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &far{search: search}
			i := newInstance(t, srv, p)
			i.work(t)
			began := time.Now()
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
			// Two backoffs of 2 s and 4 s, ±20 %: a lease that is kept over a failure would take longer.
			took := time.Since(began)
			check.That(t, took >= 4*time.Second && took <= 8*time.Second, "took %s, want two backoffs", took)
			if p.total() != 3 || i.letters(t) != 0 {
				t.Errorf("asked %d times with %d dead letters, want 3 and none", p.total(), i.letters(t))
			}
			check.Same(t, "failures were logged", len(i.log.events("wolt_provider_fail")), 2)
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
		"error": {failTimes(3, errFar), 3, worker.ReasonCancelled, false},
		"panic": {func() func(context.Context, match.Place) ([]provider.Venue, error) {
			answer := failTimes(3, errFar)
			return func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
				venues, err := answer(ctx, place)
				if err != nil {
					panic(err)
				}
				return venues, nil
			}
		}(), 3, worker.ReasonCancelled, true},
		"permanent": {failTimes(1, &provider.Error{Kind: provider.KindUnsupported, Provider: "wolt"}), 1, worker.ReasonCancelled, false},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &far{search: c.search}
			i := newInstance(t, srv, p)
			i.work(t)
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			if got := i.outcomes(t, "req-1")["id-Pizza-House"]; got.Status != contracts.StatusPending || got.Reason != contracts.ReasonProviderError {
				t.Errorf("told %+v, want PENDING because of the provider", got)
			}
			check.Same(t, "asked, times", p.total(), c.calls)
			elapse(time.Second) // the dead letter comes after the result
			letter := deadLetter(t, i)
			check.That(t, letter.Reason == c.reason && letter.Attempts == c.calls && (letter.Stack != "") == c.stack,
				"dead letter is %s after %d attempts with a stack of %d bytes", letter.Reason, letter.Attempts, len(letter.Stack))
			elapse(50 * time.Second)
			resp := i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
			if got := state(t, resp, 0); got.Reason != contracts.ReasonProviderError || resp.Pending != 0 {
				t.Errorf("within the minute it is %+v with %d pending, want the reason and none", got, resp.Pending)
			}
			elapse(10 * time.Second)
			i.ask(t, "req-3", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, i.outcomes(t, "req-3")["id-Pizza-House"], contracts.StatusFound)
		})
	}
}

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{search: twoVenues})
	i.work(t)
	somewhere := place("Pizza House")
	somewhere.Address = ""
	i.ask(t, "req-1", []contracts.Restaurant{somewhere})
	if got := i.outcomes(t, "req-1")["id-Pizza-House"]; got.Status != contracts.StatusPending || got.Reason != contracts.ReasonAmbiguous {
		t.Errorf("told %+v, want PENDING because it is ambiguous", got)
	}
	check.Same(t, "dead letters: nobody failed", i.letters(t), 0)
}

// TestRateLimited: the provider is left alone for as long as it asks, and that uses no attempt.
func TestRateLimited(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		var asked []time.Time
		answer := failTimes(5, &provider.Error{Kind: provider.KindRateLimited, Provider: "wolt", RetryAfter: 17 * time.Second})
		p := &far{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			asked = append(asked, time.Now())
			return answer(ctx, place)
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		states := outcomes(t, i, "req-1", 5*time.Minute)
		wantStatus(t, states["id-Pizza-House"], contracts.StatusFound)
		check.Require(t, len(asked) == 6, "asked %d times, want 6", len(asked))
		for n := range asked[1:] {
			pause := asked[n+1].Sub(asked[n])
			check.That(t, pause >= 17*time.Second && pause <= 20*time.Second, "asked again after %s, want 17 s", pause)
		}
		i.wantJobs(t, 1)
	})
}

// TestRateLimitedForEver: the patience ends, and the subscriber receives that.
func TestRateLimitedForEver(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{search: failTimes(1000, &provider.Error{Kind: provider.KindRateLimited, Provider: "wolt", RetryAfter: 30 * time.Second})}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		got := outcomes(t, i, "req-1", time.Hour)["id-Pizza-House"]
		check.That(t, got.Reason == contracts.ReasonProviderError, "told %+v, want PENDING because of the provider", got)
		elapse(time.Second)
		deadLetter(t, i)
	})
}

// outcomes is that of the instance with another bound.
func outcomes(t *testing.T, i *instance, id string, bound time.Duration) map[string]contracts.ProviderState {
	t.Helper()
	for began := time.Now(); time.Since(began) < bound; {
		states, err := i.hear(t.Context(), id)
		if err == nil {
			return states
		}
		check.Require(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	}
	t.Fatalf("request %s is not told after %s", id, bound)
	return nil
}

// TestClaimLostInMidSearch: the claim is taken away while the provider is asked. Its answer is stored all the same,
// and it is not asked again.
func TestClaimLostInMidSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		p := &far{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
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
		elapse(8 * time.Second) // the renewal finds out
		i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
		close(held.open)
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		wantStatus(t, i.outcomes(t, "req-2")["id-Pizza-House"], contracts.StatusFound)
		elapse(time.Minute)
		check.Same(t, "asked, times", p.total(), 1)
	})
}

// TestStoreAwayAfterTheSearch: the server is away when the provider has answered, for longer than an operation may take.
// The result is stored when it is back, and the provider is not asked again.
func TestStoreAwayAfterTheSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		p := &far{search: held.search}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		<-held.begun
		// A bucket that is full does not answer, as far as anybody can tell.
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 })
		close(held.open)
		elapse(6 * time.Second)
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		elapse(time.Minute)
		check.Same(t, "asked, times", p.total(), 1)
	})
}

// TestRedelivery: the server gives the job of a live worker to another, because it missed the signs of life. The other
// one leaves the place alone.
func TestRedelivery(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		p := &far{search: held.search}
		first, second := newInstance(t, srv, p), newInstance(t, srv, p)
		first.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		stream := check.Must(first.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
		msg := check.Must(stream.GetLastMsgForSubject(t.Context(), "jobs.enrich."+pizzaKey))(t)
		var args contracts.EnrichJob
		check.OK(t, decodeJob(msg.Header, msg.Data, &args))
		job := &worker.Job[contracts.EnrichJob]{Args: args, Info: worker.Info{Attempt: 1, EnqueuedAt: time.Now()}}
		done := make(chan error, 1)
		go func() { done <- first.Work(t.Context(), job) }()
		<-held.begun
		for range 10 { // for longer than any lease
			elapse(3 * time.Second)
			var snooze *worker.SnoozeError
			again := &worker.Job[contracts.EnrichJob]{Args: args, Info: worker.Info{Attempt: 2, EnqueuedAt: time.Now()}}
			if err := second.Work(t.Context(), again); !errors.As(err, &snooze) || snooze.Delay < minHeldSnooze || snooze.Delay > maxHeldSnooze {
				t.Fatalf("the second delivery came to %v, want a snooze", err)
			}
		}
		close(held.open)
		check.Is(t, <-done, nil)
		check.Is(t, second.Work(t.Context(), job), nil)
		wantStatus(t, first.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		check.Same(t, "asked, times", p.total(), 1)
	})
}

// TestDeadWorker: a worker dies in mid-search without a word. Another one takes over when the lease has run out, and
// asks once more.
func TestDeadWorker(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		entry := check.Must(i.flight.Get(t.Context(), pizzaKey))(t)
		claims := i.log.events("wolt_lock_acquired")
		check.Require(t, len(claims) == 1 && claims[0]["claim"] == entry.Claim, "claims %v, entry %+v", claims, entry)
		stream := check.Must(i.js.Stream(t.Context(), contracts.StreamEnrichJobs))(t)
		msg := check.Must(stream.GetLastMsgForSubject(t.Context(), "jobs.enrich."+pizzaKey))(t)
		var args contracts.EnrichJob
		check.OK(t, json.Unmarshal(msg.Data, &args))
		check.OK(t, check.Err(i.flight.Resume(t.Context(), pizzaKey, args.Claim, flight.ResumeOptions{TTL: i.cfg.LeaseTTL})))
		began := time.Now()
		i.work(t)
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		took := time.Since(began)
		check.That(t, took >= 10*time.Second && took <= 11*time.Second, "taken over after %s, want right after the lease of 10 s", took)
	})
}

// TestShutdownInMidSearch: the job is handed back with its claim, uses no attempt, and another instance goes on at once.
func TestShutdownInMidSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		begun := make(chan struct{}, 1)
		slow := &far{search: func(ctx context.Context, _ match.Place) ([]provider.Venue, error) {
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
		check.That(t, err == nil && entry.State == flight.Pending && entry.Handoff,
			"after the stop the entry is %+v, %v, want one that waits to be resumed", entry, err)
		var attempt int
		second := newInstance(t, srv, &far{})
		began := time.Now()
		second.work(t, func(c *worker.Config) { c.Hooks.Started = func(i worker.Info) { attempt = i.Attempt } })
		wantStatus(t, second.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		took := time.Since(began)
		check.That(t, took <= time.Second, "the second instance took %s, want no wait", took)
		check.Same(t, "it was attempt", attempt, 1)
		check.Same(t, "failures were logged: the provider did nothing wrong", len(first.log.events("wolt_provider_fail")), 0)
	})
}
