package notifier

import (
	"context"
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

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// cancel has the service cancel, and returns its answer.
func (w *httpClient) cancel(path string) Cancelled {
	w.Helper()
	return answerTo[Cancelled](w, http.MethodDelete, path, "")
}

// An event that waits is cancelled for one user, then for all. Notifications that were sent stay sent, the others are suppressed,
// and publishing the event again sends nothing.
func TestAnEventIsCancelled(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 3)...)
	push := &provider{}
	n := p.start(push, listening)
	w := newHTTPClient(t, n)
	later := event("evt-001", "RESERVATION_REQUESTED", toStaff, notBefore(time.Now().Add(time.Hour)))
	now := event("evt-002", "RESERVATION_REQUESTED", toStaff)
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
		check.Equal(t, w.cancel(path), want, path)
	}
	for _, again := range []bool{false, true} {
		want := Cancelled{Again: again, EventID: "evt-001", State: plan.StateCancelled, Suppressed: 6}
		check.Equal(t, w.cancel("/v1/events/evt-001"), want)
	}
	for key, d := range p.deliveries() {
		check.That(t, key[:7] != "evt-001" || d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonCancelled, "%s: %+v", key, d)
	}
	again := check.Must(n.Publish(t.Context(), later))(t)
	check.That(t, again.Duplicate && again.State == plan.StateCancelled, "%+v", again)
	messages, calls := push.counts()
	check.That(t, messages == 3 && calls == 3, "%d messages in %d calls", messages, calls)
}

// Notifications that are being sent when their event is cancelled count as such, and items that are there as sent: cancelling takes
// none back.
func TestItemsThatAreThereAreNotCancelled(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 3)...)
	called, recorded := make(chan struct{}, 100), make(chan struct{})
	n := p.start(&provider{}, func(c *Config) {
		c.passed = func(point string) {
			if point == deliver.PointSent {
				called <- struct{}{}
				<-recorded
			}
		}
	})
	check.OK(t, check.Err(n.Publish(t.Context(), event("e", "RESERVATION_REQUESTED", toStaff))))
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
func (p *fixture) unworked(directory *recipient.Directory) (*plan.Planner, *api.API) {
	p.Helper()
	first := p.start(&provider{})
	check.OK(p, first.Stop())
	records := recordtest.Client(p, p.js)
	cancelled := check.Must(hold.OpenCancelled(p.Context(), p.nc, records))(p)
	planner := plan.New(records, plan.Config{Resolver: recipient.Carried(directory), Rules: first.rules.rules.Load})
	return planner, api.New(records, api.Config{
		Audit: audit.New(audit.Config{JetStream: p.js, Source: "notifier"}), Cancelled: cancelled, Deliveries: p.store, Reader: plan.NewReader(records),
	})
}

// cancellations are how many are kept.
func (p *fixture) cancellations() int {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), "KV_"+contracts.BucketDeliveries))(p)
	info := check.Must(stream.Info(p.Context(), jetstream.WithSubjectFilter("$KV."+contracts.BucketDeliveries+"./cancelled.>")))(p)
	return len(info.State.Subjects)
}

// cancelUsers records that an event is cancelled for n users, without the round trips of as many calls.
func (p *fixture) cancelUsers(id string, n int) {
	p.Helper()
	cancelled := check.Must(hold.OpenCancelled(p.Context(), p.nc, recordtest.Client(p, p.js)))(p)
	for i := range n {
		check.OK(p, check.Err(cancelled.Cancel(p.Context(), id, "CUSTOMER", fmt.Sprint("u-", i))))
	}
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
		p := newFixture(t, srv)
		p.directory(users("RESTAURANT_USER", 2)...)
		n := p.start(&provider{})
		p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
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
			done := check.Must(one("u1"))(t)
			check.That(t, done.Again == again && done.Sent == 2 && p.cancellations() == 1, "%+v, %d are kept", done, p.cancellations())
		}
	})
}

// An event that is cancelled before it is planned, or before its plan is expanded, has no notifications, also when it comes again. Before
// an event is expanded its users are not known. A user who is cancelled then is not notified, and a caller can cancel at most 1,000 users
// of one event, without harm to earlier cancellations and to other events.
func TestCancellationsBeforeAnEventIsExpanded(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	planner, stopped := p.unworked(p.directory(users("RESTAURANT_USER", 2)...))
	var all []recipient.Event
	for _, id := range []string{"cancelled-seen", "cancelled-planned", "seen", "planned", "other"} {
		e := event(id, "RESERVATION_REQUESTED", toStaff)
		all = append(all, e)
		if strings.HasSuffix(id, "planned") {
			check.OK(t, check.Err(planner.Plan(t.Context(), e)))
			continue
		}
		_, _, err := planner.Accept(t.Context(), e)
		check.OK(t, err)
	}
	for _, e := range all[:2] {
		c := check.Must(stopped.Cancel(t.Context(), Cancellation{EventID: e.EventID}))(t)
		check.That(t, c.State == plan.StateCancelled && c.Suppressed == 0, "%+v", c)
	}
	one := func(id, user string) error {
		_, err := stopped.Cancel(t.Context(), Cancellation{EventID: id, RecipientType: "RESTAURANT_USER", UserID: user})
		return err
	}
	for _, id := range []string{"seen", "planned"} {
		check.OK(t, one(id, "u1"))
		const known, many, bound, atOnce = 970, 50, 1000, 8 // and u1
		p.cancelUsers(id, known)
		refused := flood(t, many, func(i int) error { return one(id, fmt.Sprint("made-up-", i)) }, api.ErrNotExpanded)
		want := int64(known + 1 + many - bound)
		check.That(t, refused > want-atOnce && refused <= want, "%d of %d are refused", refused, many)
	}
	check.ErrorIs(t, one("other", "u0"), nil)
	problem := api.Problem(one("seen", "one-more"))
	check.That(t, problem.Status == http.StatusConflict && problem.Code == "EVENT_NOT_EXPANDED", "%+v", problem)
	n := p.start(&provider{})
	for _, e := range all {
		p.publish(e)
	}
	notifications := p.settled(12)
	check.Equal(t, len(notifications), 12, "notifications")
	for _, e := range all[:2] {
		check.Equal(t, check.Must(n.Event(t.Context(), e.EventID))(t).State, plan.StateCancelled, e.EventID)
	}
	for key, d := range notifications {
		mine := strings.HasSuffix(key, ".u1") && !strings.HasPrefix(key, "other") || key[:5] == "other" && strings.HasSuffix(key, ".u0")
		check.Equal(t, d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonCancelled, mine, fmt.Sprintf("%s: %+v", key, d))
	}
}

// A digest that is cancelled by its own id takes its events with it. Later events go into the next digest, and another
// user's digest under the same id is not touched.
func TestADigestIsCancelled(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newFixture(t, srv)
		push := &provider{}
		n := p.start(push, func(c *Config) {
			c.Rules = writeRules(t, "version: 1\nevents:\n"+
				"  X: {CUSTOMER: {scope: user, channels: [push], category: c, digest: {every: 5m}}}\n"+
				"  Y: {CUSTOMER: {scope: user, channels: [push]}}")
		})
		publish := func(id, user string) {
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
		publish("ada-1", "ada")
		publish("ada-2", "ada")
		publish("bob-1", "bob")
		natstest.Pass(time.Minute)
		withdraw(Cancellation{EventID: one, RecipientType: "CUSTOMER", UserID: "ada"}, Cancelled{Suppressed: 1})
		publish("ada-3", "ada")
		publish("bob-2", "bob")
		natstest.Pass(time.Minute)
		withdraw(Cancellation{EventID: one}, Cancelled{Suppressed: 2})
		publish("bob-3", "bob")
		publish("eve-1", "eve")
		natstest.Pass(time.Minute)
		check.ErrorIs(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: "digest:c:2000-01-01T00:15:00Z"})), api.ErrUnknownEvent)

		// An event that is called like a digest, and cancelled, takes nobody else's with it.
		p.publish(event(two, "Y", func(e *recipient.Event) { e.UserID, e.NotBefore = "fay", time.Now().Add(10*time.Minute) }))
		natstest.Pass(time.Minute)
		withdraw(Cancellation{EventID: two}, Cancelled{Suppressed: 3}) // fay's event, and the digests of ada and bob
		publish("fay-1", "fay")
		natstest.Pass(90 * time.Second) // the next window
		publish("fay-2", "fay")
		publish("gus-1", "gus")
		publish("ada-4", "ada")
		natstest.Pass(15 * time.Minute)

		var got []string
		for _, all := range push.sent {
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

// providerThatFails is a channel that fails as its failure is, which the test may change, and not at all with "".
func providerThatFails(kind channel.Kind) (push *provider, failure *atomic.Value) {
	failure = &atomic.Value{}
	failure.Store(kind)
	return &provider{send: func(context.Context, channel.Message) (channel.Receipt, error) {
		if kind, _ := failure.Load().(channel.Kind); kind != "" {
			return channel.Receipt{}, &channel.Error{Channel: "push", Kind: kind}
		}
		return channel.Receipt{ID: "p"}, nil
	}}, failure
}

// replay has the service send notifications again.
func (w *httpClient) replay(query string) Replayed {
	w.Helper()
	return answerTo[Replayed](w, http.MethodPost, "/v1/notifications/replay?"+query, "")
}

// Notifications that failed are sent again when somebody asks for it, under their ids and with all their tries, and no others are.
func TestNotificationsThatFailedAreSentAgain(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 4)...)
	push, failure := providerThatFails(channel.KindRejected)
	n := p.start(push, listening)
	w := newHTTPClient(t, n)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
	p.settled(8)
	failure.Store(channel.KindBounced)
	p.publish(event("evt-002", "RESERVATION_REQUESTED", toStaff))
	p.settled(16)
	failure.Store(channel.Kind(""))
	for _, query := range []string{"event=evt-002", "state=bounced&event=evt-001", "reason=timeout", "channel=inapp", "user=u9"} {
		check.Equal(t, w.replay(query), Replayed{}, query)
	}
	for _, query := range []string{"event=evt-001&user=u0&type=RESTAURANT_USER", "user=u1&reason=rejected"} {
		check.Equal(t, w.replay(query).Replayed, 1, query)
	}
	sent := func(event, state string) int {
		page := check.Must(n.Notifications(t.Context(), Query{EventID: event, Channel: "push", State: deliveries.State(state)}))(t)
		return len(page.Notifications)
	}
	p.until("two are sent", func() bool { return sent("evt-001", "sent") == 2 })
	check.Equal(t, w.replay("reason=rejected").Replayed, 2, "replayed")
	check.Equal(t, w.replay("state=bounced").Replayed, 4, "replayed")
	p.until("all are sent", func() bool { return sent("evt-001", "sent") == 4 && sent("evt-002", "sent") == 4 })
	messages, calls := push.counts()
	check.That(t, messages == 8 && calls == 16, "%d messages in %d calls", messages, calls)
	page, err := n.Notifications(t.Context(), Query{EventID: "evt-001"})
	check.That(t, err == nil && len(page.Notifications) == 8, "%d notifications are listed: %v", len(page.Notifications), err)
	for _, notification := range page.Notifications {
		check.That(t, notification.Channel != "push" || notification.Replays == 1 && len(notification.Attempts) == 2, "%+v", notification)
	}
	check.Equal(t, w.replay("").Replayed, 0, "replayed")
	for _, state := range []string{"sent", "delivered", "pending", "suppressed", "lost"} {
		w.wants(http.StatusBadRequest, http.MethodPost, "/v1/notifications/replay?state="+state, "")
	}
}

// A replay that died after it had written that a notification is to be sent again, and before there was the message that has it
// sent, is finished by another, once.
func TestAReplayThatDiedIsFinished(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 1)...)
	push, failure := providerThatFails(channel.KindRejected)
	n := p.start(push)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
	p.settled(2)
	const key = "evt-001.push.RESTAURANT_USER.u0"
	d := check.Must(n.deliveries.Get(t.Context(), key))(t)
	d.Replay()
	check.OK(t, n.deliveries.Put(t.Context(), key, d))
	failure.Store(channel.Kind(""))
	done, err := n.Replay(t.Context(), Query{EventID: "evt-001"})
	check.That(t, err == nil && done.Replayed == 1, "%+v: %v", done, err)
	p.until("it is sent", func() bool { return p.deliveries()[key].State == deliveries.Sent })
	done, err = n.Replay(t.Context(), Query{})
	check.That(t, err == nil && done.Replayed == 0, "%+v: %v", done, err)
	d = p.deliveries()[key]
	check.That(t, d.Replays == 1 && len(d.Attempts) == 2, "%+v", d)
	messages, calls := push.counts()
	check.That(t, messages == 1 && calls == 2 && push.sent[deliveries.MessageID(key)] != nil, "%d messages in %d calls", messages, calls)
}

// Notifications that fail again at once are not taken again by the calls of the same cursor, which therefore come to an end.
func TestAReplayComesToAnEnd(t *testing.T) {
	t.Parallel()
	const people = 7
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", people)...)
	push, _ := providerThatFails(channel.KindRejected)
	n := p.start(push)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
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
	p.until("each notification is a dead letter three times", func() bool { return len(p.deadLetters()) == 3*people })
}

// A notifier starts when an answer about each of its streams is lost: the first, of the preparation, or a later one.
func TestStartThroughLostMessages(t *testing.T) {
	for nth := range 5 {
		natstest.RunBubble(t, fmt.Sprint(nth), func(t *testing.T, srv *natsrun.Server) {
			p := newFixture(t, srv)
			consumers := provision.Consumers(contracts.AssetOptions{Channels: []string{"push"}, Services: []string{contracts.ServiceNotifier}})
			check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), p.js, consumers, provision.Options{})))
			proxy := natstest.NewProxy(t, srv)
			nc, _ := natstest.Connect(t, srv, proxy.Through())
			asked := map[string]int{}
			proxy.Hit(func(m natstest.Frame) bool {
				asked[m.Subject]++
				return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") && asked[m.Subject] == nth+1
			}, natstest.ReplyLost, 100)
			cfg := config(&provider{}, writeRules(t, testRules))
			cfg.CreateAssets = false
			n := check.Must(Start(t.Context(), nc, cfg))(t)
			check.OK(t, n.Stop())
		})
	}
}

// The notifications of a user who was erased end: those with a record end in it, and the others are listed as ended.
func TestNotificationsOfAnErasedUserEnd(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newFixture(t, srv)
		guests := users("RESTAURANT_USER", 2)
		guests[0].QuietHours = &contracts.QuietHours{From: "00:00", To: "00:20"}
		d := p.directory(guests...)
		rules := writeRules(t, `version: 1
events:
  QUIET: {RESTAURANT_USER: {channels: [push]}}
  LATER: {RESTAURANT_USER: {channels: [push]}}
  FAILS: {RESTAURANT_USER: {channels: [push], priority: critical}}
  GATHERED: {RESTAURANT_USER: {channels: [push], category: news, digest: {every: 10m}}}
  AFTERWARDS: {RESTAURANT_USER: {channels: [inapp, push]}}
`)
		push := &provider{send: func(_ context.Context, m channel.Message) (channel.Receipt, error) {
			if m.EventType == "FAILS" && m.Attempt == 1 {
				return channel.Receipt{}, &channel.Error{Channel: "push", Kind: channel.KindUnavailable}
			}
			return channel.Receipt{}, nil
		}}
		n := p.start(push, func(c *Config) { c.Rules = rules })
		for _, kind := range []string{"QUIET", "LATER", "FAILS", "GATHERED", "AFTERWARDS"} {
			if kind == "AFTERWARDS" {
				natstest.Pass(time.Second)
				check.Must(d.Forget(t.Context(), guests[0].RecipientType, guests[0].UserID))(t)
			}
			p.publish(event(kind, kind, func(e *recipient.Event) {
				if e.Recipients = guests; kind == "LATER" {
					e.NotBefore = time.Now().Add(10 * time.Minute)
				}
			}))
		}
		natstest.Pass(30 * time.Minute)
		all := check.Must(n.Notifications(t.Context(), Query{}))(t).Notifications
		check.Equal(t, len(all), 14, "notifications, of which two are digests")
		for _, one := range all {
			erased := one.State == deliveries.Suppressed && one.Reason == deliveries.ReasonErased
			want := one.UserID == guests[0].UserID && one.EventID != "GATHERED" // which has ended in the digest, another notification
			check.That(t, one.State.Ended() && erased == want, "%s of %s: %s %s", one.EventID, one.UserID, one.State, one.Reason)
		}
		for _, state := range []deliveries.State{deliveries.Pending, deliveries.Deferred, deliveries.Sending} {
			page := check.Must(n.Notifications(t.Context(), Query{State: state}))(t)
			check.Equal(t, len(page.Notifications), 0, "notifications", state)
		}
	})
}
