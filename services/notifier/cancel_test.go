package notifier

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// cancel has the service cancel, and returns its answer.
func (w *web) cancel(path string) (c Cancelled) {
	w.Helper()
	status, body := w.call(http.MethodDelete, path, "")
	if err := json.Unmarshal([]byte(body), &c); err != nil || status != http.StatusOK {
		w.Fatalf("%d %s", status, body)
	}
	return c
}

// An event that waits is cancelled for one user, then for all. Notifications that were sent stay sent, the others are suppressed,
// and publishing the event again sends nothing.
func TestAnEventIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 3)...)
	birds := &pigeon{}
	n := p.start(birds, listening)
	w := newWeb(t, n)
	later := event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) {
		e.NotBefore, e.RecipientType = time.Now().Add(time.Hour), "RESTAURANT_USER"
	})
	now := event("evt-002", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" })
	for _, e := range []recipient.Event{later, now} {
		check.OK(t, check.Err(n.Publish(t.Context(), e)))
	}
	p.settled(6)
	p.expanded(n, "evt-001")
	p.expanded(n, "evt-002")
	for path, want := range map[string]Cancelled{
		"/v1/events/evt-001?user=u1&type=RESTAURANT_USER": {EventID: "evt-001", State: plan.StateExpanded, Suppressed: 2},
		"/v1/events/evt-001?user=xx&type=RESTAURANT_USER": {EventID: "evt-001", State: plan.StateExpanded},
		"/v1/events/evt-002":                              {EventID: "evt-002", State: plan.StateCancelled, Sent: 6},
	} {
		diff := cmp.Diff(want, w.cancel(path))
		check.That(t, diff == "", "%s: -want +got\n%s", path, diff)
	}
	for _, again := range []bool{false, true} {
		want := Cancelled{Again: again, EventID: "evt-001", State: plan.StateCancelled, Suppressed: 6}
		check.Equal(t, w.cancel("/v1/events/evt-001"), want)
	}
	for key, d := range p.deliveries() {
		check.That(t, key[:7] != "evt-001" || d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonCancelled, "%s: %+v", key, d)
	}
	if again, err := n.Publish(t.Context(), later); err != nil || !again.Duplicate || again.State != plan.StateCancelled {
		t.Errorf("%+v: %v", again, err)
	}
	messages, calls := birds.counts()
	check.That(t, messages == 3 && calls == 3, "%d messages in %d calls", messages, calls)
}

// Notifications that are being sent when their event is cancelled count as such, and items that are there as sent: cancelling takes
// none back.
func TestItemsThatAreThereAreNotCancelled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 3)...)
	called, recorded := make(chan struct{}, 100), make(chan struct{})
	n := p.start(&pigeon{}, func(c *Config) {
		c.passed = func(point string) {
			if point == deliver.PointSent {
				called <- struct{}{}
				<-recorded
			}
		}
	})
	staff := func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }
	check.OK(t, check.Err(n.Publish(t.Context(), event("e", "RESERVATION_REQUESTED", staff))))
	for range 6 {
		<-called
	}
	done := check.Must(n.Cancel(t.Context(), Cancellation{EventID: "e"}))(t)
	check.Equal(t, done, Cancelled{EventID: "e", State: plan.StateCancelled, Sending: 3, Sent: 3})
	close(recorded)
	for key, d := range p.settled(6) {
		check.That(t, (d.State == deliveries.Delivered || d.State == deliveries.Sent) && len(d.Attempts) == 1, "%s: %+v", key, d)
	}
}

// unworked returns the parts of a notifier that plans and cancels, and has no workers.
func (p *place) unworked(directory *recipient.Directory) (*plan.Planner, *api.API) {
	p.Helper()
	first := p.start(&pigeon{})
	check.OK(p, first.Stop())
	records := recordtest.Client(p, p.js)
	cancelled := check.Must(hold.OpenCancelled(p.Context(), p.nc, records))(p)
	planner := plan.New(records, plan.Config{Resolver: recipient.Carried(directory), Rules: first.rules.rules.Load})
	return planner, api.New(records, api.Config{
		Audit: audit.New(audit.Config{JetStream: p.js, Source: "notifier"}), Cancelled: cancelled, Deliveries: p.store, Reader: plan.NewReader(records),
	})
}

// An event that is cancelled before it is planned, or before its plan is expanded, has no notifications, also when it comes again.
func TestAnEventIsCancelledBeforeItHasRows(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	directory := p.directory(users("RESTAURANT_USER", 3)...)
	staff := func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }
	seen, planned := event("seen", "RESERVATION_REQUESTED", staff), event("planned", "RESERVATION_REQUESTED", staff)
	planner, stopped := p.unworked(directory)
	_, _, err := planner.Accept(t.Context(), seen)
	check.OK(t, err)
	check.OK(t, check.Err(planner.Plan(t.Context(), planned)))
	for _, id := range []string{"seen", "planned"} {
		c, err := stopped.Cancel(t.Context(), Cancellation{EventID: id})
		check.That(t, err == nil && c.State == plan.StateCancelled && c.Suppressed == 0, "%+v: %v", c, err)
	}
	n := p.start(&pigeon{})
	p.publish(seen)
	p.publish(planned)
	p.publish(event("other", "RESERVATION_REQUESTED", staff))
	p.settled(6)
	check.Equal(t, len(p.rows()), 6, "rows")
	for _, id := range []string{"seen", "planned"} {
		e, err := n.Event(t.Context(), id)
		check.That(t, err == nil && e.State == plan.StateCancelled, "%+v: %v", e, err)
	}
}

// cancellations are how many are kept.
func (p *place) cancellations() int {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), "KV_"+contracts.BucketDeliveries))(p)
	info := check.Must(stream.Info(p.Context(), jetstream.WithSubjectFilter("$KV."+contracts.BucketDeliveries+"./cancelled.>")))(p)
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

// Cancelling an event or users that do not exist stores nothing, however many. A user whom the event concerns is cancelled as before.
func TestCancellationsOfWhatIsNotThereAreNotKept(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		p.directory(users("RESTAURANT_USER", 2)...)
		n := p.start(&pigeon{})
		p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
		p.expanded(n, "evt-001")
		p.settled(4)
		natstest.Pass(2 * time.Minute)
		one := func(user string) (Cancelled, error) {
			return n.Cancel(t.Context(), Cancellation{EventID: "evt-001", RecipientType: "RESTAURANT_USER", UserID: user})
		}
		const many = 1500
		refused := flood(t, 10, func(i int) error {
			_, err := n.Cancel(t.Context(), Cancellation{EventID: fmt.Sprint("made-up-", i)})
			return err
		}, api.ErrUnknownEvent)
		flood(t, many, func(i int) error {
			done, err := one(fmt.Sprint("made-up-", i))
			check.Equal(t, done, Cancelled{EventID: "evt-001", State: plan.StateExpanded}, "done")
			return err
		}, nil)
		kept := p.cancellations()
		check.That(t, refused == 10 && kept == 0, "%d of 10 are refused, %d are kept", refused, kept)
		for _, again := range []bool{false, true} {
			if done, err := one("u1"); err != nil || done.Again != again || done.Sent != 2 || p.cancellations() != 1 {
				t.Errorf("%+v, %d are kept: %v", done, p.cancellations(), err)
			}
		}
	})
}

// Before an event is expanded its users are not known. A user who is cancelled then is not notified, and a caller can cancel at
// most 1,000 users of one event, without harm to earlier cancellations and to other events.
func TestAUserIsCancelledBeforeTheEventIsExpanded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	directory := p.directory(users("RESTAURANT_USER", 2)...)
	planner, stopped := p.unworked(directory)
	staff := func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }
	const kind = "RESERVATION_REQUESTED"
	seen, planned, other := event("seen", kind, staff), event("planned", kind, staff), event("other", kind, staff)
	for _, e := range []recipient.Event{seen, other} {
		_, _, err := planner.Accept(t.Context(), e)
		check.OK(t, err)
	}
	check.OK(t, check.Err(planner.Plan(t.Context(), planned)))
	one := func(id, user string) error {
		_, err := stopped.Cancel(t.Context(), Cancellation{EventID: id, RecipientType: "RESTAURANT_USER", UserID: user})
		return err
	}
	for _, id := range []string{"seen", "planned"} {
		check.OK(t, one(id, "u1"))
		const many, bound, atOnce = 1050, 1000, 8
		refused := flood(t, many, func(i int) error { return one(id, fmt.Sprint("made-up-", i)) }, api.ErrNotExpanded)
		check.That(t, refused >= many-bound-atOnce && refused <= many-bound+1, "%d of %d are refused", refused, many)
	}
	check.ErrorIs(t, one("other", "u0"), nil)
	problem := api.Problem(one("seen", "one-more"))
	check.That(t, problem.Status == http.StatusConflict && problem.Code == "EVENT_NOT_EXPANDED", "%+v", problem)
	p.start(&pigeon{})
	for _, e := range []recipient.Event{seen, planned, other} {
		p.publish(e)
	}
	for key, d := range p.settled(12) {
		mine := strings.HasSuffix(key, ".u1") && !strings.HasPrefix(key, "other") || key[:5] == "other" && strings.HasSuffix(key, ".u0")
		check.Equal(t, d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonCancelled, mine, fmt.Sprintf("%s: %+v", key, d))
	}
}

// A digest that is cancelled by its own id takes its events with it. Later events go into the next digest, and another
// user's digest under the same id is not touched.
func TestADigestIsCancelled(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		birds := &pigeon{}
		n := p.start(birds, func(c *Config) {
			c.Rules = writeRules(t, "version: 1\nevents:\n"+
				"  X: {CUSTOMER: {scope: user, channels: [pigeon], category: c, digest: {every: 5m}}}\n"+
				"  Y: {CUSTOMER: {scope: user, channels: [pigeon]}}")
		})
		told := func(id, user string) {
			t.Helper()
			p.publish(event(id, "X", func(e *recipient.Event) { e.UserID = user }))
		}
		withdraw := func(c Cancellation, want Cancelled) {
			t.Helper()
			want.EventID, want.State = c.EventID, plan.StateCancelled
			got, err := n.Cancel(t.Context(), c)
			check.That(t, err == nil && cmp.Equal(got, want), "%+v: %s (%v)", c, cmp.Diff(want, got), err)
		}
		const one, two = "digest:c:2000-01-01T00:05:00Z", "digest:c:2000-01-01T00:10:00Z"
		told("ada-1", "ada")
		told("ada-2", "ada")
		told("bob-1", "bob")
		natstest.Pass(time.Minute)
		withdraw(Cancellation{EventID: one, RecipientType: "CUSTOMER", UserID: "ada"}, Cancelled{Suppressed: 1})
		told("ada-3", "ada")
		told("bob-2", "bob")
		natstest.Pass(time.Minute)
		withdraw(Cancellation{EventID: one}, Cancelled{Suppressed: 2})
		told("bob-3", "bob")
		told("eve-1", "eve")
		natstest.Pass(time.Minute)
		check.ErrorIs(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: "digest:c:2000-01-01T00:15:00Z"})), api.ErrUnknownEvent)

		// An event that is called like a digest, and cancelled, takes nobody else's with it.
		p.publish(event(two, "Y", func(e *recipient.Event) { e.UserID, e.NotBefore = "fay", time.Now().Add(10*time.Minute) }))
		natstest.Pass(time.Minute)
		withdraw(Cancellation{EventID: two}, Cancelled{Suppressed: 3}) // fay's event, and the digests of ada and bob
		told("fay-1", "fay")
		natstest.Pass(90 * time.Second) // the next window
		told("fay-2", "fay")
		told("gus-1", "gus")
		told("ada-4", "ada")
		natstest.Pass(15 * time.Minute)

		var got []string
		for _, all := range birds.sent {
			for _, m := range all {
				got = append(got, m.EventID+" to "+m.UserID)
			}
		}
		slices.Sort(got)
		want := []string{"ada-4 to ada", "eve-1 to eve", "fay-1 to fay", "fay-2 to fay", "gus-1 to gus"}
		check.Equal(t, got, want)
		withdraw(Cancellation{EventID: one}, Cancelled{Sent: 2, Suppressed: 2})
		for id, in := range map[string]string{"ada-1": one, "ada-2": one, "ada-3": two, "bob-3": two, "ada-4": "digest:c:2000-01-01T00:15:00Z"} {
			page, err := n.Notifications(t.Context(), Query{EventID: id})
			check.That(t, err == nil && len(page.Notifications) == 1 && page.Notifications[0].Digest == in,
				"%s: %+v, want it in %s: %v", id, page, in, err)
		}
		check.ErrorIs(t, n.Stop(), nil)
	})
}
