package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// gone are the events that are cancelled, and how it was asked for them.
type gone struct {
	mu     sync.Mutex
	events []string
	sure   []bool
}

func (g *gone) are(events ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = events
}

func (g *gone) Covers(_ context.Context, row *contracts.Notification, sure bool) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sure = append(g.sure, sure)
	return slices.Contains(g.events, row.EventID), nil
}

func (g *gone) For(context.Context, contracts.RecipientType, string) (func(hold.Mark) bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	marks := map[hold.Mark]bool{}
	for _, event := range g.events {
		marks[hold.MarkOf(event)] = true
	}
	return func(m hold.Mark) bool { return marks[m] }, nil
}

// A notification that is cancelled is not sent. A notification that is tried again or has waited is looked up at the server: the
// cancellations in memory are not enough then.
func TestARowThatIsCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		fly    func(context.Context, int) (channel.Receipt, error)
		ahead  time.Duration
		state  deliveries.State
		reason string
		calls  int
	}{
		"at once":  {nil, 0, deliveries.Suppressed, "cancelled", 0},
		"deferred": {nil, time.Minute, deliveries.Suppressed, "cancelled", 0},
		"retried":  {fails(channel.KindUnavailable), 0, deliveries.Suppressed, "cancelled", 1},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{fly: test.fly}
			var cancelled gone
			if name == "at once" {
				cancelled.are("e")
			}
			n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }))
			n.store(func(row *contracts.Notification) { row.NotBefore = time.Now().Add(test.ahead) })
			elapse(time.Second)
			cancelled.are("e")
			elapse(10 * time.Minute)
			late := cancelled.sure
			if d := n.record(); d.State != test.state || d.Reason != test.reason || len(b.sent) != test.calls || n.letters() != 0 {
				t.Errorf("%+v after %d calls, %d dead letters", d, len(b.sent), n.letters())
			}
			check.That(t, (name != "at once" || len(late) == 1 && !late[0]) && (name == "at once" || len(late) == 2 && !late[0] && late[1]),
				"asked with %v", late)
		})
	}
}

// An event that is cancelled after it went into a digest is not delivered by it.
func TestACancelledEventIsNotInADigest(t *testing.T) {
	for name, test := range map[string]struct {
		cancelled []string
		delivered string
	}{
		"one of three": {[]string{"e2"}, "e1,e3"},
		"two of three": {[]string{"e1", "e3"}, "e2"},
		"all":          {[]string{"e1", "e2", "e3"}, ""},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			var cancelled gone
			n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }))
			for _, event := range []string{"e1", "e2", "e3"} {
				n.storeEvent(event, hourly)
			}
			elapse(time.Minute)
			cancelled.are(test.cancelled...)
			elapse(time.Hour)
			var delivered []string
			for _, m := range b.sent {
				delivered = append(delivered, events(m)...)
			}
			check.That(t, strings.Join(delivered, ",") == test.delivered && n.letters() == 0,
				"delivered %v, want %s; %d dead letters", delivered, test.delivered, n.letters())
		})
	}
}

// Of the events in a large digest each can be cancelled, those that are only counted too: also when nothing is left that could be
// delivered by itself.
func TestACancelledEventIsNotCounted(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		var cancelled gone
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }))
		var all []string
		for i := range 103 {
			all = append(all, fmt.Sprint("e", i))
			n.storeEvent(all[i], hourly)
			elapse(time.Second)
		}
		cancelled.are(all[:102]...)
		elapse(time.Hour)
		if len(b.sent) != 1 || string(b.sent[0].Payload) != `{"count":1,"items":[],"more":1}` {
			t.Errorf("%d dead letters, delivered %+v", n.letters(), b.sent)
		}
	})
}

// replay has the notification sent again, as the API does.
func (n *nest) replay() {
	n.Helper()
	d := n.record()
	d.Replay()
	check.OK(n, n.deliveries.Put(n.Context(), rowKey, d))
	n.storeReplay(d.Replays)
}

// storeReplay stores the message that has the notification sent again.
func (n *nest) storeReplay(number int) {
	n.Helper()
	data := check.Must(contracts.Encode(n.job(1).Args))(n)
	subject, err := keys.Replay(&contracts.Notification{Channel: "bird", RecipientType: "CUSTOMER", UserID: "u", EventID: "e"}, number)
	check.OK(n, err)
	check.OK(n, check.Err(n.js.Publish(n.Context(), subject, data)))
}

// A notification that is sent again has all its tries, and keeps its id and the record of the tries before.
func TestAReplayHasAllTries(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: fails(channel.KindUnavailable)}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Second, time.Second} }))
		n.store()
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted", "unavailable", "unavailable", "unavailable")
		n.replay()
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted", "unavailable", "unavailable", "unavailable", "unavailable", "unavailable", "unavailable")
		b.fly = nil
		n.replay()
		elapse(time.Minute)
		d := n.record()
		check.That(t, d.State == deliveries.Sent && len(d.Attempts) == 7 && d.Replays == 2 && n.letters() == 2,
			"%+v, %d dead letters", d, n.letters())
		for i, m := range b.sent {
			check.That(t, m.ID == deliveries.MessageID(rowKey) && m.Attempt == i+1, "%+v", m)
		}
	})
}

// A replay whose notification does not say yet that it is sent again, because the server that answers has not heard of it, waits:
// taken for one that has ended, it would be lost.
func TestAReplayWaitsForItsRecord(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: fails(channel.KindRejected)}
		n.work(n.sender("a", b, profile{}))
		n.store()
		elapse(time.Minute)
		b.fly = nil
		n.storeReplay(1)
		elapse(time.Minute)
		n.want(deliveries.Failed, "rejected", "rejected")
		d := n.record()
		d.Replay()
		check.OK(t, n.deliveries.Put(n.Context(), rowKey, d))
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "rejected", "sent")
	})
}
