package deadletter_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// TestJobThatIsDoneIsNoLetter has the server note that a message, which was acknowledged or deleted, went while a consumer's
// leader still waited for it. Only where the stream may have dropped it unworked, that is an entry.
func TestJobThatIsDoneIsNoLetter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mutate func(*jetstream.StreamConfig)
		want   int
	}{
		"a work queue":                  {func(*jetstream.StreamConfig) {}, 0},
		"one that refuses":              {func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 10 }, 0},
		"one that drops the old":        {func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, 1},
		"one that drops by age":         {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, 1},
		"one that drops by subject":     {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, 1},
		"one that keeps what was acked": {func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, test.mutate)
			arrived, err := b.js.CreateConsumer(t.Context(), "DEAD", jetstream.ConsumerConfig{})
			check.OK(t, err)
			ack, err := b.js.Publish(t.Context(), "jobs.1", nil)
			check.OK(t, err)
			consumer, err := b.js.CreateConsumer(t.Context(), "JOBS", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: "cook"})
			check.OK(t, err)
			check.OK(t, check.Err(consumer.Next()))
			jobs, err := b.js.Stream(t.Context(), "JOBS")
			check.OK(t, err)
			check.OK(t, jobs.DeleteMsg(t.Context(), ack.Sequence))
			check.OK(t, check.Err(arrived.Next(jetstream.FetchMaxWait(time.Minute))))
			entries := b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
			overview, err := b.store.Groups(t.Context(), deadletter.Filter{})
			if err != nil || len(entries) != test.want || overview.Total != test.want {
				t.Errorf("%d entries, %d in groups, %v; want %d", len(entries), overview.Total, err, test.want)
			}
			b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true}, deadletter.Result{Skipped: test.want})
		})
	}
}
