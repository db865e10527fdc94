package deadletter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// lossy is a JetStream context whose deliveries get lost on their way, once each.
type lossy struct {
	jetstream.JetStream

	lose map[uint64]bool // by sequence in the stream
}

// CreateConsumer implements jetstream.StreamConsumerManager.
func (l *lossy) CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := l.JetStream.CreateConsumer(ctx, stream, cfg)
	return &lossyConsumer{Consumer: consumer, lose: l.lose}, err
}

type lossyConsumer struct {
	jetstream.Consumer

	lose map[uint64]bool
}

// FetchNoWait implements jetstream.Consumer.
func (c *lossyConsumer) FetchNoWait(batch int) (jetstream.MessageBatch, error) {
	return fetch(c.Consumer, batch, func(msg jetstream.Msg, sequence uint64) jetstream.Msg {
		if c.lose[sequence] {
			delete(c.lose, sequence)
			return nil
		}
		return msg
	})
}

// fetch hands on what arrives makes of each message; nil for nothing.
func fetch(
	from jetstream.Consumer, batch int, arrives func(msg jetstream.Msg, sequence uint64) jetstream.Msg,
) (jetstream.MessageBatch, error) {
	whole, err := from.FetchNoWait(batch)
	if err != nil {
		return nil, err
	}

	left := make(chan jetstream.Msg, batch)
	defer close(left)

	for msg := range whole.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}

		if msg = arrives(msg, meta.Sequence.Stream); msg != nil {
			left <- msg
		}
	}
	return lossyBatch{MessageBatch: whole, left: left}, nil
}

type lossyBatch struct {
	jetstream.MessageBatch

	left <-chan jetstream.Msg
}

// Messages implements jetstream.MessageBatch.
func (b lossyBatch) Messages() <-chan jetstream.Msg { return b.left }

// TestListMissesNothingThatIsLostOnItsWay: the server delivers each letter to a listing once.
func TestListMissesNothingThatIsLostOnItsWay(t *testing.T) {
	t.Parallel()

	const letters = 40 // more than two batches

	b := setup(t, nil)

	want := make([]uint64, 0, letters)
	for n := range letters {
		want = append(want, b.put(t, letter(n+1)))
	}

	for name, lost := range map[string][]uint64{
		"the first":        {1},
		"one in a batch":   {5},
		"the end of one":   {15, 16},
		"a whole batch":    {17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32},
		"one in each":      {3, 20, 37},
		"the last":         {letters},
		"the last of many": {38, 39, letters},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			lose := map[uint64]bool{}
			for _, seq := range lost {
				lose[seq] = true
			}

			listed := *b
			listed.store = b.open(t, &lossy{JetStream: b.js, lose: lose})

			check.Equal(t, want, sequences(listed.list(t, deadletter.Filter{}, deadletter.OldestFirst)))

			check.That(t, len(lose) == 0, "nothing was lost: %v", lose)
		})
	}
}

// lagging is a JetStream context whose first consumer reads from a replica that has not heard
// of the latest letters.
type lagging struct {
	jetstream.JetStream

	knows uint64 // the first consumer's replica, 0 for all
}

// CreateConsumer implements jetstream.StreamConsumerManager.
func (l *lagging) CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := l.JetStream.CreateConsumer(ctx, stream, cfg)
	if err != nil || l.knows == 0 {
		return consumer, err
	}

	behind := &laggingConsumer{Consumer: consumer, knows: l.knows}
	l.knows = 0
	return behind, nil
}

type laggingConsumer struct {
	jetstream.Consumer

	knows uint64
}

// CachedInfo implements jetstream.Consumer.
func (c *laggingConsumer) CachedInfo() *jetstream.ConsumerInfo {
	info := *c.Consumer.CachedInfo()
	info.NumPending = c.knows
	return &info
}

// FetchNoWait implements jetstream.Consumer.
func (c *laggingConsumer) FetchNoWait(batch int) (jetstream.MessageBatch, error) {
	return fetch(c.Consumer, batch, func(msg jetstream.Msg, sequence uint64) jetstream.Msg {
		if sequence > c.knows {
			return nil
		}
		return laggingMsg{Msg: msg, pending: c.knows - sequence}
	})
}

type laggingMsg struct {
	jetstream.Msg

	pending uint64
}

// Metadata implements jetstream.Msg.
func (m laggingMsg) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := m.Msg.Metadata()
	if err == nil {
		meta.NumPending = m.pending
	}
	return meta, err
}

// TestListWaitsForAReplicaThatLags: what the leader has is listed, or it is an error.
func TestListWaitsForAReplicaThatLags(t *testing.T) {
	t.Parallel()

	const letters = 20 // more than a batch

	b := setup(t, nil)
	before := time.Now()

	want := make([]uint64, 0, letters)
	for n := range letters {
		want = append(want, b.put(t, letter(n+1)))
	}

	for _, knows := range []uint64{1, 15, 16, letters - 1} {
		for name, filter := range map[string]deadletter.Filter{"all": {}, "since": {Since: before}} {
			t.Run(fmt.Sprintf("%s, %d known", name, knows), func(t *testing.T) {
				t.Parallel()

				listed := *b
				listed.store = b.open(t, &lagging{JetStream: b.js, knows: knows})

				check.Equal(t, want, sequences(listed.list(t, filter, deadletter.OldestFirst)))
			})
		}
	}
}

// TestStrandedFindsWhatAConsumerHasPassed gives a consumer a subject of which it has passed
// messages.
func TestStrandedFindsWhatAConsumerHasPassed(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	publish := func(subjects ...string) {
		for _, to := range subjects {
			check.OK(t, check.Err(b.js.Publish(t.Context(), to, nil)))
		}
	}
	stranded := func(want ...deadletter.SubjectCount) {
		t.Helper()

		got, err := b.store.Stranded(t.Context(), "JOBS")
		diff := cmp.Diff(want, got.Subjects)
		check.That(t, diff == "" && err == nil && got.Complete, "%v, complete %t (-want +got):\n%s", err, got.Complete, diff)
	}

	cfg := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: "baker", FilterSubject: "jobs.a"}

	consumer, err := b.js.CreateConsumer(t.Context(), "JOBS", cfg)
	check.OK(t, err)

	publish("jobs.b.1", "jobs.b.2", "jobs.b.1", "jobs.a", "jobs.a", "jobs.a")

	for i := range 2 {
		msg, err := consumer.Next()
		check.OK(t, err)

		if i > 0 {
			continue // it is worked
		}

		check.OK(t, msg.DoubleAck(t.Context()))
	}

	stranded(deadletter.SubjectCount{Messages: 2, Subject: "jobs.b.1"}, deadletter.SubjectCount{Messages: 1, Subject: "jobs.b.2"})

	cfg.FilterSubject, cfg.FilterSubjects = "", []string{"jobs.a", "jobs.b.*"}

	check.OK(t, check.Err(b.js.UpdateConsumer(t.Context(), "JOBS", cfg)))

	publish("jobs.b.3")
	stranded(
		deadletter.SubjectCount{Messages: 2, PassedBy: "baker", Subject: "jobs.b.1"},
		deadletter.SubjectCount{Messages: 1, PassedBy: "baker", Subject: "jobs.b.2"},
	)
}

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
			check.That(t, err == nil && len(entries) == test.want && overview.Total == test.want,
				"%d entries, %d in groups, %v; want %d", len(entries), overview.Total, err, test.want)
			b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true}, deadletter.Result{Skipped: test.want})
		})
	}
}
