package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// runBatch starts a worker with one handler of batches.
func runBatch(t testing.TB, js jetstream.JetStream, cfg worker.Config, policy worker.Policy, size worker.BatchPolicy, h worker.BatchHandler[order]) *running {
	t.Helper()

	w, err := worker.New(js, cfg)
	if err != nil {
		t.Fatal(err)
	}

	if err := worker.HandleBatch(w, pattern, policy, size, h); err != nil {
		t.Fatal(err)
	}

	return start(t, w)
}

// numbers are the payloads of a batch, in order.
func numbers(jobs []*worker.Job[order]) []int {
	all := make([]int, 0, len(jobs))
	for _, job := range jobs {
		all = append(all, job.Args.N)
	}

	slices.Sort(all)

	return all
}

// outcomes collects the outcomes of n settlements, by subject.
func outcomes(from <-chan worker.Settlement, n int) map[string]worker.Outcome {
	all := make(map[string]worker.Outcome, n)

	for range n {
		s := <-from // in fake time
		all[s.Subject] = s.Outcome
	}

	return all
}

// TestBatchStartsWhenItIsFullOrHasWaited publishes 8 jobs for batches of 3 that wait for
// 10 seconds, the last two 4 seconds apart.
func TestBatchStartsWhenItIsFullOrHasWaited(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		begun := time.Now()

		type call struct {
			after time.Duration
			jobs  []int
		}

		calls := make(chan call, 10)
		settled, hook := settled(10)
		ready := make(chan bool, 1)
		cfg := b.config(t, hook, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
		runBatch(t, b.js, cfg, worker.Policy{}, worker.BatchPolicy{Size: 3, Wait: 10 * time.Second},
			func(_ context.Context, jobs []*worker.Job[order]) error {
				calls <- call{time.Since(begun).Round(time.Millisecond), numbers(jobs)}

				return nil
			})
		<-ready

		begun = time.Now()

		for i := range 8 {
			if i == 7 {
				pass(4 * time.Second)
			}

			b.publish(t, fmt.Sprintf("jobs.%d", i), fmt.Sprintf(`{"n":%d}`, i))
		}

		got := []call{<-calls, <-calls}
		if got[0].after != 0 || got[1].after != 0 || len(got[0].jobs) != 3 || len(got[1].jobs) != 3 {
			t.Errorf("%v, want two full batches at once", got)
		}

		for _, o := range outcomes(settled, 6) {
			if o != worker.OutcomeCompleted {
				t.Errorf("%s, want completed", o)
			}
		}

		if last := <-calls; last.after != 10*time.Second || len(last.jobs) != 2 || last.jobs[1] != 7 {
			t.Errorf("%v, want the other two after the first of them waited 10s", last)
		}

		if s := <-settled; s.Deliveries != 1 || s.Ran > time.Second || s.Waited < 5*time.Second { // both waited 6s or more
			t.Errorf("delivery %d, ran %s, waited %s; want the wait to be none of its run", s.Deliveries, s.Ran, s.Waited)
		}

		<-settled

		if left := b.left(t); left != 0 {
			t.Errorf("%d left, want 0", left)
		}
	})
}

// TestOutcomesOfABatch has each way in which a batch can end.
func TestOutcomesOfABatch(t *testing.T) {
	all := func(o worker.Outcome) map[string]worker.Outcome {
		return map[string]worker.Outcome{"jobs.0": o, "jobs.1": o, "jobs.2": o, "jobs.3": o, "jobs.4": o}
	}

	for name, test := range map[string]struct {
		h    worker.BatchHandler[order]
		want map[string]worker.Outcome
	}{
		"nil":    {func(context.Context, []*worker.Job[order]) error { return nil }, all(worker.OutcomeCompleted)},
		"error":  {func(context.Context, []*worker.Job[order]) error { return errors.New("no") }, all(worker.OutcomeRetried)},
		"snooze": {func(context.Context, []*worker.Job[order]) error { return worker.Snooze(time.Hour) }, all(worker.OutcomeSnoozed)},
		"cancel": {func(context.Context, []*worker.Job[order]) error { return worker.Cancel(nil) }, all(worker.OutcomeDead)},
		"panic":  {func(context.Context, []*worker.Job[order]) error { panic("oh") }, all(worker.OutcomeRetried)},
		"goexit": {func(context.Context, []*worker.Job[order]) error { runtime.Goexit(); return nil }, all(worker.OutcomeRetried)}, //nolint:nlreturn // never
		"timeout": {func(ctx context.Context, _ []*worker.Job[order]) error {
			<-ctx.Done()

			return ctx.Err()
		}, all(worker.OutcomeRetried)},
		"each its own": {func(_ context.Context, jobs []*worker.Job[order]) error {
			var failed worker.BatchError

			for _, job := range jobs {
				switch job.Args.N {
				case 0:
					failed.Set(job.Info, worker.Retry(time.Minute, errors.New("busy")))
				case 1:
					failed.Set(job.Info, worker.Snooze(time.Minute))
				case 2:
					failed.Set(job.Info, worker.Cancel(errors.New("never")))
				case 3:
					failed.Set(job.Info, nil)
				}
			}

			return fmt.Errorf("some failed: %w", failed.Err())
		}, map[string]worker.Outcome{
			"jobs.0": worker.OutcomeRetried, "jobs.1": worker.OutcomeSnoozed, "jobs.2": worker.OutcomeDead,
			"jobs.3": worker.OutcomeCompleted, "jobs.4": worker.OutcomeCompleted,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				settled, hook := settled(100)
				again := make(chan []*worker.Job[order], 100)
				first := true

				runBatch(t, b.js, b.config(t, hook), worker.Policy{Timeout: time.Minute}, worker.BatchPolicy{Size: 5, Wait: time.Second},
					func(ctx context.Context, jobs []*worker.Job[order]) error {
						if !first {
							again <- jobs

							return nil
						}

						first = false

						return test.h(ctx, jobs)
					})
				b.publishN(t, 5)

				if got := outcomes(settled, 5); !maps.Equal(got, test.want) {
					t.Errorf("%v, want %v", got, test.want)
				}

				// Those that are to run again do, in further batches.
				for subject, o := range outcomes(settled, count(test.want, worker.OutcomeRetried)+count(test.want, worker.OutcomeSnoozed)) {
					if o != worker.OutcomeCompleted {
						t.Errorf("%s: %s the second time, want completed", subject, o)
					}
				}

				for len(again) > 0 {
					for _, job := range <-again {
						want := 2
						if test.want[job.Subject] == worker.OutcomeSnoozed {
							want = 1
						}

						if job.Attempt != want || job.Deliveries != 2 {
							t.Errorf("%s: attempt %d, delivery %d; want %d, 2", job.Subject, job.Attempt, job.Deliveries, want)
						}
					}
				}

				if letters := b.letters(t); len(letters) != count(test.want, worker.OutcomeDead) || b.left(t) != 0 {
					t.Errorf("%d letters, %d left", len(letters), b.left(t))
				}
			})
		})
	}
}

func count(all map[string]worker.Outcome, o worker.Outcome) int {
	n := 0

	for _, have := range all {
		if have == o {
			n++
		}
	}

	return n
}

// TestWhatDoesNotEnterABatch has jobs that are settled alone: one that cannot be decoded,
// one whose Decode panics, one that middleware stops, and one that a killed worker did.
func TestWhatDoesNotEnterABatch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		c := client(t, b.js)
		p := natstest.NewProxy(t, srv)
		nc, js := natstest.Connect(t, srv, p.Through())

		// A worker that dies between the record of a job and its acknowledgement.
		killed := dieAt(p, beforeAck)
		first := run(t, js, b.config(t, stopAtOnce), worker.Policy{}, complete)
		insert(t, c, mail(worker.Unique{Keep: time.Hour}))
		<-killed
		nc.Close()

		if err := first.wait(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Fatal(err)
		}

		synctest.Wait() // the server knows that it is gone: what it asked for is not sent to it any more

		calls := make(chan []int, 10)
		settled, hook := settled(10)
		stopped := errors.New("stopped")
		cfg := b.config(t, hook, func(c *worker.Config) {
			c.Middleware = []worker.Middleware{func(ctx context.Context, info worker.Info, _ nats.Header, next func(context.Context) error) error {
				if info.Subject == "jobs.stopped" {
					return worker.Cancel(stopped)
				}

				return next(ctx)
			}}
		})
		policy := worker.Policy{MaxAttempts: 1, Decode: func(_ nats.Header, payload []byte, args any) error {
			switch string(payload) {
			case "undecodable":
				return errors.New("no")
			case "panic":
				panic("oh")
			default:
				into, ok := args.(*order)
				if ok {
					into.N = len(payload)
				}

				return nil
			}
		}}
		runBatch(t, b.js, cfg, policy, worker.BatchPolicy{Size: 10, Wait: 20 * time.Second},
			func(_ context.Context, jobs []*worker.Job[order]) error {
				calls <- numbers(jobs)

				return nil
			})

		for subject, payload := range map[string]string{
			"jobs.undecodable": "undecodable", "jobs.panic": "panic", "jobs.stopped": "four", "jobs.a": "1", "jobs.b": "22",
		} {
			b.publish(t, subject, payload)
		}

		got := outcomes(settled, 6)
		want := map[string]worker.Outcome{
			"jobs.undecodable": worker.OutcomeDead, "jobs.panic": worker.OutcomeDead, "jobs.stopped": worker.OutcomeDead,
			"jobs.a": worker.OutcomeCompleted, "jobs.b": worker.OutcomeCompleted, "jobs.mail.u17": worker.OutcomeCompleted,
		}

		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}

		if jobs := <-calls; !slices.Equal(jobs, []int{1, 2}) || len(calls) != 0 {
			t.Errorf("batch %v, want 1 and 2 alone", jobs)
		}
	})
}

// TestStepsAndProgressOfABatch are those of each job: a step that was recorded in a batch
// that failed is not run again, whatever batches its jobs get into.
func TestStepsAndProgressOfABatch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		c := client(t, b.js)
		runs := map[int]int{}
		settled, hook := settled(20)
		hold := make(chan struct{})

		runBatch(t, b.js, b.config(t, hook), worker.Policy{}, worker.BatchPolicy{Size: 3, Wait: time.Second},
			func(ctx context.Context, jobs []*worker.Job[order]) error {
				for _, job := range jobs {
					n, err := step.Run(ctx, job, "once", func(context.Context) (int, error) {
						runs[job.Args.N]++

						return job.Args.N, nil
					})
					if err != nil || n != job.Args.N {
						t.Errorf("job %d: step returned %d, %v", job.Args.N, n, err)
					}

					if err := job.Progress(ctx, job.Args.N); err != nil {
						t.Error(err)
					}
				}

				<-hold

				if jobs[0].Attempt == 1 {
					return errors.New("again")
				}

				return nil
			})

		for i := range 3 {
			insert(t, c, worker.NewJob{Args: order{N: i}, Subject: "jobs.s", Unique: &worker.Unique{Key: fmt.Sprint(i)}})
		}

		pass(time.Second)

		for i := range 3 {
			if p, err := c.Progress(t.Context(), "jobs.s", fmt.Sprint(i)); err != nil || string(p.Value) != fmt.Sprint(i) {
				t.Errorf("job %d: progress %s, %v", i, p.Value, err)
			}
		}

		close(hold)
		outcomes(settled, 3)
		outcomes(settled, 3)

		if want := map[int]int{0: 1, 1: 1, 2: 1}; !maps.Equal(runs, want) {
			t.Errorf("steps ran %v times, want once each", runs)
		}
	})
}

func TestBatchesThatAreRefused(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	w, err := worker.New(b.js, b.config(t, func(c *worker.Config) { c.Concurrency = 10 }))
	if err != nil {
		t.Fatal(err)
	}

	none := func(context.Context, []*worker.Job[order]) error { return nil }
	err = errors.Join(
		worker.HandleBatch[order](w, "jobs.a", worker.Policy{MaxAttempts: -1}, worker.BatchPolicy{Size: 11, Wait: -1}, nil),
		worker.HandleBatch(w, "jobs.b", worker.Policy{}, worker.BatchPolicy{Size: -1}, none),
	)

	for _, want := range []string{
		"Policy.MaxAttempts is -1", "Size is 11: use 1 to Config.Concurrency, which is 10", "Wait is -1ns", "needs a handler", "Size is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}

	if err := worker.HandleBatch(w, "jobs.c", worker.Policy{}, worker.BatchPolicy{}, none); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
