package worker_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// seen is a handler's note of one run.
type seen struct {
	At         time.Duration // since the test began
	Attempt    int
	Deliveries int
}

// script runs a job in a bubble whose handler answers each run by the next error of
// answers, and returns the runs.
func script(t *testing.T, policy worker.Policy, answers ...error) (runs []seen, letters []worker.DeadLetter) {
	t.Helper()

	bubble(t, func(t *testing.T, b *bundle) {
		cfg := b.config(t, func(c *worker.Config) {
			c.Version = "v1.2.3"
		})
		b.publish(t, "jobs.1", `{"n":1}`)

		begun := time.Now()

		r := run(t, b.js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
			runs = append(runs, seen{time.Since(begun).Round(50 * time.Millisecond), job.Attempt, job.Deliveries})
			return answers[len(runs)-1]
		})

		for range answers {
			<-b.settled
		}

		check.Is(t, r.wait(), nil)

		letters = b.letters(t)

		check.Same(t, "messages left", b.left(t), 0)
	})
	return runs, letters
}

func TestFailedAttemptsWaitLongerEachTime(t *testing.T) {
	policy := worker.Policy{Backoff: worker.Exponential(2*time.Second, time.Minute), Jitter: -1, MaxAttempts: 4}
	runs, letters := script(t, policy, io.EOF, io.EOF, io.EOF, nil)

	want := []seen{{0, 1, 1}, {2 * time.Second, 2, 2}, {6 * time.Second, 3, 3}, {14 * time.Second, 4, 4}}
	check.Equal(t, want, runs)

	check.Same(t, "dead letters", len(letters), 0)
}

func TestRetryWaitsAsLongAsAsked(t *testing.T) {
	runs, _ := script(t, worker.Policy{}, worker.Retry(time.Hour, io.EOF), worker.Retry(0, nil), nil)

	want := []seen{{0, 1, 1}, {time.Hour, 2, 2}, {time.Hour, 3, 3}}
	check.Equal(t, want, runs)
}

func TestSnoozeUsesNoAttempt(t *testing.T) {
	policy := worker.Policy{Jitter: -1, MaxAttempts: 2}
	runs, letters := script(t, policy, worker.Snooze(10*time.Minute), worker.Snooze(0), worker.Snooze(20*time.Minute),
		io.EOF, worker.Snooze(time.Minute), io.EOF)

	want := []seen{
		{0, 1, 1},
		{10 * time.Minute, 1, 2},
		{10 * time.Minute, 1, 3},
		{30 * time.Minute, 1, 4},
		{30*time.Minute + time.Second, 2, 5},
		{30*time.Minute + time.Second + time.Minute, 2, 6},
	}
	check.Equal(t, want, runs)

	check.That(t, len(letters) == 1 && letters[0].Attempts == 2 && letters[0].Deliveries == 6,
		"letters: %+v, want one after 2 attempts in 6 deliveries", letters)
}

func TestLastAttemptEndsInTheDeadLetters(t *testing.T) {
	_, letters := script(t, worker.Policy{MaxAttempts: 2}, io.EOF, errors.New("no answer from 10.0.0.7:80"))
	check.Require(t, len(letters) == 1, "%d dead letters, want 1", len(letters))

	got := letters[0]
	check.That(t, !got.DeadAt.Before(got.EnqueuedAt), "dead at %s, before it was enqueued at %s", got.DeadAt, got.EnqueuedAt)

	got.DeadAt, got.EnqueuedAt = time.Time{}, time.Time{}

	want := worker.DeadLetter{
		Attempts: 2, Consumer: durable, Deliveries: 2, Error: "no answer from 10.0.0.7:80", ID: "JOBS:1", MaxAttempts: 2,
		Payload: []byte(`{"n":1}`), Reason: worker.ReasonExhausted, Sequence: 1, Signature: "no answer from #:#",
		Stream: stream, Subject: "jobs.1", Version: "v1.2.3", Worker: t.Name(),
	}
	check.Equal(t, want, got)
}

func TestCancelGivesUpAtOnce(t *testing.T) {
	_, letters := script(t, worker.Policy{}, worker.Cancel(errors.New("no such place")))
	check.That(t, len(letters) == 1 && letters[0].Reason == worker.ReasonCancelled && letters[0].Attempts == 1 &&
		strings.Contains(letters[0].Error, "no such place"),
		"letters: %+v, want one, cancelled at attempt 1", letters)
}

func TestPanicsAndGoexitsAreFailedAttempts(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 }) // one lost slot would stop it
	policy := worker.Policy{Backoff: worker.Exponential(0, 0), MaxAttempts: 2}

	run(t, b.js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
		switch job.Args.N {
		case 0:
			panic(io.ErrUnexpectedEOF)
		case 1:
			runtime.Goexit()
		}
		return nil
	})
	b.publishN(t, 3)

	last := make(map[string]worker.Settlement)
	for range 5 {
		s := receive(t, b.settled, "a settlement")
		last[s.Subject] = s
	}

	var fatal *worker.PanicError
	if s := last["jobs.0"]; s.Outcome != worker.OutcomeDead || !errors.As(s.Err, &fatal) || !errors.Is(s.Err, io.ErrUnexpectedEOF) {
		t.Errorf("panic: %s, %v; want dead, a PanicError that wraps its value", s.Outcome, s.Err)
	}

	if s := last["jobs.1"]; s.Outcome != worker.OutcomeDead || !errors.Is(s.Err, worker.ErrGoexit) {
		t.Errorf("goexit: %s, %v; want dead, ErrGoexit", s.Outcome, s.Err)
	}

	check.Same(t, "the job behind them", last["jobs.2"].Outcome, worker.OutcomeCompleted)

	for _, letter := range b.letters(t) {
		check.That(t, letter.Subject != "jobs.0" || strings.Contains(letter.Stack, "retry_test.go"),
			"the stack does not show the handler:\n%s", letter.Stack)
	}
}

func TestUndecodableMessagesBlockNobody(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 })

	poison := []string{"", "not json", `{"n":"text"}`, "\x00\xff", strings.Repeat("[", 100_000)}
	for _, payload := range poison {
		b.publish(t, "jobs.poison", payload)
	}

	b.publish(t, "jobs.good", `{"n":1}`)
	run(t, b.js, cfg, worker.Policy{}, complete)

	for range poison {
		s := receive(t, b.settled, "a settlement")
		check.That(t, s.Outcome == worker.OutcomeDead && s.Attempt == 1, "poison: %s at attempt %d, want dead at 1", s.Outcome, s.Attempt)
	}

	check.Same(t, "the job behind them", receive(t, b.settled, "the good job").Outcome, worker.OutcomeCompleted)

	letters := b.letters(t)
	for i, payload := range poison {
		check.That(t, string(letters[i].Payload) == payload && letters[i].Reason == worker.ReasonUndecodable,
			"letter %d: %d bytes, %s; want the %d published, undecodable", i, len(letters[i].Payload), letters[i].Reason, len(payload))
	}
}
