package notifier

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// A digest that is cancelled by its own id takes its events with it. Later events go into the next digest, and another
// user's digest under the same id is not touched.
func TestADigestIsCancelled(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		birds := &pigeon{}
		n := p.start(birds, func(c *Config) {
			c.Rules = writeRules(t, "version: 1\nevents:\n"+
				"  X: {CUSTOMER: {scope: user, channels: [pigeon], category: c, digest: {every: 5m}}}\n"+
				"  Y: {CUSTOMER: {scope: user, channels: [pigeon]}}")
		})
		told := func(id, user string) {
			t.Helper()
			p.publish(event(id, "X", func(e *contracts.Event) { e.UserID = user }))
		}
		cancel := func(c Cancellation, want Cancelled) {
			t.Helper()
			want.EventID, want.State = c.EventID, plan.StateCancelled
			got, err := n.Cancel(t.Context(), c)
			check.That(t, err == nil && cmp.Equal(got, want), "%+v: %s (%v)", c, cmp.Diff(want, got), err)
		}
		const one, two = "digest:c:2000-01-01T00:05:00Z", "digest:c:2000-01-01T00:10:00Z"
		told("ada-1", "ada")
		told("ada-2", "ada")
		told("bob-1", "bob")
		elapse(time.Minute)
		cancel(Cancellation{EventID: one, RecipientType: contracts.RecipientCustomer, UserID: "ada"}, Cancelled{Suppressed: 1})
		told("ada-3", "ada")
		told("bob-2", "bob")
		elapse(time.Minute)
		cancel(Cancellation{EventID: one}, Cancelled{Suppressed: 2})
		told("bob-3", "bob")
		told("eve-1", "eve")
		elapse(time.Minute)
		check.Is(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: "digest:c:2000-01-01T00:15:00Z"})), api.ErrUnknownEvent)

		// An event that is called like a digest, and cancelled, takes nobody else's with it.
		p.publish(event(two, "Y", func(e *contracts.Event) { e.UserID, e.NotBefore = "fay", time.Now().Add(10*time.Minute) }))
		elapse(time.Minute)
		cancel(Cancellation{EventID: two}, Cancelled{Suppressed: 3}) // fay's event, and the digests of ada and bob
		told("fay-1", "fay")
		elapse(90 * time.Second) // the next window
		told("fay-2", "fay")
		told("gus-1", "gus")
		told("ada-4", "ada")
		elapse(15 * time.Minute)

		var got []string
		for _, all := range birds.sent {
			for _, m := range all {
				got = append(got, m.EventID+" to "+m.UserID)
			}
		}
		slices.Sort(got)
		want := []string{"ada-4 to ada", "eve-1 to eve", "fay-1 to fay", "fay-2 to fay", "gus-1 to gus"}
		check.Equal(t, want, got)
		cancel(Cancellation{EventID: one}, Cancelled{Sent: 2, Suppressed: 2})
		for id, in := range map[string]string{"ada-1": one, "ada-2": one, "ada-3": two, "bob-3": two, "ada-4": "digest:c:2000-01-01T00:15:00Z"} {
			page, err := n.Notifications(t.Context(), Query{EventID: id})
			check.That(t, err == nil && len(page.Notifications) == 1 && page.Notifications[0].Digest == in,
				"%s: %+v, want it in %s: %v", id, page, in, err)
		}
		check.Is(t, n.Stop(), nil)
	})
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
