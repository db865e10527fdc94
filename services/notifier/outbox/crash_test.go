package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// A real relay is killed at each point of its work, between an acknowledgement and the mark among them, and another goes on.
// Nothing is lost, the order of each key stays, and the stream has nothing twice.
func TestKilledRelayLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		after int
	}{
		{pointClaimed, 1},
		{pointAcknowledged, 1},
		{pointAcknowledged, 5},
		{pointMarked, 3},
		{pointCommitted, 3},
		{pointReadBack, 1},
	} {
		t.Run(fmt.Sprint(test.point, " ", test.after), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			all := events("e", 5, 12)
			p.insert(all[:40]...)
			sync := 3600
			if test.point == pointReadBack {
				sync = 1
			}
			kill(t, duty{After: test.after, Database: p.pool.Config().ConnString(), Point: test.point, Sync: sync, URL: p.srv.URL()})
			before := len(p.messages())
			p.insert(all[40:]...)
			r, _ := p.relay(func(c *Config) {
				c.Poll = 100 * time.Millisecond // the locks of the killed end when Postgres notices
				c.SyncInterval = time.Second
			})
			await(t, "all rows are gone", func() bool { return query[int](p, "SELECT count(*) FROM event_outbox") == 0 })
			ids := p.stored()
			checkOrder(t, ids, all)
			s := r.Stats()
			if again := test.point == pointAcknowledged || test.point == pointMarked; again != (s.Duplicates > 0) {
				t.Errorf("%d were in the stream and %d of them were published again", before, s.Duplicates)
			}
			if s.Lost+s.SetAside != 0 {
				t.Errorf("stats are %+v", s)
			}
		})
	}
}

// kill runs a relay until it has killed itself.
func kill(t *testing.T, d duty) {
	t.Helper()
	p, err := child.Start(t.Output(), relayRole, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Killed(ctx); err != nil {
		t.Fatal(err)
	}
}

// The machine of the server loses its power, and the server what it had acknowledged since it last synced. Those events are
// published again, before any of the same key that were committed later, also when others have filled their places.
func TestWhatTheServerLostIsPublishedAgain(t *testing.T) {
	t.Parallel()
	for name, strangers := range map[string]int{"the end of the stream is missing": 0, "others have filled the places": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := database(t)
			d := newDisk(t)
			p := &place{TB: t, pool: pool, srv: d.srv, js: d.js}
			p.stream(nil)
			change := func(c *Config) { c.NATSOptions, c.NATSURL, c.BatchSize = nil, d.srv.URL(), 16 }
			all := append(events("e", 5, 20), events("later", 3, 15)...) // two keys have no later ones
			p.insert(all[:50]...)
			r, stop := p.relay(change)
			await(t, "the first are published", func() bool { return r.Stats().Published == 50 })
			d.sync()
			p.insert(all[50:100]...)
			await(t, "the next are published", func() bool { return r.Stats().Published == 100 })
			seen := p.stored() // by a reader that is quick
			stop()
			d.cut()
			if n := len(p.messages()); n != 50 {
				t.Fatalf("the stream has %d messages after the power was cut: want 50, or nothing is tested", n)
			}
			for i := range strangers {
				msg := nats.NewMsg("events.OTHER.X")
				msg.Data = []byte(fmt.Sprintf(`{"event_id":"other-%d"}`, i))
				if _, err := d.js.PublishMsg(t.Context(), msg); err != nil {
					t.Fatal(err)
				}
			}
			p.insert(all[100:]...)
			r, _ = p.relay(change)
			await(t, "all are published", func() bool { return r.Stats().Lost >= 50 && p.count("published") == len(all) })
			if s := r.Stats(); s.Lost != 50 {
				t.Errorf("%d rows were lost, want 50", s.Lost)
			}
			var ours []string
			for _, id := range p.stored() {
				if !strings.HasPrefix(id, "other-") {
					ours = append(ours, id)
				}
			}
			checkOrder(t, ours, all)
			once, copies := inEffect(append(seen, ours[50:]...))
			checkOrder(t, once, all)
			if copies != 50 {
				t.Errorf("the quick reader got %d copies, want the 50 that were lost", copies)
			}
		})
	}
}

// The power goes while a relay is at work, and it goes on over and over: nobody restarts it. Nothing is lost but what a reader
// sees again.
func TestRelayAtWorkSurvivesPowerCuts(t *testing.T) {
	t.Parallel()
	pool := database(t)
	d := newDisk(t)
	p := &place{TB: t, pool: pool, srv: d.srv, js: d.js}
	p.stream(nil)
	all := events("e", 7, 40)
	change := func(c *Config) { c.NATSOptions, c.NATSURL, c.BatchSize, c.Concurrency = nil, d.srv.URL(), 8, 1 }
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
