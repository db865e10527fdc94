package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// frozenRelay is a relay that waits at a point until its process has been paused and continues. It prints each point that
// it passes.
var frozenRelay = crash.Role[duty]{Name: "frozen relay", Run: relayAndFreeze}

// frozenTimeout is the PublishTimeout of a child. A frozen child keeps its lanes for twice this and 10 seconds.
const frozenTimeout = time.Second

// A signal freezes a relay that holds lanes. Other relays publish from the other lanes meanwhile. A relay that thaws in time
// publishes its rows. If it thaws late, Postgres has given its lanes to another relay, and it publishes none of their rows, not
// even where the stream would take a second copy. Each event is in the stream once, and the events of each key are in order.
func TestFrozenRelayHoldsUpItsLanesAndNoOthers(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"thaws in time": false, "thaws late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }) // as if it had been frozen for days
			all := events("held", 5, 12)
			p.insert(all...)
			c := frozenRelay.Start(t, duty{Database: p.pool.Config().ConnString(), Point: outbox.PointClaimed, URL: p.srv.URL()})
			c.Await("^" + outbox.PointClaimed + "$")
			c.Pause()
			all = append(all, events("later", 60, 3)...) // of more aggregates, and so in more lanes
			p.insert(all[60:]...)
			free := query[int](p, "SELECT count(*) FROM event_outbox WHERE lane NOT IN (SELECT lane FROM event_outbox WHERE event_id LIKE 'held-%')")
			r, _ := p.relay(func(c *outbox.Config) { c.Poll = 100 * time.Millisecond })
			await(t, "the other lanes are published", func() bool { return p.left() == len(all)-free })
			n := len(p.messages())
			check.That(t, n == free && free != 0, "%d events are in the stream, want the %d of the other lanes", n, free)
			if !late {
				c.Continue()
			}
			await(t, "all are published", func() bool { return p.left() == 0 }) // a relay counts a row a moment after it is deleted
			if late {
				await(t, "it has counted all: the frozen one has lost its lanes", func() bool { return r.Stats().Published == int64(len(all)) })
				p.forgets()
				c.Continue()
				c.Await("^" + outbox.PointAcknowledged + "$") // it would have published by now
			} else if r.Stats().Published == int64(len(all)) {
				t.Error("the frozen one has published nothing: it was not in time")
			}
			checkOrder(t, p.events(), all)
		})
	}
}

// forgets waits until the stream takes a second copy of the messages that it holds.
func (p *place) forgets() {
	p.Helper()
	again := func() bool {
		ack := check.Must(p.js.Publish(p.Context(), "events.OTHER.X", []byte(`{"event_id":"probe"}`), jetstream.WithMsgID("probe")))(p)
		return !ack.Duplicate
	}
	again()
	await(p, "it has forgotten", again)
}

// events returns the ids of the events in the stream, in order.
func (p *place) events() []string {
	p.Helper()
	return slices.DeleteFunc(p.stored(), func(id string) bool { return id == "probe" })
}

func relayAndFreeze(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	thawed := make(chan os.Signal, 1)
	signal.Notify(thawed, syscall.SIGCONT)
	waiting := true
	cfg := outbox.Config{
		BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool,
		PublishTimeout: frozenTimeout,
	}
	r, err := outbox.New(ctx, cfg.Passing(func(point string) {
		fmt.Fprintln(os.Stdout, point)   //nolint:errcheck // a parent that cannot read it waits until it gives up
		if waiting && point == d.Point { // there is one batch at a time
			waiting = false
			<-thawed
		}
	}))
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}

// The leader of the stream steps down, then stops, and then is killed, while two relays publish to three nodes. No event is lost,
// overtaken, or in the stream twice.
func TestRelaysOnAClusterWhoseLeaderGoes(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	p := &place{TB: t, pool: pool, js: js}
	p.stream(func(s *jetstream.StreamConfig) { s.Replicas = 3 })
	for range 2 {
		r, err := outbox.New(t.Context(), outbox.Config{
			BatchSize: 16, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), NATSURL: c.URLs(), Poll: time.Second, Pool: pool, PublishTimeout: 2 * time.Second,
		})
		check.OK(t, err)
		run(t, r)
	}
	// leave stops the leader by how, and starts it again.
	leave := func(how func(*natsrun.Node) error) {
		leader, err := c.StreamLeader(t.Context(), contracts.StreamEvents)
		if err == nil {
			err = how(leader)
		}
		if err == nil {
			err = leader.Start(t.Context())
		}
		check.Is(t, err, nil)
	}
	var all []outbox.Event
	published := func() int { return len(all) - p.left() }
	for round, disturb := range []func(){
		func() {
			check.Is(t, c.StepDown(t.Context(), contracts.StreamEvents), nil)
		},
		func() { leave((*natsrun.Node).Stop) },
		func() { leave((*natsrun.Node).Kill) },
	} {
		part := events(fmt.Sprint("e", round), 20, 12)
		before := len(all)
		all = append(all, part...)
		p.insert(part...)
		await(t, "some are published", func() bool { return published() > before+20 })
		disturb()
		await(t, "all are published", func() bool { return published() == len(all) })
	}
	checkOrder(t, p.stored(), all)
}

// mute dials connections to the database that strike makes silent: they lose all bytes but are not closed, as when the machine of
// the database is gone.
type mute struct {
	mu    sync.Mutex
	conns []*mutable
}

type mutable struct {
	net.Conn

	gone chan struct{} // closed by strike
}

func (m *mute) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &mutable{Conn: conn, gone: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	return c, nil
}

func (m *mute) strike() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		close(c.gone)
	}
	m.conns = nil
}

// Read loses all bytes after strike. It ends by its deadline, or by Close.
func (c *mutable) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.gone:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}

// Write loses all bytes after strike.
func (c *mutable) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// When a database neither answers nor closes its connections, each part of the relay uses a new connection after the bound of an
// answer. Rows that were in flight are published.
func TestADatabaseThatFallsSilentIsAskedOverOtherConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	silent := &mute{}
	config := p.pool.Config()
	config.ConnConfig.DialFunc = silent.dial
	pool := check.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	cfg := p.config()
	cfg.Pool, cfg.Poll = pool, 50*time.Millisecond
	r := check.Must(outbox.New(t.Context(), cfg.Answering(time.Second)))(t)
	run(t, r)
	all := events("e", 4, 30)
	for n := range 3 {
		p.insert(all[40*n : 40*(n+1)]...)
		await(t, "some are published", func() bool { return r.Stats().Published >= int64(40*n+20) })
		silent.strike()
	}
	await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
	checkOrder(t, p.stored(), all)
}

// A relay process is killed at each point of its work, also between an acknowledgement and the commit, and another relay goes on.
// No event is lost or in the stream twice, and the order of each key stays.
func TestKilledRelayLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		after int
	}{
		{outbox.PointClaimed, 1},
		{outbox.PointAcknowledged, 1},
		{outbox.PointAcknowledged, 5},
		{outbox.PointMarked, 3},
		{outbox.PointCommitted, 3},
	} {
		t.Run(fmt.Sprint(test.point, " ", test.after), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			all := events("e", 5, 12)
			p.insert(all[:40]...)
			mortalRelay.Start(t, duty{After: test.after, Database: p.pool.Config().ConnString(), Point: test.point, URL: p.srv.URL()}).Died()
			before := len(p.messages())
			p.insert(all[40:]...)
			r, _ := p.relay(func(c *outbox.Config) {
				c.Poll = 100 * time.Millisecond // the locks of the killed process end when Postgres notices
			})
			await(t, "all rows are gone", func() bool { return p.left() == 0 })
			ids := p.stored()
			checkOrder(t, ids, all)
			s := r.Stats()
			again := test.point == outbox.PointAcknowledged || test.point == outbox.PointMarked
			check.That(t, again == (s.Duplicates > 0), "%d were in the stream and %d of them were published again", before, s.Duplicates)
			check.That(t, s.SetAside == 0, "stats are %+v", s)
		})
	}
}

// mortalRelay is a relay that kills its process at a point.
var mortalRelay = crash.Role[duty]{Name: "relay", Run: relayAndDie}

// duty is the task of a relay process.
type duty struct {
	After    int // it dies when it passes Point for this time
	Database string
	Point    string
	URL      string
}

func relayAndDie(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	cfg := outbox.Config{BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool}
	r, err := outbox.New(ctx, cfg.Passing(child.DieAt(d.Point, d.After)))
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}
