package enrich

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// TestBacklogLongerThanTheClaim asks for a place again after its claim has expired, twice, while its job waits: nobody
// works. The place is queued once; the worker that comes at last adopts the latest claim, and asks the provider once.
func TestBacklogLongerThanTheClaim(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-0", []contracts.Restaurant{place("Pizza House")})
		began := time.Now()
		for n, at := range []time.Duration{61 * time.Second, 130 * time.Second} {
			elapse(at - time.Since(began))
			resp := i.ask(t, fmt.Sprintf("req-%d", n+1), []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, state(t, resp, 0), contracts.StatusPending)
			got := len(i.log.events("wolt_lock_acquired"))
			check.Require(t, got == n+2, "%d claims were taken after %s, want %d: the earlier one has expired", got, at, n+2)
			ever, now := i.jobs(t)
			check.Require(t, ever == 1 && now == 1, "after %s %d jobs were queued and %d are, want one and the same", at, ever, now)
		}
		reasons := i.log.reasons()
		check.That(t, len(reasons) == 1 && reasons[0] == "lock_held", "skipped for %q, want that the place is queued already", reasons)
		if slot, err := i.flight.Get(t.Context(), pizzaKey); err != nil || slot.State != flight.Pending || !slot.Handoff {
			t.Errorf("the latest claim is %+v, %v, want one that the job may adopt", slot, err)
		}
		i.work(t)
		for n := range 3 {
			wantStatus(t, i.told(t, fmt.Sprintf("req-%d", n))["id-Pizza-House"], contracts.StatusFound)
		}
		check.Same(t, "the provider was asked, times", p.total(), 1)
		elapse(time.Second) // the job is confirmed after the result
		ever, now := i.jobs(t)
		check.That(t, ever == 1 && now == 0, "%d jobs were queued and %d are, want one that is done", ever, now)
	})
}

// TestBacklogBehindABlockedProvider is the same with a worker whose only slot is taken: the provider holds another
// place until the attempt times out, again and again.
func TestBacklogBehindABlockedProvider(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			if place.Name != "Pizza House" {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return venueOf(place)
		}}
		i := newInstance(t, srv, p)
		i.work(t, func(c *worker.Config) { c.Concurrency = 1 })
		for n := range 5 { // 30 s of the only slot each
			i.ask(t, fmt.Sprintf("slow-%d", n), []contracts.Restaurant{place(fmt.Sprintf("Slow Kitchen %d", n))})
		}
		began := time.Now()
		for n, at := range []time.Duration{time.Second, 62 * time.Second, 130 * time.Second} {
			elapse(at - time.Since(began))
			i.ask(t, fmt.Sprintf("req-%d", n), []contracts.Restaurant{place("Pizza House")})
		}
		n := p.count("Pizza House")
		check.Require(t, n == 0, "the place was searched for after %s: there was no backlog", time.Since(began))
		ever, _ := i.jobs(t)
		check.That(t, ever == 6, "%d jobs were queued, want one for each of 6 places", ever)
		for n := range 3 {
			sub, err := i.Subscribe(t.Context(), fmt.Sprintf("req-%d", n), "")
			check.OK(t, err)
			for ok := true; ok; {
				var update Update
				update, ok, err = sub.Next(t.Context())
				check.OK(t, err)
				if patch, is := update.Body.(contracts.ResultPatch); is {
					wantStatus(t, patch.Patch.Providers["wolt"], contracts.StatusFound)
				}
			}
			sub.Close()
		}
		check.Same(t, "the place was searched for, times", p.count("Pizza House"), 1)
	})
}
