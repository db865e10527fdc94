package test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

func TestBucketOfStepsIsChecked(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	try := func(auto bool) error {
		cfg := b.config(t, func(c *worker.Config) { c.AutoCreate, c.StepBucket = auto, "recipes" })
		r := run(t, b.js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error { return nil })
		r.once = true
		return receive(t, r.done, "Run to refuse")
	}

	err := try(false)
	if _, ok := errors.AsType[*worker.MissingError](err); !ok || !strings.Contains(err.Error(), "bucket recipes") {
		t.Errorf("%v, want that bucket recipes is missing", err)
	}

	_, err = b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_recipes", Subjects: []string{"$KV.recipes.>"}, AllowMsgTTL: true, AllowRollup: true,
		MaxBytes: 1 << 20, MaxMsgsPerSubject: 5, SubjectDeleteMarkerTTL: time.Minute,
	})
	check.OK(t, err)

	err = try(true)
	if _, ok := errors.AsType[*worker.DriftError](err); !ok {
		t.Fatalf("%v is no DriftError", err)
	}

	for _, setting := range []string{"max_msgs_per_subject", "subject_delete_marker_ttl", "discard"} {
		if !strings.Contains(err.Error(), setting) {
			t.Errorf("%s is not named: %v", setting, err)
		}
	}
}

func TestStepsGoIntoTheirBucket(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	settled := make(chan worker.Settlement, 1)
	cfg := b.config(t, func(c *worker.Config) {
		c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
		c.StepBucket = "recipes"
	})
	run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		return step.Do(ctx, job, "a", func(context.Context) error { return nil })
	})
	b.publish(t, "jobs.1", `{}`)

	if s := receive(t, settled, "the settlement"); s.Outcome != worker.OutcomeCompleted {
		t.Errorf("%s: %v", s.Outcome, s.Err)
	}

	stream, err := b.js.Stream(t.Context(), "KV_recipes")
	check.OK(t, err)

	if stream.CachedInfo().State.Msgs != 1 || b.journals(t) != 0 {
		t.Errorf("%d messages in the bucket of steps, %d in the other; want 1, 0", stream.CachedInfo().State.Msgs, b.journals(t))
	}
}

// TestFullBucketFailsTheAttempt fills the bucket of steps. What the server refuses is not
// tried again and again, and the attempt fails.
func TestFullBucketFailsTheAttempt(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_recipes", Subjects: []string{"$KV.recipes.>"}, AllowMsgTTL: true, Discard: jetstream.DiscardNew,
		MaxBytes: 2 << 10, MaxMsgsPerSubject: 1,
	})
	check.OK(t, err)

	settled := make(chan worker.Settlement, 1)
	cfg := b.config(t, func(c *worker.Config) {
		c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
		c.SettleTimeout, c.StepBucket = time.Hour, "recipes"
	})
	run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		_, err := step.Run(ctx, job, "a", func(context.Context) ([]byte, error) { return make([]byte, 3<<10), nil })
		return worker.Cancel(err)
	})
	b.publish(t, "jobs.1", `{}`)

	if s := receive(t, settled, "the settlement"); !errors.Is(s.Err, step.ErrNotRecorded) || !strings.Contains(s.Err.Error(), "maximum bytes") {
		t.Errorf("%v, want ErrNotRecorded and the server's reason", s.Err)
	}
}
