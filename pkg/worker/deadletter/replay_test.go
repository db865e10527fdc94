package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

func TestReplayPublishesTheJobAgainAndRemovesTheLetter(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	// The job itself went through this stream a moment ago, so its ID is remembered.
	check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.mail.1", []byte(`{"n":1}`), jetstream.WithMsgID("id-1"))))

	b.work(t, 1, worker.Cancel(errors.New("smtp: code 1")))

	died := b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
	check.Require(t, len(died) == 1 && died[0].Letter.ID == "id-1" && b.messages(t, "JOBS") == 0, "letters: %+v", died)

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})
	msg := b.job(t, outcomes[0].Sequence)

	check.That(t, msg.Subject == "jobs.mail.1" && string(msg.Data) == `{"n":1}`, "replayed %s: %s", msg.Subject, msg.Data)

	id := msg.Header.Get(nats.MsgIdHdr)
	msg.Header.Del(nats.MsgIdHdr)

	want := nats.Header{
		"Job-Id": {"id-1"}, "Job-Replay": {"1"}, "Job-Replay-Of": {"DEAD:1"}, "Job-Replay-Record": {"2"}, "Job-Resume": {died[0].Letter.Resume()},
		"Nats-Expected-Stream": {"JOBS"},
	}
	diff := cmp.Diff(want, msg.Header)
	check.That(t, diff == "" && id != "id-1" && id != "", "ID %q, headers (-want +got):\n%s", id, diff)

	check.Same(t, "messages are left in the dead letter stream", b.messages(t, "DEAD"), 0)

	// It dies again and is replayed again: a new letter, the same job.
	b.work(t, 1, errors.New("still broken"))
	outcomes = b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	msg = b.job(t, outcomes[0].Sequence)
	check.That(t, msg.Header.Get("Job-Replay") == "2" && msg.Header.Get("Job-Id") == "id-1", "headers of the second replay: %v", msg.Header)

	s := b.work(t, 1, nil)
	check.That(t, s[0].ID == "id-1" && s[0].Outcome == worker.OutcomeCompleted, "%s: %s", s[0].ID, s[0].Outcome)

	check.Same(t, "messages are left in the dead letter stream", b.messages(t, "DEAD"), 0)
}

func TestReplayDropsWhatTheServerReads(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
	b.put(t, letter(1, func(l *worker.DeadLetter) {
		l.Header = map[string][]string{
			"Nats-Expected-Last-Sequence": {"77"}, "Nats-Rollup": {"all"}, "Nats-Scheduler": {"x"}, "Nats-TTL": {"1h"}, "mine": {"a", "b"},
		}
	}))

	check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.other", nil)))

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	header := b.job(t, outcomes[0].Sequence).Header
	diff := cmp.Diff([]string{"a", "b"}, header["mine"])
	check.That(t, diff == "" && header.Get("Nats-TTL") == "1h", "headers: %v", header)

	check.That(t, b.messages(t, "JOBS") == 2, "the roll-up of the original happened again")
}

// watched is a JetStream context that tells when a job is published, before its publisher has the answer.
type watched struct {
	jetstream.JetStream

	published func(subject string)
}

func (w watched) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := w.JetStream.PublishMsg(ctx, msg, opts...)
	if err == nil && strings.HasPrefix(msg.Subject, "jobs.") {
		w.published(msg.Subject)
	}
	return ack, err
}

// TestWorkerThatIsFasterThanAReplay works a job before the replay removes its letter, so that the worker's note is stored.
func TestWorkerThatIsFasterThanAReplay(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	b.put(t, letter(1))

	fast := b.open(t, watched{JetStream: b.js, published: func(string) {
		b.work(t, 1, nil)
		check.Same(t, "messages in the dead letter stream: the letter, the record, the note", b.messages(t, "DEAD"), 3)
	}})
	result, err := fast.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	check.That(t, err == nil && result == (deadletter.Result{Done: 1}), "%+v, %v; want one letter", result, err)
	check.Same(t, "messages are left in the dead letter stream", b.messages(t, "DEAD"), 0)
}

// TestReplayIsOfSeveralAtOnce has each publication take a second. Letters of one key follow each other.
func TestReplayIsOfSeveralAtOnce(t *testing.T) {
	const n = 48

	for name, test := range map[string]struct {
		keys, limit int
		want        time.Duration
	}{
		"16 keys":                {16, n, 3 * time.Second},
		"one key":                {1, n, n * time.Second},
		"16 keys, a limit of 20": {16, 20, 2 * time.Second},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv)
			for i := range n {
				b.put(t, letter(i+1, func(l *worker.DeadLetter) { l.Subject = fmt.Sprintf("jobs.mail.%d", i%test.keys) }))
			}

			begun, far := time.Now(), *b
			far.store = b.open(t, watched{JetStream: b.js, published: func(string) { pass(time.Second) }})
			want := test.limit
			outcomes := far.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Limit: test.limit, Rate: -1}, deadletter.Result{Done: want})
			check.Same(t, "time", time.Since(begun).Truncate(time.Second), test.want)

			jobs := map[string]uint64{}
			for i, o := range outcomes {
				check.Same(t, "letter", o.Entry.Sequence, uint64(i+1))
				check.That(t, o.Sequence > jobs[o.Entry.Letter.Subject], "letter %d became job %d, one before it %d", i+1, o.Sequence, jobs[o.Entry.Letter.Subject])
				jobs[o.Entry.Letter.Subject] = o.Sequence
			}
			check.Same(t, "messages left", b.messages(t, "DEAD"), uint64(n-want))
		})
	}
}

func TestTwoReplaysAtOncePublishEachJobOnce(t *testing.T) {
	t.Parallel()

	const n = 100

	b := setup(t, nil)
	for i := range n {
		b.put(t, letter(i+1))
	}

	var group sync.WaitGroup

	for range 3 {
		group.Go(func() {
			check.Is(t, check.Err(b.store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{Rate: -1})), nil)
		})
	}

	group.Wait()

	jobs, letters := b.messages(t, "JOBS"), b.messages(t, "DEAD")
	check.That(t, jobs == n && letters == 0, "%d jobs, %d letters; want %d, 0", jobs, letters, n)
}

func TestReplayKeepsItsRate(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		for i := range 21 {
			b.put(t, letter(i+1))
		}

		begun := time.Now()
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true, Rate: 0.001}, deadletter.Result{Done: 21})

		took := time.Since(begun)
		check.That(t, took <= time.Second, "a dry run took %s, want no wait", took)

		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Limit: 11, Rate: 2}, deadletter.Result{Done: 11})

		took = time.Since(begun)
		check.That(t, took >= 5*time.Second && took <= 6*time.Second, "11 letters took %s, want 5s at 2 a second", took)

		begun = time.Now()
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Rate: -1}, deadletter.Result{Done: 10})

		took = time.Since(begun)
		check.That(t, took <= time.Second, "10 letters took %s without a limit", took)
	})
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	b.put(t, letter(1))
	b.put(t, letter(2, func(l *worker.DeadLetter) { l.Stream, l.Subject = "NOWHERE", "nowhere.1" }))

	state := func() [2]uint64 {
		dead := check.Must(b.js.Stream(t.Context(), "DEAD"))(t)
		return [2]uint64{dead.CachedInfo().State.LastSeq, b.messages(t, "JOBS")}
	}

	before := state()

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true}, deadletter.Result{Done: 1, Failed: 1})
	check.Is(t, outcomes[1].Err, deadletter.ErrNoStream)

	r, err := b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{DryRun: true})
	check.That(t, err == nil && r.Done == 2, "%+v, %v", r, err)

	after := state()
	check.That(t, before == after && b.messages(t, "DEAD") == 2, "state %v, was %v", after, before)

	// Without it the failure is the same, and leaves no record.
	b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1, Failed: 1})

	check.Same(t, "messages left", b.messages(t, "DEAD"), 1)
}

func TestReplayWithEditedPayload(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	for i := range 3 {
		b.put(t, letter(i+1))
	}

	broken := errors.New("no JSON")
	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Edit: func(l worker.DeadLetter) ([]byte, error) {
		switch l.ID {
		case "id-1":
			return []byte("edited"), nil
		case "id-2":
			return nil, fmt.Errorf("%w: fine as it is", deadletter.ErrSkip)
		default:
			return nil, broken
		}
	}}, deadletter.Result{Done: 1, Failed: 1, Skipped: 1})

	check.Same(t, "published", string(b.job(t, outcomes[0].Sequence).Data), "edited")

	if !errors.Is(outcomes[2].Err, broken) || b.messages(t, "DEAD") != 2 {
		t.Errorf("%v; %d letters left, want 2", outcomes[2].Err, b.messages(t, "DEAD"))
	}
}

func TestReplayReportsAKeyThatIsTaken(t *testing.T) {
	t.Parallel()

	unique := func(l *worker.DeadLetter) { l.Header[worker.HeaderKeep] = []string{"0s"} }
	b := setup(t, nil, func(c *jetstream.StreamConfig) { c.Subjects = []string{"jobs.>", "jobs-done.>", "jobs-later.>"} })

	// 1 is free, 2 has been inserted anew, 3 is scheduled, 4 has its own record, 5 somebody else's.
	for i := 1; i <= 5; i++ {
		b.put(t, letter(i, unique))
	}

	for subject, id := range map[string]string{"jobs.mail.2": "new", "jobs-later.mail.3": "new", "jobs-done.mail.4": "id-4", "jobs-done.mail.5": "new"} {
		msg := nats.NewMsg(subject)
		msg.Header.Set("Job-Id", id)
		msg.Header.Set("Job-Sequence", "4")
		msg.Header.Set("Job-State", "dead")

		check.OK(t, check.Err(b.js.PublishMsg(t.Context(), msg)))
	}

	for _, dry := range []bool{true, false} {
		outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: dry}, deadletter.Result{Done: 2, Skipped: 3})
		for i, want := range map[int]string{1: "jobs.mail.2", 2: "jobs-later.mail.3", 4: "jobs-done.mail.5"} {
			var taken *deadletter.TakenError
			check.That(t, errors.As(outcomes[i].Err, &taken) && taken.Subject == want,
				"letter %d: %v, want that %s has its key", i+1, outcomes[i].Err, want)
		}
	}

	check.Same(t, "messages left", b.messages(t, "DEAD"), 3)
}

// TestUniqueJobIsReplayedInItsKey is a unique job from its insertion to its end.
func TestUniqueJobIsReplayedInItsKey(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(c *jetstream.StreamConfig) {
		c.AllowMsgTTL, c.AllowRollup, c.Subjects = true, true, []string{"jobs.>", "jobs-done.>", "jobs-later.>"}
	})

	client := check.Must(worker.NewClient(b.js, worker.ClientConfig{Stream: "JOBS"}))(t)

	insert := func() worker.Receipt {
		r, err := client.Insert(t.Context(), worker.NewJob{Args: 1, Subject: "jobs.mail.u1", Unique: &worker.Unique{HoldDead: true, Keep: time.Hour}})
		check.OK(t, err)
		return r
	}

	first := insert()
	b.work(t, 1, worker.Cancel(errors.New("boom")))

	again := insert()
	check.Require(t, again.Duplicate && again.State == worker.StateDead, "while dead: %+v", again)

	b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	if again := insert(); !again.Duplicate || again.State != worker.StateQueued || again.ID != first.ID {
		t.Errorf("while it waits again: %+v, want job %s", again, first.ID)
	}

	check.Same(t, "worked", b.work(t, 1, nil)[0].ID, first.ID)

	again = insert()
	check.That(t, again.Duplicate && again.State == worker.StateDone, "when done: %+v", again)
}

// TestReplayIntoASubjectThatIsTaken is about streams that take one message of a subject.
func TestReplayIntoASubjectThatIsTaken(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(c *jetstream.StreamConfig) {
		c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject = jetstream.DiscardNew, true, 1
	})
	b.put(t, letter(1))

	check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.mail.1", nil)))

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Skipped: 1})

	var taken *deadletter.TakenError
	if !errors.As(outcomes[0].Err, &taken) || taken.Sequence != 1 || b.messages(t, "DEAD") != 1 {
		t.Errorf("%v, %d messages; want that 1 is in its place, and the letter alone", outcomes[0].Err, b.messages(t, "DEAD"))
	}
}
