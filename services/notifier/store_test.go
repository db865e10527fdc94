package notifier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// bound gives a stream another bound of bytes.
func (p *fixture) bound(name string, bytes int64) {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), name))(p)
	config := stream.CachedInfo().Config
	config.MaxAge, config.MaxBytes = 0, bytes // by its age the server would remove all at once, under fake time
	check.OK(p, check.Err(p.js.UpdateStream(p.Context(), config)))
}

// A request that a full store refuses is answered by its own problem, the service is not ready and names the store, and both go
// away when there is room. Events published in the meantime reach their users then.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	const staff = "RESTAURANT_USER"
	publish := func(ctx context.Context, n *Notifier) error {
		_, err := n.Publish(ctx, event("evt-002", "RESERVATION_REQUESTED", toStaff))
		return err
	}
	replay := func(ctx context.Context, n *Notifier) error {
		_, err := n.Replay(ctx, Query{EventID: "evt-001"})
		return err
	}
	for name, test := range map[string]struct {
		stream string
		ask    func(ctx context.Context, n *Notifier) error
		taken  bool // by a stream that has room; the work that follows waits
	}{
		"publish": {stream: "KV_deliveries", ask: publish},
		"cancel": {stream: "KV_deliveries", ask: func(ctx context.Context, n *Notifier) error {
			_, err := n.Cancel(ctx, Cancellation{EventID: "evt-001"})
			return err
		}},
		"record of a replay":       {stream: "KV_deliveries", ask: replay},
		"notification of a replay": {stream: contracts.StreamNotifications, ask: replay},
		"mark": {stream: "KV_inbox", ask: func(ctx context.Context, n *Notifier) error {
			_, err := n.Inbox.Mark(ctx, staff, "u0", "evt-001", inapp.Read)
			return err
		}},
		"recipient": {stream: "KV_directory", ask: func(ctx context.Context, n *Notifier) error {
			return n.Directory.Put(ctx, contracts.Recipient{RecipientType: staff, UserID: "u9"})
		}},
		"notifications": {stream: contracts.StreamNotifications, ask: publish, taken: true},
		"items":         {stream: "KV_inbox", ask: publish, taken: true},
		"jobs":          {stream: "KV_jobs", ask: publish, taken: true},
		"events":        {stream: contracts.StreamEvents, ask: publish, taken: true}, // drops the oldest, and has room for one
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				p := newFixture(t, srv)
				p.directory(users(staff, 2)...)
				n := p.start(&provider{send: func(context.Context, channel.Message) (channel.Receipt, error) {
					return channel.Receipt{}, &channel.Error{Channel: "push", Kind: channel.KindRejected}
				}})
				p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
				p.settled(4)
				refuses := test.stream != contracts.StreamEvents
				p.bound(test.stream, map[bool]int64{true: 1, false: 600}[refuses])
				err := test.ask(t.Context(), n)
				problem := service.ErrorMapper(api.Problem).Of(err)
				check.That(t,
					test.taken == (err == nil) && (err == nil || problem.Status == http.StatusInsufficientStorage && problem.Code == "STORE_FULL"),
					"%+v: %v", problem, err)
				check.That(t, err == nil || strings.Contains(err.Error(), strings.TrimPrefix(test.stream, "KV_")),
					"the error does not name %s: %v", test.stream, err)
				natstest.Pass(20 * time.Second)
				ready := n.running.Ready()["streams"]
				check.That(t, (ready != nil) == refuses, "%v", ready)
				check.That(t, ready == nil || strings.Contains(ready.Error(), test.stream), "%v does not name %s", ready, test.stream)
				p.bound(test.stream, 1<<26)
				if !test.taken {
					check.ErrorIs(t, test.ask(t.Context(), n), nil)
				}
				natstest.Pass(time.Minute)
				if test.taken {
					p.settled(8)
				}
				for part, err := range n.running.Ready() {
					check.That(t, err == nil, "%s: %v", part, err)
				}
			})
		})
	}
}

// monthly is the payload of the events.
const monthly = `{"reservation_id":"0b0e7a3c-7f0a-4c2e-9d8e-3b5f6a1d2c4e","date":"2026-12-24","time":"19:30","guests":4,` +
	`"name":"Ada Lovelace","phone":"+49 30 901820","note":"A table by the window, please"}`

// paged is a line of the table in docs/operate.md: stream, bytes of one notification, days.
var paged = regexp.MustCompile("(?m)^\\| `([A-Za-z_]+)` \\| ([0-9]+) B \\| ([0-9]+) days \\|")

// With 10 million notifications a month, no stream outgrows its declared size: computed from the bytes that one notification takes in
// each, and the days for which they stay. The table in docs/operate.md says so.
func TestAMonthFitsTheDeclaredSizes(t *testing.T) {
	const (
		month    = 10_000_000 // notifications
		most     = 0.67       // the part of its size that a stream may use then; the rest is headroom
		events   = 300
		perEvent = 4 // two users, each in the inbox and on another channel
	)
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) { // calls take no time, which would be recorded
		natstest.Pass(123456789) // so that times are as long as they are in life
		p := newFixture(t, srv)
		n := p.start(&provider{})
		for i := range events {
			check.OK(t, check.Err(n.Publish(t.Context(), event(fmt.Sprintf("%08x-7f0a-4c2e-9d8e-%012x", i, i), "RESERVATION_REQUESTED", func(e *recipient.Event) {
				e.OccurredAt, e.Payload, e.RecipientType = time.Now(), json.RawMessage(monthly), "RESTAURANT_USER"
				for user := range perEvent / 2 {
					e.Recipients = append(e.Recipients, contracts.Recipient{
						RecipientType: e.RecipientType, UserID: fmt.Sprintf("%08x-61d4-4e0b-8f5e-%012x", user, i),
					})
				}
			}))))
		}
		p.until("all are sent, and expanded", func() bool {
			states := n.Stats().States
			return states["delivered"]+states["sent"] == events*perEvent
		})
		check.OK(t, n.Stop())
		bounds := map[string]int64{}
		for _, config := range contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}}) {
			bounds[config.Name] = config.MaxBytes
		}
		text := check.Must(os.ReadFile(filepath.Join("..", "..", "docs", "operate.md")))(t)
		lines := paged.FindAllStringSubmatch(string(text), -1)
		check.Equal(t, len(lines), 4, "streams in docs/operate.md that a month fills")
		for _, line := range lines {
			stream := check.Must(p.js.Stream(t.Context(), line[1]))(t)
			each := float64(stream.CachedInfo().State.Bytes) / (events * perEvent)
			said, days := float64(check.Must(strconv.Atoi(line[2]))(t)), float64(check.Must(strconv.Atoi(line[3]))(t))
			check.That(t, each <= 1.02*said && each >= 0.98*said, "a notification takes %.0f bytes of %s, docs/operate.md says %.0f", each, line[1], said)
			full := each * month * days / 30 / float64(bounds[line[1]])
			check.That(t, full <= most, "a month fills %s to %.0f %%, at most %.0f %%: raise its size in pkg/contracts", line[1], 100*full, 100*most)
		}
	})
}

// soon is how long after a crash, when everything is up again, all is told that was not put off on purpose, with default settings.
const soon = 30 * time.Second

// Each message that a notifier sends in the life of an event meets with each mishap, one message of each event. As soon as that
// is promised the event is expanded and all its notifications have ended. Settings are the defaults.
func TestAllIsToldSoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			l := newRecordReader(t, srv)
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
				took, struck = wire.Until(soon, func() string { return l.unfinished(id) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; told after %s at most", events-1, longest)
			check.That(t, events >= 20, "%d messages are too few to be all", events-1)
		})
	}
}

// recordReader reads the records of events and notifications, past the notifier.
type recordReader struct {
	*fixture

	reader *plan.Reader
}

func newRecordReader(t *testing.T, srv *natsrun.Server) *recordReader {
	t.Helper()
	l := &recordReader{fixture: newFixture(t, srv)}
	l.directory(users("RESTAURANT_USER", 2)...)
	l.reader = plan.NewReader(recordtest.Client(t, l.js))
	return l
}

const newsRules = `
version: 1
events:
  NEWS:
    RESTAURANT_USER: {channels: [inapp, push], category: news, template: news, throttle: {limit: 100, per: 1h}}
`

// startOn starts a notifier.
func (l *recordReader) startOn(nc *nats.Conn) *Notifier {
	l.Helper()
	n := check.Must(Start(l.Context(), nc, config(&provider{}, writeRules(l.T, newsRules))))(l)
	l.Cleanup(func() { _ = n.Stop() }) // one that is cut off complains
	return n
}

// unfinished describes the notifications of an event that have not ended, "" when all have. For a server that is away it
// returns its error.
func (l *recordReader) unfinished(id string) string {
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
		return fmt.Sprintf("the event is %s, and %d of %d notifications have been begun", e.State, len(entries), e.Notifications)
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
		work   func(n *Notifier, t *testing.T, within time.Duration) error
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
			l, proxy := newRecordReader(t, srv), natstest.NewProxy(t, srv)
			nc, _ := natstest.Connect(t, srv, proxy.Through())
			n := l.startOn(nc)
			l.publish(event("evt-0", "NEWS"))
			l.expanded(n, "evt-0")
			proxy.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, test.silent) }))
			err := test.work(n, t, test.within)
			snooze, snoozed := errors.AsType[*worker.SnoozeError](err)
			retry, retried := errors.AsType[*worker.RetryError](err)
			check.That(t, snoozed != test.retry && retried == test.retry, "it is %v", err)
			check.That(t, (!snoozed || snooze.Delay == time.Second) && (!retried || retry.After == time.Second), "it is %v", err)
		})
	}
}

// planNews plans an event as its worker does.
func (n *Notifier) planNews(t *testing.T, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	e := event("evt-1", "NEWS")
	job := &worker.Job[undecoded]{Data: check.Must(contracts.Encode(e))(t)}
	job.Subject = check.Must(contracts.EventSubject(e.AggregateType, e.EventType))(t)
	return n.planEvent(ctx, job)
}

// expandNews expands a plan that has been expanded, as its worker does.
func (n *Notifier) expandNews(t *testing.T, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	data := check.Must(json.Marshal(check.Must(n.reader.Get(ctx, "evt-0"))(t)))(t)
	return n.expandPlan(ctx, &worker.Job[undecoded]{Data: data})
}

// inboxNotifications are the subjects of the notifications of the inbox that are stored.
func (p *fixture) inboxNotifications() (subjects []string) {
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
func TestANotificationOfTheInboxIsNotStored(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	staff := users("RESTAURANT_USER", 3)
	staff[1].OptOut = map[string][]string{"reservations": {"inapp"}}
	p.directory(staff...)
	n := p.start(&provider{})
	p.publish(event("e", "RESERVATION_REQUESTED", toStaff))
	p.settled(6)
	p.expanded(n, "e")
	check.Equal(t, p.inboxNotifications(), []string{"notify.send.inapp.RESTAURANT_USER.u1.e"})
	check.Equal(t, n.Stats().Notifications, 6, "notifications")
	check.Equal(t, n.Stats().States["delivered"], 2, "delivered")
	for name, q := range map[string]Query{"by event": {EventID: "e"}, "by user": {UserID: "u0"}, "all": {}} {
		var of []Notification
		for _, notification := range check.Must(n.Notifications(t.Context(), q))(t).Notifications {
			if notification.UserID == "u0" {
				of = append(of, notification)
			}
		}
		slices.SortFunc(of, func(a, b Notification) int { return strings.Compare(a.Channel, b.Channel) })
		check.Require(t, len(of) == 2, "%s: %+v", name, of)
		item, other := of[0], of[1]
		check.That(t, item.Channel == "inapp" && item.State == deliveries.Delivered && len(item.Attempts) == 1, "%s: %+v", name, item)
		for _, notification := range []*Notification{&item, &other} {
			notification.Attempts, notification.Channel, notification.MessageID, notification.ProviderID = nil, "", "", ""
			notification.State, notification.UpdatedAt = "", time.Time{}
		}
		check.That(t, item.Category+item.Template+item.EventType == "reservations"+"reservation.requested"+"RESERVATION_REQUESTED" &&
			item.CreatedAt.Equal(other.CreatedAt), "%s: %+v, the notification on the other channel is %+v", name, item, other)
	}
	before := len(p.stored())
	p.publish(event("may wait", "RESERVATION_REQUESTED", toStaff, notBefore(time.Now().UTC())))
	p.settled(12)
	check.Equal(t, len(p.stored())-before, 6, "stored")
	for want, q := range map[int]Query{4: {UserID: "u0"}, 6: {EventID: "may wait"}, 12: {}} {
		check.Equal(t, len(check.Must(n.Notifications(t.Context(), q))(t).Notifications), want, "notifications")
	}
}

// Notifications of the inbox wait while they are paused, and come when they are not.
func TestThePausedInbox(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newFixture(t, srv)
		p.directory(users("RESTAURANT_USER", 2)...)
		client := check.Must(worker.NewClient(p.js, worker.ClientConfig{Bucket: contracts.BucketJobs, Stream: contracts.StreamNotifications}))(t)
		check.OK(t, client.Pause(t.Context(), worker.Pause{Pattern: "notify.send.inapp.>"}))
		n := p.start(&provider{})
		p.publish(event("e", "RESERVATION_REQUESTED", toStaff))
		natstest.Pass(time.Minute)
		check.Equal(t, len(p.inboxNotifications()), 2, "stored")
		check.Equal(t, n.Stats().States["delivered"], 0, "delivered")
		check.OK(t, check.Err(client.Resume(t.Context(), "notify.send.inapp.>")))
		natstest.Pass(20 * time.Minute)
		check.Equal(t, n.Stats().States["delivered"], 2, "delivered")
	})
}
