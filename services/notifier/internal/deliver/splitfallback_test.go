package deliver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// The next channel gets one row when no address has reached the user, however its rows end: two at the same moment, one after the
// other, or with a crash at any point.
func TestFallbackOfASplitRow(t *testing.T) {
	none := fails(channel.KindRejected)
	for name, test := range map[string]struct {
		hears string // the address that does
		point string // where workers die, each once
		want  int
	}{
		"nobody": {want: 1}, "one": {hears: "nest a"}, "the other": {hears: "nest main"},
		"crash before":  {point: deliver.PointUnheard, want: 1},
		"crash between": {point: deliver.PointEnded, want: 1},
		"crash after":   {point: deliver.PointFollowed, want: 1},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			b.fly = func(ctx context.Context, call int) (channel.Receipt, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.sent[call-1].Address == test.hears {
					return channel.Receipt{}, nil
				}
				return none(ctx, call)
			}
			var mu sync.Mutex
			left := 2
			arrived := make(chan struct{})
			n.work(n.sender("a", b, profile{}, owns("main", "a").config, func(c *deliver.Config) {
				c.Passed = func(at string) {
					mu.Lock()
					dies := at == test.point && left > 0
					if at == deliver.PointUnheard && left > 0 || dies {
						left--
						if left == 0 {
							close(arrived)
						}
					}
					mu.Unlock()
					if dies {
						panic("the process died")
					}
					if at == deliver.PointUnheard && test.hears == "" && test.point == "" { // both have ended before either knows of the other
						<-arrived
					}
				}
			}))
			n.store(inOrder)
			elapse(time.Hour)
			rows := n.followers()
			if len(rows) != test.want || test.want == 1 && (rows[0].Address != "" || rows[0].FallbackOf != "bird" || n.record().FellBackTo != "fish") {
				n.Errorf("%+v, %+v", rows, n.record())
			}
			if test.want == 0 && n.record().FellBackTo != "" || n.ofNest("a").FellBackTo != "" {
				n.Errorf("%+v, %+v", n.record(), n.ofNest("a"))
			}
		})
	}
}

// An address that was reached by a replay keeps the next channel out, also when another one fails later.
func TestAReplayedAddressKeepsTheNextChannelOut(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		b.fly = func(ctx context.Context, call int) (channel.Receipt, error) {
			if b.sent[call-1].Address == "nest main" && call <= 2 {
				return fails(channel.KindUnavailable)(ctx, call)
			}
			return fails(channel.KindRejected)(ctx, call)
		}
		n.work(n.sender("a", b, profile{}, owns("main", "a").config))
		n.store(inOrder)
		elapse(time.Second)
		d := n.ofNest("a")
		check.Same(n, "state", d.State, deliveries.Failed)
		d.State = deliveries.Sent
		check.OK(n, n.book.Put(n.Context(), "e.bird./a.CUSTOMER.u", d))
		elapse(time.Minute)
		check.Same(n, "states", n.flights(&bird{}, "a", "main"), "a is sent rejected, main is failed rejected")
		check.Same(n, "rows of the next channel", len(n.followers()), 0)
	})
}

// The dead letter of an address's row is followed as its end is.
func TestADeadLetterOfAnAddressIsFollowed(t *testing.T) {
	inNest(t, func(n *nest) {
		o := owns("main", "a")
		n.store(inOrder)
		n.dead(&bird{}, deliver.PointSplit, o.config)
		check.OK(n, n.sender("spreads", &bird{}, profile{}, o.config).Work(n.Context(), n.job(2, inOrder)))
		n.work(n.sender("a", &bird{}, profile{}, func(c *deliver.Config) { c.Profiles, c.Retries = poison{}, []time.Duration{} }))
		elapse(30 * time.Minute)
		check.Same(n, "states", n.flights(&bird{}, "a", "main"), "a is failed exhausted, main is failed exhausted")
		check.Same(n, "rows of the next channel", len(n.followers()), 1)
	})
}
