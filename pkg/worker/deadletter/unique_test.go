package deadletter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

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
