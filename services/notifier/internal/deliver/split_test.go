package deliver_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// owner is a directory of one user with several nests, which may change.
type owner struct {
	profile

	mu      sync.Mutex
	dropped []string
	away    error // of the store, when an address is dropped
}

func owns(nests ...string) *owner {
	o := &owner{profile: profile{Addresses: map[string]string{}, Endpoints: map[string]map[string]contracts.Endpoint{"bird": {}}}}
	for _, id := range nests {
		o.set(id, contracts.Endpoint{Address: "nest " + id})
	}
	return o
}

// set puts an address there, "" for none.
func (o *owner) set(id string, e contracts.Endpoint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id == contracts.MainEndpoint {
		o.Addresses["bird"], e.Address = e.Address, ""
	}
	o.Endpoints["bird"][id] = e
}

func (o *owner) Get(context.Context, contracts.RecipientType, string) (contracts.Recipient, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := contracts.Recipient(o.profile)
	r.Addresses = maps.Clone(o.Addresses)
	r.Endpoints = map[string]map[string]contracts.Endpoint{"bird": {}}
	maps.Copy(r.Endpoints["bird"], o.Endpoints["bird"])
	return r, true, nil
}

func (o *owner) Drop(_ context.Context, kind contracts.RecipientType, user, name, address string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = append(o.dropped, fmt.Sprint(kind, " ", user, " ", name, " ", address))
	return true, o.away
}

func (o *owner) config(c *deliver.Config) { c.Profiles = o }

// flights are the calls, as "<address> <state of its notification>", in order of addresses. No two notifications have an id in common.
func (n *nest) flights(b *bird, nests ...string) string {
	n.Helper()
	var all []string
	ids := map[string]string{}
	for _, m := range b.sent {
		all = append(all, m.Address)
		if other, known := ids[m.ID]; known && other != m.Address {
			n.Errorf("%s and %s have the id %s", other, m.Address, m.ID)
		}
		ids[m.ID] = m.Address
	}
	slices.Sort(all)
	for _, id := range nests {
		d := n.ofNest(id)
		all = append(all, fmt.Sprintf("%s is %s %s", id, d.State, d.Reason))
	}
	return strings.Join(all, ", ")
}

func (n *nest) ofNest(id string) *deliveries.Delivery {
	n.Helper()
	return check.Must(n.deliveries.Get(n.Context(), "e.bird./"+id+".CUSTOMER.u"))(n)
}

// A notification is split when the user has several addresses that take it, and never otherwise: then nothing more is written than ever
// was.
func TestARowIsSplit(t *testing.T) {
	off := contracts.Endpoint{Address: "nest off", Disabled: true}
	for name, test := range map[string]struct {
		owner  *owner
		set    map[string]contracts.Endpoint
		state  deliveries.State
		reason string
		want   string
		writes int
	}{
		"one":             {owns("main"), nil, deliveries.Sent, "", "nest main", 2},
		"another":         {owns("a"), nil, deliveries.Sent, "", "nest a", 2},
		"one is disabled": {owns("main"), map[string]contracts.Endpoint{"off": off}, deliveries.Sent, "", "nest main", 2},
		"all":             {owns("main", "a"), nil, deliveries.Split, "", "nest a, nest main", 5},
		"some": {
			owns("a", "b"),
			map[string]contracts.Endpoint{"off": off, "c": {Address: "c", Events: []string{"Y"}}, "d": {Address: "d", Events: []string{"Y", "*"}}},
			deliveries.Split, "", "d, nest a, nest b", 7,
		},
		"none takes it":    {owns(), map[string]contracts.Endpoint{"c": {Address: "c", Events: []string{"Y"}}}, deliveries.Suppressed, "no_address", "", 1},
		"all are disabled": {owns(), map[string]contracts.Endpoint{"off": off}, deliveries.Suppressed, "endpoint_disabled", "", 1},
		"main is disabled": {owns(), map[string]contracts.Endpoint{"main": off}, deliveries.Suppressed, "endpoint_disabled", "", 1},
		"settings of none": {owns(), map[string]contracts.Endpoint{"main": {Name: "none"}}, deliveries.Suppressed, "no_address", "", 1},
	} {
		runInNest(t, name, func(n *nest) {
			for id, e := range test.set {
				test.owner.set(id, e)
			}
			b := n.flock(profile{}, test.owner.config)
			n.store()
			elapse(time.Second)
			check.Equal(n, string(n.record().State)+" "+n.record().Reason, string(test.state)+" "+test.reason, "state")
			check.Equal(n, n.writes(contracts.BucketDeliveries), test.writes, "writes")
			check.Equal(n, n.flights(b), test.want, "calls")
		})
	}
}

// A crash at any point neither loses the notification of an address nor repeats one that was not being sent, whatever happens to the
// addresses.
func TestACrashInASplit(t *testing.T) {
	for _, point := range []string{deliver.PointSplit, deliver.PointSpread} {
		runInNest(t, point, func(n *nest) {
			o := owns("main", "a", "b")
			n.store()
			n.dead(&bird{}, point, 1, o.config)
			o.set("late", contracts.Endpoint{Address: "nest late"})
			o.set("b", contracts.Endpoint{})
			o.Digest = map[string]string{contracts.Anything: "4h"}
			b := n.flock(profile{}, o.config)
			elapse(time.Minute)
			check.Equal(n, n.flights(b, "a", "b"), "nest a, nest main, a is sent , b is suppressed no_address", "calls")
			check.Equal(n, strings.Join(n.record().Addresses, " "), "a b main", "addresses")
		})
	}
}

// A notification that was tried stays with its address, which knows it by its id, until that is gone.
func TestATriedRowIsNotSplit(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o *owner)
		want   string
		state  deliveries.State
	}{
		"one more": {func(o *owner) { o.set("b", contracts.Endpoint{Address: "nest b"}) }, "nest a, nest a", deliveries.Sent},
		"main":     {func(o *owner) { o.set("main", contracts.Endpoint{Address: "nest main"}) }, "nest a, nest a", deliveries.Sent},
		"another":  {func(o *owner) { o.set("a", contracts.Endpoint{}); o.set("b", contracts.Endpoint{Address: "nest b"}) }, "nest a, nest b", deliveries.Split},
		"others for it": {func(o *owner) {
			o.set("a", contracts.Endpoint{})
			o.set("b", contracts.Endpoint{Address: "nest b"})
			o.set("c", contracts.Endpoint{Address: "nest c"})
		}, "nest a, nest b, nest c", deliveries.Split},
		"disabled": {func(o *owner) { o.set("a", contracts.Endpoint{Address: "nest a", Disabled: true}) }, "nest a", deliveries.Suppressed},
	} {
		runInNest(t, name, func(n *nest) {
			o, b := owns("a"), &bird{}
			b.fly = func(ctx context.Context, call int) (channel.Receipt, error) {
				if call == 1 {
					test.change(o)
					return fails(channel.KindUnavailable)(ctx, call)
				}
				return channel.Receipt{}, nil
			}
			n.work(n.sender("a", b, profile{}, o.config))
			n.store()
			elapse(time.Hour)
			check.Equal(n, n.flights(b), test.want, "calls")
			check.Equal(n, n.record().State, test.state, "state")
		})
	}
}

// An address that is removed or disabled while its notification waits gets nothing more, and the others do not know.
func TestAnAddressLeavesBetweenTries(t *testing.T) {
	for reason, e := range map[string]contracts.Endpoint{"no_address": {}, "endpoint_disabled": {Address: "nest a", Disabled: true}} {
		runInNest(t, reason, func(n *nest) {
			o := owns("main", "a")
			b := &bird{fly: fails(channel.KindUnavailable)}
			n.work(n.sender("a", b, profile{}, o.config))
			n.store(inOrder)
			elapse(time.Second)
			o.set("a", e)
			b.mu.Lock()
			b.fly = nil
			b.mu.Unlock()
			elapse(time.Hour)
			check.Equal(n, n.flights(b, "a", "main"), "nest a, nest main, nest main, a is suppressed "+reason+", main is sent ", "calls")
			check.Equal(n, len(n.followers()), 0, "rows of the next channel")
		})
	}
}

// A caller that was taken for dead, and wrote that the notification is sent after it was split, takes the notifications of the
// addresses from nobody.
func TestALateCallerOfASplitRow(t *testing.T) {
	inNest(t, func(n *nest) {
		o := owns("a")
		b := &bird{fly: func(_ context.Context, call int) (channel.Receipt, error) {
			if call == 1 {
				elapse(time.Minute) // whatever its context says
			}
			return channel.Receipt{}, nil
		}}
		done := n.begin("late", b, 1, o.config)
		elapse(30 * time.Second)
		for id, e := range map[string]contracts.Endpoint{"a": {}, "b": {Address: "nest b"}, "c": {Address: "nest c"}} {
			o.set(id, e)
		}
		n.store()
		n.dead(b, deliver.PointSplit, 2, o.config)
		check.ErrorIs(n, <-done, nil)
		check.Equal(n, n.record().State, deliveries.Sent, "state")
		n.work(n.sender("next", b, profile{}, o.config))
		elapse(time.Minute)
		check.Equal(n, n.flights(b, "b", "c"), "nest a, nest b, nest c, b is sent , c is sent ", "calls")
	})
}

// A notification that is cancelled after it was split is not sent to any address, and a failure of the kind gone drops
// its own address alone.
func TestASplitRowKeepsTheRules(t *testing.T) {
	runInNest(t, "cancelled", func(n *nest) {
		var cancelled gone
		b := &bird{fly: fails(channel.KindUnavailable)}
		n.work(n.sender("a", b, profile{}, owns("main", "a").config, func(c *deliver.Config) { c.Cancelled = &cancelled }))
		n.store(inOrder)
		elapse(time.Second)
		cancelled.are("e")
		elapse(time.Hour)
		check.Equal(n, n.flights(b, "a", "main"), "nest a, nest main, a is suppressed cancelled, main is suppressed cancelled", "calls")
		check.That(n, !slices.Contains(cancelled.sure[1:], false), "they relied on what the process had heard: %v", cancelled.sure)
		check.Equal(n, len(n.followers()), 0, "rows of the next channel")
	})
	runInNest(t, "gone", func(n *nest) {
		o, b := owns("main", "a"), &bird{}
		b.fly = func(ctx context.Context, call int) (channel.Receipt, error) {
			if b.sent[call-1].Address == "nest a" {
				return fails(channel.KindGone)(ctx, call)
			}
			return channel.Receipt{}, nil
		}
		n.work(n.sender("a", b, profile{}, o.config, func(c *deliver.Config) { c.Slots = 1 }))
		n.store()
		elapse(time.Minute)
		check.Equal(n, strings.Join(o.dropped, ","), "CUSTOMER u bird nest a", "dropped")
		check.Equal(n, n.flights(b, "a", "main"), "nest a, nest main, a is bounced gone, main is sent ", "calls")
	})
	runInNest(t, "throttled", func(n *nest) {
		b := &bird{}
		n.work(n.sender("a", b, profile{}, owns("main", "a", "b").config))
		for i := range 4 {
			n.storeEvent(fmt.Sprint("e", i), few)
		}
		elapse(time.Second)
		check.Equal(n, len(b.sent), 9, "calls")
		elapse(2 * time.Minute)
		check.Equal(n, len(b.sent), 12, "calls later")
	})
	runInNest(t, "quiet hours and opt-out", func(n *nest) {
		o, b := owns("main", "a"), &bird{}
		o.QuietHours = &contracts.QuietHours{From: "23:00", To: "01:00"}
		n.work(n.sender("a", b, profile{}, o.config))
		n.store()
		elapse(59 * time.Minute)
		check.Equal(n, len(b.sent), 0, "calls in quiet hours")
		check.Equal(n, n.record().State, deliveries.Deferred, "state")
		elapse(2 * time.Minute)
		check.Equal(n, len(b.sent), 2, "calls")
	})
	runInNest(t, "digest", func(n *nest) {
		b := n.flock(profile{}, owns("main", "a").config)
		n.storeEvent("e1", hourly)
		n.storeEvent("e2", hourly)
		elapse(2 * time.Hour)
		check.Equal(n, n.flights(b), "nest a, nest main", "calls")
		for _, m := range b.sent {
			check.Equal(n, strings.Join(events(m), ","), "e1,e2", "events")
		}
	})
}

// Whichever worker dies, at any point, each address gets its message at least once, and again only after a death between a call and
// its record; the next channel gets a notification when no address has the message, and only then.
func TestWorkersThatDieLoseNoAddress(t *testing.T) {
	seed := crash.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 12 {
		inNest(t, func(n *nest) {
			refuses, deaths := random.IntN(4) == 0, 1+random.IntN(6)
			var mu sync.Mutex
			between := 0
			b := &bird{}
			if refuses {
				b.fly = fails(channel.KindRejected)
			}
			n.work(n.sender("a", b, profile{}, owns("main", "a", "b").config, func(c *deliver.Config) {
				c.Passed = func(point string) {
					mu.Lock()
					dies := deaths > 0 && random.IntN(3) == 0
					if dies {
						deaths--
						if point == deliver.PointSent {
							between++
						}
					}
					mu.Unlock()
					if dies {
						panic("the process died")
					}
				}
			}))
			n.store(inOrder)
			elapse(2 * time.Hour)
			calls := map[string]int{}
			for _, m := range b.sent {
				calls[m.Address]++
			}
			followers := map[bool]int{true: 1}[refuses]
			if len(calls) != 3 || len(b.sent) > 3+between || len(n.followers()) != followers {
				n.Errorf("seed %d: %s after %d deaths behind a call, %d notifications of the next channel, want %d",
					seed, n.flights(b, "a", "b", "main"), between, len(n.followers()), followers)
			}
		})
	}
}
