package plan_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// A planner that records that all notifications are stored may have read the event before another process recorded that it is
// planned, or cancelled. The record is made all the same, unless the event is cancelled.
func TestAnEventIsNotedToBeAsFarAsItHasCome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(context.Context, *plan.Reader) error // beside the planner's note
		want      plan.State
	}{
		"planned": {func(context.Context, *plan.Reader) error { return nil }, plan.StateExpanded},
		"cancelled": {func(ctx context.Context, r *plan.Reader) error {
			_, err := r.Cancel(ctx, "e")
			return err
		}, plan.StateCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Server(t)
			js, proxy := connect(t, srv), natstest.NewProxy(t, srv)
			begun, goOn, planned := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			p := newPlanner(t, js, recipient.Carried(list{users: customers(2, "u")}), func(cfg *plan.Config) {
				cfg.Passed = func(point string) {
					if point == plan.PointRecord {
						close(begun)
						<-goOn
					}
				}
			})
			go func() {
				_, err := p.Plan(t.Context(), happened("e"))
				planned <- errors.Join(err, test.meanwhile(t.Context(), reader(t, js)))
			}()
			<-begun
			expander := reader(t, connect(t, srv, proxy.Through()))
			var meanwhile sync.Once
			proxy.Filter(func(f natstest.Frame) natstest.Verdict {
				if f.FromClient && strings.HasPrefix(f.Subject, "$KV."+contracts.BucketDeliveries+".") {
					meanwhile.Do(func() {
						close(goOn)
						check.ErrorIs(t, <-planned, nil)
					})
				}
				return natstest.Relay
			})
			committed := check.Must(expander.Get(t.Context(), "e"))(t)
			check.OK(t, expander.Expanded(t.Context(), committed))
			if e, err := expander.Event(t.Context(), "e"); err != nil || e.State != test.want || e.Notifications != committed.Notifications || e.Recipients != 2 {
				t.Errorf("%+v: %v, want %s", e, err, test.want)
			}
		})
	}
}

// A refusal, and the note that a refused event is published again, change a record only as they have read it.
func TestARefusalTakesNothingBack(t *testing.T) {
	t.Parallel()
	js := server(t)
	p, r := newPlanner(t, js, recipient.Carried(list{users: customers(1, "u")})), reader(t, js)
	is := func(id string, want plan.State, reason string) {
		t.Helper()
		e, err := r.Event(t.Context(), id)
		check.That(t, err == nil && e.State == want && e.Reason == reason, "%+v: %v, want %s because of %.20q", e, err, want, reason)
	}
	do := func(errs ...error) {
		t.Helper()
		check.OK(t, errors.Join(errs...))
	}
	do(p.Refuse(t.Context(), happened("none"), "why"))
	check.ErrorIs(t, check.Err(r.Event(t.Context(), "none")), plan.ErrNotFound)
	seen, _, err := p.Accept(t.Context(), happened("e"))
	do(err, p.Refuse(t.Context(), happened("e"), strings.Repeat("ä", plan.MaxReason)))
	is("e", plan.StateRefused, strings.Repeat("ä", plan.MaxReason/2))
	do(p.Reopen(t.Context(), seen)) // it was read before
	is("e", plan.StateRefused, strings.Repeat("ä", plan.MaxReason/2))
	refused, news, err := p.Accept(t.Context(), happened("e"))
	do(err, p.Reopen(t.Context(), refused))
	check.That(t, !news, "it is news")
	is("e", plan.StateSeen, "")
	do(p.Refuse(t.Context(), happened("e"), "why"))
	check.Equal(t, check.Must(p.Plan(t.Context(), happened("e")))(t), plan.Planned, "outcome")
	is("e", plan.StatePlanned, "")
	do(p.Refuse(t.Context(), happened("e"), "why"))
	is("e", plan.StatePlanned, "")
	_, _, err = p.Accept(t.Context(), happened("c"))
	do(err, p.Refuse(t.Context(), happened("c"), "why"))
	_, err = r.Cancel(t.Context(), "c")
	do(err, p.Refuse(t.Context(), happened("c"), "why"))
	is("c", plan.StateCancelled, "")
}

// An event that is published again is the same one whenever it says that it occurred and however its JSON is written, and another one
// when any other field differs, also after its plan has gone.
func TestWhichFieldsMakeAnotherEvent(t *testing.T) {
	t.Parallel()
	js := server(t)
	p := newPlanner(t, js, recipient.Carried(list{users: customers(1, "u")}))
	at := func(e recipient.Event, hour int) recipient.Event {
		e.OccurredAt = time.Date(2026, 3, 4, hour, 0, 0, 0, time.UTC)
		return e
	}
	first := at(happened("e"), 1)
	accepted := func(e recipient.Event) {
		t.Helper()
		_, _, err := p.Accept(t.Context(), e)
		check.OK(t, err)
	}
	accepted(first)
	check.OK(t, check.Err(p.Plan(t.Context(), first)))
	check.OK(t, check.Must(js.Stream(t.Context(), contracts.StreamNotifications))(t).Purge(t.Context())) // as its age does
	other, rewritten, kind, place := first, first, first, first
	other.Payload, rewritten.Payload = []byte(`{"a":5}`), []byte(`{ "a": 1.0 }`)
	kind.RecipientType, place.RestaurantID = "BROADCAST", []byte(`"5"`)
	for name, test := range map[string]struct {
		event recipient.Event
		want  error
	}{
		"the same": {first, nil}, "stamped": {at(first, 2), nil}, "rewritten": {rewritten, nil}, "another": {other, plan.ErrMismatch},
		"another kind": {kind, plan.ErrMismatch}, "another restaurant": {place, plan.ErrMismatch},
	} {
		_, news, err := p.Accept(t.Context(), test.event)
		check.That(t, errors.Is(err, test.want) && !news, "%s: %v, %v", name, news, err)
	}
}
