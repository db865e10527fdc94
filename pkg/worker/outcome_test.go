package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/limit"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestTheErrorDecides(t *testing.T) {
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
		{"error", 2, io.EOF, false, retried},
		{"error, last attempt", 3, io.EOF, false, exhausted},
		{"error, stopping", 2, io.EOF, true, back},
		{"error, last attempt, stopping", 3, context.Canceled, true, back},
		{"exhausted", 4, io.EOF, false, exhausted},
		{"panic", 2, &PanicError{Value: 1}, false, retried},
		{"panic, stopping", 2, &PanicError{Value: 1}, true, retried},
		{"goexit, stopping", 2, ErrGoexit, true, retried},
		{"panic of another job, stopping", 2, wrap(&PanicError{Value: 1}), true, back},
		{"goexit of another job, stopping", 2, wrap(ErrGoexit), true, back},
		{"retry", 2, wrap(Retry(time.Second, io.EOF)), false, outcome{kind: OutcomeRetried, delay: time.Second}},
		{"retry, last attempt", 3, Retry(time.Second, io.EOF), false, exhausted},
		{"retry, stopping", 2, Retry(time.Second, nil), true, outcome{kind: OutcomeRetried, delay: time.Second}},
		{"snooze", 3, wrap(Snooze(time.Hour)), false, outcome{kind: OutcomeSnoozed, delay: time.Hour, uncounted: true}},
		{"snooze, stopping", 2, Snooze(time.Hour), true, outcome{kind: OutcomeSnoozed, delay: time.Hour, uncounted: true}},
		{"discard", 1, wrap(Discard(io.EOF)), false, outcome{kind: OutcomeDead, reason: ReasonDiscarded}},
		{"discard, stopping", 1, Discard(nil), true, outcome{kind: OutcomeDead, reason: ReasonDiscarded}},
		{"discard in retry", 1, Retry(1, Discard(nil)), false, outcome{kind: OutcomeDead, reason: ReasonDiscarded}},
		{"undecodable", 1, wrap(&DecodeError{Subject: "jobs.1", sequence: 7}), false, outcome{kind: OutcomeDead, reason: ReasonUndecodable}},
		{"undecodable, another job", 2, &DecodeError{Subject: "jobs.1", sequence: 8}, false, retried},
		{"the error of a panic", 2, &PanicError{Value: Snooze(time.Hour)}, false, retried},
		{"retry after a panic", 2, Retry(time.Second, &PanicError{Value: 1}), true, outcome{kind: OutcomeRetried, delay: time.Second}},
		{"retry, negative", 2, Retry(-time.Second, nil), false, outcome{kind: OutcomeRetried, delay: minDelay}},
		{"retry, for ever", 2, Retry(math.MaxInt64, nil), false, outcome{kind: OutcomeRetried, delay: maxDelay}},
		{"snooze, negative", 2, Snooze(math.MinInt64), false, outcome{kind: OutcomeSnoozed, delay: minDelay, uncounted: true}},
		{"snooze, for ever", 2, Snooze(math.MaxInt64), false, outcome{kind: OutcomeSnoozed, delay: maxDelay, uncounted: true}},
		{"nil snooze", 2, wrap((*SnoozeError)(nil)), false, retried},
		{"discard beside snooze", 2, errors.Join(Snooze(1), Discard(io.EOF)), false, outcome{kind: OutcomeDead, reason: ReasonDiscarded}},
		{"unhandled", 2, errUnhandled, false, retried},
		{"cancelled, another job", 2, wrap(ErrCancelled), false, retried},
		{"shutdown, another worker", 3, ErrShutdown, false, exhausted},
		{"limit lost, another job", 2, &LimitLostError{Cause: limit.ErrLost}, false, retried},
		{"limit full", 2, &limit.FullError{Delay: 1}, false, retried},
	} {
		info := Info{Attempt: test.attempt, MaxAttempts: 3, Sequence: 7, Subject: "jobs.1"}
		err := test.err
		if _, panicked := err.(*PanicError); !panicked && err != ErrGoexit { //nolint:errorlint // a handler returned it
			err = redact.Safe(err)
		}
		got := decide(ending{info: info, err: err, interrupted: test.interrupted, started: true}, backoff)
		got.err = nil // the handler's
		check.Equal(t, got, test.want, test.name)
	}
}

func TestControlErrorsCarryTheirCause(t *testing.T) {
	t.Parallel()
	for _, err := range []error{Retry(time.Second, io.EOF), Discard(io.EOF), &DecodeError{Cause: io.EOF}} {
		check.That(t, errors.Is(fmt.Errorf("x: %w", err), io.EOF), "%T hides its cause", err)
	}
	for err, want := range map[error]string{
		Retry(time.Second, io.EOF):                      "EOF",
		Snooze(time.Hour):                               "worker: snooze for 1h0m0s",
		Discard(nil):                                    "worker: discarded",
		Discard(io.EOF):                                 "EOF",
		&PanicError{Value: 3}:                           "worker: handler panicked: 3",
		&TimeoutError{Timeout: 1}:                       "worker: handler ran longer than its timeout of 1ns",
		&DecodeError{Cause: io.EOF, Subject: "jobs.1"}:  `worker: payload of "jobs.1" cannot be decoded: EOF`,
		&MissingError{Asset: "stream s", Cause: io.EOF}: "worker: stream s is missing: EOF (create it)",
		&MissingError{Asset: "stream s", Cause: io.EOF, maker: "worker.CreateStream", mends: true}: "worker: stream s is missing: EOF (create it with worker.CreateStream, or set Config.AutoCreate)",
		&MissingError{Asset: "bucket b", Cause: io.EOF, mends: true}:                               "worker: bucket b is missing: EOF (create it, or set Config.AutoCreate)",
		&DriftError{Asset: "bucket b", Differences: []string{"x", "y"}}:                            "worker: bucket b is not set as needed: x; y (apply the declared settings)",
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
	w.report(&delivery{}, outcome{kind: OutcomeLimited}, OutcomeLimited, time.Now())
	w.report(&delivery{info: Info{Sequence: 7}}, outcome{err: io.EOF, kind: OutcomeDead}, OutcomeDead, time.Now())
	if all := w.recent.latest(); len(all) != 1 || all[0].Sequence != 7 || all[0].Outcome != "dead" || all[0].Ran != 0 || all[0].Error == "" {
		t.Errorf("attempts %+v", all)
	}
}

func TestTheFirstFailureOfEachKindIsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &Worker{log: slog.New(slog.NewTextHandler(&log, nil)), settling: t.Context(), failures: newFailures()}
		fail := func(pattern, text string) string {
			d := ended(1)
			d.info.Pattern, d.failed = pattern, text
			log.Reset()
			w.report(d, outcome{err: errors.New(text), kind: OutcomeRetried}, OutcomeRetried, time.Now())
			return log.String()
		}
		for _, step := range []struct {
			after               time.Duration
			pattern, text, want string
		}{
			{0, "jobs.mail", "bank: request 7182: no answer", "level=WARN msg=worker.job_retried"},
			{time.Second, "jobs.mail", "bank: request 2818: no answer", ""},
			{0, "jobs.mail", "disk full", "failures=1"},
			{0, "jobs.pay", "bank: request 7183: no answer", "failures=1"},
			{time.Minute, "jobs.mail", "bank: request 7184: no answer", "failures=2"},
			{time.Second, "jobs.mail", "bank: request 7185: no answer", ""},
		} {
			natstest.Pass(step.after)
			got := fail(step.pattern, step.text)
			check.That(t, strings.Contains(got, step.want) && (got == "") == (step.want == ""), "%+v: %s", step, got)
		}
		for n := range maxKinds {
			fail("jobs."+strings.Repeat("x", n), "no answer")
		}
		check.That(t, fail("jobs.last", "no answer") == "" && len(w.failures.kinds) == maxKinds+1, "%d kinds", len(w.failures.kinds))
		natstest.Pass(warnedEach)
		check.That(t, fail("jobs.last", "no answer") != "", "once others are due again, a new kind has no warning")
		for n := range 10_000 {
			w.failures.add("jobs.storm", fmt.Sprintf("order %d: bank: 503", 100_000+n), time.Now())
		}
		check.That(t, fail("jobs.storm", "order 777777: bank: 404") != "", "a kind that fails once among many others has no warning")
	})
}

func TestSafeText(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"dial nats://host:4222: EOF": fmt.Errorf("dial nats://u:hunter2@host:4222: %w", io.EOF),
		`worker: payload of "jobs.mail" cannot be decoded: see its dead letter`: &DecodeError{Cause: errors.New("hunter2"), Subject: "jobs.mail"},
		strings.Repeat("x", maxLong): errors.New(strings.Repeat("x", 1000)),
	} {
		check.Equal(t, safeText(err), want, "safeText(err)")
	}
}

// The last attempts are kept, the latest first, and all are counted.
func TestRecentKeepsTheLastAttempts(t *testing.T) {
	t.Parallel()
	var r recent
	const n = maxRecent + 50
	for i := range uint64(n) {
		r.add(&delivery{info: Info{Sequence: i}}, OutcomeCompleted, nil, time.Now())
	}
	long := strings.Repeat("x", 1000)
	r.add(&delivery{info: Info{ID: long, Pattern: long, Sequence: n, Subject: long}}, OutcomeDead, nil, time.Now())
	all := r.latest()
	check.That(t, len(all[0].Job) == maxShort && len(all[0].Pattern) == maxShort && len(all[0].Subject) == maxShort, "not clipped: %+v",
		all[0])
	check.Require(t, len(all) == maxRecent, "%d attempts", len(all))
	for i, a := range all {
		check.Require(t, a.Sequence == uint64(n-i), "place %d has the job %d, want %d", i, a.Sequence, n-i)
	}
	got := r.counted()
	check.That(t, len(got) == 2 && got["completed"] == n && got["dead"] == 1, "counted %v", got)
}

// That a worker may not answer inspectors is no reason why its requests are not answered.
func TestDenialOfInspectionIsDistinguished(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`Permissions Violation for Subscription to "worker.v1.info"`: true, `Permissions Violation for Subscription to "$SRV.PING"`: true,
		`Permissions Violation for Publish to "$JS.API.STREAM.NAMES"`: false,
	} {
		check.Equal(t, isInspectionDenied(errors.New(text)), want, text)
	}
}

func waitHere(until <-chan struct{}) { <-until }

func elsewhere(until <-chan struct{}) { <-until }

// The goroutines of a piece of work are found, also those that it started, and no others.
func TestStacksOfFindsTheGoroutinesOfOnePieceOfWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until, mine, other := make(chan struct{}), label("mine"), label("other")
		work := func(name label, do func()) {
			pprof.Do(t.Context(), pprof.Labels(attemptLabel, string(name), "pattern", "jobs.>"), func(context.Context) { do() })
		}
		go work(other, func() { elsewhere(until) })
		go work(mine, func() {
			go func() { waitHere(until) }()
			waitHere(until)
		})
		synctest.Wait()
		dump, short := stacksOf(8<<10, other, mine)[mine], stacksOf(100, mine)[mine]
		check.That(t, strings.Count(dump, "worker.waitHere") == 2 && !strings.Contains(dump, "elsewhere") && strings.Contains(dump, "_test.go:"),
			"dump:\n%s", dump)
		check.That(t, !strings.Contains(dump, "0x"), "addresses in the dump:\n%s", dump)
		check.That(t, len(short) <= 100 && short != "", "%d bytes, want 1 to 100", len(short))
		close(until)
		synctest.Wait() // until they have ended
		check.Equal(t, stacksOf(8<<10, mine)[mine], "", "goroutines that have ended")
	})
}

// A confirmation proves that jobs are this worker's if it is that of a heartbeat for their consumer, over the connection that is still open:
// heartbeats of an earlier connection may have been lost.
func TestConfirmationsOfHeartbeats(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	sent := time.Now().Add(time.Second)
	for name, test := range map[string]struct {
		beat    sentBeat
		subject string
		proves  bool
	}{
		"of the heartbeat":    {sentBeat{true, sent, nc.Stats().Reconnects, 3}, "b.3.c", true},
		"of another consumer": {sentBeat{true, sent, nc.Stats().Reconnects, 3}, "b.3.other", false},
		"of an earlier one":   {sentBeat{true, sent, nc.Stats().Reconnects, 3 + 64}, "b.3.c", false},
		"after a reconnect":   {sentBeat{true, sent, nc.Stats().Reconnects + 1, 3}, "b.3.c", false},
	} {
		w := &Worker{nc: nc, deliveries: newDeliveries(), trust: time.Minute}
		w.beats.inbox = "b."
		w.beats.latest[3] = test.beat
		d := &delivery{info: Info{Consumer: "c"}, known: sent.Add(-time.Second), ownership: owned}
		w.deliveries.bySeq[1] = d
		w.confirmed(&nats.Msg{Subject: test.subject})
		check.Equal(t, d.known.Equal(sent), test.proves, name)
	}
}
