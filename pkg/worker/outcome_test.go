package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

func TestClassifyDecidesFromTheError(t *testing.T) {
	t.Parallel()
	backoff := func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }
	wrap := func(err error) error { return fmt.Errorf("handler: %w", err) }
	retried := outcome{kind: OutcomeRetried, delay: 2 * time.Minute}
	exhausted := outcome{kind: OutcomeDead, reason: ReasonExhausted}
	back := outcome{kind: OutcomeHandedBack, uncounted: true}
	for _, test := range []struct {
		name        string
		attempt     int
		err         error
		interrupted bool
		want        outcome
	}{
		{"nil", 2, nil, false, outcome{kind: OutcomeCompleted}},
		{"nil, stopping", 2, nil, true, outcome{kind: OutcomeCompleted}},
		{"error", 2, io.EOF, false, retried},
		{"error, last attempt", 3, io.EOF, false, exhausted},
		{"error, stopping", 2, io.EOF, true, back},
		{"error, last attempt, stopping", 3, context.Canceled, true, back},
		{"exhausted", 4, errExhausted, false, exhausted},
		{"panic", 2, &PanicError{Value: 1}, false, retried},
		{"panic, stopping", 2, &PanicError{Value: 1}, true, retried},
		{"goexit, stopping", 2, ErrGoexit, true, retried},
		{"retry", 2, wrap(Retry(time.Second, io.EOF)), false, outcome{kind: OutcomeRetried, delay: time.Second}},
		{"retry, last attempt", 3, Retry(time.Second, io.EOF), false, exhausted},
		{"retry, stopping", 2, Retry(time.Second, nil), true, outcome{kind: OutcomeRetried, delay: time.Second}},
		{"snooze", 3, wrap(Snooze(time.Hour)), false, outcome{kind: OutcomeSnoozed, delay: time.Hour, uncounted: true}},
		{"snooze, stopping", 2, Snooze(time.Hour), true, outcome{kind: OutcomeSnoozed, delay: time.Hour, uncounted: true}},
		{"cancel", 1, wrap(Cancel(io.EOF)), false, outcome{kind: OutcomeDead, reason: ReasonCancelled}},
		{"cancel, stopping", 1, Cancel(nil), true, outcome{kind: OutcomeDead, reason: ReasonCancelled}},
		{"cancel in retry", 1, Retry(1, Cancel(nil)), false, outcome{kind: OutcomeDead, reason: ReasonCancelled}},
		{"undecodable", 1, &DecodeError{Cause: io.EOF}, false, outcome{kind: OutcomeDead, reason: ReasonUndecodable}},
		{"unhandled", 0, errUnhandled, false, outcome{kind: OutcomeSnoozed, delay: unhandledDelay, uncounted: true}},
		{"not started", 0, errNotStarted, true, back},
	} {
		check.Same(t, test.name, classify(Info{Attempt: test.attempt, MaxAttempts: 3}, test.err, test.interrupted, backoff), test.want)
	}
}

//nolint:paralleltest // AllocsPerRun counts the allocations of the whole process
func TestClassifyAllocatesNothingForACompletedJob(t *testing.T) {
	n := testing.AllocsPerRun(100, func() { classify(Info{Attempt: 1, MaxAttempts: 3}, nil, false, nil) })
	check.That(t, n == 0, "%v allocations, want none", n)
}

func TestControlErrorsCarryTheirCause(t *testing.T) {
	t.Parallel()
	for _, err := range []error{Retry(time.Second, io.EOF), Cancel(io.EOF), &DecodeError{Cause: io.EOF}, &PanicError{Value: io.EOF}} {
		check.That(t, errors.Is(fmt.Errorf("x: %w", err), io.EOF), "%T hides its cause", err)
	}
	for err, want := range map[error]string{
		Retry(-time.Second, nil):                        "worker: retry after 0s",
		Retry(time.Second, io.EOF):                      "worker: retry after 1s: EOF",
		Snooze(-1):                                      "worker: snooze for 0s",
		Cancel(nil):                                     "worker: cancelled",
		Cancel(io.EOF):                                  "worker: cancelled: EOF",
		&PanicError{Value: 3}:                           "worker: handler panicked: 3",
		&TimeoutError{Timeout: 1}:                       "worker: handler ran longer than its timeout of 1ns",
		errors.Unwrap(&PanicError{}):                    "",
		&DecodeError{io.EOF, "jobs.1"}:                  `worker: payload of "jobs.1" cannot be decoded: EOF`,
		&MissingError{Asset: "stream s", Cause: io.EOF}: "worker: stream s is missing: EOF (create it)",
		&MissingError{Asset: "bucket b", Cause: io.EOF, mends: true}:    "worker: bucket b is missing: EOF (create it, or set Config.AutoCreate)",
		&DriftError{Asset: "bucket b", Differences: []string{"x", "y"}}: "worker: bucket b is not set as needed: x; y (apply the declared settings)",
		&DriftError{Asset: "consumer c", Differences: []string{"x"}, mends: true}: "worker: consumer c is not set as needed: x " +
			"(apply the declared settings, or set Config.AutoCreate)",
	} {
		check.That(t, err == nil || err.Error() == want, "%T: %q, want %q", err, err, want)
	}
}

// ended is a delivery of an attempt that has begun.
func ended(sequence uint64) *delivery {
	return &delivery{started: time.Now(), info: Info{Attempt: 1, ID: fmt.Sprint(sequence), Sequence: sequence, Subject: "jobs.mail"}}
}

// A delivery that did not come to a handler is no attempt for inspectors, unless its job was given up.
func TestDeliveriesWithoutAHandlerAreNoAttempts(t *testing.T) {
	t.Parallel()
	w := Worker{log: slog.New(slog.DiscardHandler)}
	w.report(&delivery{}, outcome{kind: OutcomeLimited}, nil, time.Now())
	w.report(&delivery{info: Info{Sequence: 7}}, outcome{kind: OutcomeDead}, errExhausted, time.Now())
	if all := w.recent.latest(); len(all) != 1 || all[0].Sequence != 7 || all[0].Outcome != "dead" || all[0].Ran != 0 || all[0].Error == "" {
		t.Errorf("attempts %+v", all)
	}
}

func TestSafeText(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"dial nats://host:4222: EOF": fmt.Errorf("dial nats://u:hunter2@host:4222: %w", io.EOF),
		`worker: payload of "jobs.mail" cannot be decoded: see its dead letter`: &DecodeError{Cause: errors.New("hunter2"), Subject: "jobs.mail"},
		strings.Repeat("x", maxLong): errors.New(strings.Repeat("x", 1000)),
	} {
		check.Same(t, "safeText(err)", safeText(err), want)
	}
}

// An attempt that completes costs no memory once there are 200.
func TestRecentAllocatesNothing(t *testing.T) {
	var r recent
	d, now := ended(1), time.Now()
	add := func() { r.add(d.describeEnd(outcome{kind: OutcomeCompleted}, nil, now)) }
	const kept = 200
	for range kept {
		add()
	}
	check.Same(t, "allocations for an attempt", testing.AllocsPerRun(1000, add), 0)
}

// The last attempts are kept, the latest first, and all are counted.
func TestRecentKeepsTheLastAttempts(t *testing.T) {
	t.Parallel()
	var r recent
	const n = maxRecent + 50
	for i := range uint64(n) {
		r.add(inspect.Attempt{Outcome: "completed", Sequence: i})
	}
	r.add(inspect.Attempt{Outcome: "dead", Sequence: n})
	all := r.latest()
	check.Require(t, len(all) == maxRecent, "%d attempts", len(all))
	for i, a := range all {
		check.Require(t, a.Sequence == uint64(n-i), "place %d has the job %d, want %d", i, a.Sequence, n-i)
	}
	got := r.counted()
	check.That(t, len(got) == 2 && got["completed"] == n && got["dead"] == 1, "counted %v", got)
}

// That a worker may not answer inspectors is no reason why its requests are not answered.
func TestDenialOfInspectionIsToldApart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`Permissions Violation for Subscription to "worker.v1.info"`: true, `Permissions Violation for Subscription to "$SRV.PING"`: true,
		`Permissions Violation for Publish to "$JS.API.STREAM.NAMES"`: false,
	} {
		check.Same(t, text, isInspectionDenied(errors.New(text)), want)
	}
}

func waitHere(started chan<- struct{}, until <-chan struct{}) {
	started <- struct{}{}
	<-until
}

func elsewhere(started chan<- struct{}, until <-chan struct{}) {
	started <- struct{}{}
	<-until
}

// The goroutines of a piece of work are found, also those that it started, and no others.
func TestStacksOfFindsTheGoroutinesOfOnePieceOfWork(t *testing.T) {
	t.Parallel()
	started, until, done := make(chan struct{}), make(chan struct{}), make(chan struct{}, 3)
	mine, other := newLabel(), newLabel()
	for _, mark := range []label{mine, other} {
		go mark.do(t.Context(), []string{"pattern", "jobs.>"}, func(context.Context) {
			if mark == other {
				elsewhere(started, until)
			} else {
				go func() {
					waitHere(started, until)
					done <- struct{}{}
				}()
				waitHere(started, until)
			}
			done <- struct{}{}
		})
	}
	for range 3 {
		<-started
	}
	dump := stacksOf(8<<10, other, mine)[mine]
	close(until)
	for range 3 {
		<-done
	}
	check.That(t, strings.Count(dump, "worker.waitHere") == 2 && !strings.Contains(dump, "elsewhere") && strings.Contains(dump, "_test.go:"),
		"dump:\n%s", dump)
	check.That(t, !strings.Contains(dump, "0x"), "addresses in the dump:\n%s", dump)
	check.That(t, stacksOf(8<<10, mine)[mine] == "", "goroutines that have ended were found")
}

func TestStacksAreBounded(t *testing.T) {
	t.Parallel()
	label("x1").do(t.Context(), nil, func(context.Context) {
		dump := stacksOf(100, "x1")["x1"]
		check.That(t, len(dump) <= 100 && dump != "", "%d bytes, want 1 to 100", len(dump))
	})
}
