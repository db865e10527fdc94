package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

func TestResultOverTheLimitIsReturnedWithAnError(t *testing.T) {
	t.Parallel()

	large := make([]byte, step.MaxResult+1)
	attempts(t, setup(t, nil), func(ctx context.Context, job *worker.Job[order]) error {
		got, err := step.Run(ctx, job, "large", func(context.Context) ([]byte, error) { return large, nil })
		check.That(t, errors.Is(err, step.ErrTooLarge) && len(got) == len(large), "%d bytes, %v; want all of it and ErrTooLarge", len(got), err)
		return err
	}, func(ctx context.Context, job *worker.Job[order]) error {
		check.ErrorIs(t, step.Do(ctx, job, "large", func(context.Context) error { return io.EOF }), io.EOF)
		return nil
	})
}

// TestMisuseOfStepsIsRefused runs a job whose attempts use steps in ways that cannot work, one after the other, and then do what is
// allowed.
func TestMisuseOfStepsIsRefused(t *testing.T) {
	t.Parallel()

	nothing := func(context.Context) error { return nil }
	fail := func(context.Context) error { return io.EOF }
	check.ErrorIs(t, step.Do(t.Context(), &worker.Job[order]{}, "a", nothing), step.ErrNoJournal)

	late, returned := make(chan error, 1), make(chan struct{})
	var all []worker.Handler[order]
	for _, attempt := range []func(ctx context.Context, job *worker.Job[order]){
		func(ctx context.Context, job *worker.Job[order]) { // a step that failed may run again
			panicked := func() (value any) {
				defer func() { value = recover() }()
				return step.Do(ctx, job, "a", func(context.Context) error { panic("burnt") })
			}
			check.Equal[any](t, panicked(), "burnt", "what came out")
			check.ErrorIs(t, step.Do(ctx, job, "a", fail), io.EOF)
			check.ErrorIs(t, step.Do(ctx, job, "a", nothing), nil)
		},
		func(ctx context.Context, job *worker.Job[order]) {
			other := *job
			other.Sequence++
			check.ErrorIs(t, step.Do(ctx, &other, "b", nothing), step.ErrMisuse)
		},
		func(ctx context.Context, job *worker.Job[order]) {
			why := errors.New("the remote service has gone")
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(why)
			for i := range 50 { // a choice between two that are ready is by chance
				err := step.Do(ctx, job, fmt.Sprint(i), func(context.Context) error { return errors.New("was run") })
				check.That(t, errors.Is(err, why) && errors.Is(err, context.Canceled), "%v, want the cause and context.Canceled", err)
			}
		},
		func(ctx context.Context, job *worker.Job[order]) {
			go func() {
				<-returned
				late <- step.Do(context.WithoutCancel(ctx), job, "late", nothing)
			}()
		},
		func(ctx context.Context, job *worker.Job[order]) {
			check.ErrorIs(t, step.Do(ctx, job, "a", fail), nil) // recorded
			for _, name := range []string{"a", "", "tab\t", "\xff", strings.Repeat("x", 101)} {
				check.ErrorIs(t, step.Do(ctx, job, name, nothing), step.ErrMisuse, name)
			}
			for i := 1; i < step.MaxSteps; i++ {
				check.ErrorIs(t, step.Do(ctx, job, fmt.Sprint(i), fail), io.EOF)
				check.OK(t, step.Do(ctx, job, fmt.Sprint(i), nothing))
			}
			check.ErrorIs(t, step.Do(ctx, job, "last", nothing), step.ErrMisuse)
		},
	} {
		all = append(all, func(ctx context.Context, job *worker.Job[order]) error { attempt(ctx, job); return errors.New("next") })
	}
	attempts(t, setup(t, nil), all...)
	close(returned)
	check.ErrorIs(t, receive(t, late, "the late step"), step.ErrMisuse)
}

func TestStepOfAnotherTypeIsNotTaken(t *testing.T) {
	t.Parallel()

	attempts(t, setup(t, nil), func(ctx context.Context, job *worker.Job[order]) error {
		check.OK(t, check.Err(step.Run(ctx, job, "count", func(context.Context) (int, error) { return 7, nil })))
		return io.EOF
	}, func(ctx context.Context, job *worker.Job[order]) error {
		_, err := step.Run(ctx, job, "count", func(context.Context) (string, error) { return "", errors.New("was run") })
		unreadable, ok := errors.AsType[*step.RecordError](err)
		check.That(t, ok && unreadable.Step == "count", "%v, want a RecordError", err)
		return io.EOF
	}, func(ctx context.Context, job *worker.Job[order]) error {
		raw, err := step.Run(ctx, job, "count", func(context.Context) (json.RawMessage, error) { return nil, errors.New("was run") })
		check.That(t, string(raw) == "7" && err == nil, "%s, %v; want 7", raw, err)
		return nil
	})
}

// stepKeys is the prefix of the journals' subjects in the default bucket.
const stepKeys = "$KV.jobs.steps."

// stepRecorder is the independent recorder of the results that each step returned to any handler.
type stepRecorder struct {
	mu      sync.Mutex
	results map[string]string
	runs    map[string]int
	slow    func() // nil for no time at all
	wrong   []string
}

func newStepRecorder() *stepRecorder {
	return &stepRecorder{results: map[string]string{}, runs: map[string]int{}}
}

// run is step.Run of a function whose result is another in each execution.
func (l *stepRecorder) run(ctx context.Context, job *worker.Job[order], name string) (string, error) {
	key := fmt.Sprintf("%s/%s", job.ID, name)

	got, err := step.Run(ctx, job, name, func(context.Context) (string, error) {
		if l.slow != nil {
			l.slow()
		}

		l.mu.Lock()
		defer l.mu.Unlock()

		l.runs[key]++
		return fmt.Sprintf("%s, execution %d", key, l.runs[key]), nil
	})
	if err != nil {
		return got, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if before, ok := l.results[key]; ok && before != got {
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %q after %q", key, got, before))
	}

	l.results[key] = got
	return got, nil
}

func (l *stepRecorder) check(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, wrong := range l.wrong {
		t.Errorf("a recorded step changed: %s", wrong)
	}
}

// journals counts the messages of all journals.
func (b *bundle) journals(t testing.TB) int {
	t.Helper()

	s := check.Must(b.js.Stream(t.Context(), "KV_jobs"))(t)

	info := check.Must(s.Info(t.Context(), jetstream.WithSubjectFilter(stepKeys+">")))(t)
	return len(info.State.Subjects)
}

func TestBucketOfStepsIsChecked(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	try := func(auto bool) error {
		cfg := b.config(t, func(c *worker.Config) { c.AutoCreate, c.StepBucket = auto, "recipes" })
		return run(t, b.js, cfg, worker.Policy{}, complete).refuses()
	}

	err := try(false)
	_, ok := errors.AsType[*worker.MissingError](err)
	check.That(t, ok && strings.Contains(err.Error(), "bucket recipes"), "%v, want that bucket recipes is missing", err)

	_, err = b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_recipes", Subjects: []string{"$KV.recipes.>"}, AllowMsgTTL: true, AllowRollup: true,
		MaxBytes: 1 << 20, MaxMsgsPerSubject: 5, SubjectDeleteMarkerTTL: time.Minute,
	})
	check.OK(t, err)

	err = try(true)
	_, ok = errors.AsType[*worker.DriftError](err)
	check.Require(t, ok, "%v is no DriftError", err)

	check.ErrorContains(t, err, "max_msgs_per_subject", "subject_delete_marker_ttl", "discard")
}

// TestStepsGoIntoTheirBucket gives steps a bucket, and fills it. A refused write is not tried again, and the attempt fails.
func TestStepsGoIntoTheirBucket(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	cfg := b.config(t, func(c *worker.Config) { c.SettleTimeout, c.StepBucket = time.Hour, "recipes" })
	run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(ctx context.Context, job *worker.Job[order]) error {
		return check.Err(step.Run(ctx, job, "a", func(context.Context) ([]byte, error) { return make([]byte, job.Args.N), nil }))
	})
	b.publish(t, "jobs.1", `{"n":1}`)

	wantOutcome(t, receive(t, b.settled, "the settlement"), worker.OutcomeCompleted)

	recipes := check.Must(b.js.Stream(t.Context(), "KV_recipes"))(t).CachedInfo()
	check.That(t, recipes.State.Msgs == 1 && b.journals(t) == 0,
		"%d messages in the bucket of steps, %d in the other; want 1, 0", recipes.State.Msgs, b.journals(t))

	recipes.Config.MaxBytes = 2 << 10
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), recipes.Config)))
	b.publish(t, "jobs.2", `{"n":3072}`)

	if s := receive(t, b.settled, "the settlement"); !errors.Is(s.Err, step.ErrNotRecorded) || !strings.Contains(s.Err.Error(), "maximum bytes") {
		t.Errorf("%v, want ErrNotRecorded and the server's reason", s.Err)
	}
}
