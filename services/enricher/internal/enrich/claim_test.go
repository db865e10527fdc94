package enrich

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestSharedClaims: a request that wants a place which another one of this process claims just now waits for what that
// comes to, and claims nothing itself; if that takes too long it is answered.
func TestSharedClaims(t *testing.T) {
	link := linkOf("Pizza House")
	for name, c := range map[string]struct {
		come   func(call *claimCall) // nil: nothing comes in time
		reason string
		status contracts.ProviderStatus
	}{
		"queued":   {func(*claimCall) {}, "lock_held", contracts.StatusPending},
		"no queue": {func(call *claimCall) { call.reason = SkipQueueUnavailable }, "queue_unavailable", contracts.StatusPending},
		"found": {func(call *claimCall) {
			call.taken = &flight.Slot{Key: pizzaKey, State: flight.Done, Value: []byte(`{"status":"FOUND","url":"` + link + `"}`)}
		}, "already_cached", contracts.StatusFound},
		"late": {nil, "lock_held", contracts.StatusPending},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv, &far{})
			all, err := targets(contracts.EnrichRequest{CityText: "Haifa", Results: []contracts.Restaurant{place("Pizza House")}}, "r", i.names)
			check.OK(t, err)
			call, first := i.claims.join(all[0].claim())
			if !first {
				t.Fatal("somebody claims already")
			}
			began := time.Now()
			answer := make(chan contracts.EnrichResponse, 1)
			go func() {
				defer close(answer)
				answer <- i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			}()
			synctest.Wait()
			if len(answer) > 0 {
				t.Error("answered before the other request knew")
			}
			if c.come != nil {
				c.come(call)
				i.claims.end(all[0].claim(), call)
			}
			wantStatus(t, state(t, <-answer, 0), c.status)
			if took := time.Since(began); took > answerTime {
				t.Errorf("answered after %s", took)
			}
			if reasons := i.log.reasons(); len(reasons) != 1 || reasons[0] != c.reason {
				t.Errorf("skipped for %q, want %s", reasons, c.reason)
			}
			check.Same(t, "claims were taken", len(i.log.events("wolt_lock_acquired")), 0)
		})
	}
}
