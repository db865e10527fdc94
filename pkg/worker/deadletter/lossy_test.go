package deadletter_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

var sequenceHeader = regexp.MustCompile(`\r\nNats-Sequence: (\d+)\r\n`)

// sequenceOf is the sequence of a message that a replica sends, 0 for another frame.
func sequenceOf(f natstest.Frame) uint64 {
	m := sequenceHeader.FindSubmatch(f.Raw)
	if f.FromClient || m == nil {
		return 0
	}
	n, err := strconv.ParseUint(string(m[1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// through is the bundle with a store whose messages go through a proxy.
func (b *bundle) through(t *testing.T) (*bundle, *natstest.Proxy) {
	t.Helper()

	p, js := natstest.Proxied(t, b.srv)
	far := *b
	far.store = b.open(t, js)
	return &far, p
}

// TestListMissesNothingThatIsLostOnItsWay: a connection that breaks may come back in the midst of an answer.
func TestListMissesNothingThatIsLostOnItsWay(t *testing.T) {
	t.Parallel()

	const letters = 40

	b := setup(t, nil)

	want := make([]uint64, 0, letters)
	for n := range letters {
		want = append(want, b.put(t, letter(n+1)))
	}

	for name, lost := range map[string][]uint64{
		"the first": {1}, "one": {5}, "some": {17, 18, 19, 20, 21, 22}, "several": {3, 20, 37}, "the last": {letters},
		"the last few": {38, 39, letters},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			lose := map[uint64]bool{}
			for _, seq := range lost {
				lose[seq] = true
			}

			listed, p := b.through(t)
			p.Filter(natstest.Losing(func(f natstest.Frame) bool {
				seq := sequenceOf(f)
				defer delete(lose, seq)
				return lose[seq]
			}))

			check.Equal(t, sequences(listed.list(t, deadletter.Filter{}, deadletter.OldestFirst)), want)

			p.Filter(nil)
			check.That(t, len(lose) == 0, "nothing was lost: %v", lose)
		})
	}
}

// TestListWaitsForAReplicaThatLags: the leader's letters are listed, or it is an error. The first answer is that of a replica
// which has not heard of the latest letters.
func TestListWaitsForAReplicaThatLags(t *testing.T) {
	t.Parallel()

	const letters = 20

	b := setup(t, nil)
	before := time.Now()

	want := make([]uint64, 0, letters)
	for n := range letters {
		want = append(want, b.put(t, letter(n+1)))
	}

	for _, knows := range []uint64{1, 15, letters - 1} {
		for name, filter := range map[string]deadletter.Filter{"all": {}, "since": {Since: before}} {
			t.Run(fmt.Sprintf("%s, %d known", name, knows), func(t *testing.T) {
				t.Parallel()

				listed, p := b.through(t)
				lags := true
				p.Filter(natstest.Losing(func(f natstest.Frame) bool { return lags && sequenceOf(f) > knows }))
				p.Change(func(f natstest.Frame) []byte {
					if f.FromClient || !lags || !bytes.Contains(f.Raw, []byte("NATS/1.0 204 EOB")) {
						return nil
					}
					lags = false
					end := fmt.Appendf(nil, "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: %d\r\n\r\n", knows)
					return f.With(end, len(end))
				})

				check.Equal(t, sequences(listed.list(t, filter, deadletter.OldestFirst)), want)

				p.Filter(nil)
				check.That(t, !lags, "no replica lagged")
			})
		}
	}
}

// TestListWaitsForABusyServer: the answers to pages are late, those to other questions are not.
func TestListWaitsForABusyServer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		b.put(t, letter(1))
		listed, p := b.through(t)
		begun := time.Now()
		p.Filter(natstest.Losing(func(f natstest.Frame) bool {
			return f.FromClient && strings.Contains(f.Subject, "DIRECT.GET") && time.Since(begun) < 12*time.Second
		}))
		check.Equal(t, sequences(listed.list(t, deadletter.Filter{}, deadletter.OldestFirst)), []uint64{1})
		p.Filter(nil)
	})
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

	consumer := check.Must(b.js.CreateConsumer(t.Context(), "JOBS", cfg))(t)

	publish("jobs.b.1", "jobs.b.2", "jobs.b.1", "jobs.a", "jobs.a", "jobs.a")

	for i := range 2 {
		msg := check.Must(consumer.Next())(t)

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
		"a work queue":              {func(*jetstream.StreamConfig) {}, 0},
		"one that refuses":          {func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 10 }, 0},
		"one that drops the old":    {func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, 1},
		"one that drops by age":     {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, 1},
		"one that drops by subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, 1},
		"one that keeps acked jobs": {func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, test.mutate)
			arrived := check.Must(b.js.CreateConsumer(t.Context(), "DEAD", jetstream.ConsumerConfig{}))(t)
			ack := check.Must(b.js.Publish(t.Context(), "jobs.1", nil))(t)
			consumer, err := b.js.CreateConsumer(t.Context(), "JOBS", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: "cook"})
			check.OK(t, err)
			check.OK(t, check.Err(consumer.Next()))
			jobs := check.Must(b.js.Stream(t.Context(), "JOBS"))(t)
			check.OK(t, jobs.DeleteMsg(t.Context(), ack.Sequence))
			check.OK(t, check.Err(arrived.Next(jetstream.FetchMaxWait(time.Minute))))
			entries := b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
			overview, err := b.store.Survey(t.Context(), deadletter.Filter{}, deadletter.SurveyOptions{})
			check.That(t, err == nil && len(entries) == test.want && overview.Total == test.want,
				"%d entries, %d in groups, %v; want %d", len(entries), overview.Total, err, test.want)
			b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true}, deadletter.Result{Skipped: test.want})
		})
	}
}
