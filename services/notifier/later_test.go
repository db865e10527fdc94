package notifier

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func (p *place) inbox() *inapp.Inbox {
	p.Helper()
	return check.Must(inapp.Open(p.Context(), p.js, recordtest.Client(p, p.js), inapp.Config{Keep: forever}))(p)
}

// Users who have read an event in the inbox, or removed it there, are not notified of it on a later channel. All others are, by
// notifiers that were started after it was published, on the minute, and not in quiet hours. A channel without unread notifies all.
func TestWhatIsUnreadIsDeliveredLater(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		v := newClocked(t, srv)
		v.cfg.Channels = append(v.cfg.Channels, Channel{Channel: &pigeon{name: "dove", send: v.receive}})
		v.cfg.Rules = writeRules(t, `
version: 1
events: {X: {CUSTOMER: {scope: user, channels: [inapp], later: [{after: 30m, unread: true, channels: [pigeon]}, {after: 48h, channels: [dove]}]}}}`)
		begin := time.Now().Truncate(time.Minute).Add(time.Minute) // 00:01
		night, morning := &contracts.QuietHours{From: "00:20", To: "07:00"}, 7*time.Hour-time.Minute
		box, directory := v.inbox(), v.directory()
		mark := func(state inapp.State) func(string) {
			return func(user string) { check.OK(t, check.Err(box.Mark(t.Context(), "CUSTOMER", user, user, state))) }
		}
		want := map[string][]time.Duration{}
		for _, user := range []struct {
			id          string
			heard       []time.Duration // on the channels that come later, since the event
			at          time.Duration   // when the user does something
			do          func(user string)
			hours       *contracts.QuietHours
			notBefore   time.Duration
			withoutThat map[string][]string
		}{
			{id: "unread", heard: []time.Duration{30 * time.Minute, 48 * time.Hour}},
			{id: "reads", at: 10 * time.Minute, do: mark(inapp.Read), heard: []time.Duration{48 * time.Hour}},
			{id: "archives", at: 29 * time.Minute, do: mark(inapp.Archived), heard: []time.Duration{48 * time.Hour}},
			{id: "reads-too-late", at: 31 * time.Minute, do: mark(inapp.Read), heard: []time.Duration{30 * time.Minute, 48 * time.Hour}},
			{id: "removed", at: 10 * time.Minute, heard: []time.Duration{48 * time.Hour}, do: func(user string) {
				kv := check.Must(v.js.KeyValue(t.Context(), contracts.BucketInbox))(t)
				check.OK(t, kv.Delete(t.Context(), "CUSTOMER."+user+"."+user))
			}},
			{id: "no-inbox", heard: []time.Duration{30 * time.Minute, 48 * time.Hour}, withoutThat: map[string][]string{"*": {"inapp"}}},
			{id: "asleep", hours: night, heard: []time.Duration{morning, 48 * time.Hour}},
			{id: "reads-at-night", hours: night, at: 3 * time.Hour, do: mark(inapp.Read), heard: []time.Duration{48 * time.Hour}},
			{id: "deferred", notBefore: 2 * time.Hour, heard: []time.Duration{150 * time.Minute, 50 * time.Hour}},
		} {
			check.OK(t, directory.Put(t.Context(), contracts.Recipient{
				UserID: user.id, RecipientType: "CUSTOMER", QuietHours: user.hours, OptOut: user.withoutThat,
			}))
			v.plan(begin, func() {
				v.publish(event(user.id, "X", func(e *contracts.Event) {
					if e.UserID = user.id; user.notBefore > 0 {
						e.NotBefore = begin.Add(user.notBefore)
					}
				}))
			})
			if user.do != nil {
				v.plan(begin.Add(user.at), func() { user.do(user.id) })
			}
			for _, after := range append(user.heard, user.notBefore, 30*time.Minute) {
				v.plan(begin.Add(after), nil)
			}
			want[user.id] = user.heard
		}
		v.plan(begin.Add(20*time.Minute), func() { check.OK(t, srv.Restart(t.Context())) })
		v.pass()
		got := map[string][]time.Duration{}
		for _, m := range v.heard {
			got[m.user] = append(got[m.user], m.at.Sub(begin).Truncate(time.Second))
		}
		check.Equal(t, want, got)
		d, err := v.store.Get(t.Context(), "reads.pigeon.CUSTOMER.reads")
		check.That(t, err == nil && d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonRead && len(d.Attempts) == 0,
			"%+v: %v", d, err)
	})
}

// A row that is delivered later can be cancelled, and an event whose rows would wait for longer than they are kept is refused.
func TestWhatIsDeliveredLaterIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	n := p.start(&pigeon{}, func(c *Config) {
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp], later: [{after: 24h, channels: [pigeon]}]}}}")
	})
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
	e := event("evt-001", "X", func(e *contracts.Event) { e.UserID = "ada" })
	check.OK(t, check.Err(n.Publish(t.Context(), e)))
	p.settled(1)
	p.expanded(n, "evt-001")
	known, err := n.Event(t.Context(), "evt-001")
	done, cancelErr := n.Cancel(t.Context(), Cancellation{EventID: "evt-001"})
	check.That(t, cmp.Or(err, cancelErr) == nil && known.Rows == 2 && done.Suppressed == 1 && done.Sent == 1,
		"%+v, %+v: %v, %v", known, done, err, cancelErr)
	e.EventID, e.NotBefore = "evt-002", time.Now().Add(rules.MaxDelay-23*time.Hour)
	check.Is(t, check.Err(n.Publish(t.Context(), e)), plan.ErrTooFar)
}

// A process that is killed after it has looked into the inbox and before it sends: the next one looks again.
func TestAKillBetweenTheLookAndTheMessage(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
		p := newPlace(t, srv)
		p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
		f := fall{Point: deliver.PointUnread, URL: srv.URL(), Rules: writeRules(t,
			"version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp], later: [{after: 1s, unread: true, channels: [pigeon]}]}}}")}
		dying := fallers.Start(t, f)
		p.publish(event("evt-001", "X", func(e *contracts.Event) { e.UserID = "ada" }))
		dying.Died()
		p.settled(1)
		if read {
			check.OK(t, check.Err(p.inbox().Mark(t.Context(), "CUSTOMER", "ada", "evt-001", inapp.Read)))
		}
		birds := &pigeon{}
		p.start(birds, func(c *Config) { *c = f.config(birds); c.passed = nil })
		d := p.settled(2)["evt-001.pigeon.CUSTOMER.ada"]
		want, calls := []any{deliveries.Sent, ""}, 1
		if read {
			want, calls = []any{deliveries.Suppressed, deliveries.ReasonRead}, 0
		}
		_, got := birds.counts()
		check.That(t, got == calls && slices.Equal(want, []any{d.State, d.Reason}), "read %t: %d calls, %+v", read, got, d)
	}
}

// fallers are notifiers whose first channel refuses everything.
var fallers = crash.Role[fall]{Name: "falling", Run: falling}

// fall says where a process dies whose first channel refuses everything.
type fall struct{ Point, Rules, URL string }

func (f fall) config(birds *pigeon) Config {
	cfg := config(birds, f.Rules)
	cfg.AckWait, cfg.Concurrency, cfg.passed = ackWait, 1, child.DieAt(f.Point, 1)
	return cfg
}

// refusing is a channel that takes nothing.
func refusing() *pigeon {
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	return moody(&mood)
}

// falling is the life of such a process.
func falling(ctx context.Context, f fall) error {
	nc, err := nats.Connect(f.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	n, err := Start(ctx, nc, f.config(refusing()))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return n.Stop()
}

// A process that is killed between the end of a row and its acknowledgement, whether a channel has refused the row, all addresses of
// its user have, or its user cannot be read: the row of the next channel is there once, and told.
func TestAKillBetweenTheEndAndTheNextRow(t *testing.T) {
	t.Parallel()
	both := map[string]map[string]contracts.Endpoint{"pigeon": {"roof": {Address: "roof"}, "tower": {Address: "tower"}}}
	for name, test := range map[string]struct {
		point      string
		unreadable bool // the user's record in the directory
		to         map[string]map[string]contracts.Endpoint
		ends       string
		calls      int // after the death
	}{
		"refused, recorded":    {deliver.PointRecorded, false, nil, "failed rejected", 0},
		"refused, ended":       {deliver.PointEnded, false, nil, "failed rejected", 0},
		"refused, followed":    {deliver.PointFollowed, false, nil, "failed rejected", 0},
		"unreadable, ended":    {deliver.PointEnded, true, nil, "failed recipient", 0},
		"unreadable, followed": {deliver.PointFollowed, true, nil, "failed recipient", 0},
		"several, recorded":    {deliver.PointRecorded, false, both, "split ", 1},
		"several, unheard":     {deliver.PointUnheard, false, both, "split ", 1},
		"several, ended":       {deliver.PointEnded, false, both, "split ", 0},
		"several, followed":    {deliver.PointFollowed, false, both, "split ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
			p := newPlace(t, srv)
			ada := contracts.Recipient{RecipientType: contracts.RecipientCustomer, UserID: "ada", Endpoints: test.to}
			directory := p.directory(ada)
			if test.unreadable {
				p.record(ada, "{")
			}
			f := fall{
				Point: test.point, URL: srv.URL(),
				Rules: writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, fallback: [pigeon, inapp]}}}"),
			}
			dying := fallers.Start(t, f)
			p.publish(event("evt-001", "X", func(e *contracts.Event) { e.UserID = "ada" }))
			dying.Died()
			if test.unreadable {
				p.record(ada, "")
			}
			check.OK(t, directory.Put(t.Context(), ada))
			birds := refusing()
			p.start(birds, func(c *Config) { *c = f.config(birds); c.passed = nil })
			all := p.settled(2 + len(test.to["pigeon"]))
			first, next := all["evt-001.pigeon.CUSTOMER.ada"], all["evt-001.inapp.CUSTOMER.ada"]
			check.That(t, first != nil && string(first.State)+" "+first.Reason == test.ends && first.FellBackTo == "inapp", "%+v", first)
			// The process that died may have given up the next row as well, as it could not read the user then either.
			given := test.unreadable && test.point == deliver.PointFollowed && next != nil && next.State == deliveries.Failed
			check.That(t, next != nil && (next.State == deliveries.Delivered || given), "the next: %+v", next)
			_, calls := birds.counts()
			check.That(t, calls == test.calls, "%d calls after the end was written down, want %d", calls, test.calls)
			letters := "./" // of an address that ended when the other had not
			if given {
				letters = ".inapp."
			}
			p.fellOnce(letters)
		})
	}
}

// fellOnce checks that each row is stored once, and that none is a dead letter but those that are named.
func (p *place) fellOnce(letters string) {
	p.Helper()
	for _, letter := range p.letters() {
		check.That(p, strings.Contains(letter.Subject, letters), "a row that is followed is a dead letter: %+v", letter)
	}
	for subject, times := range p.rows() {
		check.Same(p, subject+" is stored, times", times, 1)
	}
}

// record writes the record of a user in the directory as it is not written there.
func (p *place) record(r contracts.Recipient, text string) {
	p.Helper()
	key := check.Must(contracts.DirectoryKey(r.RecipientType, r.UserID))(p)
	kv, err := p.js.KeyValue(p.Context(), contracts.BucketDirectory)
	if err == nil && text == "" {
		err = kv.Delete(p.Context(), key)
	} else if err == nil {
		_, err = kv.PutString(p.Context(), key, text)
	}
	check.OK(p, err)
}
