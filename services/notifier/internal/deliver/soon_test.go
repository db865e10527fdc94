package deliver_test

import (
	"context"
	"errors"
	"log/slog"
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

// A row whose callers died, or were stopped, is put off by its channel's first failure as any other is: the waits of the schedule
// are for what the provider does.
func TestDeadCallersDoNotMakeARowWaitForLonger(t *testing.T) {
	inNest(t, func(n *nest) {
		now := time.Now().UTC()
		d := &deliveries.Delivery{State: deliveries.Sending, Until: now, Attempts: []deliveries.Attempt{
			{At: now, Worker: "dead", Outcome: deliveries.OutcomeUnknown},
			{At: now, Worker: "stopped", Outcome: string(channel.KindInterrupted), Detail: "bird: interrupted"},
			{At: now, Worker: "dead, too"},
		}}
		check.OK(t, n.book.Put(n.Context(), rowKey, d))
		s := n.sender("a", &bird{fly: fails(channel.KindUnknown)}, profile{})
		for i, most := range []time.Duration{6 * time.Second, 72 * time.Second} { // 5 s and 1 min, +20 %
			err := s.Work(n.Context(), n.job(2+i))
			if retry, ok := errors.AsType[*worker.RetryError](err); !ok || retry.After > most {
				t.Errorf("failure %d: %v, want a wait of at most %s", i+1, err, most)
			}
		}
	})
}

// A store that does not answer is not the row's fault: it uses no attempt, and the row comes back after a second.
func TestAnOutcomeThatCannotBeWrittenDownPutsARowOffForASecond(t *testing.T) {
	for name, kind := range map[string]channel.Kind{
		"sent": "", "temporary": channel.KindUnavailable, "for good": channel.KindRejected, "unknown": channel.KindUnknown,
	} {
		runInNest(t, name, func(n *nest) {
			proxy := natstest.NewProxy(n.T, n.srv)
			_, js := natstest.Connect(n.T, n.srv, proxy.Through())
			book := deliveries.New(recordtest.Client(n, js))
			b := &bird{}
			if kind != "" {
				b.fly = fails(kind)
			}
			s := n.sender("a", b, profile{}, func(c *deliver.Config) {
				c.Deliveries, c.Passed = book, func(point string) {
					if point == deliver.PointSent {
						proxy.Partition()
					}
				}
			})
			ctx, cancel := context.WithTimeout(n.Context(), s.Policy().Timeout)
			defer cancel()
			check.Same(t, "result", snoozed(s.Work(ctx, n.job(1))), time.Second)
		})
	}
}

// What the worker cannot tell from a failure of the row itself, it tries again within seconds, however often the row's workers died.
func TestNoBackoffIsLong(t *testing.T) {
	inNest(t, func(n *nest) {
		p := n.sender("a", &bird{}, profile{}).Policy()
		if p.Backoff == nil {
			t.Fatal("it is the worker's: up to 15 minutes")
		}
		for attempt := range p.MaxAttempts {
			if wait := p.Backoff(attempt + 1); wait > 15*time.Second {
				t.Errorf("after attempt %d it waits %s", attempt+1, wait)
			}
		}
	})
}

// overtaken is a directory, in the midst of whose first answer somebody else writes the row's record.
type overtaken struct {
	street

	write func()
}

func (o *overtaken) Get(ctx context.Context, kind contracts.RecipientType, user string) (contracts.Recipient, bool, error) {
	if o.write != nil {
		o.write()
		o.write = nil
	}
	return o.street.Get(ctx, kind, user)
}

// A row that may try whether an endpoint is back, and does not call it after all, holds up no other row.
func TestATryThatIsNotMadeHoldsUpNobody(t *testing.T) {
	inNest(t, func(n *nest) {
		known := n.healthBook()
		for range 3 {
			call := &health.Call{Address: "at u", Channel: "bird", Slots: 100, Timeout: time.Second}
			known.Gate(call)
			known.Called(n.Context(), call, channel.Message{}, &channel.Error{Kind: channel.KindTimeout})
		}
		elapse(10 * time.Second)
		b := &bird{}
		s := n.sender("a", b, profile{}, func(c *deliver.Config) {
			c.Health, c.Logger = known, slog.New(slog.DiscardHandler)
			c.Profiles = &overtaken{write: func() {
				check.Is(t, n.book.Put(n.Context(), rowKey, &deliveries.Delivery{State: deliveries.Pending}), nil)
			}}
		})
		check.Is(t, s.Work(n.Context(), n.job(1)), nil)
		n.want(deliveries.Sent, "", "sent")
	})
}
