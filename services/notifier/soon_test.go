package notifier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// soon is how long after a crash, when everything is up again, all is told that was not put off on purpose, with default settings.
const soon = 30 * time.Second

// Each message that a notifier sends in the life of an event meets with each mishap, one message of each event. As soon as that
// is promised the event is expanded and all its notifications have ended. Settings are the defaults.
func TestAllIsToldSoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			l := newLook(t, srv)
			wire := natstest.NewWire(t, srv, mishap)
			start := func() {
				nc, _ := natstest.Connect(t, srv, wire.Connect()...)
				n := l.startOn(nc)
				wire.Stops(func() {
					nc.Close()
					_ = n.Stop() // one that is cut off complains
				})
			}
			start()
			longest, events := time.Duration(0), 0
			for struck := true; struck; events++ {
				id := fmt.Sprint("evt-", events)
				wire.Aim(events + 1)
				l.publish(event(id, "NEWS"))
				var took time.Duration
				took, struck = wire.Until(soon, func() string { return l.open(id) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; told after %s at most", events-1, longest)
			check.That(t, events >= 20, "%d messages are too few to be all", events-1)
		})
	}
}

// look reads the records of events and notifications, past the notifier.
type look struct {
	*place

	reader *plan.Reader
}

func newLook(t *testing.T, srv *natsrun.Server) *look {
	t.Helper()
	l := &look{place: newPlace(t, srv)}
	l.directory(users("RESTAURANT_USER", 2)...)
	l.reader = plan.NewReader(recordtest.Client(t, l.js))
	return l
}

const soonRules = `
version: 1
events:
  NEWS:
    RESTAURANT_USER: {channels: [inapp, pigeon], category: news, template: news, throttle: {limit: 100, per: 1h}}
`

// start starts a notifier.
func (l *look) start(options ...nats.Option) *Notifier {
	l.Helper()
	nc, _ := natstest.Connect(l.T, l.srv, options...)
	return l.startOn(nc)
}

func (l *look) startOn(nc *nats.Conn) *Notifier {
	l.Helper()
	n := check.Must(Start(l.Context(), nc, config(&pigeon{}, writeRules(l.T, soonRules))))(l)
	l.Cleanup(func() { _ = n.Stop() }) // one that is cut off complains
	return n
}

// open describes the notifications of an event that have not ended, "" when all have. For a server that is away it
// returns its error.
func (l *look) open(id string) string {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Second)
	defer cancel()
	e, err := l.reader.Event(ctx, id)
	if err != nil {
		return err.Error()
	}
	entries, _, _, err := l.store.Scan(ctx, 1, 1000)
	items, _, _, errItems := l.store.ScanItems(ctx, 1, 1000)
	if err := cmp.Or(err, errItems); err != nil {
		return err.Error()
	}
	entries = append(entries, items...)
	entries = slices.DeleteFunc(entries, func(e deliveries.Entry) bool { return !strings.HasPrefix(e.Key, id+".") })
	if e.State != plan.StateExpanded || len(entries) < e.Notifications {
		return fmt.Sprintf("the event is %s, and %d of %d rows have been begun", e.State, len(entries), e.Notifications)
	}
	var open strings.Builder
	for _, entry := range entries {
		if !entry.State.Ended() {
			fmt.Fprintf(&open, "%s: %+v\n", entry.Key, entry.Delivery)
		}
	}
	return open.String()
}

// A request that the store does not answer puts an event and a plan off for a second and uses no attempt, so that no wait grows. An
// attempt that has taken all its time is used.
func TestTheStoresSilenceIsNobodysFault(t *testing.T) {
	for name, test := range map[string]struct {
		silent string // the prefix of the subjects that are not answered
		work   func(n *Notifier, within time.Duration) error
		within time.Duration
		retry  bool // an attempt is used
	}{
		"an event that is not seen":                 {"$KV.deliveries.evt", (*Notifier).planNews, planTimeout, false},
		"an event that is not seen in all its time": {"$KV.deliveries.evt", (*Notifier).planNews, 5 * time.Second, true},
		"a list that is not made":                   {"$JS.API.CONSUMER.CREATE.KV_directory", (*Notifier).planNews, planTimeout, false},
		"a list that is not read":                   {"$JS.API.CONSUMER.MSG.NEXT.KV_directory", (*Notifier).planNews, planTimeout, false},
		"a plan that is not stored":                 {"notify.plan.", (*Notifier).planNews, planTimeout, false},
		"an event that is not read":                 {"$JS.API.DIRECT.GET.KV_deliveries", (*Notifier).expandNews, expandTimeout, false},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			l, proxy := newLook(t, srv), natstest.NewProxy(t, srv)
			n := l.start(proxy.Through())
			l.publish(event("evt-0", "NEWS"))
			l.expanded(n, "evt-0")
			proxy.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, test.silent) }))
			err := test.work(n, test.within)
			snooze, snoozed := errors.AsType[*worker.SnoozeError](err)
			retry, retried := errors.AsType[*worker.RetryError](err)
			if snoozed == test.retry || retried != test.retry || snoozed && snooze.Delay != time.Second || retried && retry.After != time.Second {
				t.Errorf("it is %v", err)
			}
		})
	}
}

// planNews plans an event as its worker does.
func (n *Notifier) planNews(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	e := event("evt-1", "NEWS")
	data, err := contracts.Encode(e)
	if err != nil {
		return err
	}
	job := &worker.Job[undecoded]{Data: data}
	if job.Subject, err = contracts.EventSubject(e.AggregateType, e.EventType); err != nil {
		return err
	}
	return n.planEvent(ctx, job)
}

// expandNews expands a plan that has been expanded, as its worker does.
func (n *Notifier) expandNews(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	p, err := n.reader.Get(ctx, "evt-0")
	if err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return n.expandPlan(ctx, &worker.Job[undecoded]{Data: data})
}

// inboxRows are the subjects of the notifications of the inbox that are stored.
func (p *place) inboxRows() (subjects []string) {
	p.Helper()
	for subject := range p.stored() {
		if key, _, _ := keys.OfSubject(subject); check.Must(keys.Parse(key))(p).Channel == deliveries.Inbox {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// A notification of the inbox that nothing holds is not stored. Lists have it all the same, with all that they say of the others. One
// that is stored, because it may wait, is in lists once.
func TestARowOfTheInboxIsNotStored(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	staff := users("RESTAURANT_USER", 3)
	staff[1].OptOut = map[string][]string{"reservations": {"inapp"}}
	p.directory(staff...)
	n := p.start(&pigeon{})
	p.publish(event("e", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(6)
	p.expanded(n, "e")
	check.Equal(t, p.inboxRows(), []string{"notify.send.inapp.RESTAURANT_USER.u1.e"})
	check.Equal(t, n.Stats().Notifications, 6, "rows")
	check.Equal(t, n.Stats().States["delivered"], 2, "delivered")
	for name, q := range map[string]Query{"by event": {EventID: "e"}, "by user": {UserID: "u0"}, "all": {}} {
		var of []Notification
		for _, row := range check.Must(n.Notifications(t.Context(), q))(t).Notifications {
			if row.UserID == "u0" {
				of = append(of, row)
			}
		}
		slices.SortFunc(of, func(a, b Notification) int { return len(a.Channel) - len(b.Channel) })
		check.Require(t, len(of) == 2, "%s: %+v", name, of)
		item, other := of[0], of[1]
		check.That(t, item.Channel == "inapp" && item.State == deliveries.Delivered && len(item.Attempts) == 1, "%s: %+v", name, item)
		for _, row := range []*Notification{&item, &other} {
			row.Attempts, row.Channel, row.MessageID, row.ProviderID, row.State, row.UpdatedAt = nil, "", "", "", "", time.Time{}
		}
		check.That(t, item.Category+item.Template+item.EventType == "reservations"+"reservation.requested"+"RESERVATION_REQUESTED" &&
			item.CreatedAt.Equal(other.CreatedAt), "%s: %+v, the row beside it is %+v", name, item, other)
	}
	before := len(p.stored())
	p.publish(event("may wait", "RESERVATION_REQUESTED", func(e *recipient.Event) {
		e.RecipientType, e.NotBefore = "RESTAURANT_USER", time.Now().UTC()
	}))
	p.settled(12)
	check.Equal(t, len(p.stored())-before, 6, "stored")
	for want, q := range map[int]Query{4: {UserID: "u0"}, 6: {EventID: "may wait"}, 12: {}} {
		check.Equal(t, len(check.Must(n.Notifications(t.Context(), q))(t).Notifications), want, "rows")
	}
}

// Any number of users can be cancelled of an event whose items are there: each has been notified.
func TestUsersWhoseItemsAreThereAreCancelledOneByOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	const many = 1001
	p.directory(users("CUSTOMER", many)...)
	n := p.start(&pigeon{})
	p.publish(event("e", "FOR_ALL", func(e *recipient.Event) { e.RecipientType = "CUSTOMER" }))
	p.expanded(n, "e")
	refused := flood(t, many, func(i int) error {
		done, err := n.Cancel(t.Context(), Cancellation{EventID: "e", RecipientType: "CUSTOMER", UserID: fmt.Sprint("u", i)})
		check.Equal(t, done.Sent, 1, "sent")
		return err
	}, nil)
	check.Equal(t, refused, 0, "refused")
}

// Notifications of the inbox wait while they are paused, and come when they are not.
func TestThePausedInbox(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		p.directory(users("RESTAURANT_USER", 2)...)
		client := check.Must(worker.NewClient(p.js, worker.ClientConfig{Bucket: contracts.BucketJobs, Stream: contracts.StreamNotifications}))(t)
		check.OK(t, client.Pause(t.Context(), worker.Pause{Pattern: "notify.send.inapp.>"}))
		n := p.start(&pigeon{})
		p.publish(event("e", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
		natstest.Pass(time.Minute)
		check.Equal(t, len(p.inboxRows()), 2, "stored")
		check.Equal(t, n.Stats().States["delivered"], 0, "delivered")
		check.OK(t, check.Err(client.Resume(t.Context(), "notify.send.inapp.>")))
		natstest.Pass(20 * time.Minute)
		check.Equal(t, n.Stats().States["delivered"], 2, "delivered")
	})
}

// judgeUnstored judges the notifications that are in no stream, and returns how many there are: the inbox has the item of each.
func (c *cell) judgeUnstored(stored map[string]bool) (n int) {
	c.Helper()
	for key, row := range c.wants {
		if stored[key] {
			continue
		}
		if row.Channel != deliveries.Inbox {
			c.Errorf("%s is in no stream", key)
			continue
		}
		c.ask(func(ctx context.Context) error {
			d, err := c.store.Get(ctx, key)
			check.That(c, err != nil || d.AtOnce, "%s is neither in a stream nor in the inbox", key)
			return err
		})
		n++
	}
	check.That(c, n > 0, "each row is stored")
	return n
}
