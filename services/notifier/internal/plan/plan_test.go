package plan_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list is a resolver that yields its users, and then its error.
type list struct {
	users []contracts.Recipient
	err   error
}

func (l list) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		for _, r := range l.users {
			if r.RecipientType == q.Type && !yield(r, nil) {
				return
			}
		}
		if l.err != nil {
			yield(contracts.Recipient{}, l.err)
		}
	}
}

func customers(n int, prefix string) []contracts.Recipient {
	users := make([]contracts.Recipient, n)
	for i := range users {
		users[i] = contracts.Recipient{RecipientType: "CUSTOMER", UserID: fmt.Sprintf("%s%d", prefix, i)}
	}
	return users
}

func server(t *testing.T) jetstream.JetStream {
	t.Helper()
	return connect(t, natstest.Server(t))
}

// connect returns a connection to a server that has the streams from then on.
func connect(t *testing.T, srv *natsrun.Server, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	js, _ := recordtest.Open(t, srv, opts...)
	return js
}

func newPlanner(t *testing.T, js jetstream.JetStream, r recipient.Resolver, mutate ...func(*plan.Config)) *plan.Planner {
	t.Helper()
	parsed := check.Must(rules.Parse([]byte(`
version: 1
events:
  X:
    CUSTOMER: {scope: user, channels: [inapp, email], template: x, category: c, priority: high}
    ADMIN: {scope: all, channels: [inapp]}
`), []string{"inapp", "email"}))(t)
	cfg := plan.Config{Resolver: recipient.Once(r), Rules: func() *rules.Rules { return parsed }}
	for _, m := range mutate {
		m(&cfg)
	}
	return plan.New(recordtest.Client(t, js), cfg)
}

func reader(t *testing.T, js jetstream.JetStream) *plan.Reader {
	t.Helper()
	return plan.NewReader(recordtest.Client(t, js))
}

func happened(id string) recipient.Event {
	return recipient.Event{EventID: id, EventType: "X", AggregateType: "Y", Payload: []byte(`{"a":1}`)}
}

// read returns the plan of an event and the users in it, in order.
func read(t *testing.T, r *plan.Reader, id string) (*plan.Plan, []string) {
	t.Helper()
	p := check.Must(r.Get(t.Context(), id))(t)
	var users []string
	for n := range p.Parts() {
		users = append(users, ids(check.Must(r.Part(t.Context(), p, n))(t))...)
	}
	return p, users
}

func ids(list []contracts.Recipient) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].UserID
	}
	return names
}

func TestASmallPlanIsOneRecord(t *testing.T) {
	t.Parallel()
	js := server(t)
	user := contracts.Recipient{RecipientType: "CUSTOMER", UserID: "a", Locale: "he", Addresses: map[string]string{"email": "a@b.example"}}
	p := newPlanner(t, js, list{users: []contracts.Recipient{user, {RecipientType: "ADMIN", UserID: "root"}, user}})
	outcome, err := p.Plan(t.Context(), happened("e/1"))
	check.Require(t, err == nil && outcome == plan.Planned, "%s: %v", outcome, err)
	r := reader(t, js)
	got, users := read(t, r, "e/1")
	check.That(t, got.Pages == 0 && got.Recipients == 2 && got.Notifications == 3 && len(users) == 2, "%+v", got)
	var notifications []contracts.Notification
	for notification, err := range r.Notifications(t.Context(), got) {
		check.OK(t, err)
		notifications = append(notifications, notification)
	}
	customer := contracts.Notification{
		EventID: "e/1", UserID: "a", RecipientType: "CUSTOMER", Channel: "inapp", EventType: "X", Category: "c", Priority: "high",
		Template: "x", Locale: "he", CreatedAt: got.CreatedAt, Payload: []byte(`{"a":1}`), Recipient: &user,
	}
	mail, admin := customer, customer
	mail.Channel = "email"
	admin.UserID, admin.RecipientType, admin.Recipient = "root", "ADMIN", nil
	admin.Category, admin.Template, admin.Locale, admin.Priority = "", "", "", "normal"
	check.Equal(t, notifications, []contracts.Notification{admin, customer, mail})
	kept, err := r.Event(t.Context(), "e/1")
	check.That(t, err == nil && kept.State == plan.StatePlanned && kept.Notifications == 3, "%+v: %v", kept, err)
}

func TestALargePlanIsInPages(t *testing.T) {
	t.Parallel()
	js := server(t)
	want := customers(10_000, "user-with-a-name-")
	p := newPlanner(t, js, list{users: append(customers(10_000, "user-with-a-name-"), want[:500]...)})
	check.OK(t, check.Err(p.Plan(t.Context(), happened("e"))))
	got, users := read(t, reader(t, js), "e")
	check.That(t, got.Pages >= 4 && got.Recipients == 10_000 && got.Notifications == 20_000 && len(got.Entries) == 0,
		"%d pages, %d recipients, %d notifications, %d entries", got.Pages, got.Recipients, got.Notifications, len(got.Entries))
	check.Equal(t, users, ids(want))
}

// Planners with different results, at the same time: the plan is the result of one of them.
func TestResolutionsDoNotMix(t *testing.T) {
	t.Parallel()
	js := server(t)
	small := func(c *plan.Config) { c.PageBytes = 512 }
	var all sync.WaitGroup
	found := map[string][]string{}
	outcomes := make(chan plan.Outcome, 8)
	for i := range 8 {
		users := customers(100+i, fmt.Sprintf("p%d-", i))
		found[fmt.Sprintf("p%d-0", i)] = ids(users)
		p := newPlanner(t, js, list{users: users}, small)
		all.Go(func() {
			outcome, err := p.Plan(t.Context(), happened("e"))
			check.ErrorIs(t, err, nil)
			outcomes <- outcome
		})
	}
	all.Wait()
	close(outcomes)
	planned := 0
	for outcome := range outcomes {
		if outcome == plan.Planned {
			planned++
		}
	}
	_, users := read(t, reader(t, js), "e")
	diff := cmp.Diff(found[users[0]], users)
	check.That(t, diff == "" && planned == 1, "%d planned it\n%s", planned, diff)
}

// A list of recipients that breaks off leaves no plan, and the next try is not made of it.
func TestAListThatBreaksOffIsNoPlan(t *testing.T) {
	t.Parallel()
	js := server(t)
	small := func(c *plan.Config) { c.PageBytes = 512 }
	broken := newPlanner(t, js, list{users: customers(100, "old-"), err: recipient.ErrIncomplete}, small)
	check.ErrorIs(t, check.Err(broken.Plan(t.Context(), happened("e"))), recipient.ErrIncomplete)
	r := reader(t, js)
	check.ErrorIs(t, check.Err(r.Get(t.Context(), "e")), plan.ErrNotFound)
	check.Equal(t, check.Must(r.Event(t.Context(), "e"))(t).State, plan.StateSeen, "state")
	whole := newPlanner(t, js, list{users: customers(50, "new-")}, small)
	check.Equal(t, check.Must(whole.Plan(t.Context(), happened("e")))(t), plan.Planned, "outcome")
	_, users := read(t, r, "e")
	check.That(t, len(users) == 50 && users[0] == "new-0", "%d users, the first is %s", len(users), users[0])
}

func TestWhatNeedsNoPlan(t *testing.T) {
	t.Parallel()
	js := server(t)
	p := newPlanner(t, js, list{})
	other := happened("e")
	other.EventType = "OTHER"
	check.Equal(t, check.Must(p.Plan(t.Context(), other))(t), plan.Ignored, "no rule")
	check.Equal(t, check.Must(p.Plan(t.Context(), happened("e")))(t), plan.Planned, "nobody")
	got, users := read(t, reader(t, js), "e")
	check.That(t, got.Notifications == 0 && users == nil, "%+v", got)
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	js := server(t)
	few := func(c *plan.Config) { c.MaxRecipients = 10 }
	large := happened("large")
	large.Payload = []byte(`"` + strings.Repeat("<", plan.MaxPayload-2) + `"`)
	check.ErrorIs(t, check.Err(newPlanner(t, js, list{users: customers(3000, "user-with-a-name-")}).Plan(t.Context(), large)), nil)
	got, _ := read(t, reader(t, js), "large")
	check.That(t, string(got.Payload) == string(large.Payload), "the payload changed")
	tooLarge := happened("too-large")
	tooLarge.Payload = []byte(`"` + strings.Repeat("x", plan.MaxPayload-1) + `"`)
	wide := contracts.Recipient{RecipientType: "CUSTOMER", UserID: "u", Addresses: map[string]string{}}
	for i := range 64 {
		wide.Addresses[fmt.Sprint("c", i)] = strings.Repeat("x", contracts.MaxURL)
	}
	for name, err := range map[string]error{
		"payload":   check.Err(newPlanner(t, js, list{}).Plan(t.Context(), tooLarge)),
		"audience":  check.Err(newPlanner(t, js, list{users: customers(11, "u")}, few).Plan(t.Context(), happened("many"))),
		"recipient": check.Err(newPlanner(t, js, list{users: []contracts.Recipient{wide}}).Plan(t.Context(), happened("wide"))),
	} {
		check.ErrorIs(t, err, plan.ErrTooLarge, name)
	}
	check.ErrorIs(t, check.Err(newPlanner(t, js, list{users: customers(10, "u")}, few).Plan(t.Context(), happened("ten"))), nil)
}

// The recipients that an event names go before those of the rules.
func TestAudience(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mutate func(*recipient.Event)
		want   map[contracts.RecipientType]rules.Scope
	}{
		"nothing":             {func(*recipient.Event) {}, map[contracts.RecipientType]rules.Scope{"ADMIN": "all", "CUSTOMER": "user"}},
		"a broadcast":         {func(e *recipient.Event) { e.RecipientType = "BROADCAST" }, map[contracts.RecipientType]rules.Scope{"ADMIN": "all", "CUSTOMER": "aggregate"}},
		"a kind":              {func(e *recipient.Event) { e.RecipientType = "ADMIN" }, map[contracts.RecipientType]rules.Scope{"ADMIN": "all"}},
		"one of a kind":       {func(e *recipient.Event) { e.RecipientType, e.UserID = "ADMIN", "u" }, map[contracts.RecipientType]rules.Scope{"ADMIN": "user"}},
		"a user of no kind":   {func(e *recipient.Event) { e.UserID = "u" }, map[contracts.RecipientType]rules.Scope{"ADMIN": "all", "CUSTOMER": "user"}},
		"a kind without rule": {func(e *recipient.Event) { e.RecipientType = "AGENCY_USER" }, map[contracts.RecipientType]rules.Scope{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := server(t)
			asked := map[contracts.RecipientType]rules.Scope{}
			p := newPlanner(t, js, ask(func(q recipient.Query) { asked[q.Type] = q.Scope }))
			e := happened("e")
			test.mutate(&e)
			check.OK(t, check.Err(p.Plan(t.Context(), e)))
			check.Equal(t, asked, test.want)
		})
	}
}

// ask is a resolver that knows nobody and reports its queries.
type ask func(recipient.Query)

func (a ask) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	a(q)
	return list{}.Resolve(context.Background(), q)
}

// The notifications of an event that is to be delivered later say so; one that is to be delivered later than a plan can wait is refused
// by name, and nothing is kept of it.
func TestAnEventThatIsToBeToldLater(t *testing.T) {
	t.Parallel()
	js := server(t)
	p := newPlanner(t, js, recipient.Carried(list{users: customers(1, "u")}))
	read := reader(t, js)
	e := recipient.Event{EventID: "later", EventType: "X", AggregateType: "Y", NotBefore: time.Now().Add(rules.MaxDelay).UTC()}
	check.Equal(t, check.Must(p.Plan(t.Context(), e))(t), plan.Planned, "outcome")
	committed := check.Must(read.Get(t.Context(), "later"))(t)
	for notification, err := range read.Notifications(t.Context(), committed) {
		check.That(t, err == nil && notification.NotBefore.Equal(e.NotBefore), "%+v: %v", notification, err)
	}
	e.EventID, e.NotBefore = "too late", time.Now().Add(rules.MaxDelay+time.Hour)
	_, err := p.Plan(t.Context(), e)
	check.ErrorIs(t, err, plan.ErrTooFar)
	check.ErrorContains(t, err, `"too late"`)
	_, _, err = p.Accept(t.Context(), e)
	check.ErrorIs(t, err, plan.ErrTooFar)
	check.ErrorIs(t, check.Err(read.Event(t.Context(), "too late")), plan.ErrNotFound)
}

// A planner that records that all notifications are stored may have read the event before another process recorded that it is
// planned, or cancelled. The record is made all the same, unless the event is cancelled.
func TestAnEventIsNotedToBeAsFarAsItHasCome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		between func(context.Context, *plan.Reader) error // beside the planner's note
		want    plan.State
	}{
		"planned":   {func(context.Context, *plan.Reader) error { return nil }, plan.StateExpanded},
		"cancelled": {func(ctx context.Context, r *plan.Reader) error { return check.Err(r.Cancel(ctx, "e")) }, plan.StateCancelled},
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
				planned <- errors.Join(check.Err(p.Plan(t.Context(), happened("e"))), test.between(t.Context(), reader(t, js)))
			}()
			<-begun
			expander := reader(t, connect(t, srv, proxy.Through()))
			var once sync.Once
			proxy.Filter(func(f natstest.Frame) natstest.Verdict {
				if f.FromClient && strings.HasPrefix(f.Subject, "$KV."+contracts.BucketDeliveries+".") {
					once.Do(func() {
						close(goOn)
						check.ErrorIs(t, <-planned, nil)
					})
				}
				return natstest.Relay
			})
			committed := check.Must(expander.Get(t.Context(), "e"))(t)
			check.OK(t, expander.Expanded(t.Context(), committed))
			e := check.Must(expander.Event(t.Context(), "e"))(t)
			check.That(t, e.State == test.want && e.Notifications == committed.Notifications && e.Recipients == 2, "%+v, want %s", e, test.want)
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
