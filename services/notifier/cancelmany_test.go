package notifier

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// cancellations are how many are kept.
func (p *place) cancellations() int {
	p.Helper()
	stream, err := p.js.Stream(p.Context(), "KV_"+contracts.BucketDeliveries)
	check.OK(p, err)
	info, err := stream.Info(p.Context(), jetstream.WithSubjectFilter("$KV."+contracts.BucketDeliveries+"."+contracts.CancelledKeys))
	check.OK(p, err)
	return len(info.State.Subjects)
}

// flood has a caller cancel n things that it makes up, some at a time, and returns how many were refused as want says.
func flood(t *testing.T, n int, made func(i int) error, want error) (refused int64) {
	t.Helper()
	var calling sync.WaitGroup
	var count atomic.Int64
	for first := range 8 {
		calling.Go(func() {
			for i := first; i < n; i += 8 {
				if err := made(i); want != nil && errors.Is(err, want) {
					count.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	calling.Wait()
	return count.Load()
}

// A caller that cancels events that it makes up comes no further than 1,000, and users that it makes up leave nothing behind,
// however many. A user whom the event concerns is cancelled as before.
func TestCancellationsOfWhatIsNotThereAreNotKept(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		p.directory(users(contracts.RecipientRestaurantUser, 2)...)
		n := p.start(&pigeon{})
		p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
		p.expanded(n, "evt-001")
		p.settled(4)
		elapse(2 * time.Minute)
		one := func(user string) (Cancelled, error) {
			return n.Cancel(t.Context(), Cancellation{EventID: "evt-001", RecipientType: contracts.RecipientRestaurantUser, UserID: user})
		}
		const many = 4000
		refused := flood(t, many, func(i int) error {
			_, err := n.Cancel(t.Context(), Cancellation{EventID: fmt.Sprint("made-up-", i)})
			return err
		}, plan.ErrUnpublished)
		flood(t, many, func(i int) error {
			done, err := one(fmt.Sprint("made-up-", i))
			check.Same(t, "done", done, Cancelled{EventID: "evt-001", State: plan.StateExpanded})
			return err
		}, nil)
		if kept := p.cancellations(); refused > many-plan.MaxUnpublished || refused < many-plan.MaxUnpublished-8 || kept != 0 {
			t.Errorf("%d of %d are refused, %d are kept", refused, many, kept)
		}
		for _, again := range []bool{false, true} {
			if done, err := one("u1"); err != nil || done.Again != again || done.Sent != 2 || p.cancellations() != 1 {
				t.Errorf("%+v, %d are kept: %v", done, p.cancellations(), err)
			}
		}
	})
}

// Before an event is expanded nobody knows whom it concerns. A user who is cancelled then is not told, and a caller that makes up users
// comes no further than 1,000, without harm to those before and to other events.
func TestAUserIsCancelledBeforeTheEventIsExpanded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	directory := p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	planner, stopped := p.unworked(directory)
	staff := func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }
	const kind = "RESERVATION_REQUESTED"
	seen, planned, other := event("seen", kind, staff), event("planned", kind, staff), event("other", kind, staff)
	for _, e := range []contracts.Event{seen, other} {
		_, _, err := planner.Accept(t.Context(), e)
		check.OK(t, err)
	}
	check.OK(t, check.Err(planner.Plan(t.Context(), planned)))
	one := func(id, user string) error {
		_, err := stopped.Cancel(t.Context(), Cancellation{EventID: id, RecipientType: contracts.RecipientRestaurantUser, UserID: user})
		return err
	}
	for _, id := range []string{"seen", "planned"} {
		check.OK(t, one(id, "u1"))
		const many, bound, atOnce = 1050, 1000, 8
		refused := flood(t, many, func(i int) error { return one(id, fmt.Sprint("made-up-", i)) }, api.ErrNotExpanded)
		check.That(t, refused >= many-bound-atOnce && refused <= many-bound+1, "%d of %d are refused", refused, many)
	}
	check.Is(t, one("other", "u0"), nil)
	problem := api.Problem(one("seen", "one-more"))
	check.That(t, problem.Status == http.StatusConflict && problem.Code == "EVENT_NOT_EXPANDED", "%+v", problem)
	p.start(&pigeon{})
	for _, e := range []contracts.Event{seen, planned, other} {
		p.publish(e)
	}
	for key, d := range p.settled(12) {
		mine := strings.HasSuffix(key, ".u1") && !strings.HasPrefix(key, "other") || key[:5] == "other" && strings.HasSuffix(key, ".u0")
		check.Same(t, fmt.Sprintf("%s: %+v", key, d), d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonCancelled, mine)
	}
}
