package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// attempts runs one job through the given attempts, one after the other, and returns how
// each was settled. Every attempt but the last should fail.
func attempts(t testing.TB, b *bundle, hs ...worker.Handler[order]) []worker.Settlement {
	t.Helper()

	policy := worker.Policy{Backoff: worker.Exponential(0, 0), MaxAttempts: 100}
	r := run(t, b.js, b.config(t), policy, func(ctx context.Context, job *worker.Job[order]) error {
		return hs[min(job.Attempt, len(hs))-1](ctx, job)
	})
	b.publish(t, "jobs.1", `{"n":1}`)

	all := make([]worker.Settlement, 0, len(hs))
	for range hs {
		all = append(all, receive(t, b.settled, "a settlement"))
	}

	check.ErrorIs(t, r.wait(), nil)
	return all
}

// dish is a result with everything that JSON is apt to change.
type dish struct {
	At     time.Time
	Big    uint64
	Name   string
	Parts  map[string][]byte
	secret int
}

func TestRecordedStepIsNotRunAgain(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	runs := map[string]int{}

	var first, again dish

	want := dish{At: time.Unix(1, 2).UTC(), Big: 1<<64 - 1, Name: "soup \u2028 <b>", Parts: map[string][]byte{"x": {0, 255, '\n'}}}
	steps := func(got *dish) worker.Handler[order] {
		return func(ctx context.Context, job *worker.Job[order]) error {
			var err error

			*got, err = step.Run(ctx, job, "cook", func(context.Context) (dish, error) {
				runs["cook"]++
				made := want
				made.secret = 7
				return made, nil
			})
			if err != nil {
				return err
			}
			return step.Do(ctx, job, "serve", func(context.Context) error {
				runs["serve"]++
				if runs["serve"] == 1 {
					return io.ErrUnexpectedEOF
				}
				return nil
			})
		}
	}

	all := attempts(t, b, steps(&first), steps(&again))
	check.That(t,
		errors.Is(all[0].Err, io.ErrUnexpectedEOF) && all[0].Outcome == worker.OutcomeRetried && all[1].Outcome == worker.OutcomeCompleted,
		"settled: %+v", all)

	check.Equal(t, runs, map[string]int{"cook": 1, "serve": 2})

	for _, got := range []dish{first, again} { // the first attempt has no more than the second
		check.Equal(t, got, want)
	}
}

func TestStepResultsOfEverySizeComeBack(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	results := map[string][]byte{}

	for _, size := range []int{0, 1, 4 << 10, 4<<10 + 1, 40 << 10, 1 << 20, 3<<20 + 7} {
		results[fmt.Sprintf("noise %d", size)] = noise(size)
		results[fmt.Sprintf("text %d", size)] = bytes.Repeat([]byte("soup "), size/5+1)
	}

	for i := range 40 { // together they outgrow the record
		results[fmt.Sprintf("small %d", i)] = results["noise 4096"]
	}

	runs := 0
	all := func(ctx context.Context, job *worker.Job[order]) error {
		names := append(slices.Sorted(maps.Keys(results)), "one more") // new in the last attempt
		for _, name := range names {
			if name == "one more" && job.Attempt < 3 {
				continue
			}

			made := bytes.Clone(results[name])

			got, err := step.Run(ctx, job, name, func(context.Context) ([]byte, error) {
				runs++
				return made, nil
			})
			if err != nil {
				return worker.Discard(err)
			}

			if !bytes.Equal(got, results[name]) {
				return worker.Discard(fmt.Errorf("%s: got %d bytes, want %d", name, len(got), len(results[name])))
			}

			clear(got) // both are the handler's
			clear(made)
		}

		if job.Attempt < 4 {
			return errors.New("again")
		}
		return nil
	}

	wantOutcome(t, attempts(t, b, slices.Repeat([]worker.Handler[order]{all}, 4)...)[3], worker.OutcomeCompleted)
	check.Equal(t, runs, len(results)+1, "runs of steps")
}

func TestStepsAtTheSameTime(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	const n = 50

	var mu sync.Mutex

	runs := map[int]int{}

	fan := func(ctx context.Context, job *worker.Job[order]) error {
		var group sync.WaitGroup

		errs := make([]error, n)
		for i := range n {
			group.Go(func() {
				got, err := step.Run(ctx, job, fmt.Sprint("part ", i), func(context.Context) (int, error) {
					mu.Lock()
					defer mu.Unlock()

					runs[i]++
					if i%2 == 1 && runs[i] == 1 {
						return 0, io.EOF
					}
					return i, nil
				})
				if err == nil && got != i {
					err = fmt.Errorf("part %d has the result %d", i, got)
				}

				errs[i] = err
			})
		}

		group.Wait()
		return errors.Join(errs...)
	}

	check.Equal(t, attempts(t, b, slices.Repeat([]worker.Handler[order]{fan}, 2)...)[1].Outcome, worker.OutcomeCompleted, "settled")

	for i := range n {
		check.Equal(t, runs[i], 1+i%2, fmt.Sprintf("part %d runs", i))
	}
}

// stepTTL is short: ten minutes of an idle worker are quick to pass, a week is not.
const stepTTL = 10 * time.Minute

// TestStepsAreKeptForTheirTTL defers a job again and again, each time for a little less
// than StepTTL, and once for longer.
func TestStepsAreKeptForTheirTTL(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		cfg := b.config(t, func(c *worker.Config) { c.StepTTL = stepTTL })
		delays := []time.Duration{stepTTL - time.Minute, stepTTL - time.Minute, stepTTL - time.Minute, stepTTL + time.Minute, 0}
		runs := map[string]int{}
		large := noise(1 << 16)

		var ranIn []int

		run(t, b.js, cfg, worker.Policy{MaxAttempts: 100, Jitter: -1}, func(ctx context.Context, job *worker.Job[order]) error {
			for _, name := range []string{"small", "large"} {
				got, err := step.Run(ctx, job, name, func(context.Context) ([]byte, error) {
					runs[name]++
					ranIn = append(ranIn, job.Attempt)

					if name == "large" {
						return large, nil
					}
					return []byte("soup"), nil
				})
				if err != nil {
					return err
				}

				check.That(t, name != "large" || bytes.Equal(got, large), "%d bytes came back", len(got))
			}

			if job.Attempt == len(delays) {
				return nil
			}
			return worker.Retry(delays[job.Attempt-1], errors.New("later"))
		})
		b.publish(t, "jobs.1", `{}`)

		b.awaitSettled(len(delays))

		check.That(t, fmt.Sprint(ranIn) == "[1 1 5 5]",
			"steps ran in attempts %v, want twice in 1, and in 5, before which the job was deferred for longer than StepTTL", ranIn)
	})
}

// noise returns bytes that zstd cannot make small enough for the record.
func noise(size int) []byte {
	out := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(out) // it has no error
	return out
}

func TestJournalOfACompletedJobGoes(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		cfg := b.config(t, func(c *worker.Config) { c.StepTTL = stepTTL })
		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			for _, size := range []int{10, 1 << 16} {
				_, err := step.Run(ctx, job, fmt.Sprint(size), func(context.Context) ([]byte, error) { return noise(size), nil })
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

		wantOutcome(t, <-b.settled, worker.OutcomeCompleted)

		natstest.Pass(10 * time.Second)

		check.Equal(t, b.journals(t), 1, "messages right after completion")

		natstest.Pass(time.Minute)

		check.Equal(t, b.journals(t), 0, "messages a minute after completion")

		b.publish(t, "jobs.2", `{"n":2}`)
		<-b.settled
		<-b.settled
		natstest.Pass(stepTTL - time.Minute)

		check.Equal(t, b.journals(t), 2, "messages of a job with two attempts")

		natstest.Pass(2 * time.Minute)

		check.Equal(t, b.journals(t), 0, "messages after StepTTL")
	})
}

// TestHeaderThatNamesNoJournalIsNone runs a job whose steps all run.
func TestHeaderThatNamesNoJournalIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		runs := 0
		run(t, b.js, b.config(t), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			return step.Do(ctx, job, "first", func(context.Context) error {
				runs++
				return nil
			})
		})
		msg := &nats.Msg{Subject: "jobs.1", Header: nats.Header{worker.HeaderResume: {"*"}}, Data: []byte(`{}`)}
		check.OK(t, check.Err(b.js.PublishMsg(t.Context(), msg)))

		wantOutcome(t, <-b.settled, worker.OutcomeCompleted)
		check.Equal(t, runs, 1, "runs")
	})
}
