package deliver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// cancellations are the events that are cancelled, and how it was asked for them.
type cancellations struct {
	mu     sync.Mutex
	events []string
	sure   []bool
}

func (g *cancellations) set(events ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = events
}

func (g *cancellations) Covers(_ context.Context, notification *contracts.Notification, sure bool) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sure = append(g.sure, sure)
	return slices.Contains(g.events, notification.EventID), nil
}

func (g *cancellations) For(context.Context, contracts.RecipientType, string) (func(hold.Mark) bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	marks := map[hold.Mark]bool{}
	for _, event := range g.events {
		marks[hold.MarkOf(event)] = true
	}
	return func(m hold.Mark) bool { return marks[m] }, nil
}

// A notification that is cancelled is not sent. A notification that is tried again or has waited is looked up at the server: the
// cancellations in memory are not enough then.
func TestANotificationThatIsCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(context.Context, int) (channel.Receipt, error)
		ahead  time.Duration
		calls  int
		sure   []bool // whether the server is looked up, each time
	}{
		"at once":  {nil, 0, 0, []bool{false}},
		"deferred": {nil, time.Minute, 0, []bool{false, true}},
		"retried":  {fails(channel.KindUnavailable), 0, 1, []bool{false, true}},
	} {
		runWithFixture(t, name, func(n *fixture) {
			b := &provider{answer: test.answer}
			var cancelled cancellations
			if name == "at once" {
				cancelled.set("e")
			}
			n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }))
			n.store(func(x *contracts.Notification) { x.NotBefore = time.Now().Add(test.ahead) })
			elapse(time.Second)
			cancelled.set("e")
			elapse(10 * time.Minute)
			d := n.record()
			check.That(t, d.State == deliveries.Suppressed && d.Reason == "cancelled" && n.deadLetters() == 0, "%+v", d)
			check.Equal(t, len(b.sent), test.calls, "calls")
			check.Equal(t, cancelled.sure, test.sure, "asked with")
		})
	}
}

// Events that are cancelled after they went into a digest are neither delivered by it nor counted.
func TestACancelledEventIsNotInADigest(t *testing.T) {
	for name, test := range map[string]struct {
		events, from, to int // those from..to-1 are cancelled
		messages         int
		want             string
	}{
		"one of three":    {3, 1, 2, 1, "e0,e2"},
		"two of three":    {3, 0, 2, 1, "e2"},
		"all":             {3, 0, 3, 0, ""},
		"all but counted": {103, 0, 102, 1, ""}, // a digest has 100 events, and counts the others
	} {
		runWithFixture(t, name, func(n *fixture) {
			var cancelled cancellations
			b := n.startSending(profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled })
			var all []string
			for i := range test.events {
				all = append(all, fmt.Sprint("e", i))
				n.storeEvent(all[i], digestHourly)
				elapse(time.Second)
			}
			cancelled.set(all[test.from:test.to]...)
			elapse(time.Hour)
			var delivered []string
			for _, m := range b.sent {
				delivered = append(delivered, events(m)...)
			}
			check.That(t, len(b.sent) == test.messages && strings.Join(delivered, ",") == test.want && n.deadLetters() == 0,
				"%d messages of %v, want %s; %d dead letters", len(b.sent), delivered, test.want, n.deadLetters())
		})
	}
}

// replay has the notification sent again, as the API does.
func (n *fixture) replay() {
	n.Helper()
	d := n.record()
	d.Replay()
	check.OK(n, n.deliveries.Put(n.Context(), theKey, d))
	n.storeReplay(d.Replays)
}

// storeReplay stores the message that has the notification sent again.
func (n *fixture) storeReplay(number int) {
	n.Helper()
	data := check.Must(contracts.Encode(n.job(1).Args))(n)
	subject, err := keys.Replay(&contracts.Notification{Channel: "push", RecipientType: "CUSTOMER", UserID: "u", EventID: "e"}, number)
	check.OK(n, err)
	check.OK(n, check.Err(n.js.Publish(n.Context(), subject, data)))
}

// A notification that is sent again has all its tries, and keeps its id and the record of the tries before.
func TestAReplayHasAllTries(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: fails(channel.KindUnavailable)}
		n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Second, time.Second} }))
		n.store()
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted", "unavailable", "unavailable", "unavailable")
		n.replay()
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted", "unavailable", "unavailable", "unavailable", "unavailable", "unavailable", "unavailable")
		b.answer = nil
		n.replay()
		elapse(time.Minute)
		d := n.record()
		check.That(t, d.State == deliveries.Sent && len(d.Attempts) == 7 && d.Replays == 2 && n.deadLetters() == 2,
			"%+v, %d dead letters", d, n.deadLetters())
		for i, m := range b.sent {
			check.That(t, m.ID == deliveries.MessageID(theKey) && m.Attempt == i+1, "%+v", m)
		}
	})
}

// A replay whose notification does not say yet that it is sent again, because the server that answers has not heard of it, waits:
// taken for one that has ended, it would be lost.
func TestAReplayWaitsForItsRecord(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: fails(channel.KindRejected)}
		n.startWorker(n.sender("a", b, profile{}))
		n.store()
		elapse(time.Minute)
		b.answer = nil
		n.storeReplay(1)
		elapse(time.Minute)
		n.want(deliveries.Failed, "rejected", "rejected")
		d := n.record()
		d.Replay()
		check.OK(t, n.deliveries.Put(n.Context(), theKey, d))
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "rejected", "sent")
	})
}

// digestHourly is a notification whose digest is delivered each hour.
func digestHourly(notification *contracts.Notification) {
	notification.Digest = &contracts.Digest{Every: 60}
}

// digestEveryTwoMinutes is a notification whose digest is delivered every two minutes.
func digestEveryTwoMinutes(notification *contracts.Notification) {
	notification.Digest = &contracts.Digest{Every: 2}
}

// storeEvent stores a notification of an event.
func (n *fixture) storeEvent(event string, mutate ...func(*contracts.Notification)) {
	n.Helper()
	n.put(aNotification(event, "u", append([]func(*contracts.Notification){withCategory, func(notification *contracts.Notification) {
		notification.Payload, notification.Template = json.RawMessage(fmt.Sprintf("{%q:%q}", "of", event)), "x"
	}}, mutate...)...))
}

// events are those that a message delivers.
func events(m channel.Message) []string {
	if m.EventType != channel.EventTypeDigest {
		return []string{m.EventID}
	}
	var payload struct {
		Count int `json:"count"`
		Items []struct {
			EventID string `json:"event_id"`
		} `json:"items"`
		More int `json:"more"`
	}
	if err := json.Unmarshal(m.Payload, &payload); err != nil || payload.Count != len(payload.Items)+payload.More {
		return []string{"not a digest: " + string(m.Payload)}
	}
	var ids []string
	for _, item := range payload.Items {
		ids = append(ids, item.EventID)
	}
	slices.Sort(ids)
	return ids
}

func TestADigestTellsItsWindow(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{Addresses: map[string]string{"push": "tel 7"}})
		n.storeEvent("e1", digestHourly)
		elapse(10 * time.Minute)
		n.storeEvent("e2", digestHourly, func(x *contracts.Notification) { x.Locale = "he" })
		n.storeEvent("now", digestHourly, func(x *contracts.Notification) { x.Priority = channel.UrgencyCritical })
		elapse(10 * time.Minute)
		check.Require(t, len(b.sent) == 1 && b.sent[0].EventID == "now", "before the end of the window: %+v", b.sent)
		elapse(time.Hour)
		n.storeEvent("e3", digestHourly) // 01:20
		elapse(65 * time.Minute)
		check.Require(t, len(b.sent) == 3, "%+v", b.sent)
		many, one := b.sent[1], b.sent[2]
		if diff := strings.Join(events(many), ","); diff != "e1,e2" || many.Template != "c.digest" || many.Locale != "he" ||
			many.EventID != "digest:c:2000-01-01T01:00:00Z" || many.Address != "tel 7" || many.Category != "c" {
			t.Errorf("%+v %s", many, many.Payload)
		}
		check.That(t, b.at[1].Equal(start.Add(time.Hour)) && b.at[2].Equal(start.Add(2*time.Hour)), "delivered at %s", b.at)
		check.That(t, one.EventID == "e3" && one.EventType == "X" && one.Template == "x" && string(one.Payload) == `{"of":"e3"}`,
			"a digest of one: %+v", one)
		for event, window := range map[string]string{"e1": "01", "e2": "01", "e3": "02"} {
			d, digest := n.delivery("u", event), "digest:c:2000-01-01T"+window+":00:00Z"
			check.That(t, d.State == deliveries.Suppressed && d.Reason == "digest" && d.Digest == digest, "%s: %+v", event, d)
		}
	})
}

// start is when fake time begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// More than a digest delivers is counted, each once; a payload that is too large is read where it is.
func TestALargeDigest(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{})
		for i := range 130 {
			n.storeEvent(fmt.Sprint("e", i), digestHourly)
		}
		n.storeEvent("large", digestHourly, func(x *contracts.Notification) { x.Payload, x.Category = nil, "other" })
		elapse(65 * time.Minute)
		check.Require(t, len(b.sent) == 2, "%d messages", len(b.sent))
		for _, m := range b.sent {
			if m.Category == "other" {
				check.That(t, string(m.Payload) == `{"from":"plan"}`, "%s", m.Payload)
			} else if len(events(m)) != 100 || !strings.Contains(string(m.Payload), `"count":130`) || !strings.Contains(string(m.Payload), `"more":30`) {
				t.Errorf("%.300s", m.Payload)
			}
		}
	})
}

// An event whose id is that of a digest is delivered, and keeps no other event from it.
func TestAnEventThatIsCalledLikeADigest(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{})
		n.storeEvent("digest:c:2000-01-01T01:00:00Z", func(x *contracts.Notification) { x.EventType = channel.EventTypeDigest })
		n.storeEvent("e1", digestHourly)
		n.storeEvent("e2", digestHourly)
		elapse(3 * time.Hour)
		check.That(t, len(b.sent) == 2 && b.at[1].Equal(start.Add(2*time.Hour)) && len(events(b.sent[1])) == 2, "%s: %+v", b.at, b.sent)
	})
}

// A digest that ends before its window has the events that are in it, and none that come later.
func TestADigestThatEndsTakesNothingMore(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{}
		s := n.sender("a", b, profile{})
		n.startWorker(s)
		n.storeEvent("e1", digestHourly)
		elapse(time.Minute)
		subject := check.Must(contracts.NotifySendSubject("push", "CUSTOMER", "u", "digest:c:2000-01-01T01:00:00Z"))(n)
		notification := check.Must(n.notifications.Get(n.Context(), subject))(n)
		check.OK(n, s.Policy().OnDeadLetter(n.Context(), worker.DeadLetter{Payload: notification.Data, Subject: subject}))
		n.storeEvent("e2", digestHourly)
		elapse(3 * time.Hour)
		check.That(n, len(b.sent) == 1 && b.sent[0].EventID == "e2" && b.at[0].Equal(start.Add(2*time.Hour)), "%s: %+v", b.at, b.sent)
	})
}

// enabled is when endpoints come back that are disabled until then.
type enabled time.Time

func (e enabled) Admit(*health.Call) (health.Verdict, time.Duration) {
	if time.Now().Before(time.Time(e)) {
		return health.Off, 0
	}
	return health.Free, 0
}

func (enabled) Called(context.Context, *health.Call, channel.Message, *channel.Error) {}
func (enabled) Left(*health.Call)                                                     {}

// An event that was on its way into a digest which has ended undelivered in the meantime is delivered by the next.
func TestAnEventThatComesTooLateForItsDigest(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{}
		late := start.Add(time.Hour - 500*time.Millisecond)
		n.startWorker(n.sender("a", b, profile{Addresses: map[string]string{"push": "tel 7"}}, func(c *deliver.Config) {
			c.Health = enabled(start.Add(90 * time.Minute))
			c.Passed = func(point string) {
				if point == deliver.PointNoted && time.Now().Equal(late) {
					panic("the process died") // and comes back after a second
				}
			}
		}))
		n.storeEvent("e1", digestHourly)
		elapse(time.Until(late))
		n.storeEvent("e2", digestHourly)
		elapse(3 * time.Hour)
		check.That(n, len(b.sent) == 1 && b.sent[0].EventID == "e2" && b.at[0].Equal(start.Add(2*time.Hour)), "%s: %+v", b.at, b.sent)
	})
}

// audit checks that each event was delivered in one digest, which is the one that its notification names, and that each message was the
// same each time.
func (n *fixture) audit(b *provider, want []string) {
	n.Helper()
	messages := map[string]channel.Message{}
	in := map[string][]string{}
	for _, m := range b.sent {
		if first, again := messages[m.ID]; again {
			check.That(n, string(first.Payload) == string(m.Payload) && first.EventID == m.EventID,
				"message %s changed from %s to %s", m.ID, first.Payload, m.Payload)
			continue
		}
		messages[m.ID] = m
		for _, event := range events(m) {
			in[event] = append(in[event], m.ID)
		}
	}
	for _, event := range want {
		d, err := n.deliveries.Get(n.Context(), event+".push.CUSTOMER.u")
		if err != nil || d.State != deliveries.Suppressed || d.Reason != deliveries.ReasonDigest {
			n.Errorf("%s is %+v, %v", event, d, err)
			continue
		}
		key := check.Must(keys.Of(&contracts.Notification{EventID: d.Digest, Channel: "push", RecipientType: "CUSTOMER", UserID: "u"}))(n)
		check.Equal(n, in[event], []string{deliveries.MessageID(key)}, event, "is in, while its notification says", d.Digest)
	}
	check.Equal(n, len(in), len(want), "events are delivered, of")
}

// points are all that a notification and a digest pass.
var points = []string{
	deliver.PointNoted, deliver.PointJoined, deliver.PointSealed, deliver.PointClaimed, deliver.PointSent, deliver.PointRecorded,
}

// Whichever process dies, at any point and however late in the window: each event is in one digest.
func TestADigestSurvivesEveryCrash(t *testing.T) {
	for _, point := range points {
		for nth := int32(1); nth <= 3; nth++ {
			runWithFixture(t, fmt.Sprint(point, " ", nth), func(n *fixture) {
				dies, left := diesAt(point, nth)
				b := slow(3*time.Second, accepts) // a worker that dies on the way into a digest comes back while it is being delivered
				n.startWorker(n.sender("a", b, profile{}, dies))
				want := []string{"e1", "e2", "e3", "e4", "e5", "e6", "e7"}
				n.storeEvent("e1", digestEveryTwoMinutes)
				elapse(time.Minute)
				n.storeEvent("e2", digestEveryTwoMinutes)
				elapse(time.Minute - 500*time.Millisecond) // a worker that dies now comes back in the next window
				n.storeEvent("e3", digestEveryTwoMinutes)
				n.storeEvent("e4", digestEveryTwoMinutes)
				elapse(2 * time.Minute)
				n.storeEvent("e5", digestEveryTwoMinutes)
				n.storeEvent("e6", digestEveryTwoMinutes)
				elapse(2 * time.Minute)
				n.storeEvent("e7", digestEveryTwoMinutes)
				elapse(10 * time.Minute)
				n.audit(b, want)
				check.That(t, left.Load() <= 0, "nobody died: the point is to be passed %d times more", left.Load())
			})
		}
	}
}

// Notifications at any time, two processes that die at any point, and a channel that fails at times: each event is in one digest.
func TestDigestsUnderChaos(t *testing.T) {
	underChaos(t, 5*time.Second, 8, asIs, func(n *fixture, b *provider, chance func(int) int, calm func()) {
		var want []string
		for i := range 40 {
			event := fmt.Sprint("e", i)
			want = append(want, event)
			n.storeEvent(event, digestEveryTwoMinutes)
			elapse(time.Duration(chance(20_000)) * time.Millisecond)
		}
		calm()
		elapse(40 * time.Minute)
		n.audit(b, want)
	})
}

func asIs(*deliver.Config) {}

// underChaos runs test thrice, with two processes that die at one of oneIn points, at random, until calm is called. A
// delivery that fails is tried again after wait.
func underChaos(
	t *testing.T, wait time.Duration, oneIn int, mutate func(*deliver.Config),
	test func(n *fixture, b *provider, chance func(int) int, calm func()),
) {
	t.Helper()
	for range 3 {
		seed := rand.Uint64()
		runWithFixture(t, fmt.Sprint("seed ", seed), func(n *fixture) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 0))
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			var calm atomic.Bool
			b := &provider{}
			for _, name := range []string{"a", "b"} {
				n.startWorker(n.sender(name, b, profile{}, mutate, func(c *deliver.Config) {
					c.Retries = slices.Repeat([]time.Duration{wait}, 20)
					c.Passed = func(string) {
						if chance(oneIn) == 0 && !calm.Load() {
							panic("the process died")
						}
					}
				}))
			}
			test(n, b, chance, func() { calm.Store(true) })
		})
	}
}

// threePerMinute is a notification of which a user gets three a minute.
func threePerMinute(notification *contracts.Notification) {
	notification.Throttle = &contracts.Throttle{Limit: 3, Per: 60}
}

// most is how many different messages were sent in the fullest stretch of time.
func (b *provider) most(per time.Duration) int {
	most := 0
	for _, begin := range b.at {
		in := map[string]bool{}
		for i, at := range b.at {
			if !at.Before(begin) && at.Before(begin.Add(per)) {
				in[b.sent[i].ID] = true
			}
		}
		most = max(most, len(in))
	}
	return most
}

func TestAThrottlePutsOff(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{})
		for i := range 8 {
			n.storeEvent(fmt.Sprint("e", i), threePerMinute)
			elapse(time.Second)
		}
		n.storeEvent("urgent", threePerMinute, func(x *contracts.Notification) { x.Priority = channel.UrgencyCritical })
		n.storeEvent("other", threePerMinute, func(x *contracts.Notification) { x.Category = "d" })
		elapse(time.Second)
		d := n.delivery("u", "e4")
		check.That(t, d.State == deliveries.Deferred && d.Reason == "throttled" && d.Until.Equal(start.Add(time.Minute+time.Second)), "%+v", d)
		elapse(3 * time.Minute)
		var order []string
		for i, m := range b.sent {
			order = append(order, fmt.Sprintf("%s %s", m.EventID, b.at[i].Sub(start)))
		}
		want := []string{"e0 0s", "e1 1s", "e2 2s", "urgent 8s", "other 8s", "e3 1m0s", "e4 1m1s", "e5 1m2s", "e6 2m0s", "e7 2m1s"}
		slices.Sort(order[3:5])
		slices.Sort(want[3:5])
		check.That(t, slices.Equal(order, want), "got  %q\nwant %q", order, want)
	})
}

func TestAThrottleSuppresses(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{})
		for i := range 5 {
			n.storeEvent(fmt.Sprint("e", i), func(notification *contracts.Notification) {
				notification.Throttle = &contracts.Throttle{Limit: 3, Per: 60, Suppress: true}
			})
			elapse(time.Second)
		}
		elapse(5 * time.Minute)
		d := n.delivery("u", "e4")
		check.That(t, d.State == deliveries.Suppressed && d.Reason == "throttled" && len(b.sent) == 3, "%d messages, %+v", len(b.sent), d)
	})
}

// A notification that is delivered again takes no second grant.
func TestARetryIsCountedOnce(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: failsFirst(slices.Repeat([]error{&channel.Error{Kind: channel.KindUnavailable}}, 5)...)}
		n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = slices.Repeat([]time.Duration{time.Second}, 9) }))
		n.storeEvent("e0", threePerMinute)
		elapse(20 * time.Second)
		n.storeEvent("e1", threePerMinute)
		n.storeEvent("e2", threePerMinute)
		elapse(20 * time.Second)
		check.Equal(t, len(b.sent), 8, "calls in less than a minute")
	})
}

// Many notifications at once and later, two processes that die at any point: none is lost, and no stretch of time has more than the
// limit.
func TestAThrottleHoldsUnderChaos(t *testing.T) {
	underChaos(t, time.Second, 10, asIs, func(n *fixture, b *provider, chance func(int) int, calm func()) {
		for i := range 40 {
			n.storeEvent(fmt.Sprint("e", i), threePerMinute)
			if i >= 20 {
				elapse(time.Duration(chance(30_000)) * time.Millisecond)
			}
		}
		calm()
		elapse(20 * time.Minute)
		delivered := map[string]bool{}
		for _, m := range b.sent {
			delivered[m.EventID] = true
		}
		most := b.most(time.Minute)
		check.That(t, len(delivered) == 40 && most <= 3, "%d of 40 are delivered, up to %d a minute", len(delivered), most)
	})
}

// A notification that is not to be sent before a time waits for it on every channel, also when it is critical, and then still
// keeps to quiet hours.
func TestANotificationWaitsForItsTime(t *testing.T) {
	night := &contracts.QuietHours{From: "00:00", To: "02:00"} // it is midnight
	for name, test := range map[string]struct {
		ahead    time.Duration
		profile  profile
		priority string
		silent   bool
		at       time.Duration
	}{
		"an hour":        {time.Hour, profile{}, "", false, time.Hour},
		"critical":       {time.Hour, profile{QuietHours: night}, channel.UrgencyCritical, false, time.Hour},
		"silent":         {time.Hour, profile{QuietHours: night}, "", true, time.Hour},
		"in quiet hours": {time.Hour, profile{QuietHours: night}, "", false, 2 * time.Hour},
		"in the past":    {-time.Hour, profile{}, "", false, 0},
	} {
		runWithFixture(t, name, func(n *fixture) {
			begun := time.Now()
			b := n.startSending(test.profile, maybeSilent(test.silent))
			n.store(func(x *contracts.Notification) { x.NotBefore, x.Priority = begun.Add(test.ahead), test.priority })
			elapse(time.Minute)
			if test.at > 0 {
				n.want(deliveries.Deferred, "not_before")
				d := n.record()
				check.That(t, d.Until.Equal(begun.Add(test.ahead)), "until %s", d.Until)
			}
			elapse(test.at)
			n.want(map[bool]deliveries.State{false: deliveries.Sent, true: deliveries.Delivered}[test.silent], "", "sent")
			check.That(t, len(b.at) == 1 && b.at[0].Sub(begun).Truncate(time.Second) == test.at, "sent at %v, want after %s", b.at, test.at)
		})
	}
}

// A user's own digest goes before that of the rule, where a rule could have one, and is not one where a notification was tried by itself.
func TestDigestsThatUsersChoose(t *testing.T) {
	alone := func(*contracts.Notification) {}
	for name, test := range map[string]struct {
		wishes map[string]string
		mutate func(*contracts.Notification)
		silent bool
		at     []time.Duration // since midnight
	}{
		"none by the rule":  {map[string]string{"c": "30m"}, alone, false, []time.Duration{30 * time.Minute}},
		"other by the rule": {map[string]string{"c": "00:10,09:00"}, digestHourly, false, []time.Duration{10 * time.Minute}},
		"off":               {map[string]string{"c": "off", "*": "30m"}, digestHourly, false, []time.Duration{0, 0}},
		"every category":    {map[string]string{"*": "30m", "d": "off"}, alone, false, []time.Duration{30 * time.Minute}},
		"another category":  {map[string]string{"d": "30m"}, alone, false, []time.Duration{0, 0}},
		"no category":       {map[string]string{"": "off", "*": "30m"}, func(x *contracts.Notification) { x.Category = "" }, false, []time.Duration{30 * time.Minute}},
		"critical":          {map[string]string{"c": "30m"}, func(x *contracts.Notification) { x.Priority = channel.UrgencyCritical }, false, []time.Duration{0, 0}},
		"inbox":             {map[string]string{"c": "30m"}, alone, true, []time.Duration{0, 0}},
		"inbox by the rule": {map[string]string{"c": "30m"}, digestHourly, true, []time.Duration{30 * time.Minute}},
		"in front":          {map[string]string{"c": "30m"}, func(x *contracts.Notification) { x.Fallback = []string{"x"} }, false, []time.Duration{0, 0}},
		"behind":            {map[string]string{"c": "30m"}, func(x *contracts.Notification) { x.FallbackOf = "x" }, false, []time.Duration{0, 0}},
		"unreadable":        {map[string]string{"c": "now and then"}, digestHourly, false, []time.Duration{time.Hour}},
	} {
		runWithFixture(t, name, func(n *fixture) {
			b := n.startSending(profile{Digest: test.wishes}, maybeSilent(test.silent))
			for _, event := range []string{"e1", "e2"} {
				n.storeEvent(event, test.mutate)
			}
			elapse(70 * time.Minute)
			var at []time.Duration
			for i := range b.sent {
				at = append(at, b.at[i].Sub(start))
			}
			check.That(t, slices.Equal(at, test.at), "delivered at %s, want %s", at, test.at)
		})
	}
}

// A wish that changes while a notification goes into a digest, or is tried again, changes nothing of that: the notification is in one
// message.
func TestADigestThatIsChosenMeanwhile(t *testing.T) {
	for _, point := range []string{deliver.PointNoted, deliver.PointJoined} {
		runWithFixture(t, "off at "+point, func(n *fixture) {
			n.dieAt(&provider{}, point, 1, func(c *deliver.Config) { c.Profiles = profile{Digest: map[string]string{"*": "1h"}} })
			n.store(func(x *contracts.Notification) { x.Category = "" })
			b := n.startSending(profile{Digest: map[string]string{"*": "off"}})
			elapse(65 * time.Minute)
			check.That(t, len(b.sent) == 1 && b.at[0].Equal(start.Add(time.Hour)), "%v %+v", b.at, b.sent)
			n.want(deliveries.Suppressed, "digest")
		})
	}
	runWithFixture(t, "off, and the digest is sent", func(n *fixture) {
		n.dieAt(&provider{}, deliver.PointNoted, 1, func(c *deliver.Config) { c.Profiles = profile{Digest: map[string]string{"*": "1h"}} })
		b := &provider{}
		n.storeEvent("e2", func(x *contracts.Notification) { x.Category, x.Template = "", "" })
		stop := n.startWorker(n.sender("a", b, profile{Digest: map[string]string{"*": "1h"}}))
		elapse(65 * time.Minute)
		stop()
		n.store(func(x *contracts.Notification) { x.Category = "" })
		n.startWorker(n.sender("a", b, profile{Digest: map[string]string{"*": "off"}}))
		elapse(time.Minute)
		check.That(t, len(b.sent) == 2, "%+v", b.sent)
		d := n.record()
		check.That(t, d.State == deliveries.Sent && d.Digest == "", "%+v", d)
	})
	runWithFixture(t, "tried", func(n *fixture) {
		b := &provider{}
		n.dieAt(b, deliver.PointSent, 1)
		n.store()
		n.startWorker(n.sender("a", b, profile{Digest: map[string]string{"*": "1h"}}))
		elapse(65 * time.Minute)
		n.want(deliveries.Sent, "", "unknown", "sent")
	})
}

// Quiet hours hold a digest and throttled notifications back until their end, as the user has them by then. It is midnight.
func TestQuietHoursHoldAllBack(t *testing.T) {
	short, night := &contracts.QuietHours{From: "23:00", To: "00:20"}, &contracts.QuietHours{From: "23:00", To: "01:20"}
	for name, test := range map[string]struct {
		mutate     func(*contracts.Notification)
		was, is    *contracts.QuietHours // before and after ten minutes
		deliveries []time.Duration       // since midnight
	}{
		"digest":             {digestHourly, night, night, []time.Duration{80 * time.Minute}},
		"throttled":          {threePerMinute, short, short, []time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute, 21 * time.Minute}},
		"less, in the midst": {withCategory, night, short, slices.Repeat([]time.Duration{80 * time.Minute}, 4)}, // as they were promised
		"more, in the midst": {withCategory, short, night, slices.Repeat([]time.Duration{80 * time.Minute}, 4)},
	} {
		runWithFixture(t, name, func(n *fixture) {
			o := newFakeUser("main")
			o.QuietHours = test.was
			b := n.startSending(profile{}, o.config)
			for i := range 4 {
				n.storeEvent(fmt.Sprint("e", i), test.mutate)
			}
			elapse(10 * time.Minute)
			o.mu.Lock()
			o.QuietHours = test.is
			o.mu.Unlock()
			elapse(75 * time.Minute)
			var got []time.Duration
			for _, at := range b.at {
				got = append(got, at.Sub(start).Truncate(time.Second))
			}
			check.Equal(n, got, test.deliveries)
		})
	}
}
