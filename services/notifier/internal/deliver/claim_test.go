package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

// box is an inbox, and into sends the row there.
func (n *nest) box() (box *inapp.Inbox, into func(*deliver.Config)) {
	n.Helper()
	box = check.Must(inapp.Open(n.Context(), n.js, recordtest.Client(n.T, n.js), inapp.Config{}))(n)
	return box, func(c *deliver.Config) { c.Channel, c.Withhold = box, box.Withhold }
}

// writes is how often something was written into a bucket.
func (n *nest) writes(bucket string) int {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), "KV_"+bucket))(n)
	info := stream.CachedInfo()
	return int(info.State.LastSeq + 1 - info.Config.FirstSeq)
}

// An item is its row's attempt: however many work the row, one after the other or all at once, there is one item, and one attempt that is
// written down once.
func TestAnItemIsTheAttempt(t *testing.T) {
	for name, at := range map[string]int{"one": 1, "all at once": 8} {
		runInNest(t, name, func(n *nest) {
			_, into := n.box()
			var all sync.WaitGroup
			for i := range at {
				s := n.sender(fmt.Sprint("worker-", i), &bird{}, profile{}, into)
				all.Go(func() { check.OK(n, s.Work(n.Context(), n.job(i+1))) })
			}
			all.Wait()
			n.want(deliveries.Delivered, "", "sent")
			check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
			check.Same(n, "records", n.writes(contracts.BucketDeliveries), 1)
		})
	}
}

// The item of a worker that died before it wrote that down is what was sent, whatever is wanted by then.
func TestAnItemOfADeadWorkerIsDelivered(t *testing.T) {
	var cancelled gone
	cancelled.are("e")
	for name, then := range map[string]struct {
		wants  profile
		mutate func(*deliver.Config)
	}{
		"nothing new": {profile{}, func(*deliver.Config) {}},
		"cancelled":   {profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }},
		"opted out":   {profile{OptOut: map[string][]string{contracts.Anything: {contracts.Anything}}}, func(*deliver.Config) {}},
	} {
		runInNest(t, name, func(n *nest) {
			_, into := n.box()
			n.dead(&bird{}, deliver.PointSent, into)
			check.Same(n, "records", n.writes(contracts.BucketDeliveries), 0)
			check.OK(n, n.sender("b", &bird{}, then.wants, into, then.mutate).Work(n.Context(), n.job(2)))
			n.want(deliveries.Delivered, "", "sent")
			check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
		})
	}
}

// A row that is cancelled has no item, neither of a worker that has not heard of that, nor of one that was stopped before it sent.
func TestAnItemThatIsWithheld(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		var cancelled gone
		cancelled.are("e")
		check.OK(n, n.sender("a", &bird{}, profile{}, into, func(c *deliver.Config) { c.Cancelled = &cancelled }).Work(n.Context(), n.job(2)))
		n.want(deliveries.Suppressed, deliveries.ReasonCancelled)
		_, err := box.Send(n.Context(), channel.Message{EventID: "e", RecipientType: "CUSTOMER", UserID: "u"})
		check.Same(n, "kind", channel.Of("", err).Kind, channel.KindCancelled)
	})
	inNest(t, func(n *nest) {
		box, into := n.box()
		row := n.job(1).Args
		if there, err := box.Withhold(n.Context(), &row); there || err != nil {
			t.Fatalf("%v, %v", there, err)
		}
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.job(1)))
		n.want(deliveries.Suppressed, deliveries.ReasonCancelled, "cancelled")
	})
}

// What others have made of a row while one of its workers was calling stays, unless the call has brought the item.
func TestALateCallOfAnItem(t *testing.T) {
	sent := []string{deliveries.OutcomeSent}
	for _, test := range []struct {
		name     string
		there    deliveries.Delivery
		fails    channel.Kind
		state    deliveries.State
		outcomes []string
	}{
		{"sent by another", deliveries.Delivery{State: deliveries.Delivered}, "", deliveries.Delivered, nil},
		{"fails, and was sent by another", deliveries.Delivery{State: deliveries.Delivered}, channel.KindUnavailable, deliveries.Delivered, nil},
		{"fails, and was suppressed", deliveries.Delivery{State: deliveries.Suppressed}, channel.KindUnavailable, deliveries.Suppressed, nil},
		{"given up by another", deliveries.Delivery{State: deliveries.Failed}, "", deliveries.Delivered, sent},
		{"put off by another", deliveries.Delivery{State: deliveries.Pending}, "", deliveries.Delivered, sent},
		{"fails, and is put off", deliveries.Delivery{State: deliveries.Pending}, channel.KindRejected, deliveries.Failed, []string{"rejected"}},
	} {
		runInNest(t, test.name, func(n *nest) {
			b := &bird{}
			b.fly = func(ctx context.Context, _ int) (channel.Receipt, error) {
				check.OK(n, n.book.Put(ctx, rowKey, &test.there))
				if test.fails != "" {
					return channel.Receipt{}, &channel.Error{Channel: "bird", Kind: test.fails}
				}
				return channel.Receipt{Delivered: true}, nil
			}
			_, into := n.box()
			s := n.sender("a", b, profile{}, into, func(c *deliver.Config) { c.Channel = b })
			_ = s.Work(n.Context(), n.job(1)) //nolint:errcheck // that of the channel, or none
			var outcomes []string
			d := n.record()
			for _, a := range d.Attempts {
				outcomes = append(outcomes, a.Outcome)
			}
			if d.State != test.state || !slices.Equal(outcomes, test.outcomes) {
				t.Errorf("%s after %q, want %s after %q", d.State, outcomes, test.state, test.outcomes)
			}
		})
	}
}
