package deadletter_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// strand publishes jobs.other.<n> and the advisory that a consumer gave it up. It returns
// the message's sequence.
func (b *bundle) strand(t *testing.T, n int, stream string) uint64 {
	t.Helper()

	ack, err := b.js.Publish(t.Context(), fmt.Sprintf("%s.other.%d", strings.ToLower(stream), n), fmt.Appendf(nil, "payload %d", n),
		jetstream.WithMsgID(fmt.Sprint(stream, n)))
	check.OK(t, err)

	b.advise(t, "MAX_DELIVERIES."+stream+".foreign", fmt.Sprintf(`{"stream_seq":%d,"deliveries":1}`, ack.Sequence))
	return ack.Sequence
}

func (b *bundle) advise(t *testing.T, subject, body string) {
	t.Helper()

	check.OK(t, check.Err(b.js.Publish(t.Context(), "$JS.EVENT.ADVISORY.CONSUMER."+subject, []byte(body))))
}

// TestServerReportsWhatIsStranded has the server itself give messages up.
func TestServerReportsWhatIsStranded(t *testing.T) {
	t.Parallel()

	for _, terminate := range []bool{false, true} {
		b := setup(t, nil)

		arrived := check.Must(b.js.CreateConsumer(t.Context(), "DEAD", jetstream.ConsumerConfig{}))(t)

		check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.1", []byte("payload"), jetstream.WithMsgID("x"))))

		ackWait := 100 * time.Millisecond
		if terminate { // comes before it is given up, however slow the machine is
			ackWait = time.Hour
		}

		consumer, err := b.js.CreateConsumer(t.Context(), "JOBS", jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, Durable: "foreign", MaxDeliver: 1,
		})
		check.OK(t, err)

		msg := check.Must(consumer.Next())(t)

		if terminate {
			check.OK(t, msg.TermWithReason("no use"))
		}

		// The server notices while somebody pulls.
		pulling := check.Must(consumer.Messages())(t)

		check.OK(t, check.Err(arrived.Next(jetstream.FetchMaxWait(time.Minute))))

		pulling.Stop()

		reason, problem := deadletter.ReasonMaxDeliveries, error(nil)
		if terminate {
			reason, problem = deadletter.ReasonTerminated, deadletter.ErrGone // a work queue drops a terminated job
		}

		for _, e := range b.list(t, deadletter.Filter{}, deadletter.NewestFirst) {
			check.That(t,
				e.DeadLetter.Reason == reason && errors.Is(e.Problem, problem) && (problem != nil || string(e.DeadLetter.Payload) == "payload"),
				"entry: %+v", e)
		}
	}
}

func TestStrandedMessageIsShownAndReplayed(t *testing.T) {
	t.Parallel()

	// As ENRICH_JOBS: each subject once, so the message has to go before it comes again.
	b := setup(t, nil, func(c *jetstream.StreamConfig) {
		c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject = jetstream.DiscardNew, true, 1
	})
	seq := b.strand(t, 1, "JOBS")

	all := b.list(t, deadletter.Filter{Subject: "jobs.other.*"}, deadletter.NewestFirst)
	check.Require(t, len(all) == 1 && all[0].Kind == deadletter.KindStranded && all[0].Problem == nil, "entries: %+v", all)

	l := all[0].DeadLetter
	check.That(t, string(l.Payload) == "payload 1" && l.ID == "JOBS1" && l.Subject == "jobs.other.1" && l.Sequence == seq &&
		l.Deliveries == 1 && l.Reason == deadletter.ReasonMaxDeliveries && l.Consumer == "foreign", "letter: %+v", l)

	b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true}, deadletter.Result{Done: 1})

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	msg := b.job(t, outcomes[0].Sequence)
	check.That(t, string(msg.Data) == "payload 1" && msg.Subject == "jobs.other.1" && msg.Header.Get("Job-Id") == "JOBS1",
		"replayed %s: %s, %v", msg.Subject, msg.Data, msg.Header)

	b.wantLeft(t, 1, 0)
}

// TestInterruptedAdoptionLosesNothing ends the replay of a stranded message while its
// letter is stored.
func TestInterruptedAdoptionLosesNothing(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		after bool
		to    string
	}{{false, "dead.JOBS.jobs."}, {true, "dead.JOBS.jobs."}, {true, "dead.JOBS.$replay."}, {false, "jobs."}, {true, "jobs."}} {
		t.Run(fmt.Sprint(c.to, c.after), func(t *testing.T) {
			t.Parallel()

			b := setup(t, nil)
			b.strand(t, 1, "JOBS")
			b.die(t, c.to, c.after)

			check.OK(t, check.Err(b.store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})))

			b.wantLeft(t, 1, 0)
		})
	}
}

func TestStrandedMessageThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	b.advise(t, "MSG_TERMINATED.JOBS.foreign", `{"stream_seq":1,"deliveries":1,"reason":"no use"}`)

	all := b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
	check.That(t, len(all) == 1 && errors.Is(all[0].Problem, deadletter.ErrGone) && all[0].DeadLetter.Reason == deadletter.ReasonTerminated &&
		strings.Contains(all[0].DeadLetter.Error, "no use"),
		"entries: %+v", all)

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Skipped: 1})
	check.ErrorIs(t, outcomes[0].Err, deadletter.ErrGone)

	check.OK(t, b.js.DeleteStream(t.Context(), "JOBS"))

	all = b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
	check.That(t, len(all) == 1 && errors.Is(all[0].Problem, deadletter.ErrGone), "entries without the stream: %+v", all)

	// The stream again, with another message at that sequence.
	b.stream(t, jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy})

	check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.another", nil)))

	all = b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
	check.That(t, len(all) == 1 && errors.Is(all[0].Problem, deadletter.ErrGone), "entries with a new stream: %+v", all)
}

func TestMessagesOfOtherStreamsAreNotTakenFromTheirConsumers(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	b.stream(t, jetstream.StreamConfig{Name: "NEWS", Subjects: []string{"news.>"}})
	b.strand(t, 1, "NEWS")

	for _, dry := range []bool{true, false} {
		outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: dry}, deadletter.Result{Skipped: 1})
		check.That(t, contains(outcomes[0].Err, "no work queue"), "%v, want that it is no work queue", outcomes[0].Err)
	}

	r, err := b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
	check.That(t, err == nil && r.Done == 1, "%+v, %v", r, err)

	news, letters := b.messages(t, "NEWS"), b.messages(t, "DEAD")
	check.That(t, news == 1 && letters == 0, "%d messages, %d letters; want 1, 0: others still read it", news, letters)

	// Of a work queue the message goes, too: nobody else would ever take it.
	b.strand(t, 1, "JOBS")

	r, err = b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
	check.That(t, err == nil && r.Done == 1, "%+v, %v", r, err)

	b.wantLeft(t, 0, 0)
}

func TestStrandedFindsWhatNobodyTakes(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "jobs-done.>", "jobs-later.>") })

	for _, c := range []jetstream.ConsumerConfig{
		{Durable: "mailer", FilterSubject: "jobs.mail.>"}, {Durable: "two", FilterSubjects: []string{"jobs.a", "jobs.b.*"}},
	} {
		c.AckPolicy = jetstream.AckExplicitPolicy
		check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), "JOBS", c)))
	}

	for _, to := range []string{"jobs.mail.1", "jobs.mial.1", "jobs.b.1", "jobs.b", "jobs.b", "jobs-done.x", "jobs-later.y"} {
		check.OK(t, check.Err(b.js.Publish(t.Context(), to, nil)))
	}

	got, err := b.store.Stranded(t.Context(), "JOBS")
	want := deadletter.Unclaimed{
		Complete: true, Messages: 3, Stream: "JOBS", Subjects: []deadletter.SubjectCount{{Messages: 2, Subject: "jobs.b"}, {Messages: 1, Subject: "jobs.mial.1"}},
	}

	diff := cmp.Diff(want, got)
	check.That(t, diff == "" && err == nil, "%v (-want +got):\n%s", err, diff)

	check.That(t, check.Err(b.store.Stranded(t.Context(), "DEAD")) != nil, "a stream that is no work queue was looked through")

	check.ErrorIs(t, check.Err(b.store.Stranded(t.Context(), "NONE")), deadletter.ErrNoStream)
}

// TestLargeLettersComeBackWhole dead-letters jobs whose letters fit into no message: random bytes
// cannot be packed.
func TestLargeLettersComeBackWhole(t *testing.T) {
	t.Parallel()

	for name, limit := range map[string]int32{"server's limit": -1, "stream's limit": 256 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := setup(t, nil)

			dead := check.Must(b.js.Stream(t.Context(), "DEAD"))(t)

			cfg := dead.CachedInfo().Config
			cfg.MaxMsgSize = limit

			check.OK(t, check.Err(b.js.UpdateStream(t.Context(), cfg)))

			payload := make([]byte, 1<<20-128)
			_, _ = rand.Read(payload)

			check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.large", payload, jetstream.WithMsgID("large"))))

			check.Equal(t, b.work(t, 1, errors.New("boom"))[0].Outcome, worker.OutcomeDead, "outcome")
			check.Equal(t, b.messages(t, "JOBS"), 0, "jobs left")

			all := b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
			check.Require(t, len(all) == 1 && bytes.Equal(all[0].DeadLetter.Payload, payload) && all[0].DeadLetter.ID == "large" && len(all[0].DeadLetter.Parts) >= 2,
				"%d entries", len(all))

			overview, err := b.store.Survey(t.Context(), deadletter.Filter{}, deadletter.SurveyOptions{})
			check.That(t, err == nil && overview.Total == 1, "groups count %d, %v", overview.Total, err)

			// The headers of the replay do not fit beside a payload of the server's limit.
			outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Failed: 1})
			check.ErrorIs(t, outcomes[0].Err, nats.ErrMaxPayload)

			outcomes = b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{
				Edit: func(l worker.DeadLetter) ([]byte, error) { return l.Payload[:1<<20-1024], nil }, // room for the headers
			}, deadletter.Result{Done: 1})
			check.That(t, bytes.Equal(b.job(t, outcomes[0].Sequence).Data, payload[:1<<20-1024]), "the payload was changed")

			check.Equal(t, b.messages(t, "DEAD"), 0, "messages left")
		})
	}
}

func TestLetterWithoutItsPartsIsUnreadable(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	payload := make([]byte, 900_000)
	_, _ = rand.Read(payload)

	seq := b.put(t, letter(1, func(l *worker.DeadLetter) { l.Payload = payload }))

	dead := check.Must(b.js.Stream(t.Context(), "DEAD"))(t)

	check.OK(t, dead.DeleteMsg(t.Context(), 1))

	e, err := b.store.Get(t.Context(), seq)
	check.That(t, err == nil && errors.Is(e.Problem, deadletter.ErrUnreadable), "%v, %v, want ErrUnreadable", e.Problem, err)
}
