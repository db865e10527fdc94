package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// stepTTL is short: ten minutes of an idle worker are quick to pass, a week is not.
const stepTTL = 10 * time.Minute

// TestStepsAreKeptForTheirTTL puts a job off again and again, each time for a little less
// than StepTTL, and once for longer.
func TestStepsAreKeptForTheirTTL(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		cfg := b.config(t, func(c *worker.Config) {
			c.StepTTL = stepTTL
		})
		delays := []time.Duration{stepTTL - time.Minute, stepTTL - time.Minute, stepTTL - time.Minute, stepTTL + time.Minute, 0}
		runs := map[string]int{}
		large := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)

		var ranIn []int

		run(t, b.js, cfg, worker.Policy{MaxAttempts: 100, Jitter: -1}, func(ctx context.Context, job *worker.Job[order]) error {
			for _, name := range []string{"small", "large"} {
				got, err := step.Run(ctx, job, name, func(context.Context) ([]byte, error) {
					runs[name]++
					ranIn = append(ranIn, job.Attempt)

					if name == "large" {
						return incompressible(large), nil
					}
					return []byte("soup"), nil
				})
				if err != nil {
					return err
				}

				check.That(t, name != "large" || bytes.Equal(got, incompressible(large)), "%d bytes came back", len(got))
			}

			if job.Attempt == len(delays) {
				return nil
			}
			return worker.Retry(delays[job.Attempt-1], errors.New("later"))
		})
		b.publish(t, "jobs.1", `{}`)

		for range delays {
			<-b.settled
		}

		check.That(t, fmt.Sprint(ranIn) == "[1 1 5 5]",
			"steps ran in attempts %v, want twice in 1, and in 5, before which the job was put off for longer than StepTTL", ranIn)
	})
}

// incompressible makes data of a pattern that zstd cannot make small enough for the record.
func incompressible(pattern []byte) []byte {
	out := bytes.Clone(pattern)
	x := uint32(1)

	for i := range out {
		x = x*1664525 + 1013904223
		out[i] ^= byte(x >> 24)
	}
	return out
}

func TestJournalOfACompletedJobGoes(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		cfg := b.config(t, func(c *worker.Config) {
			c.StepTTL = stepTTL
		})
		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			for _, size := range []int{10, 1 << 16} {
				_, err := step.Run(ctx, job, fmt.Sprint(size), func(context.Context) ([]byte, error) { return incompressible(make([]byte, size)), nil })
				if err != nil {
					return err
				}
			}

			if job.Args.N == 2 && job.Attempt == 1 {
				return errors.New("again")
			}
			return nil
		})
		b.publish(t, "jobs.1", `{"n":1}`)

		s := <-b.settled
		check.Require(t, s.Outcome == worker.OutcomeCompleted, "%s: %v", s.Outcome, s.Err)

		pass(10 * time.Second)

		check.Same(t, "messages right after completion", b.journals(t), 1)

		pass(time.Minute)

		check.Same(t, "messages a minute after completion", b.journals(t), 0)

		b.publish(t, "jobs.2", `{"n":2}`)
		<-b.settled
		<-b.settled
		pass(stepTTL - time.Minute)

		check.Same(t, "messages of a job with two attempts", b.journals(t), 2)

		pass(2 * time.Minute)

		check.Same(t, "messages after StepTTL", b.journals(t), 0)
	})
}

func TestReplayResumesAtTheFailedStep(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		l := newStepRecorder()
		broken := true
		run(t, b.js, b.config(t), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			if _, err := step.Run(ctx, job, "first", func(context.Context) (int, error) {
				l.runs["first"]++
				return 0, nil
			}); err != nil {
				return err
			}
			return step.Do(ctx, job, "second", func(context.Context) error {
				l.runs["second"]++

				if broken {
					return worker.Cancel(errors.New("burnt"))
				}
				return nil
			})
		})
		b.publish(t, "jobs.1", `{}`)

		s := <-b.settled
		check.Require(t, s.Outcome == worker.OutcomeDead, "%s: %v", s.Outcome, s.Err)

		replay := func(resume bool) worker.Settlement {
			letters := b.letters(t)
			letter := letters[len(letters)-1]
			msg := message(letter)

			if resume {
				msg.Header.Set(worker.HeaderResume, letter.Resume())
			}

			check.OK(t, check.Err(b.js.PublishMsg(t.Context(), msg)))
			return <-b.settled
		}

		if s := replay(true); s.Outcome != worker.OutcomeDead || l.runs["first"] != 1 || l.runs["second"] != 2 {
			t.Errorf("first replay: %s, runs %v; want dead, with one run of the first step", s.Outcome, l.runs)
		}

		broken = false

		if s := replay(true); s.Outcome != worker.OutcomeCompleted || l.runs["first"] != 1 || l.runs["second"] != 3 {
			t.Errorf("replay of a replay: %s, runs %v; want completed, with one run of the first step", s.Outcome, l.runs)
		}

		if s := replay(false); s.Outcome != worker.OutcomeCompleted || l.runs["first"] != 2 || l.runs["second"] != 4 {
			t.Errorf("replay from the start: %s, runs %v; want completed, with another run of each", s.Outcome, l.runs)
		}

		// A header that names no journal is none.
		msg := message(b.letters(t)[0])
		msg.Header.Set(worker.HeaderResume, "*")

		check.OK(t, check.Err(b.js.PublishMsg(t.Context(), msg)))

		if s := <-b.settled; s.Outcome != worker.OutcomeCompleted || l.runs["first"] != 3 {
			t.Errorf("a bad header: %s, runs %v", s.Outcome, l.runs)
		}
	})
}

// message is the job of a dead letter.
func message(letter worker.DeadLetter) *nats.Msg {
	msg := nats.NewMsg(letter.Subject)
	msg.Data = letter.Payload
	return msg
}
