package notifier

import (
	"cmp"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func (p *place) inbox() *inapp.Inbox {
	p.Helper()
	return inapp.New(p.js, recordtest.Client(p, p.js), nil)
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
				v.publish(event(user.id, "X", func(e *recipient.Event) {
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
		check.Equal(t, got, want)
		d, err := v.store.Get(t.Context(), "reads.pigeon.CUSTOMER.reads")
		check.That(t, err == nil && d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonRead && len(d.Attempts) == 0,
			"%+v: %v", d, err)
	})
}

// A notification that is delivered later can be cancelled, and an event whose notifications would wait for longer than they are kept is
// refused.
func TestWhatIsDeliveredLaterIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	n := p.start(&pigeon{}, func(c *Config) {
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp], later: [{after: 24h, channels: [pigeon]}]}}}")
	})
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
	e := event("evt-001", "X", func(e *recipient.Event) { e.UserID = "ada" })
	check.OK(t, check.Err(n.Publish(t.Context(), e)))
	p.settled(1)
	p.expanded(n, "evt-001")
	known, err := n.Event(t.Context(), "evt-001")
	done, cancelErr := n.Cancel(t.Context(), Cancellation{EventID: "evt-001"})
	check.That(t, cmp.Or(err, cancelErr) == nil && known.Planned == 2 && done.Suppressed == 1 && done.Sent == 1,
		"%+v, %+v: %v, %v", known, done, err, cancelErr)
	e.EventID, e.NotBefore = "evt-002", time.Now().Add(rules.MaxDelay-23*time.Hour)
	check.ErrorIs(t, check.Err(n.Publish(t.Context(), e)), plan.ErrTooFar)
}
