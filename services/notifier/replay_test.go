package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// moody is a channel that fails as its mood is, which the test may change, and not at all with "".
func moody(kind channel.Kind) (birds *pigeon, mood *atomic.Value) {
	mood = &atomic.Value{}
	mood.Store(kind)
	return &pigeon{send: func(context.Context, channel.Message) (channel.Receipt, error) {
		if kind, _ := mood.Load().(channel.Kind); kind != "" {
			return channel.Receipt{}, &channel.Error{Channel: "pigeon", Kind: kind}
		}
		return channel.Receipt{ID: "p"}, nil
	}}, mood
}

// replay has the service send notifications again.
func (w *web) replay(query string) (r Replayed) {
	w.Helper()
	status, body := w.call(http.MethodPost, "/v1/notifications/replay?"+query, "")
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusOK {
		w.Fatalf("%s: %d %s", query, status, body)
	}
	return r
}

// Notifications that failed are sent again when somebody asks for it, under their ids and with all their tries, and no others are.
func TestRowsThatFailedAreSentAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 4)...)
	birds, mood := moody(channel.KindRejected)
	n := p.start(birds, listening)
	w := newWeb(t, n)
	tell := func(id string) {
		p.publish(event(id, "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	}
	tell("evt-001")
	p.settled(8)
	mood.Store(channel.KindBounced)
	tell("evt-002")
	p.settled(16)
	mood.Store(channel.Kind(""))
	for _, query := range []string{"event=evt-002", "state=bounced&event=evt-001", "reason=timeout", "channel=inapp", "user=u9"} {
		check.Equal(t, w.replay(query), Replayed{}, query)
	}
	for _, query := range []string{"event=evt-001&user=u0&type=RESTAURANT_USER", "user=u1&reason=rejected"} {
		check.Equal(t, w.replay(query).Replayed, 1, query)
	}
	sent := func(event, state string) int {
		page := check.Must(n.Notifications(t.Context(), Query{EventID: event, Channel: "pigeon", State: deliveries.State(state)}))(t)
		return len(page.Notifications)
	}
	p.until("two are sent", func() bool { return sent("evt-001", "sent") == 2 })
	check.Equal(t, w.replay("reason=rejected").Replayed, 2, "replayed")
	check.Equal(t, w.replay("state=bounced").Replayed, 4, "replayed")
	p.until("all are sent", func() bool { return sent("evt-001", "sent") == 4 && sent("evt-002", "sent") == 4 })
	messages, calls := birds.counts()
	check.That(t, messages == 8 && calls == 16, "%d messages in %d calls", messages, calls)
	page, err := n.Notifications(t.Context(), Query{EventID: "evt-001"})
	check.That(t, err == nil && len(page.Notifications) == 8, "%d rows are listed: %v", len(page.Notifications), err)
	for _, row := range page.Notifications {
		check.That(t, row.Channel != "pigeon" || row.Replays == 1 && len(row.Attempts) == 2, "%+v", row)
	}
	check.Equal(t, w.replay("").Replayed, 0, "replayed")
	for _, state := range []string{"sent", "delivered", "pending", "suppressed", "lost"} {
		status, body := w.call(http.MethodPost, "/v1/notifications/replay?state="+state, "")
		check.That(t, status == http.StatusBadRequest, "%s: %d %s", state, status, body)
	}
}

// A replay that died after it had written that a notification is to be sent again, and before there was the message that has it
// sent, is finished by another, once.
func TestAReplayThatDiedIsFinished(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 1)...)
	birds, mood := moody(channel.KindRejected)
	n := p.start(birds)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(2)
	const key = "evt-001.pigeon.RESTAURANT_USER.u0"
	d := check.Must(n.deliveries.Get(t.Context(), key))(t)
	d.Replay()
	check.OK(t, n.deliveries.Put(t.Context(), key, d))
	mood.Store(channel.Kind(""))
	done, err := n.Replay(t.Context(), Query{EventID: "evt-001"})
	check.That(t, err == nil && done.Replayed == 1, "%+v: %v", done, err)
	p.until("it is sent", func() bool { return p.deliveries()[key].State == deliveries.Sent })
	done, err = n.Replay(t.Context(), Query{})
	check.That(t, err == nil && done.Replayed == 0, "%+v: %v", done, err)
	d = p.deliveries()[key]
	check.That(t, d.Replays == 1 && len(d.Attempts) == 2, "%+v", d)
	messages, calls := birds.counts()
	check.That(t, messages == 1 && calls == 2 && birds.sent[deliveries.MessageID(key)] != nil, "%d messages in %d calls", messages, calls)
}

// Notifications that fail again at once are not taken again by the calls of the same cursor, which therefore come to an end.
func TestAReplayComesToAnEnd(t *testing.T) {
	t.Parallel()
	const people = 7
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", people)...)
	birds, _ := moody(channel.KindRejected)
	n := p.start(birds)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(2 * people)
	for round, q := range []Query{{Limit: 2}, {Limit: 2, EventID: "evt-001"}} {
		replayed := 0
		for calls := 0; ; calls++ {
			done := check.Must(n.Replay(t.Context(), q))(t)
			replayed += done.Replayed
			p.until("they have failed again", func() bool {
				again := 0
				for _, d := range p.deliveries() {
					if d.State == deliveries.Failed && d.Replays == round+1 {
						again++
					}
				}
				return again == replayed
			})
			if q.Cursor = done.Next; q.Cursor == "" {
				break
			}
			check.Require(t, calls <= 3*people, "%d calls", calls)
		}
		check.Equal(t, replayed, people, fmt.Sprintf("%+v: were sent again", q))
	}
	check.That(t, check.Err(n.Replay(t.Context(), Query{Cursor: "12"})) != nil, "a cursor that is none is taken")
	// A notification is a dead letter after it has failed.
	p.until("each row is a dead letter three times", func() bool { return len(p.letters()) == 3*people })
}

// TestRowsAreFound lists notifications by user, by event with and without a plan, and by state, in pages of every size: each
// notification is listed once. A cancellation for one user finds the user's notifications, one for all finds the others.
func TestRowsAreFound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const guests, cancelled = 24, 10
		p := newPlace(t, srv)
		everyone := users("RESTAURANT_USER", guests)
		p.directory(everyone...)
		rules := writeRules(t, "version: 1\nevents:\n  LATER: {RESTAURANT_USER: {channels: [pigeon]}}\n")
		tell := func(id string) {
			t.Helper()
			p.publish(event(id, "LATER", func(e *recipient.Event) {
				e.RecipientType, e.NotBefore = "RESTAURANT_USER", time.Now().Add(time.Hour)
			}))
		}
		n := p.start(&pigeon{}, func(c *Config) { c.Rules = rules })
		tell("another")
		tell("planned")
		tell("without a plan")
		natstest.Pass(2 * time.Minute) // until it is certain whom they concern
		plans := check.Must(keys.Plan("without a plan"))(t)
		check.OK(t, check.Must(p.js.Stream(t.Context(), contracts.StreamNotifications))(t).Purge(t.Context(), jetstream.WithPurgeSubject(plans)))

		for _, of := range everyone[:cancelled] {
			for _, again := range []bool{false, true} {
				got, err := n.Cancel(t.Context(), Cancellation{EventID: "planned", RecipientType: of.RecipientType, UserID: of.UserID})
				check.That(t, err == nil && got.Suppressed == 1 && got.Again == again, "%s: %+v, %v", of.UserID, got, err)
			}
			check.Must(n.Cancel(t.Context(), Cancellation{EventID: "without a plan", RecipientType: of.RecipientType, UserID: of.UserID}))(t)
		}
		for _, tc := range []struct {
			q    Query
			want int
		}{
			{Query{}, 3 * guests},
			{Query{EventID: "without a plan"}, guests},
			{Query{EventID: "planned"}, guests},
			{Query{UserID: "u7"}, 3},
			{Query{EventID: "without a plan", State: deliveries.Suppressed}, cancelled},
		} {
			for tc.q.Limit = 1; tc.q.Limit <= tc.want; tc.q.Limit++ {
				got := map[string]bool{}
				for tc.q.Cursor = ""; ; {
					page := check.Must(n.Notifications(t.Context(), tc.q))(t)
					for _, row := range page.Notifications {
						got[row.EventID+" "+row.UserID] = true
					}
					if tc.q.Cursor = page.Next; page.Next == "" {
						break
					}
				}
				check.Equal(t, len(got), tc.want, fmt.Sprintf("rows of %q %q %q by %d", tc.q.UserID, tc.q.EventID, tc.q.State, tc.q.Limit))
			}
		}
		got, err := n.Cancel(t.Context(), Cancellation{EventID: "without a plan"})
		check.That(t, err == nil && got.Suppressed == guests, "%+v, %v", got, err)
	})
}

// A notifier starts when an answer about each of its streams is lost: the first, of the preparation, or a later one.
func TestStartThroughLostMessages(t *testing.T) {
	for nth := range 5 {
		natstest.RunBubble(t, fmt.Sprint(nth), func(t *testing.T, srv *natsrun.Server) {
			p := newPlace(t, srv)
			consumers := provision.Consumers(contracts.AssetOptions{Channels: []string{"pigeon"}, Services: []string{contracts.ServiceNotifier}})
			check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), p.js, consumers, provision.Options{})))
			proxy := natstest.NewProxy(t, srv)
			nc, _ := natstest.Connect(t, srv, proxy.Through())
			asked := map[string]int{}
			proxy.Hit(func(m natstest.Frame) bool {
				asked[m.Subject]++
				return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") && asked[m.Subject] == nth+1
			}, natstest.ReplyLost, 100)
			cfg := config(&pigeon{}, writeRules(t, testRules))
			cfg.CreateAssets = false
			n := check.Must(Start(t.Context(), nc, cfg))(t)
			check.OK(t, n.Stop())
		})
	}
}

// TestRowsOfAnErasedUserEnd checks that a notification that is not sent because its user was erased is listed as suppressed, though it
// has no record, so that nobody waits for it.
func TestRowsOfAnErasedUserEnd(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		guests := users("RESTAURANT_USER", 2)
		d := p.directory(guests...)
		rules := writeRules(t, "version: 1\nevents:\n  TOLD: {RESTAURANT_USER: {channels: [inapp, pigeon]}}\n")
		n := p.start(&pigeon{}, func(c *Config) { c.Rules = rules })
		check.Must(d.Forget(t.Context(), guests[0].RecipientType, guests[0].UserID))(t)
		p.publish(event("e", "TOLD", func(e *recipient.Event) { e.Recipients = guests }))
		natstest.Pass(time.Minute)
		page := check.Must(n.Notifications(t.Context(), Query{EventID: "e"}))(t)
		check.Equal(t, len(page.Notifications), 4, "rows")
		for _, row := range page.Notifications {
			erased := row.State == deliveries.Suppressed && row.Reason == deliveries.ReasonErased
			check.That(t, row.State.Ended() && erased == (row.UserID == guests[0].UserID), "%s by %s: %s %s", row.UserID, row.Channel, row.State,
				row.Reason)
		}
	})
}

// TestRowsThatWaitEndWhenTheirUserIsErased checks that a notification with a record ends in it, so that lists of every kind say so.
func TestRowsThatWaitEndWhenTheirUserIsErased(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		guests := users("RESTAURANT_USER", 2)
		guests[0].QuietHours = &contracts.QuietHours{From: "00:00", To: "02:00"}
		d := p.directory(guests...)
		rules := writeRules(t, `version: 1
events:
  QUIET: {RESTAURANT_USER: {channels: [pigeon]}}
  LATER: {RESTAURANT_USER: {channels: [pigeon]}}
  FAILS: {RESTAURANT_USER: {channels: [pigeon], priority: critical}}
  GATHERED: {RESTAURANT_USER: {channels: [pigeon], category: news, digest: {every: 1h}}}
`)
		birds := &pigeon{send: func(_ context.Context, m channel.Message) (channel.Receipt, error) {
			if m.EventType == "FAILS" && m.Attempt == 1 {
				return channel.Receipt{}, &channel.Error{Channel: "pigeon", Kind: channel.KindUnavailable}
			}
			return channel.Receipt{}, nil
		}}
		n := p.start(birds, func(c *Config) { c.Rules = rules })
		kinds := []string{"QUIET", "LATER", "FAILS", "GATHERED"}
		for _, kind := range kinds {
			p.publish(event(kind, kind, func(e *recipient.Event) {
				if kind == "LATER" {
					e.NotBefore = time.Now().Add(time.Hour)
				}
			}))
		}
		natstest.Pass(time.Second)
		check.Must(d.Forget(t.Context(), guests[0].RecipientType, guests[0].UserID))(t)
		natstest.Pass(3 * time.Hour)
		for _, kind := range kinds {
			for _, row := range check.Must(n.Notifications(t.Context(), Query{EventID: kind}))(t).Notifications {
				erased := row.State == deliveries.Suppressed && row.Reason == deliveries.ReasonErased
				want := row.UserID == guests[0].UserID && kind != "GATHERED" // which has ended in the digest, another notification
				check.That(t, row.State.Ended() && erased == want, "%s of %s: %s %s", kind, row.UserID, row.State, row.Reason)
			}
		}
		for _, state := range []deliveries.State{deliveries.Pending, deliveries.Deferred, deliveries.Sending} {
			page := check.Must(n.Notifications(t.Context(), Query{State: state}))(t)
			check.Equal(t, len(page.Notifications), 0, "rows "+string(state))
		}
	})
}
