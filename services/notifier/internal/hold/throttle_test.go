package hold_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

// pair is the stores of two processes on one server.
type pair struct {
	*testing.T

	stores [2]*hold.Throttles
	js     jetstream.JetStream
}

// withPair runs a test under fake time.
func withPair(t *testing.T, f func(g *pair)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		js, _ := recordtest.Open(t, srv)
		g := &pair{T: t, js: js}
		for i := range g.stores {
			g.stores[i] = hold.NewThrottles(recordtest.Client(t, js))
		}
		f(g)
	})
}

var (
	ada = hold.ThrottleKey{Channel: "bird", Group: "c", RecipientType: "CUSTOMER", UserID: "ada"}

	three = contracts.Throttle{Limit: 3, Per: 60}
)

// ask has a process ask for a notification, and returns for how long it is to wait, 0 when it is granted.
func (g *pair) ask(process int, key hold.ThrottleKey, row string, t contracts.Throttle, promised bool) time.Duration {
	g.Helper()
	return g.askPlanned(process, key, row, time.Now(), t, promised)
}

// askPlanned asks for a notification that was planned at a time.
func (g *pair) askPlanned(process int, key hold.ThrottleKey, row string, at time.Time, t contracts.Throttle, promised bool) time.Duration {
	g.Helper()
	until, err := g.stores[process].Ask(g.Context(), key, row, at, t, promised)
	check.ErrorIs(g, err, nil)
	if until.IsZero() {
		return 0
	}
	return time.Until(until)
}

// turns are the grants and promises of a record.
type turns struct {
	Granted  []hold.Turn `json:"granted"`
	Promised []hold.Turn `json:"promised"`
}

// kept is the record of the key, empty when there is none.
func (g *pair) kept() (record turns) {
	g.Helper()
	key := check.Must(keys.Throttle(ada.Group, ada.Channel, ada.RecipientType, ada.UserID))(g)
	stream := check.Must(g.js.Stream(g.Context(), "KV_"+contracts.BucketDeliveries))(g)
	msg, err := stream.GetLastMsgForSubject(g.Context(), "$KV."+contracts.BucketDeliveries+"."+key)
	if err != nil {
		return record
	}
	check.OK(g, json.Unmarshal(msg.Data, &record))
	return record
}

// Notifications that ask at any time, in two processes at once, and come back at the time that they were promised: no stretch of time
// as long as the period has more grants than the limit, each notification waits once, and they come to their turns in the order in
// which they asked.
func TestNoMoreThanTheLimit(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			withPair(t, func(g *pair) {
				random := rand.New(rand.NewPCG(seed, 0))
				var all sync.WaitGroup
				var mu sync.Mutex
				granted := map[int]time.Time{}
				const rows = 40
				for n := range rows {
					natstest.Pass(time.Duration(1+random.IntN(25_000)) * time.Millisecond) // no two turns at one moment
					row, process := fmt.Sprint("row-", n), random.IntN(2)
					wait := g.ask(process, ada, row, three, false)
					all.Go(func() {
						if wait > 0 {
							natstest.Pass(wait)
							again := g.ask(1-process, ada, row, three, true)
							check.That(t, again <= 0, "%s was promised a turn, and is to wait for another %s", row, again)
						}
						mu.Lock()
						defer mu.Unlock()
						granted[n] = time.Now()
					})
				}
				all.Wait()
				for n := range rows {
					check.That(t, n <= 0 || !granted[n].Before(granted[n-1]), "row %d came to its turn before row %d", n, n-1)
					check.That(t, n < three.Limit || granted[n].Sub(granted[n-three.Limit]) >= three.Period(),
						"rows %d to %d were delivered within %s", n-three.Limit, n, granted[n].Sub(granted[n-three.Limit]))
				}
			})
		})
	}
}

// Users, channels, groups and kinds are counted apart.
func TestWhatIsCountedTogether(t *testing.T) {
	withPair(t, func(g *pair) {
		one := contracts.Throttle{Limit: 1, Per: 60}
		of := []hold.ThrottleKey{ada, ada, ada, ada, ada}
		of[1].UserID, of[2].Channel, of[3].Group, of[4].RecipientType = "bob", "fish", "d/*.>", "ADMIN"
		for _, key := range of {
			wait := g.ask(0, key, "row", one, false)
			check.That(t, wait <= 0, "%+v: %s", key, wait)
			check.Equal(t, g.ask(1, key, "another", one, false), time.Minute, fmt.Sprintf("%+v: another", key))
		}
	})
}

// A record has at most a limit's worth of turns, and 256 notifications that wait, however many do, and is gone some time after the last
// of them.
func TestARecordIsBounded(t *testing.T) {
	withPair(t, func(g *pair) {
		var last time.Duration
		for n := range 400 {
			last = g.ask(n%2, ada, fmt.Sprint("row-", n), three, false)
		}
		if kept := g.kept(); len(kept.Granted) != 3 || len(kept.Promised) != 256+3 || last != 133*time.Minute {
			t.Errorf("%+v; the last one waits for %s", kept, last)
		}
		natstest.Pass(last)
		kept := g.kept()
		check.That(t, len(kept.Promised) != 0, "it was forgotten before the last turn came")
		natstest.Pass(3 * time.Minute)
		kept = g.kept()
		check.That(t, len(kept.Granted)+len(kept.Promised) == 0, "it is still there: %+v", kept)
	})
}

// Notifications that ask in any order, and come back in any order, some seconds late, are let through in the order in which they were
// planned. One that never comes back holds up the others for a minute.
func TestRowsThatWaitKeepTheirOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	withPair(t, func(g *pair) {
		random := rand.New(rand.NewPCG(seed, 0))
		const rows, lost = 30, 17
		begun := time.Now()
		planned := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Millisecond) }
		for n := range three.Limit {
			g.ask(0, ada, fmt.Sprint("first-", n), three, false)
		}
		turns := map[int]time.Time{}
		ask := func(n int) {
			wait := g.askPlanned(n%2, ada, fmt.Sprint("row-", n), planned(n), three, !turns[n].IsZero())
			turns[n] = time.Now().Add(wait)
			if wait == 0 {
				delete(turns, n)
			}
		}
		for _, n := range random.Perm(rows) {
			ask(n)
		}
		delete(turns, lost)
		var order []int
		for len(turns) > 0 {
			natstest.Pass(time.Duration(random.IntN(10)) * time.Second)
			for _, n := range random.Perm(rows) {
				if at, waits := turns[n]; waits && !at.After(time.Now()) {
					ask(n)
					if turns[n].IsZero() {
						order = append(order, n)
					}
				}
			}
		}
		check.That(t, len(order) == rows-1 && slices.IsSorted(order), "the order is %v", order)
	})
}
