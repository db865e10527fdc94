package deliver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	rows "github.com/expediter-io/expediter/services/notifier/internal/row"
)

// unstored is the row of an item that is not stored.
func (n *nest) unstored(mutate ...func(*contracts.Notification)) contracts.Notification {
	n.Helper()
	row := n.itemJob(1, mutate...).Args
	row.Category, row.Payload = "c", nil
	return row
}

// marked is the row of an item as it is delivered when its message may have come before it was stored.
func (n *nest) marked() *worker.Job[contracts.Notification] {
	n.Helper()
	job := n.itemJob(1, func(r *contracts.Notification) { r.Category = "c" })
	job.Header = rows.MarkAgain(nats.Header{})
	return job
}

// A row that nothing holds is delivered without being stored: its item has its attempt, and the payload of its event. Given again, it has
// come; stored all the same, it is done with.
func TestARowIsDeliveredUnstored(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		s := n.sender("a", &bird{}, profile{}, into)
		row := n.unstored()
		check.That(n, s.Immediate(&row), "it is not immediate")
		for _, again := range []bool{true, false, false, true} {
			before := n.writes(contracts.BucketInbox)
			done, err := s.Deliver(n.Context(), row, []byte(`{"of":"event"}`), again)
			check.That(n, err == nil && done == (before > 0 || !again), "%v (again: %v): %v", done, again, err)
		}
		item := check.Must(box.Get(n.Context(), "CUSTOMER", "u", "e"))(n)
		check.Same(n, "the payload", string(item.Payload), `{"of":"event"}`)
		check.OK(n, s.Work(n.Context(), n.marked()))
		n.wantItem(0, deliveries.Delivered, "", "sent")
		check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
		check.Same(n, "counted", s.Came()[deliver.Standing{State: deliveries.Delivered}], 2) // the inbox does not say which of two was faster
	})
}

// A row that may have to wait, or that another follows, is not immediate; nor is that of a channel that may take a message twice.
func TestRowsThatAreNotImmediate(t *testing.T) {
	inNest(t, func(n *nest) {
		_, into := n.box()
		s := n.sender("a", &bird{}, profile{}, into)
		for name, mutate := range map[string]func(*contracts.Notification){
			"address":     func(r *contracts.Notification) { r.Address = "b" },
			"channel":     func(r *contracts.Notification) { r.Channel = "email" },
			"collected":   func(r *contracts.Notification) { r.Collected = true },
			"digest's id": func(r *contracts.Notification) { r.EventID = contracts.DigestIDPrefix + "c:2026-01-01T00:00:00Z" },
			"digest":      func(r *contracts.Notification) { r.Digest = &contracts.Digest{} },
			"fallback":    func(r *contracts.Notification) { r.Fallback = []string{"email"} },
			"fallback of": func(r *contracts.Notification) { r.FallbackOf = "email" },
			"not before":  func(r *contracts.Notification) { r.NotBefore = time.Now() },
			"throttle":    func(r *contracts.Notification) { r.Throttle = &contracts.Throttle{} },
			"unread":      func(r *contracts.Notification) { r.Unread = true },
		} {
			row := n.unstored(mutate)
			check.That(n, !s.Immediate(&row), "%s: it is immediate", name)
		}
		row := n.unstored(func(r *contracts.Notification) { r.Channel = "bird" })
		check.That(n, !n.sender("a", &bird{}, profile{}).Immediate(&row), "the channel may take it twice")
	})
}

// A row that its user, a cancellation or an operator holds is not delivered: it is to be stored.
func TestARowThatIsHeldIsNotDeliveredUnstored(t *testing.T) {
	soon := time.Now().Add(100 * 365 * 24 * time.Hour)
	for name, held := range map[string]struct {
		of     profile
		loud   bool // the channel disturbs
		mutate func(n *nest, c *deliver.Config)
	}{
		"opt out": {of: profile{OptOut: map[string][]string{"c": {"inapp"}}}},
		"muted":   {of: profile{Mute: map[string]time.Time{"c": soon}}, loud: true},
		"digest":  {of: profile{Digest: map[string]string{"c": "1h"}}, loud: true},
		"quiet hours": {
			of: profile{QuietHours: &contracts.QuietHours{From: "22:00", To: "21:00"}, TimeZone: "UTC"}, loud: true,
		},
		"addresses": {of: profile{Endpoints: map[string]map[string]contracts.Endpoint{"inapp": {"b": {Address: "b"}}}}},
		"paused": {mutate: func(_ *nest, c *deliver.Config) {
			c.Paused = func(subject string) bool { return subject == "notify.send.inapp.CUSTOMER.u.e" }
		}},
		"cancelled": {mutate: func(_ *nest, c *deliver.Config) {
			var cancelled gone
			cancelled.are("e")
			c.Cancelled = &cancelled
		}},
		"withheld": {mutate: func(n *nest, c *deliver.Config) {
			row := n.unstored()
			check.OK(n, check.Err(c.Withhold(n.Context(), &row)))
		}},
	} {
		runInNest(t, name, func(n *nest) {
			_, into := n.box()
			s := n.sender("a", &bird{}, held.of, into, func(c *deliver.Config) {
				c.Silent = !held.loud
				if held.mutate != nil {
					held.mutate(n, c)
				}
			})
			written := n.writes(contracts.BucketInbox)
			done, err := s.Deliver(n.Context(), n.unstored(), nil, false)
			check.That(n, !done && err == nil, "%v, %v", done, err)
			check.Same(n, "items", n.writes(contracts.BucketInbox), written)
			check.Same(n, "counted", len(s.Came()), 0)
		})
	}
}

// An inbox that does not answer is an error, for the message may have come. An inbox that will never take the row is none.
func TestARowThatIsNotTakenUnstored(t *testing.T) {
	inNest(t, func(n *nest) {
		_, into := n.box()
		s := n.sender("a", &bird{}, profile{}, into)
		check.OK(n, n.js.DeleteStream(n.Context(), "KV_"+contracts.BucketInbox))
		done, err := s.Deliver(n.Context(), n.unstored(), nil, false)
		failure, ok := errors.AsType[*channel.Error](err)
		check.That(n, !done && ok && failure.Temporary(), "%v, %v", done, err)
	})
	inNest(t, func(n *nest) {
		_, into := n.box()
		s := n.sender("a", &bird{}, profile{}, into)
		done, err := s.Deliver(n.Context(), n.unstored(), make([]byte, 2<<20), false)
		check.That(n, !done && err == nil, "%v, %v", done, err)
	})
}

// The write of an item ends after the channel's time-out: the row may have been taken.
func TestAnInboxThatTakesForever(t *testing.T) {
	inNest(t, func(n *nest) {
		_, into := n.box()
		begun := time.Now()
		s := n.sender("a", &bird{}, profile{}, into, func(c *deliver.Config) {
			c.Timeout = time.Minute
			c.Claim = func(ctx context.Context, _ channel.Message, _ deliveries.Attempt) (channel.Receipt, bool, error) {
				by, ok := ctx.Deadline()
				check.That(n, ok && by.Equal(begun.Add(time.Minute)), "it ends at %s", by)
				return channel.Receipt{}, false, context.DeadlineExceeded
			}
		})
		done, err := s.Deliver(n.Context(), n.unstored(), nil, false)
		check.That(n, !done && err != nil, "%v, %v", done, err)
	})
}

// A row that was stored when its message may have come looks before it ends without one: the user's wishes have changed since.
func TestARowWhoseMessageMayHaveCome(t *testing.T) {
	inNest(t, func(n *nest) {
		_, into := n.box()
		check.OK(n, check.Err(n.sender("a", &bird{}, profile{}, into).Deliver(n.Context(), n.unstored(), nil, false)))
		s := n.sender("b", &bird{}, profile{OptOut: map[string][]string{"c": {"inapp"}}}, into)
		check.OK(n, s.Work(n.Context(), n.marked()))
		n.wantItem(0, deliveries.Delivered, "", "sent")
	})
	inNest(t, func(n *nest) { // it comes no more
		_, into := n.box()
		s := n.sender("b", &bird{}, profile{OptOut: map[string][]string{"c": {"inapp"}}}, into)
		check.OK(n, s.Work(n.Context(), n.marked()))
		done, err := n.sender("a", &bird{}, profile{}, into).Deliver(n.Context(), n.unstored(), nil, false)
		check.That(n, !done && err == nil, "%v, %v", done, err)
		n.wantItem(1, deliveries.Suppressed, deliveries.ReasonOptOut)
	})
}
