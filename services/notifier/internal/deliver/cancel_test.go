package deliver_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/ledger"
)

// A row that is cancelled is not sent, and one that is tried again or has waited asks whether it is: what this process has
// heard is not enough then.
func TestARowThatIsCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		fly    func(context.Context, int) (channel.Receipt, error)
		ahead  time.Duration
		state  ledger.State
		reason string
		calls  int
	}{
		"at once":  {nil, 0, ledger.Suppressed, "cancelled", 0},
		"deferred": {nil, time.Minute, ledger.Suppressed, "cancelled", 0},
		"retried":  {fails(channel.KindUnavailable), 0, ledger.Suppressed, "cancelled", 1},
	} {
		t.Run(name, func(t *testing.T) {
			inNest(t, func(n *nest) {
				b := &bird{fly: test.fly}
				cancelled := name == "at once"
				var late []bool
				n.work(n.sender("a", b, profile{}, func(c *deliver.Config) {
					c.Cancelled = func(_ context.Context, _ *contracts.Notification, sure bool) (bool, error) {
						late = append(late, sure)
						return cancelled, nil
					}
				}))
				n.store(func(row *contracts.Notification) { row.NotBefore = time.Now().Add(test.ahead) })
				elapse(time.Second)
				cancelled = true
				elapse(10 * time.Minute)
				if d := n.record(); d.State != test.state || d.Reason != test.reason || len(b.sent) != test.calls || n.letters() != 0 {
					t.Errorf("%+v after %d calls, %d dead letters", d, len(b.sent), n.letters())
				}
				if name == "at once" && (len(late) != 1 || late[0]) || name != "at once" && (len(late) != 2 || late[0] || !late[1]) {
					t.Errorf("asked with %v", late)
				}
			})
		})
	}
}

// An event that is cancelled after it went into a digest is not told by it.
func TestACancelledEventIsNotInADigest(t *testing.T) {
	for name, test := range map[string]struct {
		cancelled []string
		told      string
	}{
		"one of three": {[]string{"e2"}, "e1,e3"},
		"two of three": {[]string{"e1", "e3"}, "e2"},
		"all":          {[]string{"e1", "e2", "e3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inNest(t, func(n *nest) {
				b := &bird{}
				var gone []string
				n.work(n.sender("a", b, profile{}, func(c *deliver.Config) {
					c.Cancelled = func(_ context.Context, row *contracts.Notification, _ bool) (bool, error) {
						return slices.Contains(gone, row.EventID), nil
					}
				}))
				for _, event := range []string{"e1", "e2", "e3"} {
					n.told(event, hourly)
				}
				elapse(time.Minute)
				gone = test.cancelled
				elapse(time.Hour)
				var told []string
				for _, m := range b.sent {
					told = append(told, events(m)...)
				}
				if strings.Join(told, ",") != test.told || n.letters() != 0 {
					t.Errorf("told %v, want %s; %d dead letters", told, test.told, n.letters())
				}
			})
		})
	}
}
