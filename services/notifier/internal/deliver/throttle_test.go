package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// few is a row of which a user gets three a minute.
func few(row *contracts.Notification) { row.Throttle = &contracts.Throttle{Limit: 3, Per: 60} }

// most is how many different messages were sent in the fullest stretch of time.
func (b *bird) most(per time.Duration) int {
	most := 0
	for _, begin := range b.at {
		in := map[string]bool{}
		for i, at := range b.at {
			if !at.Before(begin) && at.Before(begin.Add(per)) {
				in[b.sent[i].ID] = true
			}
		}
		most = max(most, len(in))
	}
	return most
}

func TestAThrottlePutsOff(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		n.work(n.sender("a", b, profile{}))
		for i := range 8 {
			n.storeEvent(fmt.Sprint("e", i), few)
			elapse(time.Second)
		}
		n.storeEvent("urgent", few, func(row *contracts.Notification) { row.Priority = contracts.UrgencyCritical })
		n.storeEvent("other", few, func(row *contracts.Notification) { row.Category = "d" })
		elapse(time.Second)
		d, err := n.book.Get(n.Context(), "e4.bird.CUSTOMER.u")
		if want := start.Add(time.Minute + time.Second); err != nil || d.State != deliveries.Deferred || d.Reason != "throttled" || !d.Until.Equal(want) {
			t.Errorf("%+v, want until %s: %v", d, want, err)
		}
		elapse(3 * time.Minute)
		var order []string
		for i, m := range b.sent {
			order = append(order, fmt.Sprintf("%s %s", m.EventID, b.at[i].Sub(start)))
		}
		want := []string{
			"e0 0s", "e1 1s", "e2 2s", "urgent 8s", "other 8s",
			"e3 1m0s", "e4 1m1s", "e5 1m2s", "e6 2m0s", "e7 2m1s",
		}
		slices.Sort(order[3:5])
		slices.Sort(want[3:5])
		if !slices.Equal(order, want) {
			t.Errorf("got  %q\nwant %q", order, want)
		}
	})
}

func TestAThrottleSuppresses(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		n.work(n.sender("a", b, profile{}))
		for i := range 5 {
			n.storeEvent(fmt.Sprint("e", i), func(row *contracts.Notification) {
				row.Throttle = &contracts.Throttle{Limit: 3, Per: 60, Suppress: true}
			})
			elapse(time.Second)
		}
		elapse(5 * time.Minute)
		d, err := n.book.Get(n.Context(), "e4.bird.CUSTOMER.u")
		if err != nil || d.State != deliveries.Suppressed || d.Reason != "throttled" || len(b.sent) != 3 {
			t.Errorf("%d messages, %+v: %v", len(b.sent), d, err)
		}
	})
}

// A row that is delivered again takes no second grant.
func TestARetryIsCountedOnce(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: func(_ context.Context, call int) (channel.Receipt, error) {
			if call <= 5 {
				return channel.Receipt{}, &channel.Error{Kind: channel.KindUnavailable}
			}
			return channel.Receipt{}, nil
		}}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = slices.Repeat([]time.Duration{time.Second}, 9) }))
		n.storeEvent("e0", few)
		elapse(20 * time.Second)
		n.storeEvent("e1", few)
		n.storeEvent("e2", few)
		elapse(20 * time.Second)
		check.Same(t, "calls in less than a minute", len(b.sent), 8)
	})
}

// Many rows at once and later, two processes that die at any point: none is lost, and no stretch of time has more than the
// limit.
func TestAThrottleHoldsUnderChaos(t *testing.T) {
	underChaos(t, time.Second, 10, func(n *nest, b *bird, chance func(int) int, calm func()) {
		for i := range 40 {
			n.storeEvent(fmt.Sprint("e", i), few)
			if i >= 20 {
				elapse(time.Duration(chance(30_000)) * time.Millisecond)
			}
		}
		calm()
		elapse(20 * time.Minute)
		delivered := map[string]bool{}
		for _, m := range b.sent {
			delivered[m.EventID] = true
		}
		if most := b.most(time.Minute); len(delivered) != 40 || most > 3 {
			t.Errorf("%d of 40 are delivered, up to %d a minute", len(delivered), most)
		}
	})
}
