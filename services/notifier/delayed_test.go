package notifier

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// An event that is to be told in an hour is in nobody's inbox before, although it is critical.
func TestAnEventThatIsToBeToldLater(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		p.directory(users(contracts.RecipientRestaurantUser, 1)...)
		birds := &pigeon{}
		n := p.start(birds)
		p.publish(event("evt-001", "URGENT", func(e *contracts.Event) { e.NotBefore = time.Now().Add(time.Hour) }))
		states := func(want deliveries.State, reason string) {
			t.Helper()
			page, err := n.Notifications(t.Context(), Query{EventID: "evt-001"})
			if err != nil || len(page.Notifications) != 2 {
				t.Fatalf("%+v: %v", page, err)
			}
			for _, row := range page.Notifications {
				if row.State != want && (want != deliveries.Sent || row.State != deliveries.Delivered) || row.Reason != reason {
					t.Errorf("%s is %s (%s), want %s (%s)", row.Channel, row.State, row.Reason, want, reason)
				}
			}
		}
		elapse(59 * time.Minute)
		states(deliveries.Deferred, deliveries.ReasonNotBefore)
		if messages, _ := birds.counts(); messages != 0 {
			t.Errorf("%d messages", messages)
		}
		elapse(2 * time.Minute)
		states(deliveries.Sent, "")
		if messages, calls := birds.counts(); messages != 1 || calls != 1 {
			t.Errorf("%d messages in %d calls", messages, calls)
		}
		check.Is(t, n.Stop(), nil)
	})
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
