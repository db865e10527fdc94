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
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// hourly is a notification whose digest is delivered each hour.
func hourly(row *contracts.Notification) { row.Digest = &contracts.Digest{Every: 60} }

// often is a notification whose digest is delivered every two minutes.
func often(row *contracts.Notification) { row.Digest = &contracts.Digest{Every: 2} }

// storeEvent stores a notification of an event.
func (n *nest) storeEvent(event string, mutate ...func(*contracts.Notification)) {
	n.Helper()
	n.put(aRow(event, "u", append([]func(*contracts.Notification){ofC, func(row *contracts.Notification) {
		row.Payload, row.Template = json.RawMessage(fmt.Sprintf("{%q:%q}", "of", event)), "x"
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
	inNest(t, func(n *nest) {
		b := n.flock(profile{Addresses: map[string]string{"bird": "nest 7"}})
		n.storeEvent("e1", hourly)
		elapse(10 * time.Minute)
		n.storeEvent("e2", hourly, func(row *contracts.Notification) { row.Locale = "he" })
		n.storeEvent("now", hourly, func(row *contracts.Notification) { row.Priority = channel.UrgencyCritical })
		elapse(10 * time.Minute)
		check.Require(t, len(b.sent) == 1 && b.sent[0].EventID == "now", "before the end of the window: %+v", b.sent)
		elapse(time.Hour)
		n.storeEvent("e3", hourly) // 01:20
		elapse(2 * time.Hour)
		check.Require(t, len(b.sent) == 3, "%+v", b.sent)
		many, one := b.sent[1], b.sent[2]
		if diff := strings.Join(events(many), ","); diff != "e1,e2" || many.Template != "c.digest" || many.Locale != "he" ||
			many.EventID != "digest:c:2000-01-01T01:00:00Z" || many.Address != "nest 7" || many.Category != "c" {
			t.Errorf("%+v %s", many, many.Payload)
		}
		check.That(t, b.at[1].Equal(start.Add(time.Hour)) && b.at[2].Equal(start.Add(2*time.Hour)), "delivered at %s", b.at)
		check.That(t, one.EventID == "e3" && one.EventType == "X" && one.Template == "x" && string(one.Payload) == `{"of":"e3"}`,
			"a digest of one: %+v", one)
		for event, window := range map[string]string{"e1": "01", "e2": "01", "e3": "02"} {
			d, err := n.deliveries.Get(n.Context(), event+".bird.CUSTOMER.u")
			check.That(t,
				err == nil && d.State == deliveries.Suppressed && d.Reason == "digest" && d.Digest == "digest:c:2000-01-01T"+window+":00:00Z",
				"%s: %+v, %v", event, d, err)
		}
	})
}

// start is when fake time begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// More than a digest delivers is counted, each once; a payload that is too large is read where it is.
func TestALargeDigest(t *testing.T) {
	inNest(t, func(n *nest) {
		b := n.flock(profile{})
		for i := range 130 {
			n.storeEvent(fmt.Sprint("e", i), hourly)
		}
		n.storeEvent("large", hourly, func(row *contracts.Notification) { row.Payload, row.Category = nil, "other" })
		elapse(2 * time.Hour)
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
	inNest(t, func(n *nest) {
		b := n.flock(profile{})
		n.storeEvent("digest:c:2000-01-01T01:00:00Z", func(row *contracts.Notification) { row.EventType = channel.EventTypeDigest })
		n.storeEvent("e1", hourly)
		n.storeEvent("e2", hourly)
		elapse(3 * time.Hour)
		check.That(t, len(b.sent) == 2 && b.at[1].Equal(start.Add(2*time.Hour)) && len(events(b.sent[1])) == 2, "%s: %+v", b.at, b.sent)
	})
}

// A digest that ends before its window has the events that are in it, and none that come later.
func TestADigestThatEndsTakesNothingMore(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		s := n.sender("a", b, profile{})
		n.work(s)
		n.storeEvent("e1", hourly)
		elapse(time.Minute)
		subject := check.Must(contracts.NotifySendSubject("bird", "CUSTOMER", "u", "digest:c:2000-01-01T01:00:00Z"))(n)
		row := check.Must(n.rows.Get(n.Context(), subject))(n)
		check.OK(n, s.Policy().OnDeadLetter(n.Context(), worker.DeadLetter{Payload: row.Data, Subject: subject}))
		n.storeEvent("e2", hourly)
		elapse(3 * time.Hour)
		check.That(n, len(b.sent) == 1 && b.sent[0].EventID == "e2" && b.at[0].Equal(start.Add(2*time.Hour)),
			"%s: %+v", b.at, b.sent)
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
	inNest(t, func(n *nest) {
		b := &bird{}
		late := start.Add(time.Hour - 500*time.Millisecond)
		n.work(n.sender("a", b, profile{Addresses: map[string]string{"bird": "nest 7"}}, func(c *deliver.Config) {
			c.Health = enabled(start.Add(90 * time.Minute))
			c.Passed = func(point string) {
				if point == deliver.PointNoted && time.Now().Equal(late) {
					panic("the process died") // and comes back after a second
				}
			}
		}))
		n.storeEvent("e1", hourly)
		elapse(time.Until(late))
		n.storeEvent("e2", hourly)
		elapse(3 * time.Hour)
		check.That(n, len(b.sent) == 1 && b.sent[0].EventID == "e2" && b.at[0].Equal(start.Add(2*time.Hour)),
			"%s: %+v", b.at, b.sent)
	})
}

// audit checks that each event was delivered in one digest, which is the one that its notification names, and that each message was the
// same each time.
func (n *nest) audit(b *bird, want []string) {
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
		d, err := n.deliveries.Get(n.Context(), event+".bird.CUSTOMER.u")
		if err != nil || d.State != deliveries.Suppressed || d.Reason != deliveries.ReasonDigest {
			n.Errorf("%s is %+v, %v", event, d, err)
			continue
		}
		key := check.Must(keys.Of(&contracts.Notification{EventID: d.Digest, Channel: "bird", RecipientType: "CUSTOMER", UserID: "u"}))(n)
		if !slices.Equal(in[event], []string{deliveries.MessageID(key)}) {
			n.Errorf("%s is in %v, its notification says %s (%s)", event, in[event], deliveries.MessageID(key), d.Digest)
		}
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
			runInNest(t, fmt.Sprint(point, " ", nth), func(n *nest) {
				dies, left := diesAt(point, nth)
				b := takes(3*time.Second, arrives) // a worker that dies on the way into a digest comes back while it is being delivered
				n.work(n.sender("a", b, profile{}, dies))
				want := []string{"e1", "e2", "e3", "e4", "e5", "e6", "e7"}
				n.storeEvent("e1", often)
				elapse(time.Minute)
				n.storeEvent("e2", often)
				elapse(time.Minute - 500*time.Millisecond) // a worker that dies now comes back in the next window
				n.storeEvent("e3", often)
				n.storeEvent("e4", often)
				elapse(2 * time.Minute)
				n.storeEvent("e5", often)
				n.storeEvent("e6", often)
				elapse(2 * time.Minute)
				n.storeEvent("e7", often)
				elapse(10 * time.Minute)
				n.audit(b, want)
				check.That(t, left.Load() <= 0, "nobody died: the point is to be passed %d times more", left.Load())
			})
		}
	}
}

// Notifications at any time, two processes that die at any point, and a channel that fails at times: each event is in one digest.
func TestDigestsUnderChaos(t *testing.T) {
	underChaos(t, 5*time.Second, 8, func(n *nest, b *bird, chance func(int) int, calm func()) {
		var want []string
		for i := range 40 {
			event := fmt.Sprint("e", i)
			want = append(want, event)
			n.storeEvent(event, often)
			elapse(time.Duration(chance(20_000)) * time.Millisecond)
		}
		calm()
		elapse(40 * time.Minute)
		n.audit(b, want)
	})
}

// underChaos runs test thrice, with two processes that die at one of oneIn points, at random, until calm is called. A
// delivery that fails is tried again after wait.
func underChaos(t *testing.T, wait time.Duration, oneIn int, test func(n *nest, b *bird, chance func(int) int, calm func())) {
	t.Helper()
	for range 3 {
		seed := rand.Uint64()
		runInNest(t, fmt.Sprint("seed ", seed), func(n *nest) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 0))
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			var calm atomic.Bool
			b := &bird{}
			for _, name := range []string{"a", "b"} {
				n.work(n.sender(name, b, profile{}, func(c *deliver.Config) {
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
