package deliver_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// A caller that is taken for dead and is not: what it knows is written down all the same.
func TestACallerThatIsLate(t *testing.T) {
	for name, once := range map[string]bool{"at most once": true, "at least once": false} {
		runInNest(t, name, func(n *nest) {
			b := &bird{fly: func(_ context.Context, call int) (channel.Receipt, error) {
				if call == 1 {
					elapse(time.Minute) // whatever its context says
				}
				return channel.Receipt{ID: "late"}, nil
			}}
			mode := func(c *deliver.Config) { c.AtMostOnce = once }
			late := n.sender("late", b, profile{}, mode)
			done := make(chan error)
			go func() { done <- late.Work(n.Context(), n.job(1)) }()
			elapse(30 * time.Second)
			err := n.sender("other", b, profile{}, mode).Work(n.Context(), n.job(2))
			if (err != nil) != once {
				t.Errorf("the other: %v", err)
			}
			check.Is(t, <-done, nil)
			if once {
				n.want(deliveries.Sent, "", "sent")
			} else {
				n.want(deliveries.Sent, "", "sent", "sent")
			}
		})
	}
}

// A sender that was taken for dead and is alive records that the row is sent, and that the call of its successor has no
// known outcome: a successor that died records nothing any more, and no worker works a row that has ended.
func TestACallerThatIsLateSpeaksForOneThatDied(t *testing.T) {
	for name, dies := range map[string]bool{"dies": true, "lives": false} {
		runInNest(t, name, func(n *nest) {
			b := &bird{fly: func(context.Context, int) (channel.Receipt, error) {
				elapse(40 * time.Second) // whatever its context says
				return channel.Receipt{}, nil
			}}
			late := n.sender("late", b, profile{})
			done := make(chan error)
			go func() { done <- late.Work(n.Context(), n.job(1)) }()
			elapse(20 * time.Second)
			other := n.sender("other", b, profile{}, func(c *deliver.Config) {
				c.Passed = func(point string) {
					if dies && point == deliver.PointSent {
						runtime.Goexit()
					}
				}
			})
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				check.Is(t, other.Work(n.Context(), n.job(2)), nil)
			}()
			check.Is(t, <-done, nil)
			n.want(deliveries.Sent, "", "sent", "unknown")
			<-gone
			if !dies {
				n.want(deliveries.Sent, "", "sent", "sent")
			}
		})
	}
}

// A sender that was taken for dead, is alive, and could not send the row leaves it to its successor, which may die: the row, and the
// one of the next channel, would be lost if the job ended.
func TestACallerThatIsLateAndFailsLeavesTheRow(t *testing.T) {
	for name, kind := range map[string]channel.Kind{"no address": channel.KindNoAddress, "refused": channel.KindRejected} {
		runInNest(t, name, func(n *nest) {
			b := &bird{fly: func(ctx context.Context, call int) (channel.Receipt, error) {
				elapse(40 * time.Second) // whatever its context says
				return fails(kind)(ctx, call)
			}}
			done := make(chan error)
			go func() { done <- n.sender("late", b, profile{}).Work(n.Context(), n.job(1)) }()
			elapse(30 * time.Second)
			dies := n.sender("dies", b, profile{}, func(c *deliver.Config) {
				c.Passed = func(point string) {
					if point == deliver.PointSent {
						runtime.Goexit()
					}
				}
			})
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				check.Is(t, dies.Work(n.Context(), n.job(2)), nil)
			}()
			if err := <-done; snoozed(err) <= 0 {
				t.Errorf("the job ended: %v", err)
			}
			n.want(deliveries.Sending, "", string(kind), "")
			<-gone
		})
	}
}

// A caller that is late writes its outcome while another calls: the row is as the other one leaves it.
func TestACallerThatIsLateKeepsNoOutcomeOut(t *testing.T) {
	for kind, want := range map[channel.Kind]deliveries.State{
		channel.KindUnavailable: deliveries.Pending, channel.KindBounced: deliveries.Bounced, channel.KindRejected: deliveries.Failed,
	} {
		runInNest(t, string(kind), func(n *nest) {
			b := &bird{fly: func(ctx context.Context, call int) (channel.Receipt, error) {
				elapse(40 * time.Second) // whatever its context says
				if call == 1 {
					return fails(channel.KindTimeout)(ctx, call)
				}
				return fails(kind)(ctx, call)
			}}
			done := make(chan error)
			go func() { done <- n.sender("late", b, profile{}).Work(n.Context(), n.job(1)) }()
			elapse(30 * time.Second)
			go func() { done <- n.sender("other", b, profile{}).Work(n.Context(), n.job(2)) }()
			<-done
			n.want(deliveries.Sending, "", string(channel.KindTimeout), "")
			<-done
			n.want(want, string(kind), string(channel.KindTimeout), string(kind))
		})
	}
}
