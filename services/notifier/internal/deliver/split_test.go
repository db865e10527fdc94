package deliver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// fakeUser is a directory of one user with several ids, which may change.
type fakeUser struct {
	profile

	mu      sync.Mutex
	dropped []string
	dropErr error // of the store, when an address is dropped
}

func newFakeUser(ids ...string) *fakeUser {
	o := &fakeUser{profile: profile{Addresses: map[string]string{}, Endpoints: map[string]map[string]contracts.Endpoint{"push": {}}}}
	o.add(ids...)
	return o
}

// add puts addresses there, each of which is "tel <id>".
func (o *fakeUser) add(ids ...string) {
	for _, id := range ids {
		o.set(id, contracts.Endpoint{Address: "tel " + id})
	}
}

// set puts an address there, "" for none.
func (o *fakeUser) set(id string, e contracts.Endpoint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id == contracts.MainEndpoint {
		o.Addresses["push"], e.Address = e.Address, ""
	}
	o.Endpoints["push"][id] = e
}

func (o *fakeUser) Get(context.Context, contracts.RecipientType, string) (contracts.Recipient, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := contracts.Recipient(o.profile)
	r.Addresses = maps.Clone(o.Addresses)
	r.Endpoints = map[string]map[string]contracts.Endpoint{"push": {}}
	maps.Copy(r.Endpoints["push"], o.Endpoints["push"])
	return r, true, nil
}

func (o *fakeUser) Drop(_ context.Context, kind contracts.RecipientType, user, name, address string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = append(o.dropped, fmt.Sprint(kind, " ", user, " ", name, " ", address))
	return true, o.dropErr
}

func (o *fakeUser) config(c *deliver.Config) { c.Profiles = o }

// callsAndStates are the callsAndStates, as "<address> <state of its notification>", in order of addresses. No two notifications have an id in common.
func (n *fixture) callsAndStates(b *provider, ids ...string) string {
	n.Helper()
	var all []string
	known := map[string]string{}
	for _, m := range b.sent {
		all = append(all, m.Address)
		check.Equal(n, cmp.Or(known[m.ID], m.Address), m.Address, "another address with the id", m.ID)
		known[m.ID] = m.Address
	}
	slices.Sort(all)
	for _, id := range ids {
		d := n.ofAddress(id)
		all = append(all, fmt.Sprintf("%s is %s %s", id, d.State, d.Reason))
	}
	return strings.Join(all, ", ")
}

func (n *fixture) ofAddress(id string) *deliveries.Delivery {
	n.Helper()
	return check.Must(n.deliveries.Get(n.Context(), "e.push./"+id+".CUSTOMER.u"))(n)
}

// A notification is split when the user has several addresses that take it, and never otherwise: then nothing more is written than ever
// was.
func TestANotificationIsSplit(t *testing.T) {
	off := contracts.Endpoint{Address: "tel off", Disabled: true}
	for name, test := range map[string]struct {
		of     *fakeUser
		set    map[string]contracts.Endpoint
		state  deliveries.State
		reason string
		want   string
		writes int
	}{
		"one":             {newFakeUser("main"), nil, deliveries.Sent, "", "tel main", 2},
		"another":         {newFakeUser("a"), nil, deliveries.Sent, "", "tel a", 2},
		"one is disabled": {newFakeUser("main"), map[string]contracts.Endpoint{"off": off}, deliveries.Sent, "", "tel main", 2},
		"all":             {newFakeUser("main", "a"), nil, deliveries.Split, "", "tel a, tel main", 5},
		"some": {
			newFakeUser("a", "b"),
			map[string]contracts.Endpoint{"off": off, "c": {Address: "c", Events: []string{"Y"}}, "d": {Address: "d", Events: []string{"Y", "*"}}},
			deliveries.Split, "", "d, tel a, tel b", 7,
		},
		"none takes it":    {newFakeUser(), map[string]contracts.Endpoint{"c": {Address: "c", Events: []string{"Y"}}}, deliveries.Suppressed, "no_address", "", 1},
		"all are disabled": {newFakeUser(), map[string]contracts.Endpoint{"off": off}, deliveries.Suppressed, "endpoint_disabled", "", 1},
		"main is disabled": {newFakeUser(), map[string]contracts.Endpoint{"main": off}, deliveries.Suppressed, "endpoint_disabled", "", 1},
		"settings of none": {newFakeUser(), map[string]contracts.Endpoint{"main": {Name: "none"}}, deliveries.Suppressed, "no_address", "", 1},
	} {
		runWithFixture(t, name, func(n *fixture) {
			for id, e := range test.set {
				test.of.set(id, e)
			}
			b := n.startSending(profile{}, test.of.config)
			n.store()
			elapse(time.Second)
			check.Equal(n, string(n.record().State)+" "+n.record().Reason, string(test.state)+" "+test.reason, "state")
			check.Equal(n, n.writes(contracts.BucketDeliveries), test.writes, "writes")
			check.Equal(n, n.callsAndStates(b), test.want, "calls")
		})
	}
}

// A crash at any point neither loses the notification of an address nor repeats one that was not being sent, whatever happens to the
// addresses.
func TestACrashInASplit(t *testing.T) {
	for _, point := range []string{deliver.PointSplit, deliver.PointSpread} {
		runWithFixture(t, point, func(n *fixture) {
			o := newFakeUser("main", "a", "b")
			n.store()
			n.dieAt(&provider{}, point, 1, o.config)
			o.add("late")
			o.set("b", contracts.Endpoint{})
			o.Digest = map[string]string{contracts.Anything: "4h"}
			b := n.startSending(profile{}, o.config)
			elapse(time.Minute)
			check.Equal(n, n.callsAndStates(b, "a", "b"), "tel a, tel main, a is sent , b is suppressed no_address", "calls")
			check.Equal(n, strings.Join(n.record().Addresses, " "), "a b main", "addresses")
		})
	}
}

// A notification that was tried stays with its address, which knows it by its id, until that is gone.
func TestATriedNotificationIsNotSplit(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o *fakeUser)
		want   string
		state  deliveries.State
	}{
		"one more":      {func(o *fakeUser) { o.add("b") }, "tel a, tel a", deliveries.Sent},
		"main":          {func(o *fakeUser) { o.add("main") }, "tel a, tel a", deliveries.Sent},
		"another":       {func(o *fakeUser) { o.set("a", contracts.Endpoint{}); o.add("b") }, "tel a, tel b", deliveries.Split},
		"others for it": {func(o *fakeUser) { o.set("a", contracts.Endpoint{}); o.add("b", "c") }, "tel a, tel b, tel c", deliveries.Split},
		"disabled":      {func(o *fakeUser) { o.set("a", contracts.Endpoint{Address: "tel a", Disabled: true}) }, "tel a", deliveries.Suppressed},
	} {
		runWithFixture(t, name, func(n *fixture) {
			o, b := newFakeUser("a"), &provider{}
			b.answer = func(ctx context.Context, call int) (channel.Receipt, error) {
				if call == 1 {
					test.change(o)
					return fails(channel.KindUnavailable)(ctx, call)
				}
				return channel.Receipt{}, nil
			}
			n.startWorker(n.sender("a", b, profile{}, o.config))
			n.store()
			elapse(time.Hour)
			check.Equal(n, n.callsAndStates(b), test.want, "calls")
			check.Equal(n, n.record().State, test.state, "state")
		})
	}
}

// An address that is removed or disabled while its notification waits gets nothing more, and the others do not know.
func TestAnAddressLeavesBetweenTries(t *testing.T) {
	for reason, e := range map[string]contracts.Endpoint{"no_address": {}, "endpoint_disabled": {Address: "tel a", Disabled: true}} {
		runWithFixture(t, reason, func(n *fixture) {
			o := newFakeUser("main", "a")
			b := &provider{answer: fails(channel.KindUnavailable)}
			n.startWorker(n.sender("a", b, profile{}, o.config))
			n.store(withFallbacks)
			elapse(time.Second)
			o.set("a", e)
			b.mu.Lock()
			b.answer = nil
			b.mu.Unlock()
			elapse(time.Hour)
			check.Equal(n, n.callsAndStates(b, "a", "main"), "tel a, tel main, tel main, a is suppressed "+reason+", main is sent ", "calls")
			check.Equal(n, len(n.followers()), 0, "notifications of the next channel")
		})
	}
}

// A caller that was taken for dead, and wrote that the notification is sent after it was split, takes the notifications of the
// addresses from nobody.
func TestALateCallerOfASplitNotification(t *testing.T) {
	withFixture(t, func(n *fixture) {
		o := newFakeUser("a")
		b := &provider{answer: func(_ context.Context, call int) (channel.Receipt, error) {
			if call == 1 {
				elapse(time.Minute) // whatever its context says
			}
			return channel.Receipt{}, nil
		}}
		done := n.begin("late", b, 1, o.config)
		elapse(30 * time.Second)
		o.set("a", contracts.Endpoint{})
		o.add("b", "c")
		n.store()
		n.dieAt(b, deliver.PointSplit, 2, o.config)
		check.ErrorIs(n, <-done, nil)
		check.Equal(n, n.record().State, deliveries.Sent, "state")
		n.startWorker(n.sender("next", b, profile{}, o.config))
		elapse(time.Minute)
		check.Equal(n, n.callsAndStates(b, "b", "c"), "tel a, tel b, tel c, b is sent , c is sent ", "calls")
	})
}

// A notification that is cancelled after it was split is not sent to any address, and a failure of the kind gone drops
// its own address alone.
func TestASplitNotificationKeepsTheRules(t *testing.T) {
	runWithFixture(t, "cancelled", func(n *fixture) {
		var cancelled cancellations
		b := &provider{answer: fails(channel.KindUnavailable)}
		n.startWorker(n.sender("a", b, profile{}, newFakeUser("main", "a").config, func(c *deliver.Config) { c.Cancelled = &cancelled }))
		n.store(withFallbacks)
		elapse(time.Second)
		cancelled.set("e")
		elapse(time.Hour)
		check.Equal(n, n.callsAndStates(b, "a", "main"), "tel a, tel main, a is suppressed cancelled, main is suppressed cancelled", "calls")
		check.That(n, !slices.Contains(cancelled.sure[1:], false), "they relied on what the process had heard: %v", cancelled.sure)
		check.Equal(n, len(n.followers()), 0, "notifications of the next channel")
	})
	runWithFixture(t, "gone", func(n *fixture) {
		o, b := newFakeUser("main", "a"), &provider{}
		b.answer = func(ctx context.Context, call int) (channel.Receipt, error) {
			if b.sent[call-1].Address == "tel a" {
				return fails(channel.KindGone)(ctx, call)
			}
			return channel.Receipt{}, nil
		}
		n.startWorker(n.sender("a", b, profile{}, o.config, func(c *deliver.Config) { c.Slots = 1 }))
		n.store()
		elapse(time.Minute)
		check.Equal(n, strings.Join(o.dropped, ","), "CUSTOMER u push tel a", "dropped")
		check.Equal(n, n.callsAndStates(b, "a", "main"), "tel a, tel main, a is bounced gone, main is sent ", "calls")
	})
	runWithFixture(t, "throttled", func(n *fixture) {
		b := n.startSending(profile{}, newFakeUser("main", "a", "b").config)
		for i := range 4 {
			n.storeEvent(fmt.Sprint("e", i), threePerMinute)
		}
		elapse(time.Second)
		check.Equal(n, len(b.sent), 9, "calls")
		elapse(2 * time.Minute)
		check.Equal(n, len(b.sent), 12, "calls later")
	})
	runWithFixture(t, "quiet hours and opt-out", func(n *fixture) {
		o, b := newFakeUser("main", "a"), &provider{}
		o.QuietHours = &contracts.QuietHours{From: "23:00", To: "01:00"}
		n.startWorker(n.sender("a", b, profile{}, o.config))
		n.store()
		elapse(59 * time.Minute)
		check.Equal(n, len(b.sent), 0, "calls in quiet hours")
		check.Equal(n, n.record().State, deliveries.Deferred, "state")
		elapse(2 * time.Minute)
		check.Equal(n, len(b.sent), 2, "calls")
	})
	runWithFixture(t, "digest", func(n *fixture) {
		b := n.startSending(profile{}, newFakeUser("main", "a").config)
		n.storeEvent("e1", digestHourly)
		n.storeEvent("e2", digestHourly)
		elapse(65 * time.Minute)
		check.Equal(n, n.callsAndStates(b), "tel a, tel main", "calls")
		for _, m := range b.sent {
			check.Equal(n, strings.Join(events(m), ","), "e1,e2", "events")
		}
	})
}

// Whichever worker dies, at any point, each address gets its message, and again only after a death between a call and its record; the
// next channel gets a notification when no address has the message, and only then.
func TestWorkersThatDieLoseNoAddress(t *testing.T) {
	for outcome, followers := range map[string]int{"sent": 0, "rejected": 1} {
		underChaos(t, time.Second, 3, newFakeUser("main", "a", "b").config, func(n *fixture, b *provider, _ func(int) int, calm func()) {
			if outcome == "rejected" {
				b.answer = fails(channel.KindRejected)
			}
			n.store(withFallbacks)
			elapse(time.Minute)
			calm()
			elapse(20 * time.Minute)
			for _, id := range []string{"main", "a", "b"} {
				attempts := n.ofAddress(id).Attempts
				for i, a := range attempts {
					last := i == len(attempts)-1
					check.That(n, last && a.Outcome == outcome || !last && a.Outcome == deliveries.OutcomeUnknown, "%s: %+v", id, attempts)
				}
				check.That(n, len(attempts) > 0, "%s got nothing", id)
			}
			check.Equal(n, len(n.followers()), followers, "notifications of the next channel")
		})
	}
}

// followers are the notifications that were stored for the next channel, however often.
func (n *fixture) followers() []contracts.Notification {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), contracts.StreamNotifications))(n)
	info := check.Must(stream.Info(n.Context()))(n)
	var found []contracts.Notification
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(n.Context(), sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Subject != "notify.send.email.CUSTOMER.u.e" {
			continue
		}
		found = append(found, check.Must(contracts.Decode[contracts.Notification](msg.Data))(n))
	}
	return found
}

func withFallbacks(notification *contracts.Notification) {
	notification.Fallback = []string{"email", "sms"}
}

// A notification that ends without the user being notified is followed by one on the next channel, which has the rest of the order; no
// other is.
func TestANotificationIsFollowedByTheNextChannel(t *testing.T) {
	for name, test := range map[string]struct {
		kind    channel.Kind
		profile profile
		mutate  func(*deliver.Config)
		follows bool
	}{
		"sent":           {"", profile{}, asIs, false},
		"rejected":       {channel.KindRejected, profile{}, asIs, true},
		"exhausted":      {channel.KindUnavailable, profile{}, asIs, true},
		"bounced":        {channel.KindBounced, profile{}, asIs, true},
		"no address":     {channel.KindNoAddress, profile{}, asIs, true},
		"not wanted":     {"", profile{OptOut: map[string][]string{"c": {"push"}}}, asIs, true},
		"disabled":       {"", profile{Addresses: map[string]string{"push": "tel 7"}}, func(c *deliver.Config) { c.Health = enabled(start.Add(time.Hour)) }, true},
		"not to deliver": {"", profile{}, func(c *deliver.Config) { c.Cancelled = &cancellations{events: []string{"e"}} }, false},
	} {
		runWithFixture(t, name, func(n *fixture) {
			b := &provider{}
			if test.kind != "" {
				b.answer = fails(test.kind)
			}
			n.startWorker(n.sender("a", b, test.profile, test.mutate, func(c *deliver.Config) { c.Retries = []time.Duration{time.Second} }))
			n.store(withFallbacks)
			elapse(time.Minute)
			notifications := n.followers()
			if !test.follows {
				check.That(t, len(notifications) == 0 && n.record().FellBackTo == "", "%+v", notifications)
				return
			}
			check.Require(t, len(notifications) == 1, "%+v", notifications)
			next := notifications[0]
			check.That(t, next.Channel == "email" && slices.Equal(next.Fallback, []string{"sms"}) && next.FallbackOf == "push" && next.Payload == nil &&
				n.record().FellBackTo == "email" && n.deadLetters() == 0, "%+v, %+v, %d dead letters", next, n.record(), n.deadLetters())
		})
	}
}

// A notification that is tried for as long as it may is given up at that time, whatever its schedule says.
func TestANotificationIsGivenUpInTime(t *testing.T) {
	withFixture(t, func(n *fixture) {
		n.startWorker(n.sender("a", &provider{answer: fails(channel.KindUnavailable)}, profile{}))
		n.store(withFallbacks, func(x *contracts.Notification) { x.FallbackAfter = 600 })
		elapse(9 * time.Minute)
		check.Equal(t, len(n.followers()), 0, "result")
		elapse(2 * time.Minute)
		n.want(deliveries.Failed, "fallback_after", "unavailable", "unavailable", "unavailable", "unavailable")
		notifications := n.followers()
		check.That(t, len(notifications) == 1 && notifications[0].FallbackAfter == 600 && n.deadLetters() == 0, "%+v", notifications)
	})
}

// poison kills the process that asks for a user.
var poison profileFunc = func(string) (contracts.Recipient, error) { panic("the process died") }

// A notification that its worker gives up, since its workers died again and again before they came to its record, is followed too, also
// when the last of them dies on the way.
func TestADeadLetteredNotificationIsFollowed(t *testing.T) {
	for _, point := range []string{"", deliver.PointEnded, deliver.PointFollowed} {
		runWithFixture(t, point, func(n *fixture) {
			dies, _ := diesAt(point, 1)
			n.startWorker(n.sender("a", &provider{}, profile{}, dies, func(c *deliver.Config) { c.Profiles, c.Retries = poison, []time.Duration{} }))
			n.store(withFallbacks)
			elapse(30 * time.Minute)
			n.want(deliveries.Failed, "exhausted")
			check.Equal(t, len(n.followers()), 1, "notifications of the next channel")
			check.That(t, n.record().FellBackTo == "email" && n.deadLetters() == 1, "%+v, %d dead letters", n.record(), n.deadLetters())
		})
	}
}

// A process that dies between the end of a notification and its acknowledgement, whether a channel has refused the notification, all
// addresses of its user have, or its user cannot be read: the notification of the next channel is there once, and no call is repeated
// whose outcome was recorded.
func TestADeathBetweenTheEndAndTheNextNotification(t *testing.T) {
	for name, test := range map[string]struct {
		of     deliver.Profiles
		points []string
		ends   string
		calls  int
	}{
		"refused":    {addressOfUser, []string{deliver.PointRecorded, deliver.PointEnded, deliver.PointFollowed}, "failed rejected", 1},
		"unreadable": {unreadable, []string{deliver.PointEnded, deliver.PointFollowed}, "failed recipient", 0},
		"several":    {newFakeUser("main", "a"), []string{deliver.PointRecorded, deliver.PointUnheard, deliver.PointEnded, deliver.PointFollowed}, "split ", 2},
	} {
		for _, point := range test.points {
			runWithFixture(t, name+" "+point, func(n *fixture) {
				b := &provider{answer: fails(channel.KindRejected)}
				dies, left := diesAt(point, 1)
				n.startWorker(n.sender("a", b, profile{}, dies, func(c *deliver.Config) { c.Profiles = test.of }))
				n.store(withFallbacks)
				elapse(10 * time.Minute)
				d := n.record()
				check.Equal(n, string(d.State)+" "+d.Reason+" "+d.FellBackTo, test.ends+" email", "the notification")
				check.That(n, (d.Detail != "") == (d.Reason == deliveries.ReasonRecipient), "%+v", d)
				check.That(n, left.Load() <= 0 && len(b.sent) == test.calls, "%d calls, %d deaths to come", len(b.sent), left.Load())
				check.Equal(n, len(n.followers()), 1, "notifications of the next channel")
			})
		}
	}
}

// unreadable is a directory whose record of a user has a mistake.
var unreadable profileFunc = func(string) (contracts.Recipient, error) {
	return contracts.Recipient{}, &recipient.Error{Permanent: true}
}

// The inbox is looked into before each attempt.
func TestAnEventThatIsReadBetweenTries(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: fails(channel.KindUnavailable)}
		n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) {
			c.Read = func(context.Context, *contracts.Notification) (bool, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.sent) > 0, nil
			}
		}))
		n.store(func(x *contracts.Notification) { x.Unread = true })
		elapse(time.Hour)
		n.want(deliveries.Suppressed, "read", "unavailable")
	})
}

// The next channel gets one notification when no address has reached the user, also when two fail at the same moment, and none otherwise.
func TestFallbackOfASplitNotification(t *testing.T) {
	for reached, want := range map[string]int{"": 1, "tel a": 0, "tel main": 0} {
		runWithFixture(t, reached, func(n *fixture) {
			b := &provider{}
			b.answer = func(ctx context.Context, call int) (channel.Receipt, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.sent[call-1].Address == reached {
					return channel.Receipt{}, nil
				}
				return fails(channel.KindRejected)(ctx, call)
			}
			var both sync.WaitGroup
			both.Add(2)
			n.startWorker(n.sender("a", b, profile{}, newFakeUser("main", "a").config, func(c *deliver.Config) {
				c.Passed = func(at string) {
					if at == deliver.PointUnheard && reached == "" { // both have ended before either knows of the other
						both.Done()
						both.Wait()
					}
				}
			}))
			n.store(withFallbacks)
			elapse(10 * time.Minute)
			notifications := n.followers()
			check.Require(n, len(notifications) == want && n.ofAddress("a").FellBackTo == "", "%+v, %+v", notifications, n.ofAddress("a"))
			if want == 1 {
				check.That(n, notifications[0].Address == "" && notifications[0].FallbackOf == "push", "%+v", notifications[0])
			}
			check.Equal(n, n.record().FellBackTo, map[int]string{1: "email"}[want], "the next channel")
		})
	}
}

// An address that was reached by a replay keeps the next channel out, also when another one fails later.
func TestAReplayedAddressKeepsTheNextChannelOut(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{}
		b.answer = func(ctx context.Context, call int) (channel.Receipt, error) {
			if b.sent[call-1].Address == "tel main" && call <= 2 {
				return fails(channel.KindUnavailable)(ctx, call)
			}
			return fails(channel.KindRejected)(ctx, call)
		}
		n.startWorker(n.sender("a", b, profile{}, newFakeUser("main", "a").config))
		n.store(withFallbacks)
		elapse(time.Second)
		d := n.ofAddress("a")
		check.Equal(n, d.State, deliveries.Failed, "state")
		d.State = deliveries.Sent
		check.OK(n, n.deliveries.Put(n.Context(), "e.push./a.CUSTOMER.u", d))
		elapse(time.Minute)
		check.Equal(n, n.callsAndStates(&provider{}, "a", "main"), "a is sent rejected, main is failed rejected", "states")
		check.Equal(n, len(n.followers()), 0, "notifications of the next channel")
	})
}

// The dead letter of an address's notification is followed as its end is.
func TestADeadLetterOfAnAddressIsFollowed(t *testing.T) {
	withFixture(t, func(n *fixture) {
		o := newFakeUser("main", "a")
		n.store(withFallbacks)
		n.dieAt(&provider{}, deliver.PointSplit, 1, o.config)
		check.OK(n, n.sender("spreads", &provider{}, profile{}, o.config).Work(n.Context(), n.job(2, withFallbacks)))
		n.startWorker(n.sender("a", &provider{}, profile{}, func(c *deliver.Config) { c.Profiles, c.Retries = poison, []time.Duration{} }))
		elapse(30 * time.Minute)
		check.Equal(n, n.callsAndStates(&provider{}, "a", "main"), "a is failed exhausted, main is failed exhausted", "states")
		check.Equal(n, len(n.followers()), 1, "notifications of the next channel")
	})
}
