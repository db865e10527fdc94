package deliver_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

// failingProvider is a channel whose addresses can be out of reach.
type failingProvider struct {
	mu    sync.Mutex
	calls map[string][]time.Time // by address
	fails map[string]channel.Kind

	byUser bool // fails has users, not addresses

	now  map[string]int // calls under way
	most map[string]int
}

func (*failingProvider) Name() string { return "push" }

func (d *failingProvider) Send(_ context.Context, m channel.Message) (channel.Receipt, error) {
	d.mu.Lock()
	if d.calls == nil {
		d.calls, d.now, d.most = map[string][]time.Time{}, map[string]int{}, map[string]int{}
	}
	d.calls[m.Address] = append(d.calls[m.Address], time.Now())
	d.now[m.Address]++
	d.most[m.Address] = max(d.most[m.Address], d.now[m.Address])
	kind := d.fails[m.Address]
	if d.byUser {
		kind = d.fails[m.UserID]
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.now[m.Address]--
	}()
	if kind == "" {
		return channel.Receipt{}, nil
	}
	natstest.Pass(time.Second)
	return channel.Receipt{}, &channel.Error{Channel: "push", Kind: kind, Detail: "nobody there"}
}

func (d *failingProvider) set(address string, kind channel.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = map[string]channel.Kind{address: kind}
	d.most = map[string]int{}
}

func (d *failingProvider) count(address string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls[address])
}

// addressOfUser knows everybody: the user is the address.
var addressOfUser profileFunc = func(user string) (contracts.Recipient, error) {
	return contracts.Recipient{Addresses: map[string]string{"push": "at " + user}}, nil
}

// healthStore returns the health of endpoints as another process has it. Each hour of fake time takes half a second of CPU: the store
// reads all records every five seconds.
func (n *fixture) healthStore(disableAfter time.Duration) *health.Store {
	n.Helper()
	_, js := natstest.Connect(n.T, n.srv)
	cfg := health.Config{DisableAfter: disableAfter, Logger: slog.New(slog.DiscardHandler)}
	b := check.Must(health.Open(n.Context(), recordtest.Client(n, js), cfg))(n)
	natstest.Background(n, b.Run)
	return b
}

func (n *fixture) delivery(user, event string) *deliveries.Delivery {
	n.Helper()
	return check.Must(n.deliveries.Get(n.Context(), event+".push.CUSTOMER."+user))(n)
}

// An endpoint that is not reached is called by one at a time, at growing intervals; its notifications wait without losing attempts, and
// are sent when it is back. Notifications to others go on in the meantime.
func TestAnEndpointThatIsDownIsLeftAlone(t *testing.T) {
	withFixture(t, func(n *fixture) {
		const notifications = 12
		d := &failingProvider{fails: map[string]channel.Kind{"at ada": channel.KindTimeout}}
		s := n.sender("a", nil, profile{}, func(c *deliver.Config) {
			c.Channel, c.Health, c.Profiles = d, n.healthStore(5*time.Hour), addressOfUser
			c.Retries = []time.Duration{10 * time.Minute, time.Hour, time.Hour}
		})
		n.startWorker(s)
		name := func(i int) string { return string(rune('a' + i)) }
		for i := range notifications {
			n.put(aNotification("down-"+name(i), "ada"))
			elapse(2 * time.Second) // so that not all are called before one of them has failed
		}
		waiting := 0
		for i := range notifications {
			if got := n.delivery("ada", "down-"+name(i)); got.State == deliveries.Pending && got.Reason == deliveries.ReasonEndpointDown {
				waiting++
			}
		}
		calls := d.count("at ada")
		check.That(t, waiting >= notifications/2 && calls+waiting == notifications, "%d notifications wait, %d calls", waiting, calls)
		n.put(aNotification("e", "bob"))
		elapse(time.Second)
		check.Equal(t, n.delivery("bob", "e").State, deliveries.Sent, "a notification to another endpoint is")
		elapse(time.Hour)
		calls = d.count("at ada")
		most := d.most["at ada"]
		check.That(t, most == 1 && calls <= notifications+30, "%d calls, %d at a time", calls, most)
		d.set("", "")
		elapse(4 * time.Hour)
		for i := range notifications {
			got := n.delivery("ada", "down-"+name(i))
			check.That(t, got.State == deliveries.Sent || got.Reason == deliveries.ReasonExhausted, "notification %d is %+v", i, got)
		}
		before := n.writes(contracts.BucketDeliveries)
		n.put(aNotification("well", "ada"))
		elapse(time.Minute)
		check.Equal(t, n.delivery("ada", "well").State, deliveries.Sent, "it is back, and a notification is")
		check.Equal(t, n.writes(contracts.BucketDeliveries)-before, 2, "writes of the attempt and its outcome")
	})
}

// An endpoint that has failed for long is not called any more, by nobody, until it is put back to work; one that has taken
// something in between is.
func TestAnEndpointThatFailsForDaysIsDisabled(t *testing.T) {
	withFixture(t, func(n *fixture) {
		d := &failingProvider{fails: map[string]channel.Kind{"at ada": channel.KindRejected}}
		const day = 12 * time.Minute // of this test: five of them are enough
		mine, others := n.healthStore(5*day), n.healthStore(5*day)
		n.startWorker(n.sender("a", nil, profile{}, func(c *deliver.Config) { c.Channel, c.Health, c.Profiles = d, mine, addressOfUser }))
		notifications := 0
		next := func() *deliveries.Delivery {
			event := "e" + string(rune('a'+notifications))
			notifications++
			n.put(aNotification(event, "ada"))
			elapse(time.Minute)
			return n.delivery("ada", event)
		}
		state := func(b *health.Store) (list string) {
			found, _, err := b.List(n.Context(), "push", "", 1, 10)
			check.OK(t, err)
			for _, e := range found {
				list += string(e.State)
			}
			return list
		}
		next()
		check.Equal(t, state(others), "failing", "after a failure")
		elapse(4 * day)
		d.set("", "")
		check.Equal(t, next().State, deliveries.Sent, "one that works")
		check.Equal(t, state(others), "", "after a success")
		d.set("at ada", channel.KindRejected)
		elapse(2 * day)
		next() // long after the first failure, but that one is forgotten
		elapse(5*day - 5*time.Minute)
		next()
		check.Equal(t, state(others), "failing", "before the time is over")
		elapse(10 * time.Minute)
		next()
		check.Equal(t, state(others), "disabled", "after that time")
		calls := d.count("at ada")
		check.Equal(t, next().Reason, deliveries.ReasonEndpointDisabled, "one that is disabled")
		check.Equal(t, d.count("at ada"), calls, "calls")
		call := &health.Call{Address: "at ada", Channel: "push", RecipientType: "CUSTOMER", UserID: "ada", Slots: 32, Timeout: time.Second}
		verdict, _ := others.Admit(call)
		check.That(t, verdict == health.Off, "another process calls it")
		found, _, err := others.List(n.Context(), "", health.Disabled, 1, 10)
		check.Require(t, err == nil && len(found) == 1 && found[0].UserID == "ada" && found[0].LastError != "" && !found[0].Since.IsZero(),
			"%+v %v", found, err)
		check.Equal(t, check.Must(others.Enable(n.Context(), "push", found[0].ID))(t).State, health.Disabled, "before it is enabled")
		d.set("", "")
		elapse(2 * time.Minute)
		check.Equal(t, next().State, deliveries.Sent, "one that is enabled")
		check.Equal(t, state(mine), "", "after it was enabled")
	})
}

// A user who names the address of another, where the messages to him are refused or get no answer, keeps none of the other's from it:
// neither at once, nor after days. When it fails for both, it is left alone and disabled for both.
func TestAUserWhoNamesAnAddressOfAnotherDisablesIt(t *testing.T) {
	for _, kind := range []channel.Kind{channel.KindRejected, channel.KindTimeout} {
		runWithFixture(t, string(kind), func(n *fixture) {
			d := &failingProvider{fails: map[string]channel.Kind{"mallory": kind}, byUser: true}
			shared := profileFunc(func(string) (contracts.Recipient, error) {
				return contracts.Recipient{Addresses: map[string]string{"push": "the shared address"}}, nil
			})
			n.startWorker(n.sender("a", nil, profile{}, func(c *deliver.Config) {
				c.Channel, c.Health, c.Profiles, c.Retries = d, n.healthStore(time.Hour), shared, []time.Duration{time.Minute, time.Minute}
			}))
			days := func(from string) {
				for i := range 14 {
					n.put(aNotification(fmt.Sprint(from, i), "mallory"))
					elapse(6 * time.Minute)
				}
			}
			days("bad")
			n.put(aNotification("good", "ada"))
			elapse(2 * time.Second)
			check.Equal(t, n.delivery("ada", "good").State, deliveries.Sent, "a notification to ada is")
			d.mu.Lock()
			d.fails["ada"] = kind
			d.mu.Unlock()
			n.put(aNotification("down", "ada"))
			days("worse")
			calls := d.count("the shared address")
			n.put(aNotification("late", "ada"))
			elapse(10 * time.Minute)
			check.Equal(t, n.delivery("ada", "late").Reason, deliveries.ReasonEndpointDisabled, "a notification to ada is")
			check.Equal(t, d.count("the shared address"), calls, "calls")
		})
	}
}

// siteOfUser has a failingProvider behind a name, where none answers, and one for everybody else.
var siteOfUser profileFunc = func(user string) (contracts.Recipient, error) {
	address := "https://" + user + ".example/hook"
	if strings.HasPrefix(user, "tenant") {
		address = "https://one.example/" + user
	}
	return contracts.Recipient{Addresses: map[string]string{"push": address}}, nil
}

// hangingProvider is a channel whose endpoints answer at once, late, or never.
type hangingProvider struct{ late time.Duration }

func (hangingProvider) Name() string { return "push" }

func (h hangingProvider) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if strings.HasPrefix(m.UserID, "well") {
		return channel.Receipt{}, nil
	}
	late := cmp.Or(h.late, time.Hour)
	select {
	case <-ctx.Done():
		return channel.Receipt{}, &channel.Error{Channel: "push", Kind: channel.KindTimeout}
	case <-time.After(late):
		return channel.Receipt{}, nil
	}
}

// Endpoints that hang take a share of the slots: notifications to others, which were stored behind theirs, are sent before the first call
// that hangs has ended.
func TestEndpointsThatHangHoldUpNoOthers(t *testing.T) {
	for name, test := range map[string]struct {
		late  time.Duration
		hang  func(i int) (user string)
		twice bool // they have hung once before
	}{
		"missed last time":          {hang: func(i int) string { return fmt.Sprint("dead-", i) }, twice: true},
		"slow last time":            {late: 14 * time.Second, hang: func(i int) string { return fmt.Sprint("slow-", i) }, twice: true},
		"one endpoint":              {hang: func(int) string { return "dead" }},
		"one site":                  {hang: func(i int) string { return fmt.Sprint("tenant-", i) }},
		"new, and fewer than slots": {hang: func(i int) string { return fmt.Sprint("dead-", i%60) }},
	} {
		runWithFixture(t, name, func(n *fixture) {
			const notifications, well, timeout = 300, 50, 15 * time.Second
			s := n.sender("a", nil, profile{}, func(c *deliver.Config) {
				c.Channel, c.Health, c.Profiles, c.Slots, c.Timeout = hangingProvider{test.late}, n.healthStore(time.Hour), siteOfUser, 100, timeout
				c.Retries = []time.Duration{24 * time.Hour}
			})
			n.startWorker(s) // has 100 slots
			for round := range 2 {
				if round == 0 && !test.twice {
					continue
				}
				for i := range notifications {
					n.put(aNotification(fmt.Sprint("hang-", round, "-", i), test.hang(i)))
				}
				if round == 0 {
					elapse(6 * time.Minute)
				}
			}
			elapse(time.Second)
			for i := range well {
				n.put(aNotification("well", fmt.Sprint("well-", i)))
			}
			elapse(timeout - 2*time.Second)
			for i := range well {
				check.Equal(t, n.delivery(fmt.Sprint("well-", i), "well").State, deliveries.Sent, "state of", i)
			}
		})
	}
}
