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

// dovecote is a channel whose addresses can be out of reach.
type dovecote struct {
	mu    sync.Mutex
	calls map[string][]time.Time // by address
	fails map[string]channel.Kind

	byUser bool // fails has users, not addresses

	now  map[string]int // calls under way
	most map[string]int
}

func (*dovecote) Name() string { return "bird" }

func (d *dovecote) Send(_ context.Context, m channel.Message) (channel.Receipt, error) {
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
	time.Sleep(time.Second) //nolint:forbidigo // fake
	return channel.Receipt{}, &channel.Error{Channel: "bird", Kind: kind, Detail: "nobody there"}
}

func (d *dovecote) set(address string, kind channel.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = map[string]channel.Kind{address: kind}
	d.most = map[string]int{}
}

func (d *dovecote) count(address string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls[address])
}

// street knows everybody: the user is the address.
var street finds = func(user string) (contracts.Recipient, error) {
	return contracts.Recipient{Addresses: map[string]string{"bird": "at " + user}}, nil
}

// healthStore returns the health of endpoints as another process has it.
func (n *nest) healthStore() *health.Store {
	n.Helper()
	_, js := natstest.Connect(n.T, n.srv)
	b, err := health.Open(n.Context(), recordtest.Client(n, js), health.Config{DisableAfter: 5 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
	check.OK(n, err)
	natstest.Background(n, b.Run)
	return b
}

func (n *nest) row(user, event string) *deliveries.Delivery {
	n.Helper()
	return check.Must(n.deliveries.Get(n.Context(), event+".bird.CUSTOMER."+user))(n)
}

// An endpoint that is not reached is called by one at a time, at growing intervals; its notifications wait without losing attempts, and
// are sent when it is back. Notifications to others go on in the meantime.
func TestAnEndpointThatIsDownIsLeftAlone(t *testing.T) {
	inNest(t, func(n *nest) {
		const rows = 12
		d := &dovecote{fails: map[string]channel.Kind{"at ada": channel.KindTimeout}}
		s := n.sender("a", nil, profile{}, func(c *deliver.Config) {
			c.Channel, c.Health, c.Profiles = d, n.healthStore(), street
			c.Retries = []time.Duration{10 * time.Minute, time.Hour, time.Hour}
		})
		n.work(s)
		name := func(i int) string { return string(rune('a' + i)) }
		for i := range rows {
			n.put(aRow("down-"+name(i), "ada"))
			elapse(2 * time.Second) // so that not all are called before one of them has failed
		}
		waiting := 0
		for i := range rows {
			if got := n.row("ada", "down-"+name(i)); got.State == deliveries.Pending && got.Reason == deliveries.ReasonEndpointDown {
				waiting++
			}
		}
		if calls := d.count("at ada"); waiting < rows/2 || calls+waiting != rows {
			t.Errorf("%d notifications wait, %d calls", waiting, calls)
		}
		n.put(aRow("e", "bob"))
		elapse(time.Second)
		check.Equal(t, n.row("bob", "e").State, deliveries.Sent, "a row to another endpoint is")
		elapse(time.Hour)
		calls := d.count("at ada")
		most := d.most["at ada"]
		check.That(t, most == 1 && calls <= rows+30, "%d calls, %d at a time", calls, most)
		d.set("", "")
		elapse(4 * time.Hour)
		for i := range rows {
			if got := n.row("ada", "down-"+name(i)); got.State != deliveries.Sent && got.Reason != deliveries.ReasonExhausted {
				t.Errorf("notification %d is %s (%s) after %d attempts", i, got.State, got.Reason, len(got.Attempts))
			}
		}
		before := n.writes(contracts.BucketDeliveries)
		n.put(aRow("well", "ada"))
		elapse(time.Minute)
		check.Equal(t, n.row("ada", "well").State, deliveries.Sent, "it is back, and a row is")
		check.Equal(t, n.writes(contracts.BucketDeliveries)-before, 2, "writes of the attempt and its outcome")
	})
}

// An endpoint that has failed for long is not called any more, by nobody, until it is put back to work; one that has taken
// something in between is.
func TestAnEndpointThatFailsForDaysIsDisabled(t *testing.T) {
	inNest(t, func(n *nest) {
		d := &dovecote{fails: map[string]channel.Kind{"at ada": channel.KindRejected}}
		mine, others := n.healthStore(), n.healthStore()
		n.work(n.sender("a", nil, profile{}, func(c *deliver.Config) { c.Channel, c.Health, c.Profiles = d, mine, street }))
		rows := 0
		next := func() *deliveries.Delivery {
			event := "e" + string(rune('a'+rows))
			rows++
			n.put(aRow(event, "ada"))
			elapse(time.Minute)
			return n.row("ada", event)
		}
		state := func(b *health.Store) (list []health.State) {
			found, _, err := b.List(n.Context(), "bird", "", 1, 10)
			check.OK(t, err)
			for _, e := range found {
				list = append(list, e.State)
			}
			return list
		}
		const day = time.Hour // of this test: five of them are enough
		next()
		if got := state(others); len(got) != 1 || got[0] != health.Failing {
			t.Errorf("after a failure: %v", got)
		}
		elapse(4 * day)
		d.set("", "")
		if got := next(); got.State != deliveries.Sent || len(state(others)) != 0 {
			t.Errorf("%s, %v", got.State, state(others))
		}
		d.set("at ada", channel.KindRejected)
		elapse(2 * day)
		next() // long after the first failure, but that one is forgotten
		elapse(5*day - 10*time.Minute)
		next()
		if got := state(others); len(got) != 1 || got[0] != health.Failing {
			t.Errorf("before the time is over: %v", got)
		}
		elapse(20 * time.Minute)
		next()
		if got := state(others); len(got) != 1 || got[0] != health.Disabled {
			t.Errorf("after that time: %v", got)
		}
		calls := d.count("at ada")
		if got := next(); got.State != deliveries.Suppressed || got.Reason != deliveries.ReasonEndpointDisabled || d.count("at ada") != calls {
			t.Errorf("%s (%s), %d calls more", got.State, got.Reason, d.count("at ada")-calls)
		}
		call := &health.Call{Address: "at ada", Channel: "bird", RecipientType: "CUSTOMER", UserID: "ada", Slots: 32, Timeout: time.Second}
		verdict, _ := others.Admit(call)
		check.That(t, verdict == health.Off, "another process calls it")
		found, _, err := others.List(n.Context(), "", health.Disabled, 1, 10)
		check.Require(t, err == nil && len(found) == 1 && found[0].UserID == "ada" && found[0].LastError != "" && !found[0].Since.IsZero(),
			"%+v %v", found, err)
		if was, err := others.Enable(n.Context(), "bird", found[0].ID); err != nil || was.State != health.Disabled {
			t.Errorf("%+v %v", was, err)
		}
		d.set("", "")
		elapse(2 * time.Minute)
		if got := next(); got.State != deliveries.Sent || len(state(mine)) != 0 {
			t.Errorf("put back to work: %s (%s)", got.State, got.Reason)
		}
	})
}

// A user who names the address of another, where the messages to him are refused or get no answer, keeps none of the other's from it:
// neither at once, nor after days. When it fails for both, it is left alone and disabled for both.
func TestAUserWhoNamesAnAddressOfAnotherDisablesIt(t *testing.T) {
	for _, kind := range []channel.Kind{channel.KindRejected, channel.KindTimeout} {
		runInNest(t, string(kind), func(n *nest) {
			d := &dovecote{fails: map[string]channel.Kind{"mallory": kind}, byUser: true}
			shared := finds(func(string) (contracts.Recipient, error) {
				return contracts.Recipient{Addresses: map[string]string{"bird": "the shared address"}}, nil
			})
			n.work(n.sender("a", nil, profile{}, func(c *deliver.Config) {
				c.Channel, c.Health, c.Profiles, c.Retries = d, n.healthStore(), shared, []time.Duration{time.Minute, time.Minute}
			}))
			days := func(from string) {
				for i := range 14 {
					n.put(aRow(fmt.Sprint(from, i), "mallory"))
					elapse(30 * time.Minute)
				}
			}
			days("bad")
			n.put(aRow("good", "ada"))
			elapse(2 * time.Second)
			check.Equal(t, n.row("ada", "good").State, deliveries.Sent, "a row to ada is")
			d.mu.Lock()
			d.fails["ada"] = kind
			d.mu.Unlock()
			n.put(aRow("down", "ada"))
			days("worse")
			calls := d.count("the shared address")
			n.put(aRow("late", "ada"))
			elapse(time.Hour)
			check.Equal(t, n.row("ada", "late").Reason, deliveries.ReasonEndpointDisabled, "a row to ada is")
			check.Equal(t, d.count("the shared address"), calls, "calls")
		})
	}
}

// village has a dovecote behind a name, where none answers, and one for everybody else.
var village finds = func(user string) (contracts.Recipient, error) {
	address := "https://" + user + ".example/hook"
	if strings.HasPrefix(user, "tenant") {
		address = "https://one.example/" + user
	}
	return contracts.Recipient{Addresses: map[string]string{"bird": address}}, nil
}

// hanging is a channel whose endpoints answer at once, late, or never.
type hanging struct{ late time.Duration }

func (hanging) Name() string { return "bird" }

func (h hanging) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if strings.HasPrefix(m.UserID, "well") {
		return channel.Receipt{}, nil
	}
	late := cmp.Or(h.late, time.Hour)
	select {
	case <-ctx.Done():
		return channel.Receipt{}, &channel.Error{Channel: "bird", Kind: channel.KindTimeout}
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
		runInNest(t, name, func(n *nest) {
			const rows, well, timeout = 300, 50, 15 * time.Second
			s := n.sender("a", nil, profile{}, func(c *deliver.Config) {
				c.Channel, c.Health, c.Profiles, c.Slots, c.Timeout = hanging{test.late}, n.healthStore(), village, 100, timeout
				c.Retries = []time.Duration{24 * time.Hour}
			})
			n.work(s) // has 100 slots
			for round := range 2 {
				if round == 0 && !test.twice {
					continue
				}
				for i := range rows {
					n.put(aRow(fmt.Sprint("hang-", round, "-", i), test.hang(i)))
				}
				if round == 0 {
					elapse(time.Hour)
				}
			}
			elapse(time.Second)
			for i := range well {
				n.put(aRow("well", fmt.Sprint("well-", i)))
			}
			elapse(timeout - 2*time.Second)
			sent := 0
			for i := range well {
				if n.row(fmt.Sprint("well-", i), "well").State == deliveries.Sent {
					sent++
				}
			}
			check.Equal(t, sent, well, "sent")
		})
	}
}
