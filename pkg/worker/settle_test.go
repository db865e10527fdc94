package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestJudgeDecidesFromTheError(t *testing.T) {
	t.Parallel()

	backoff := func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }
	wrap := func(err error) error { return fmt.Errorf("handler: %w", err) }
	retried := verdict{outcome: OutcomeRetried, delay: 2 * time.Minute}
	exhausted := verdict{outcome: OutcomeDead, reason: ReasonExhausted}
	back := verdict{outcome: OutcomeHandedBack, excuse: true}

	for _, test := range []struct {
		name        string
		attempt     int
		err         error
		interrupted bool
		want        verdict
	}{
		{"nil", 2, nil, false, verdict{outcome: OutcomeCompleted}},
		{"nil, stopping", 2, nil, true, verdict{outcome: OutcomeCompleted}},
		{"error", 2, io.EOF, false, retried},
		{"error, last attempt", 3, io.EOF, false, exhausted},
		{"error, stopping", 2, io.EOF, true, back},
		{"error, last attempt, stopping", 3, context.Canceled, true, back},
		{"exhausted", 4, errExhausted, false, exhausted},
		{"panic", 2, &PanicError{Value: 1}, false, retried},
		{"panic, stopping", 2, &PanicError{Value: 1}, true, retried},
		{"goexit, stopping", 2, ErrGoexit, true, retried},
		{"retry", 2, wrap(Retry(time.Second, io.EOF)), false, verdict{outcome: OutcomeRetried, delay: time.Second}},
		{"retry, last attempt", 3, Retry(time.Second, io.EOF), false, exhausted},
		{"retry, stopping", 2, Retry(time.Second, nil), true, verdict{outcome: OutcomeRetried, delay: time.Second}},
		{"snooze", 3, wrap(Snooze(time.Hour)), false, verdict{outcome: OutcomeSnoozed, delay: time.Hour, excuse: true}},
		{"snooze, stopping", 2, Snooze(time.Hour), true, verdict{outcome: OutcomeSnoozed, delay: time.Hour, excuse: true}},
		{"cancel", 1, wrap(Cancel(io.EOF)), false, verdict{outcome: OutcomeDead, reason: ReasonCancelled}},
		{"cancel, stopping", 1, Cancel(nil), true, verdict{outcome: OutcomeDead, reason: ReasonCancelled}},
		{"cancel in retry", 1, Retry(1, Cancel(nil)), false, verdict{outcome: OutcomeDead, reason: ReasonCancelled}},
		{"undecodable", 1, &DecodeError{Cause: io.EOF}, false, verdict{outcome: OutcomeDead, reason: ReasonUndecodable}},
		{"unhandled", 0, errUnhandled, false, verdict{outcome: OutcomeSnoozed, delay: unhandledDelay, excuse: true}},
		{"not started", 0, errNotStarted, true, back},
	} {
		got := judge(Info{Attempt: test.attempt, MaxAttempts: 3}, test.err, test.interrupted, backoff)
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestControlErrorsCarryTheirCause(t *testing.T) {
	t.Parallel()

	for _, err := range []error{Retry(time.Second, io.EOF), Cancel(io.EOF), &DecodeError{Cause: io.EOF}, &PanicError{Value: io.EOF}} {
		if !errors.Is(fmt.Errorf("x: %w", err), io.EOF) {
			t.Errorf("%T hides its cause", err)
		}
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

		&MissingError{Asset: "bucket b", Cause: io.EOF, mends: true}: "worker: bucket b is missing: EOF (create it, or set Config.AutoCreate)",

		&DriftError{Asset: "bucket b", Differences: []string{"x", "y"}}: "worker: bucket b is not set as needed: x; y (apply the declared settings)",

		&DriftError{Asset: "consumer c", Differences: []string{"x"}, mends: true}: "worker: consumer c is not set as needed: x " +
			"(apply the declared settings, or set Config.AutoCreate)",
	} {
		if err != nil && err.Error() != want {
			t.Errorf("%T: %q, want %q", err, err, want)
		}
	}
}

func TestTableFollowsTheNewestDelivery(t *testing.T) {
	t.Parallel()

	table := table{ended: newEndings(), jobs: make(map[uint64]*delivery)}
	copyOf := func(n int) *delivery {
		return &delivery{beating: true, deliveries: n, first: n, info: Info{Sequence: 7}, reply: fmt.Sprint("r", n)}
	}
	first := copyOf(1)

	now := time.Now()

	if table.add(first, now) != fresh || table.add(copyOf(3), now) != copied || table.add(copyOf(2), now) != copied || table.size() != 1 {
		t.Fatal("a message that is here was taken in again")
	}

	if got := table.answer(first); got != "r3" {
		t.Errorf("answers go to %s, want r3", got)
	}

	if reply, extra := table.release(first); reply != "r3" || extra != 2 || first.beating {
		t.Errorf("release: %s, %d extra, beating %t; want r3, 2, false", reply, extra, first.beating)
	}

	next := copyOf(4)
	if table.add(next, now) != fresh {
		t.Error("a message that was given back is not taken in")
	}

	table.remove(first, now)

	if table.jobs[7] != next {
		t.Error("removing the old delivery removed the new one")
	}

	if !table.begin(next, time.Now()) || len(table.close()) != 1 || table.claim(next) {
		t.Error("an abandoned delivery could be claimed")
	}

	if table.begin(copyOf(5), time.Now()) {
		t.Error("a handler started after the table was closed")
	}
}

// TestCopiesOfAnAcknowledgedJob is what tells a copy from a job with the same sequence in a
// stream that was made again, and from one that an operator has delivered again.
func TestCopiesOfAnAcknowledgedJob(t *testing.T) {
	t.Parallel()

	var (
		stored = time.Now()
		now    = stored.Add(time.Hour)
		table  = table{ended: newEndings(), jobs: make(map[uint64]*delivery)}
		made   = func(sequence uint64, stored time.Time) *delivery {
			return &delivery{info: Info{EnqueuedAt: stored, Sequence: sequence}}
		}
		end = func(d *delivery, acked bool) {
			table.add(d, now)
			d.acked = acked
			table.remove(d, now)
		}
	)

	end(made(7, stored), true)
	end(made(8, stored), false)

	for name, c := range map[string]struct {
		d    *delivery
		at   time.Time
		want arrival
	}{
		"at once":          {made(7, stored), now, late},
		"after a while":    {made(7, stored), now.Add(copiesCome - 1), late},
		"asked for":        {made(7, stored), now.Add(copiesCome), fresh},
		"another stream":   {made(7, stored.Add(1)), now, fresh},
		"another job":      {made(7+endedKept, stored), now, fresh},
		"not acknowledged": {made(8, stored), now, fresh},
	} {
		got := table.add(c.d, c.at)
		delete(table.jobs, c.d.info.Sequence)

		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}

	table.orphan("cook")

	if got := table.add(made(7, stored), now); got != fresh {
		t.Errorf("from a consumer that was made again: %d, want %d", got, fresh)
	}
}

// watched is a context that counts what is to happen at its end.
type watched struct {
	context.Context //nolint:containedctx // is what it derives

	done    chan struct{}
	waiting atomic.Int32
}

// Done is not that of the context below, which package context would know to be one of its own.
func (c *watched) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context calls for a child, and its result when the child ends.
func (c *watched) AfterFunc(func()) func() bool {
	c.waiting.Add(1)

	return func() bool { c.waiting.Add(-1); return true }
}

// TestSettledJobsLeaveNothingBehind guards against a child of the worker's context for each
// job that is never taken off it, which would fill the memory of a busy worker in a day.
func TestSettledJobsLeaveNothingBehind(t *testing.T) {
	t.Parallel()

	settling := &watched{Context: t.Context(), done: make(chan struct{})}
	w := &Worker{
		cfg: Config{RequestTimeout: time.Minute}, jobs: t.Context(), log: slog.New(slog.DiscardHandler), settling: settling,
		table: table{ended: newEndings(), jobs: make(map[uint64]*delivery)},
	}

	for name, settle := range map[string]func(*delivery){
		"completed": func(d *delivery) { w.finish(d, nil) },
		"retried":   func(d *delivery) { w.finish(d, Retry(0, io.ErrUnexpectedEOF)) },
		"copied": func(d *delivery) {
			w.running.Add(1)
			w.again(d)
		},
	} {
		d := &delivery{info: Info{MaxAttempts: 1}, msg: nats.NewMsg("jobs.a"), reply: "$JS.ACK"}
		w.table.add(d, time.Now())
		settle(d)

		if d.asking == nil || settling.waiting.Load() != 0 {
			t.Errorf("%s: %d children left, asking %v", name, settling.waiting.Load(), d.asking)
		}
	}
}
