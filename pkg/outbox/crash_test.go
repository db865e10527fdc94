package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/internal/probe"
)

// A relay process is killed at each point of its work, also between an acknowledgement and the mark, and another relay goes on.
// No event is lost or in the stream twice, and the order of each key stays.
func TestKilledRelayLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		after int
	}{
		{probe.Claimed, 1},
		{probe.Acknowledged, 1},
		{probe.Acknowledged, 5},
		{probe.Marked, 3},
		{probe.Committed, 3},
		{probe.ReadBack, 1},
	} {
		t.Run(fmt.Sprint(test.point, " ", test.after), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			all := events("e", 5, 12)
			p.insert(all[:40]...)
			sync := 3600
			if test.point == probe.ReadBack {
				sync = 1
			}
			mortalRelay.Start(t, duty{After: test.after, Database: p.pool.Config().ConnString(), Point: test.point, Sync: sync, URL: p.srv.URL()}).Died()
			before := len(p.messages())
			p.insert(all[40:]...)
			r, _ := p.relay(func(c *outbox.Config) {
				c.Poll = 100 * time.Millisecond // the locks of the killed process end when Postgres notices
				c.SyncInterval = time.Second
			})
			await(t, "all rows are gone", func() bool { return query[int](p, "SELECT count(*) FROM event_outbox") == 0 })
			ids := p.stored()
			checkOrder(t, ids, all)
			s := r.Stats()
			again := test.point == probe.Acknowledged || test.point == probe.Marked
			check.That(t, again == (s.Duplicates > 0), "%d were in the stream and %d of them were published again", before, s.Duplicates)
			check.That(t, s.Lost+s.SetAside == 0, "stats are %+v", s)
		})
	}
}

// The server's machine loses its power, and the server the messages that it had acknowledged since its last sync. Their events
// are published again, before events of the same key that were committed later, also when other messages have their sequences.
func TestWhatTheServerLostIsPublishedAgain(t *testing.T) {
	t.Parallel()
	for name, strangers := range map[string]int{"the end of the stream is missing": 0, "others have filled the places": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := database(t)
			d := newDisk(t)
			p := &place{TB: t, pool: pool, srv: d.srv, js: d.js}
			p.stream(nil)
			change := func(c *outbox.Config) { c.NATSOptions, c.NATSURL, c.BatchSize = nil, d.srv.URL(), 16 }
			all := append(events("e", 5, 20), events("later", 3, 15)...) // two keys have no later events
			p.insert(all[:50]...)
			r, stop := p.relay(change)
			await(t, "the first are published", func() bool { return r.Stats().Published == 50 })
			d.sync()
			p.insert(all[50:100]...)
			await(t, "the next are published", func() bool { return r.Stats().Published == 100 })
			seen := p.stored() // by a quick reader
			stop()
			d.cut()
			n := len(p.messages())
			check.Require(t, n == 50, "the stream has %d messages after the power was cut: want 50, or nothing is tested", n)
			for i := range strangers {
				msg := nats.NewMsg("events.OTHER.X")
				msg.Data = []byte(fmt.Sprintf(`{"event_id":"other-%d"}`, i))
				check.OK(t, check.Err(d.js.PublishMsg(t.Context(), msg)))
			}
			p.insert(all[100:]...)
			r, _ = p.relay(change)
			await(t, "all are published", func() bool { return r.Stats().Lost >= 50 && p.count("published") == len(all) })
			check.Same(t, "rows were lost", r.Stats().Lost, 50)
			var ours []string
			for _, id := range p.stored() {
				if !strings.HasPrefix(id, "other-") {
					ours = append(ours, id)
				}
			}
			checkOrder(t, ours, all)
			once, copies := inEffect(append(seen, ours[50:]...))
			checkOrder(t, once, all)
			check.Same(t, "the quick reader copies", copies, 50)
		})
	}
}

// The power fails again and again while relays publish. They go on without a restart, and no event is lost.
func TestRelayAtWorkSurvivesPowerCuts(t *testing.T) {
	t.Parallel()
	pool := database(t)
	d := newDisk(t)
	p := &place{TB: t, pool: pool, srv: d.srv, js: d.js}
	p.stream(nil)
	all := events("e", 7, 40)
	change := func(c *outbox.Config) { c.NATSOptions, c.NATSURL, c.BatchSize, c.Concurrency = nil, d.srv.URL(), 8, 1 }
	one, _ := p.relay(change)
	two, _ := p.relay(change)
	d.sync()
	for i := range 4 {
		part := all[i*len(all)/4 : (i+1)*len(all)/4]
		before := one.Stats().Published + two.Stats().Published
		p.insert(part...)
		await(t, "some are published", func() bool { return one.Stats().Published+two.Stats().Published > before+int64(len(part)/3) })
		d.cut()
	}
	await(t, "all are in the stream", func() bool {
		return p.count("pending") == 0 && len(p.messages()) == len(all)
	})
	checkOrder(t, p.stored(), all)
}

// mortalRelay is a relay that kills its process at a point.
var mortalRelay = crash.Role[duty]{Name: "relay", Run: relayAndDie}

// duty is the task of a relay process.
type duty struct {
	After    int // it dies when it passes Point for this time
	Database string
	Point    string // of package probe
	Sync     int    // seconds
	URL      string
}

func relayAndDie(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := outbox.New(probe.With(ctx, probe.Probe{Passed: child.DieAt(d.Point, d.After)}), outbox.Config{
		BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool,
		SyncInterval: time.Duration(d.Sync) * time.Second,
	})
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}
