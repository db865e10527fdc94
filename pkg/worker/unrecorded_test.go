package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// unrecorded is a job that is unique for as long as it is in the stream.
func unrecorded(id string) worker.NewJob {
	return worker.NewJob{Args: order{N: 1}, ID: id, Subject: "jobs.place.7", Unique: &worker.Unique{Unrecorded: true}}
}

// strict makes the stream refuse a second message of a subject by itself.
func strict(cfg *jetstream.StreamConfig) {
	cfg.MaxMsgsPerSubject, cfg.Discard, cfg.DiscardNewPerSubject = 1, jetstream.DiscardNew, true
}

// removeRecordSubjects makes the job stream of a test one without subjects for records.
func removeRecordSubjects(t *testing.T, b *bundle, mutate ...func(*jetstream.StreamConfig)) {
	t.Helper()

	cfg := jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}, Retention: jetstream.WorkQueuePolicy}
	for _, m := range mutate {
		m(&cfg)
	}

	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), cfg)))
}

// TestUnrecordedJobHoldsItsSubjectWhileItIsInTheStream inserts jobs of one subject with different IDs, from many clients at once, and
// before and after the first has been worked, into a stream that refuses a second one by itself and into one that does not.
func TestUnrecordedJobHoldsItsSubjectWhileItIsInTheStream(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		mutate []func(*jetstream.StreamConfig)
		want   nats.Header // those of a publish with a message ID, and what the stream needs to refuse a second one
	}{
		"one per subject": {[]func(*jetstream.StreamConfig){strict}, nats.Header{"Nats-Msg-Id": {"a"}}},
		"any": {nil, nats.Header{
			"Nats-Msg-Id": {"a"}, "Nats-Expected-Stream": {stream}, "Nats-Expected-Last-Subject-Sequence": {"0"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := setup(t, nil)
			removeRecordSubjects(t, b, test.mutate...)
			race(t, func() (*nats.Conn, jetstream.JetStream) { return natstest.Connect(t, b.srv) }, func(rival, key int) worker.NewJob {
				return worker.NewJob{
					Args: order{N: rival}, ID: fmt.Sprintf("%d-%d", rival, key), Subject: fmt.Sprintf("jobs.k.%d", key),
					Unique: &worker.Unique{Unrecorded: true},
				}
			})

			c := client(t, b.js)
			first := insert(t, c, unrecorded("a"))
			check.That(t, !first.Duplicate && first.ID == "a" && first.State == worker.StateQueued && first.Sequence == contested+1,
				"first: %+v", first)
			check.Equal(t, insert(t, c, unrecorded("b")), worker.Receipt{Duplicate: true, Subject: "jobs.place.7"}, "second")

			msg := check.Must(check.Must(b.js.Stream(t.Context(), stream))(t).GetMsg(t.Context(), first.Sequence))(t)
			check.Equal(t, msg.Header, test.want)

			r := run(t, b.js, b.config(t), worker.Policy{}, complete)
			for range contested + 1 {
				s := receive(t, b.settled, "the jobs")
				check.That(t, s.Outcome == worker.OutcomeCompleted && (s.ID == "a") == (s.Sequence == first.Sequence), "settled: %+v", s)
			}
			check.ErrorIs(t, r.wait(), nil)

			third := insert(t, c, unrecorded("c"))
			check.That(t, !third.Duplicate, "after the end: %+v", third)
		})
	}
}

// TestRefusedInsertOfAnUnrecordedJobThatWasStored: the server stores a job and refuses it, as it may around a change of leader.
// The insert reports a duplicate, and the job is in the stream once.
func TestRefusedInsertOfAnUnrecordedJobThatWasStored(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	removeRecordSubjects(t, b)

	p, js := natstest.Proxied(t, b.srv)
	c := client(t, js)
	insert(t, c, worker.NewJob{Subject: "jobs.place.6", Unique: &worker.Unique{Unrecorded: true}}) // reads the stream's settings

	p.Hit(func(f natstest.Frame) bool { return f.Subject == "jobs.place.7" }, natstest.RefusedApplied, 1)

	check.Equal(t, insert(t, c, unrecorded("a")), worker.Receipt{Duplicate: true, Subject: "jobs.place.7"}, "result")

	s := check.Must(b.js.Stream(t.Context(), stream))(t)

	msg, err := s.GetMsg(t.Context(), 2)
	check.That(t, err == nil && msg.Header.Get(nats.MsgIdHdr) == "a" && s.CachedInfo().State.Msgs == 2,
		"%d messages, the second %+v, %v; want the job once", s.CachedInfo().State.Msgs, msg, err)
}

// TestStreamThatIsFullIsAnErrorAtOnce: a full stream is neither a duplicate nor worth a repetition.
func TestStreamThatIsFullIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	removeRecordSubjects(t, b, strict, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 })
	b.publish(t, "jobs.other", "{}")

	c := client(t, b.js, func(cfg *worker.ClientConfig) { cfg.SettleTimeout = time.Hour })
	for name, job := range map[string]worker.NewJob{"unrecorded": unrecorded("a"), "plain": {Args: 1, Subject: "jobs.place.7"}} {
		r, err := c.Insert(t.Context(), job)

		var failed *worker.InsertError
		check.That(t, errors.As(err, &failed) && !failed.Unknown && strings.Contains(err.Error(), "maximum messages exceeded"),
			"%s: %+v, %v; want that the stream is full", name, r, err)
	}
}
