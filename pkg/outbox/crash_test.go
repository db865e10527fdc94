package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/outbox"
)

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
