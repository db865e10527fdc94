package deadletter_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// TestReplaySurvivesTheLeadersDeath kills the node that leads the dead letters of a cluster
// of three in the middle of a replay, and replays until all is done.
func TestReplaySurvivesTheLeadersDeath(t *testing.T) {
	t.Parallel()

	const n = 60

	cluster := natstest.Cluster(t, 3, natstest.Processes)
	b := &bundle{}
	b.nc, b.js = natstest.ConnectURL(t, cluster.URLs())

	answered := func(ask func(ctx context.Context) error) {
		t.Helper()

		check.OK(t, natstest.UntilAnswered(t, ask))
	}

	for _, cfg := range []jetstream.StreamConfig{
		{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "DEAD", Subjects: []string{"dead.>"}, AllowDirect: true, Duplicates: time.Hour},
	} {
		cfg.Replicas = 3

		answered(func(ctx context.Context) error { return check.Err(b.js.CreateOrUpdateStream(ctx, cfg)) })
	}

	for i := range n {
		l := letter(i + 1)

		answered(func(ctx context.Context) error { return check.Err(worker.PublishDeadLetter(ctx, b.js, "dead", l)) })
	}

	var store *deadletter.Store

	answered(func(ctx context.Context) (err error) {
		store, err = deadletter.Open(ctx, b.js, deadletter.Config{RequestTimeout: time.Second})
		return err
	})

	done := 0
	opts := deadletter.ReplayOptions{Rate: -1, Each: func(deadletter.Outcome) {
		done++

		if done == n/3 {
			leader, err := cluster.StreamLeader(t.Context(), "DEAD")
			if err == nil {
				err = leader.Kill()
			}

			check.Is(t, err, nil)
		}
	}}

	answered(func(ctx context.Context) error { return check.Err(store.Replay(ctx, deadletter.Filter{}, opts)) })

	for name, want := range map[string]uint64{"DEAD": 0, "JOBS": n} {
		answered(func(ctx context.Context) error {
			s, err := b.js.Stream(ctx, name)
			if err == nil && s.CachedInfo().State.Msgs != want {
				t.Errorf("%d messages in %s, want %d", s.CachedInfo().State.Msgs, name, want)
			}
			return err
		})
	}
}
