// Command kvlock measures pkg/kvlock side by side with its peers, over TCP on the loopback: locks (uncontended, woken,
// handed over among 32), coalesced computations, reads, take-over after a kill -9, and 10,000 callers.
//
//	go -C bench run ./kvlock [--rounds N] [--scale X] [--short] [--keys N] [--only REGEXP] [--json]
//
// Every server is a separate process, so that its CPU time is counted apart: NATS (one server, and two clusters of
// three), and redis-server and etcd where they are installed. A missing one is named and skipped; README.md beside
// this folder says how to install it.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	rig.ChildMain(childRole, serveTask)
	o := options{}
	register := func(flags *flag.FlagSet) {
		flags.IntVar(&o.keys, "keys", 100_000, "how many `KEYS` the bucket grows to, from a hundredth of that")
	}
	rig.Main("kvlock", register, func(ctx context.Context, shared rig.Options) (*rig.Report, error) {
		o.Options = shared
		return measure(ctx, o)
	})
}

type options struct {
	rig.Options

	keys int
}

// timeout bounds one row of one contestant.
const timeout = time.Minute

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	service    *rig.Service
	settings   settings
	keys       int
	scale      float64
	opened     []*client
}

// names numbers the keys, so that each is new.
var names atomic.Int64

func (b *bench) name(row string) string { return fmt.Sprintf("%s-%d", row, names.Add(1)) }

// n scales a number of operations.
func (b *bench) n(n int) int { return max(1, int(float64(n)*b.scale)) }

// d scales a time.
func (b *bench) d(d time.Duration) time.Duration { return time.Duration(float64(d) * b.scale) }

func (b *bench) client(ctx context.Context) (*client, error) {
	all, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// clients opens n clients, which are closed when the row is over.
func (b *bench) clients(ctx context.Context, n int) ([]*client, error) {
	for range n {
		c, err := b.contestant.open(ctx, b.settings)
		if err != nil {
			return nil, err
		}
		b.opened = append(b.opened, c)
	}
	return b.opened[len(b.opened)-n:], nil
}

func (b *bench) close() {
	for _, c := range b.opened {
		c.close()
	}
}

// repeat runs op n times, after n/10 times to warm up.
func (b *bench) repeat(n int, name, unit string, op func() error) (rig.Figures, error) {
	for range n/10 + 1 {
		if err := op(); err != nil {
			return nil, err
		}
	}
	taken := make([]time.Duration, 0, n)
	before := rig.WorkOf(b.service)
	for range n {
		start := time.Now()
		if err := op(); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(start))
	}
	f := rig.Figures{}
	f.Since(name, b.service, before, n)
	f.Quantiles(name, unit, taken)
	return f, nil
}

// offers has a closed client of each contestant, for the operations that it offers.
var offers = map[string]*client{}

// enter prepares a contestant, and records the operations that it offers.
func enter(ctx context.Context, who contestant, on *rig.Service) error {
	who.settings.Address = on.Address
	if who.prepare != nil {
		if err := who.prepare(ctx, who.settings); err != nil {
			return err
		}
	}
	c, err := who.open(ctx, who.settings)
	if err != nil {
		return err
	}
	c.close()
	offers[who.Name] = c
	return nil
}

// measure runs the rounds.
func measure(ctx context.Context, o options) (*rig.Report, error) {
	return rig.Trial[contestant]{
		What: "Locks and coalescing (r1, r1_file, r3 and r3_sync_always are pkg/kvlock)", Field: field(), Rows: rows(o), Enter: enter,
		Limit: timeout + time.Duration(o.keys)*600*time.Microsecond, // the bound of the row that takes longest
		Derive: func(got rig.Results, entered []contestant, _ *rig.Report) {
			for _, who := range entered {
				for figure, ratio := range map[string]string{
					"batch10_p50_us": "batch10_over_raw", "batch100_p50_us": "batch100_over_raw", "lock_unlock_p50_us": "lock_over_raw",
				} {
					got.OverRaw(who.Contestant, figure, ratio)
				}
			}
		},
	}.Run(ctx, o.Options)
}

// trips counts round trips: the number of times that data was sent after data had been received.
type trips struct{ n atomic.Int64 }

// Dial implements nats.CustomDialer.
func (t *trips) Dial(network, address string) (net.Conn, error) {
	return t.dial(context.Background(), network, address)
}

func (t *trips) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &tripConn{Conn: conn, trips: t}, nil
}

type tripConn struct {
	net.Conn

	trips *trips
	sent  atomic.Bool // data was sent, and none received since
}

func (c *tripConn) Write(p []byte) (int, error) {
	if !c.sent.Swap(true) {
		c.trips.n.Add(1)
	}
	return c.Conn.Write(p)
}

func (c *tripConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sent.Store(false)
	}
	return n, err
}
