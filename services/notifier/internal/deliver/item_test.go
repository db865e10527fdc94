package deliver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// silentProvider is a channel that disturbs nobody, as the inbox does.
type silentProvider struct{ *provider }

func (q silentProvider) Item(m channel.Message) (json.RawMessage, error) {
	_, err := q.Send(context.Background(), m)
	return json.RawMessage("{}"), err
}

// maybeSilent has the provider of a sender disturb nobody.
func maybeSilent(is bool) func(*deliver.Config) {
	return func(c *deliver.Config) {
		if b, ok := c.Channel.(*provider); ok && is {
			c.Channel = silentProvider{b}
		}
	}
}

// box is an inbox, and into has a sender deliver there.
func (n *fixture) box() (box *inapp.Inbox, into func(*deliver.Config)) {
	n.Helper()
	box = inapp.New(n.js, recordtest.Client(n.T, n.js), nil)
	return box, func(c *deliver.Config) { c.Channel = box }
}

// writes is how often something was written into a bucket.
func (n *fixture) writes(bucket string) int {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), "KV_"+bucket))(n)
	info := stream.CachedInfo()
	return int(info.State.LastSeq + 1 - info.Config.FirstSeq)
}

// itemKey is the key of a notification of the inbox, and itemJob that notification as it is delivered for the n-th time.
const itemKey = "e.inapp.CUSTOMER.u"

func (n *fixture) itemJob(delivered int, mutate ...func(*contracts.Notification)) *worker.Job[contracts.Notification] {
	return n.job(delivered, append([]func(*contracts.Notification){withCategory, func(x *contracts.Notification) { x.Channel = "inapp" }}, mutate...)...)
}

// planned is that notification as the expander has it.
func (n *fixture) planned(mutate ...func(*contracts.Notification)) contracts.Notification {
	n.Helper()
	return n.itemJob(1, mutate...).Args
}

// wantItem wants the notification of the inbox in a state, after attempts with outcomes and so many writes.
func (n *fixture) wantItem(writes int, state deliveries.State, reason string, outcomes ...string) *deliveries.Delivery {
	n.Helper()
	d := check.Must(n.deliveries.Get(n.Context(), itemKey))(n)
	n.wantDelivery(d, state, reason, outcomes)
	check.That(n, (d.State == deliveries.Delivered) == (len(d.Item) > 0), "it is %s, and its item is %s", d.State, d.Item)
	check.Equal(n, n.writes(contracts.BucketInbox), writes, "writes of the record")
	check.Equal(n, n.writes(contracts.BucketDeliveries), 0, "records elsewhere")
	return d
}

// An item is its notification's attempt, and in its record: whoever delivers the notification, one after the other or all at once,
// there is one write, one item and one attempt. It says so after the user has marked it, too.
func TestAnItemIsTheAttempt(t *testing.T) {
	for name, by := range map[string]func(n *fixture, s *deliver.Sender, delivered int) error{
		"a worker": func(n *fixture, s *deliver.Sender, delivered int) error {
			return s.Work(n.Context(), n.itemJob(delivered))
		},
		"the expander": func(n *fixture, s *deliver.Sender, _ int) error {
			return check.Err(s.Deliver(n.Context(), n.planned(), nil))
		},
	} {
		runWithFixture(t, name, func(n *fixture) {
			box, into := n.box()
			begun := time.Now()
			check.OK(n, by(n, n.sender("a", &provider{}, profile{}, into), 1))
			elapse(time.Hour)
			check.OK(n, check.Err(box.Mark(n.Context(), "CUSTOMER", "u", "e", inapp.Read)))
			check.OK(n, by(n, n.sender("b", &provider{}, profile{}, into), 2))
			d := n.wantItem(2, deliveries.Delivered, "", "sent")
			a := d.Attempts[0]
			check.That(n, a.Worker == "a" && a.At.Equal(begun) && d.UpdatedAt.Equal(begun) && d.ProviderID == deliveries.MessageID(itemKey),
				"%+v", d)
		})
	}
	withFixture(t, func(n *fixture) {
		_, into := n.box()
		var all sync.WaitGroup
		for i := range 8 {
			s := n.sender(fmt.Sprint("worker-", i), &provider{}, profile{}, into)
			all.Go(func() { check.OK(n, s.Work(n.Context(), n.itemJob(1+i/4))) })
			all.Go(func() { check.OK(n, check.Err(s.Deliver(n.Context(), n.planned(), nil))) })
		}
		all.Wait()
		writes := n.writes(contracts.BucketInbox)
		check.That(n, writes == 1 || writes == 2, "%d writes", writes) // the second says that the notification is stored too
		n.wantItem(writes, deliveries.Delivered, "", "sent")
	})
}

// A notification whose item was removed was delivered, and gets no other one.
func TestAnItemThatIsRemoved(t *testing.T) {
	withFixture(t, func(n *fixture) {
		_, into := n.box()
		s := n.sender("a", &provider{}, profile{}, into)
		check.OK(n, s.Work(n.Context(), n.itemJob(1)))
		check.OK(n, check.Must(n.js.KeyValue(n.Context(), contracts.BucketInbox))(n).Delete(n.Context(), "CUSTOMER.u.e"))
		check.OK(n, s.Work(n.Context(), n.itemJob(2)))
		check.OK(n, s.Work(n.Context(), n.itemJob(1)))
		outcome, err := s.Deliver(n.Context(), n.planned(), nil)
		check.That(n, outcome == deliver.Known && err == nil, "%v, %v", outcome, err)
		d := check.Must(n.deliveries.Get(n.Context(), itemKey))(n)
		check.That(n, d.State == deliveries.Delivered && n.writes(contracts.BucketInbox) == 2, "%+v", d)
	})
}

// The item of a worker that died counts as sent, whatever the user wants by then, and whenever the next worker finds it: before it
// begins, or not before it ends the notification. The next channel is not called then.
func TestAnItemOfADeadWorkerIsDelivered(t *testing.T) {
	var cancelled cancellations
	cancelled.set("e")
	falls := func(x *contracts.Notification) { x.Fallback = []string{"push"} }
	for name, then := range map[string]struct {
		wants  profile
		mutate func(*deliver.Config)
		fails  error
	}{
		"nothing new": {profile{}, func(*deliver.Config) {}, nil},
		"cancelled":   {profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }, nil},
		"opted out":   {profile{OptOut: map[string][]string{contracts.Anything: {contracts.Anything}}}, func(*deliver.Config) {}, nil},
		"unreadable":  {profile{}, func(*deliver.Config) {}, &recipient.Error{Permanent: true}},
	} {
		for _, late := range []bool{false, true} {
			runWithFixture(t, fmt.Sprintf("%s, late %v", name, late), func(n *fixture) {
				_, into := n.box()
				brings := n.sender("a", &provider{}, profile{}, into)
				bring := sync.OnceFunc(func() { check.OK(n, brings.Work(n.Context(), n.itemJob(1))) })
				if !late {
					bring()
				}
				next := n.sender("b", &provider{}, profile{}, into, then.mutate, func(c *deliver.Config) {
					c.Profiles = profileFunc(func(string) (contracts.Recipient, error) {
						bring()
						return contracts.Recipient(then.wants), then.fails
					})
					c.Cancelled = &during{c.Cancelled, bring}
				})
				check.OK(n, next.Work(n.Context(), n.itemJob(2, falls)))
				n.wantItem(1, deliveries.Delivered, "", "sent")
				check.Equal(n, n.followed(), 0, "notifications of the next channel")
			})
		}
	}
}

// followed is how many notifications have been stored that follow another one.
func (n *fixture) followed() int {
	n.Helper()
	return int(check.Must(n.js.Stream(n.Context(), contracts.StreamNotifications))(n).CachedInfo().State.Msgs)
}

// during are cancellations in the midst of whose answer something is done.
type during struct {
	deliver.Cancellations

	do func()
}

func (d *during) Covers(ctx context.Context, notification *contracts.Notification, sure bool) (bool, error) {
	if d.Cancellations == nil {
		return false, nil
	}
	d.do()
	return d.Cancellations.Covers(ctx, notification, sure)
}

// Of a notification that is delivered and cancelled at the same time by many, all learn the same, and lists have its item or do not.
func TestAnItemIsCancelledOrThere(t *testing.T) {
	withFixture(t, func(n *fixture) {
		box, into := n.box()
		s := n.sender("a", &provider{}, profile{}, into)
		for i := range 50 {
			event := fmt.Sprint("e", i)
			notification := n.planned(func(x *contracts.Notification) { x.EventID = event })
			key := check.Must(keys.Of(&notification))(n)
			var all sync.WaitGroup
			for j := range 4 {
				all.Go(func() {
					if j%2 == 0 {
						check.OK(n, check.Err(s.Deliver(n.Context(), notification, nil)))
						return
					}
					check.OK(n, s.Work(n.Context(), n.itemJob(1, func(x *contracts.Notification) { x.EventID = event })))
				})
				all.Go(func() {
					d := &deliveries.Delivery{State: deliveries.Suppressed, Reason: deliveries.ReasonCancelled}
					err := n.deliveries.Put(n.Context(), key, d)
					if taken, ok := errors.AsType[*deliveries.TakenError](err); !ok || !taken.There.State.Ended() {
						check.OK(n, err)
					}
				})
			}
			all.Wait()
			d := check.Must(n.deliveries.Get(n.Context(), key))(n)
			err := check.Err(box.Get(n.Context(), "CUSTOMER", "u", event))
			check.That(n, d.State == deliveries.Delivered && err == nil || d.State == deliveries.Suppressed && errors.Is(err, inapp.ErrNotFound),
				"it is %s, the item: %v", d.State, err)
		}
	})
}

// A notification of the inbox that is put off is not visible until it is delivered, and keeps its record.
func TestAnItemThatIsPutOff(t *testing.T) {
	withFixture(t, func(n *fixture) {
		box, into := n.box()
		s := n.sender("a", &provider{}, profile{}, into)
		later := func(x *contracts.Notification) { x.NotBefore = start.Add(time.Hour) }
		check.Equal(n, snoozed(s.Work(n.Context(), n.itemJob(1, later))), time.Hour, "deferred for")
		n.wantItem(1, deliveries.Deferred, deliveries.ReasonNotBefore)
		page := check.Must(box.Page(n.Context(), "", "u", inapp.ListOptions{}))(n)
		seen := check.Must(box.Seen(n.Context(), "CUSTOMER", "u", "e"))(n)
		check.That(n, len(page.Items) == 0 && page.Counts.Unread == 0 && !seen, "%+v, seen: %v", page, seen)
		check.ErrorIs(n, check.Err(box.Mark(n.Context(), "CUSTOMER", "u", "e", inapp.Read)), inapp.ErrNotFound)
		elapse(time.Hour)
		check.OK(n, s.Work(n.Context(), n.itemJob(2, later)))
		check.OK(n, check.Err(box.Mark(n.Context(), "CUSTOMER", "u", "e", inapp.Read)))
		n.wantItem(3, deliveries.Delivered, "", "sent")
		check.That(n, check.Must(box.Seen(n.Context(), "CUSTOMER", "u", "e"))(n), "it was not seen")
	})
}

// A message that the inbox never takes fails its notification for good, with the attempt. Sent again, the notification has all attempts.
func TestAnItemThatIsRefused(t *testing.T) {
	withFixture(t, func(n *fixture) {
		_, into := n.box()
		s := n.sender("a", &provider{}, profile{}, into)
		bad := func(x *contracts.Notification) { x.Payload = []byte(`"` + strings.Repeat("x", 2<<20) + `"`) }
		outcome, err := s.Deliver(n.Context(), n.planned(bad), nil)
		check.That(n, outcome == deliver.Held && err == nil, "%v, %v", outcome, err)
		check.That(n, s.Work(n.Context(), n.itemJob(1, bad)) != nil, "it did not fail")
		n.wantItem(1, deliveries.Failed, "rejected", "rejected")
		d := check.Must(n.deliveries.Get(n.Context(), itemKey))(n)
		d.Replay()
		check.OK(n, n.deliveries.Put(n.Context(), itemKey, d))
		check.OK(n, s.Work(n.Context(), n.itemJob(2)))
		n.wantItem(3, deliveries.Delivered, "", "rejected", "sent")
	})
}

// An inbox that does not answer, or not in time, is an error of the expander, for the item may have come. A worker puts the
// notification off.
func TestAnInboxThatDoesNotAnswer(t *testing.T) {
	withFixture(t, func(n *fixture) {
		_, into := n.box()
		silent := natstest.NewProxy(n.T, n.srv)
		_, js := natstest.Connect(n.T, n.srv, silent.Through())
		s := n.sender("a", &provider{}, profile{}, into, func(c *deliver.Config) {
			c.Deliveries, c.Timeout = deliveries.New(recordtest.Client(n, js)), time.Second
		})
		silent.Cut()
		begun := time.Now()
		outcome, err := s.Deliver(n.Context(), n.planned(), nil)
		check.That(n, outcome == deliver.Held && err != nil, "%v, %v", outcome, err)
		check.Equal(n, snoozed(s.Work(n.Context(), n.itemJob(1))), time.Second, "deferred for")
		check.That(n, time.Since(begun) < time.Minute, "it took %s", time.Since(begun))
	})
}

// A notification that nothing holds is delivered with the payload of its event. When the expander got no answer, the notification is
// stored too: then its record says that.
func TestANotificationIsDeliveredAtOnce(t *testing.T) {
	withFixture(t, func(n *fixture) {
		box, into := n.box()
		s := n.sender("a", &provider{}, profile{}, into)
		notification := n.planned()
		check.That(n, s.Immediate(&notification), "it is not immediate")
		for _, want := range []deliver.Outcome{deliver.Sent, deliver.Known} {
			check.Equal(n, check.Must(s.Deliver(n.Context(), notification, []byte(`{"of":"event"}`)))(n), want)
		}
		check.Equal(n, string(check.Must(box.Get(n.Context(), "CUSTOMER", "u", "e"))(n).Payload), `{"of":"event"}`, "the payload")
		check.That(n, n.wantItem(1, deliveries.Delivered, "", "sent").AtOnce, "a stream should have it")
		check.Equal(n, s.Came()[deliver.Standing{State: deliveries.Delivered}], 1, "counted")
		check.OK(n, s.Work(n.Context(), n.itemJob(1)))
		check.That(n, !n.wantItem(2, deliveries.Delivered, "", "sent").AtOnce, "no stream should have it")
	})
}

// A notification that may have to wait, or that another follows, is not immediate.
func TestNotificationsThatAreNotImmediate(t *testing.T) {
	withFixture(t, func(n *fixture) {
		_, into := n.box()
		s := n.sender("a", &provider{}, profile{}, into)
		for name, mutate := range map[string]func(*contracts.Notification){
			"channel":     func(r *contracts.Notification) { r.Channel = "email" },
			"digest's id": func(r *contracts.Notification) { r.EventID = hold.DigestIDPrefix + "c:2026-01-01T00:00:00Z" },
			"digest":      func(r *contracts.Notification) { r.Digest = &contracts.Digest{} },
			"fallback":    func(r *contracts.Notification) { r.Fallback = []string{"email"} },
			"not before":  func(r *contracts.Notification) { r.NotBefore = time.Now() },
			"unread":      func(r *contracts.Notification) { r.Unread = true },
		} {
			notification := n.planned(mutate)
			check.That(n, !s.Immediate(&notification), "%s: it is immediate", name)
		}
	})
}

// A notification that its user, a cancellation or an operator holds is not delivered at once. What disturbs nobody is held for fewer
// reasons.
func TestANotificationThatIsHeldIsNotDeliveredAtOnce(t *testing.T) {
	soon := time.Now().Add(100 * 365 * 24 * time.Hour)
	for name, test := range map[string]struct {
		of      profile
		outcome deliver.Outcome
		mutate  func(n *fixture, c *deliver.Config)
	}{
		"opt out": {of: profile{OptOut: map[string][]string{"c": {"inapp"}}}},
		"others": {outcome: deliver.Sent, of: profile{
			Digest: map[string]string{"c": "1h"}, Endpoints: map[string]map[string]contracts.Endpoint{"inapp": {"b": {Address: "b"}}},
			Mute: map[string]time.Time{"c": soon}, QuietHours: &contracts.QuietHours{From: "22:00", To: "21:00"}, TimeZone: "UTC",
		}},
		"paused": {mutate: func(_ *fixture, c *deliver.Config) {
			c.Paused = func(subject string) bool { return subject == "notify.send.inapp.CUSTOMER.u.e" }
		}},
		"cancelled": {mutate: func(_ *fixture, c *deliver.Config) {
			var cancelled cancellations
			cancelled.set("e")
			c.Cancelled = &cancelled
		}},
		"under way": {mutate: func(n *fixture, _ *deliver.Config) {
			check.OK(n, n.deliveries.Put(n.Context(), itemKey, &deliveries.Delivery{State: deliveries.Deferred}))
		}},
	} {
		runWithFixture(t, name, func(n *fixture) {
			_, into := n.box()
			s := n.sender("a", &provider{}, test.of, into, func(c *deliver.Config) {
				if test.mutate != nil {
					test.mutate(n, c)
				}
			})
			outcome, err := s.Deliver(n.Context(), n.planned(func(r *contracts.Notification) { r.Throttle = &contracts.Throttle{Limit: 1, Per: 1} }), nil)
			check.That(n, outcome == test.outcome && err == nil, "%v, %v", outcome, err)
			check.Equal(n, len(s.Came()), int(test.outcome), "counted")
		})
	}
}

// A digest of one event is that event's item, beside the record that says that its notification is in the digest, wherever its worker
// dies. A digest of two has its own item.
func TestDigestsInTheInbox(t *testing.T) {
	const id = "digest:c:2000-01-01T01:00:00Z"
	for _, events := range [][]string{{"e"}, {"e", "f"}} {
		for _, dies := range []string{"", deliver.PointSent} {
			runWithFixture(t, fmt.Sprintf("%d events, dies at %q", len(events), dies), func(n *fixture) {
				box, into := n.box()
				s := n.sender("a", &provider{}, profile{}, into)
				for _, event := range events {
					check.OK(n, s.Work(n.Context(), n.itemJob(1, digestHourly, func(r *contracts.Notification) { r.EventID = event })))
				}
				elapse(time.Hour)
				whole := func(delivered int) *worker.Job[contracts.Notification] {
					return n.itemJob(delivered, func(r *contracts.Notification) {
						r.EventID, r.EventType, r.Collected = id, channel.EventTypeDigest, true
					})
				}
				if dies != "" {
					mutate, left := diesAt(dies, 1)
					func() {
						defer func() { check.That(n, recover() != nil && left.Load() == 0, "it did not die") }()
						check.OK(n, n.sender("dead", &provider{}, profile{}, into, mutate).Work(n.Context(), whole(1)))
					}()
				}
				check.OK(n, s.Work(n.Context(), whole(2)))
				page := check.Must(box.Page(n.Context(), "", "u", inapp.ListOptions{}))(n)
				check.Require(n, len(page.Items) == 1, "%+v", page)
				want := map[int]string{1: "e", 2: id}[len(events)]
				check.Equal(n, page.Items[0].EventID, want, "the item is of")
				d := check.Must(n.deliveries.Get(n.Context(), itemKey))(n)
				check.That(n, d.State == deliveries.Suppressed && d.Digest == id, "%+v", d)
				of := whole(1).Args
				d = check.Must(n.deliveries.Get(n.Context(), check.Must(keys.Of(&of))(n)))(n)
				check.That(n, d.State == deliveries.Delivered && len(d.Attempts) == 1 && !d.AtOnce, "%+v", d)
			})
		}
	}
}

// A store that is full holds notifications up, for however long, and costs them neither attempts nor their message.
func TestAFullBucketLosesNothing(t *testing.T) {
	withFixture(t, func(n *fixture) {
		size := func(bytes int64) {
			cfg := check.Must(n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries))(n).CachedInfo().Config
			cfg.MaxBytes = bytes
			check.OK(n, check.Err(n.js.UpdateStream(n.Context(), cfg)))
		}
		size(1)
		n.startWorker(n.sender("a", &provider{}, profile{}))
		n.store()
		elapse(10 * time.Minute) // hundreds of tries
		n.want(deliveries.Pending, "")
		size(1 << 20)
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "sent")
		check.Equal(n, n.deadLetters(), 0, "dead letters")
	})
}
