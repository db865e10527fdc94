package deliver_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

// takes is a channel whose calls take a while, whatever their contexts say, and end by then.
func takes(d time.Duration, then func(context.Context, int) (channel.Receipt, error)) *bird {
	return &bird{fly: func(ctx context.Context, call int) (channel.Receipt, error) {
		elapse(d)
		return then(ctx, call)
	}}
}

func arrives(context.Context, int) (channel.Receipt, error) { return channel.Receipt{}, nil }

// begin has a sender of this name work the notification, which is delivered for the n-th time. done is closed after its error, if it
// lives.
func (n *nest) begin(name string, b *bird, delivered int, mutate ...func(*deliver.Config)) (done <-chan error) {
	n.Helper()
	s, ended := n.sender(name, b, profile{}, mutate...), make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- s.Work(n.Context(), n.job(delivered))
	}()
	return ended
}

// vanishes has the goroutine end that has called the channel.
func vanishes(c *deliver.Config) {
	c.Passed = func(point string) {
		if point == deliver.PointSent {
			runtime.Goexit()
		}
	}
}

// A caller that is taken for dead and is not: its outcome is recorded all the same.
func TestACallerThatIsLate(t *testing.T) {
	for name, once := range map[string]bool{"at most once": true, "at least once": false} {
		runInNest(t, name, func(n *nest) {
			b := takes(time.Minute, arrives)
			mode := func(c *deliver.Config) { c.AtMostOnce = once }
			late := n.begin("late", b, 1, mode)
			elapse(30 * time.Second)
			err := n.sender("other", b, profile{}, mode).Work(n.Context(), n.job(2))
			check.That(t, (err != nil) == once, "the other: %v", err)
			check.ErrorIs(t, <-late, nil)
			if once {
				n.want(deliveries.Sent, "", "sent")
			} else {
				n.want(deliveries.Sent, "", "sent", "sent")
			}
		})
	}
}

// A sender that was taken for dead and is alive records that the notification is sent, and that the call of its successor has no
// known outcome: a successor that died records nothing any more, and no worker works a notification that has ended.
func TestACallerThatIsLateSpeaksForOneThatDied(t *testing.T) {
	for name, then := range map[string]func(*deliver.Config){"dies": vanishes, "lives": func(*deliver.Config) {}} {
		runInNest(t, name, func(n *nest) {
			b := takes(40*time.Second, arrives)
			late := n.begin("late", b, 1)
			elapse(20 * time.Second)
			other := n.begin("other", b, 2, then)
			check.ErrorIs(t, <-late, nil)
			n.want(deliveries.Sent, "", "sent", "unknown")
			check.ErrorIs(t, <-other, nil)
			if name == "lives" {
				n.want(deliveries.Sent, "", "sent", "sent")
			}
		})
	}
}

// A sender that was taken for dead, is alive, and could not send the notification leaves it to its successor, which may die: the
// notification, and the one of the next channel, would be lost if the job ended.
func TestACallerThatIsLateAndFailsLeavesTheRow(t *testing.T) {
	for name, kind := range map[string]channel.Kind{"no address": channel.KindNoAddress, "refused": channel.KindRejected} {
		runInNest(t, name, func(n *nest) {
			b := takes(40*time.Second, fails(kind))
			late := n.begin("late", b, 1)
			elapse(30 * time.Second)
			dies := n.begin("dies", b, 2, vanishes)
			err := <-late
			check.That(t, snoozed(err) > 0, "the job ended: %v", err)
			n.want(deliveries.Sending, "", string(kind), "")
			check.ErrorIs(t, <-dies, nil)
		})
	}
}

// A caller that is late writes its outcome while another calls: the notification is as the other one leaves it.
func TestACallerThatIsLateKeepsNoOutcomeOut(t *testing.T) {
	for kind, want := range map[channel.Kind]deliveries.State{
		channel.KindUnavailable: deliveries.Pending, channel.KindBounced: deliveries.Bounced, channel.KindRejected: deliveries.Failed,
	} {
		runInNest(t, string(kind), func(n *nest) {
			late := n.begin("late", takes(40*time.Second, fails(channel.KindTimeout)), 1)
			elapse(30 * time.Second)
			other := n.begin("other", takes(40*time.Second, fails(kind)), 2)
			<-late
			n.want(deliveries.Sending, "", string(channel.KindTimeout), "")
			<-other
			n.want(want, string(kind), string(channel.KindTimeout), string(kind))
		})
	}
}

// A notification whose callers died, or were stopped, waits after its channel's first failure as any other does: the waits of the
// schedule count failures of the provider only.
func TestDeadCallersDoNotMakeARowWaitForLonger(t *testing.T) {
	inNest(t, func(n *nest) {
		now := time.Now().UTC()
		d := &deliveries.Delivery{State: deliveries.Sending, Until: now, Attempts: []deliveries.Attempt{
			{At: now, Worker: "dead", Outcome: deliveries.OutcomeUnknown},
			{At: now, Worker: "stopped", Outcome: string(channel.KindInterrupted), Detail: "bird: interrupted"},
			{At: now, Worker: "dead, too"},
		}}
		check.OK(t, n.deliveries.Put(n.Context(), rowKey, d))
		s := n.sender("a", &bird{fly: fails(channel.KindUnknown)}, profile{})
		for i, most := range []time.Duration{6 * time.Second, 72 * time.Second} { // 5 s and 1 min, +20 %
			err := s.Work(n.Context(), n.job(2+i))
			retry, ok := errors.AsType[*worker.RetryError](err)
			check.That(t, ok && retry.After <= most, "failure %d: %v, want a wait of at most %s", i+1, err, most)
		}
	})
}

// A store that does not answer is not the notification's fault: it uses no attempt, and the notification comes back after a second.
func TestAnOutcomeThatCannotBeWrittenDownPutsARowOffForASecond(t *testing.T) {
	for name, kind := range map[string]channel.Kind{
		"sent": "", "temporary": channel.KindUnavailable, "for good": channel.KindRejected, "unknown": channel.KindUnknown,
	} {
		runInNest(t, name, func(n *nest) {
			proxy := natstest.NewProxy(n.T, n.srv)
			_, js := natstest.Connect(n.T, n.srv, proxy.Through())
			store := deliveries.New(recordtest.Client(n, js))
			b := &bird{}
			if kind != "" {
				b.fly = fails(kind)
			}
			s := n.sender("a", b, profile{}, func(c *deliver.Config) {
				c.Deliveries, c.Passed = store, func(point string) {
					if point == deliver.PointSent {
						proxy.Partition()
					}
				}
			})
			ctx, cancel := context.WithTimeout(n.Context(), s.Policy().Timeout)
			defer cancel()
			check.Equal(t, snoozed(s.Work(ctx, n.job(1))), time.Second, "result")
		})
	}
}

// A notification whose failure may be its own or its worker's is tried again within seconds, however often its workers died.
func TestNoBackoffIsLong(t *testing.T) {
	inNest(t, func(n *nest) {
		p := n.sender("a", &bird{}, profile{}).Policy()
		check.Require(t, p.Backoff != nil, "it is the worker's: up to 15 minutes")
		for attempt := range p.MaxAttempts {
			wait := p.Backoff(attempt + 1)
			check.That(t, wait <= 15*time.Second, "after attempt %d it waits %s", attempt+1, wait)
		}
	})
}

// A notification that may try whether an endpoint is back, and does not call it after all, holds up no other notification.
func TestATryThatIsNotMadeHoldsUpNobody(t *testing.T) {
	inNest(t, func(n *nest) {
		known := n.healthStore()
		for range 3 {
			call := &health.Call{Address: "at u", Channel: "bird", Slots: 100, Timeout: time.Second}
			known.Admit(call)
			known.Called(n.Context(), call, channel.Message{}, &channel.Error{Kind: channel.KindTimeout})
		}
		elapse(10 * time.Second)
		b := &bird{}
		s := n.sender("a", b, profile{}, func(c *deliver.Config) {
			c.Health, c.Logger = known, slog.New(slog.DiscardHandler)
			overtakes := sync.OnceFunc(func() {
				check.ErrorIs(t, n.deliveries.Put(n.Context(), rowKey, &deliveries.Delivery{State: deliveries.Pending}), nil)
			})
			c.Profiles = finds(func(user string) (contracts.Recipient, error) {
				overtakes()
				return street(user)
			})
		})
		check.ErrorIs(t, s.Work(n.Context(), n.job(1)), nil)
		n.want(deliveries.Sent, "", "sent")
	})
}
