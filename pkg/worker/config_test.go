package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestConfigReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	ok := Config{Consumer: "c", Stream: "S"}.withDefaults()
	check.ErrorIs(t, ok.validate(), nil, "the defaults")
	for _, edge := range []time.Duration{100 * time.Millisecond, 24 * time.Hour} {
		cfg := ok
		cfg.AckWait = edge
		err := cfg.validate()
		check.That(t, err == nil, "AckWait %s: %v", edge, err)
	}
	_, err := New(nil, Config{
		AckWait: 24*time.Hour + 1, Bucket: strings.Repeat("a.b", 5000), Concurrency: math.MaxInt, DeadSubject: strings.Repeat("\xff", 5000), HardStop: -2,
		ID: "a\nb", MaxWaiting: -1, RequestTimeout: -1, SettleTimeout: -1, SoftStop: -2, StepBucket: "*", StepTTL: 292 * 365 * 24 * time.Hour,
		Stream: strings.Repeat("a b", 5000), StuckAfter: -1,
	})
	check.ErrorContains(t, err, "JetStream")
	check.That(t, len(err.Error()) < 3000, "%d bytes", len(err.Error()))
	for _, field := range []string{
		"AckWait", "Bucket", "Concurrency", "Consumer", "DeadSubject", "HardStop", "ID", "MaxWaiting", "RequestTimeout", "SettleTimeout",
		"SoftStop", "StepBucket", "StepTTL", "Stream", "StuckAfter",
	} {
		check.That(t, err != nil && strings.Contains(err.Error(), "Config."+field+" is"), "%v; want it to name %s", err, field)
	}
}

// The first middleware is the outermost. Each sees the job, and the error that the inner one returns.
func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()
	type key struct{}
	var calls []string
	named := func(name string) Middleware {
		return func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error {
			calls = append(calls, name+" "+info.ID+" "+header.Get("H"))
			err := next(context.WithValue(ctx, key{}, name))
			calls = append(calls, name+" got "+err.Error())
			return errors.Join(err, errors.New(name))
		}
	}
	work := func(ctx context.Context, _ Info, _ *nats.Msg) error {
		calls = append(calls, "work in "+ctx.Value(key{}).(string)) //nolint:forcetypeassert // set above
		return errors.New("no")
	}
	d := &delivery{info: Info{ID: "j"}, msg: &nats.Msg{Header: nats.Header{"H": {"h"}}}}
	d.route = &route{handle: work}
	w := &Worker{cfg: Config{Middleware: []Middleware{named("a"), named("b")}}, deliveries: newDeliveries()}
	err := w.run(t.Context(), d)
	want := []string{"a j h", "b j h", "work in b", "b got no", "a got no\nb"}
	check.That(t, slices.Equal(calls, want) && err.Error() == "no\nb\na", "calls %q, error %q", calls, err)
}

func TestExponentialDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	backoff := Exponential(2*time.Second, 15*time.Second)
	for attempt, want := range map[int]time.Duration{
		-1: 2 * time.Second, 0: 2 * time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 3: 8 * time.Second,
		4: 15 * time.Second, 5: 15 * time.Second, math.MaxInt: 15 * time.Second,
	} {
		got := backoff(attempt)
		check.That(t, got == want, "after attempt %d: %s, want %s", attempt, got, want)
	}
	check.Equal(t, Exponential(0, time.Hour)(40), 0, "base 0")
	got := Exponential(time.Hour, math.MaxInt64)(math.MaxInt)
	check.That(t, got > 0, "no limit: %s, want no overflow", got)
}

func TestPolicyDelayStaysWithinItsJitter(t *testing.T) {
	t.Parallel()
	policy := Policy{Backoff: Exponential(time.Second, time.Minute)}.withDefaults()
	for random, want := range map[float64]time.Duration{0: 1600 * time.Millisecond, 0.5: 2 * time.Second, 1: 2400 * time.Millisecond} {
		got := policy.delay(2, random)
		check.That(t, got == want, "random %v: %s, want %s", random, got, want)
	}
	policy.Jitter = -1
	check.Equal(t, policy.delay(2, 0), 2*time.Second, "without jitter")
	policy.Backoff = func(int) time.Duration { return -time.Hour }
	check.Equal(t, policy.delay(1, 0.5), minDelay, "negative backoff")
	policy.Backoff, policy.Jitter = func(int) time.Duration { return math.MaxInt64 }, 1
	check.Equal(t, policy.delay(1, 0.999), maxDelay, "endless backoff")
}

func TestPolicyReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	err := Handle[int](&Worker{}, ">", Policy{Jitter: 2, MaxAttempts: -1, Priority: 3, Timeout: -2}, nil)
	check.ErrorContains(t, err, "Jitter", "MaxAttempts", "Priority is 3: use PriorityLowest to PriorityHighest, -2 to 2", "Timeout", "handler")
}

func TestHandleRefusesBadAndOverlappingPatterns(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	add := func(pattern string) error {
		return Handle(w, pattern, Policy{}, func(_ context.Context, _ *Job[int]) error { return nil })
	}
	for _, good := range []string{"a.*.x", "a.*.y", "b.>", "c"} {
		check.ErrorIs(t, add(good), nil, good)
	}
	for _, bad := range []string{"", "a..b", "a b", "a.>.b", "a*", "a.b.x", "*.>", "b.c", "c", ">"} {
		check.That(t, add(bad) != nil, "%q was accepted", bad)
	}
	for subject, want := range map[string]string{"a.1.x": "a.*.x", "a.1.y": "a.*.y", "b.1.2": "b.>", "c": "c", "b": "", "a.x": ""} {
		got := ""
		if r, found := w.routing.Find(subject); found {
			got = r.pattern
		}
		check.That(t, got == want, "%q goes to %q, want %q", subject, got, want)
	}
	none := func(context.Context, *Job[int]) error { return nil }
	check.ErrorContains(t, Handle(w, "b.x", Policy{Priority: PriorityHigh}, none), "publish the jobs of each priority under their own subject")
	w.cfg.Consumer = strings.Repeat("c", maxName)
	check.ErrorContains(t, Handle(w, "long", Policy{Priority: PriorityLow}, none), "shorter Config.Consumer")
	w.started.Store(true)
	check.ErrorIs(t, add("late"), ErrStarted, "after Run")
}
