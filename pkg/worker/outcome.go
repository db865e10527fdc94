package worker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/shown"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// errOrphan is the reason that no answer is sent for a job whose consumer was deleted meanwhile.
var errOrphan = errors.New("worker: the consumer that delivered the job was deleted, and made again")

// outcome describes how to settle a job after an attempt.
type outcome struct {
	delay     time.Duration
	kind      Outcome
	reason    Reason // why it is dead
	settled   bool   // an earlier delivery was settled, and only its acknowledgement is missing
	uncounted bool   // the delivery uses no attempt
}

// refusal is the error of an attempt that ended before its handler. It has the outcome, so that no error of a handler can pass for one.
type refusal struct {
	outcome

	text string
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// refused returns a refusal that uses no attempt.
func refused(kind Outcome, delay time.Duration, text string) *refusal {
	return &refusal{outcome{delay: delay, kind: kind, uncounted: true}, text}
}

// classify derives the outcome from the error of an attempt. interrupted is true if the worker has ended the handler's context; wait is
// the backoff of the policy. Of several control errors in one error the first of Discard, Snooze and Retry decides.
func classify(info Info, err error, interrupted bool, wait func(attempt int) time.Duration) outcome {
	_, panicked := err.(*PanicError) //nolint:errorlint // of this attempt: the error that a handler returned is wrapped
	exited := err == ErrGoexit       //nolint:errorlint // as above
	discard, _ := errors.AsType[*DiscardError](err)
	decode, _ := errors.AsType[*DecodeError](err)
	retry, _ := errors.AsType[*RetryError](err)
	snooze, _ := errors.AsType[*SnoozeError](err)
	switch {
	case decode != nil && decode.sequence == info.Sequence && decode.Subject == info.Subject:
		return outcome{kind: OutcomeDead, reason: ReasonUndecodable}
	case discard != nil:
		return outcome{kind: OutcomeDead, reason: ReasonDiscarded}
	case snooze != nil:
		return outcome{kind: OutcomeSnoozed, delay: bounded(snooze.Delay), uncounted: true}
	case interrupted && !panicked && !exited && retry == nil:
		return outcome{kind: OutcomeHandedBack, uncounted: true}
	case info.Attempt >= info.MaxAttempts:
		return outcome{kind: OutcomeDead, reason: ReasonExhausted}
	case retry != nil:
		return outcome{kind: OutcomeRetried, delay: bounded(retry.After)}
	default:
		return outcome{kind: OutcomeRetried, delay: wait(info.Attempt)}
	}
}

// finish settles a job whose handler has returned.
func (w *Worker) finish(d *delivery, err error) {
	ended := time.Now()
	if !w.deliveries.claim(d) {
		w.log.Warn(EventJobLate, append(d.attrs(), "error", err)...)
		return
	}
	o, err := w.decide(d, err)
	o.kind = w.settle(d, o, err)
	w.report(d, o, err, ended)
}

// decide returns the outcome of an attempt that returned err, and the error to report.
func (w *Worker) decide(d *delivery, err error) (outcome, error) {
	if w.mayBeOthers(d) { // an answer could settle the other worker's delivery, or make the server deliver the job again
		return outcome{kind: OutcomeFenced}, errors.Join(errDoubted, err)
	}
	if d.journal != nil {
		if fenced := d.journal.Fenced(); fenced != nil { // whatever the handler returned
			return outcome{kind: OutcomeFenced}, fenced
		}
	}
	switch {
	case err == nil:
		return outcome{kind: OutcomeCompleted}, nil
	case d.cancelled.Load(): // whatever the handler returned
		return outcome{kind: OutcomeCancelled, settled: true}, nil
	case d.started.IsZero():
		if r, ok := errors.AsType[*refusal](err); ok {
			if r.settled && r.kind != OutcomeDead {
				err = nil
			}
			return r.outcome, err
		}
		if d.info.Attempt == 0 { // it fails like a handler
			d.info.Attempt = w.countAttempt(d)
		}
	}
	interrupted := w.jobs.Err() != nil || d.permitLost.Load()
	return classify(d.info, err, interrupted, func(attempt int) time.Duration { return w.backoff(d.policy, attempt) }), err
}

// settle carries out an outcome and returns the outcome that was reached.
func (w *Worker) settle(d *delivery, o outcome, err error) Outcome {
	switch {
	case o.settled:
		return w.confirm(d, o.kind)
	case o.kind == OutcomeCompleted:
		return w.complete(d)
	case o.kind == OutcomeFenced:
		return w.leave(d, o)
	case o.kind != OutcomeDead:
		return w.release(d, o, err)
	}
	if failed := w.deadLetter(d, o.reason, err); failed != nil {
		w.log.Error(EventDeadFailed, append(d.attrs(), "error", w.denial(failed))...)
		again := outcome{delay: unhandledDelay, kind: OutcomeRetried}
		if d.started.IsZero() { // the record has the error of the last attempt
			again = errUnhandled.outcome
		}
		w.release(d, again, err)
		return OutcomeUnknown
	}
	if !w.recordEnd(d, StateDead) {
		return OutcomeUnknown
	}
	return w.confirm(d, o.kind)
}

// complete records that a job is done, acknowledges it and forgets its steps.
func (w *Worker) complete(d *delivery) Outcome {
	if !w.recordEnd(d, StateDone) {
		return OutcomeUnknown
	}
	reached := w.confirm(d, OutcomeCompleted)
	if reached == OutcomeCompleted && d.journal != nil {
		d.journal.Forget()
	}
	return reached
}

// confirm acknowledges a job until the server confirms it. Acknowledgements can be repeated without harm, under the newest delivery.
// Heartbeats go on meanwhile, so the job is not started elsewhere while the server can be reached. The job of a dead letter is
// acknowledged as well, not terminated: its letter has more than the server's advisory.
func (w *Worker) confirm(d *delivery, kind Outcome) Outcome {
	w.recordReplay(d)
	if !w.acknowledge(d, kind) {
		return OutcomeUnknown
	}
	d.acked = true
	return kind
}

// reack acknowledges a copy of a job that this worker has acknowledged before.
func (w *Worker) reack(d *delivery) {
	defer w.running.Done()
	w.log.Info(EventJobCopied, append(d.attrs(), "deliveries", d.info.Deliveries)...)
	w.acknowledge(d, OutcomeUnknown)
}

// acknowledge reports whether the server has confirmed the acknowledgement.
func (w *Worker) acknowledge(d *delivery, kind Outcome) bool {
	until := time.Now().Add(w.cfg.SettleTimeout)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		reply := w.deliveries.answerTo(d)
		err := w.answer(d, reply, ackDone)
		if err == nil {
			w.acks.add(ack{consumer: d.info.Consumer, created: w.classOf(d.info.Consumer).created.Load(), reply: reply})
			return true
		}
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, errOrphan) || !sleepUntil(w.settling, wait, until) || w.mayBeOthers(d) {
			w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", kind, "error", w.denial(err))...)
			return false
		}
	}
}

// release gives a job back to the server, to be delivered again after a delay. The uncounted deliveries are recorded before: after a crash
// in between, a delivery is uncounted whose job did nothing more.
//
// The answer is sent once only. A repeated answer could settle the job's next delivery, which runs on another worker. When the answer was
// lost, the job comes back after AckWait instead.
func (w *Worker) release(d *delivery, o outcome, err error) Outcome {
	if d.shown.Load() { // as running
		w.show(d, StateQueued)
	}
	reply, extra := w.deliveries.release(d) // extra are copies that were dropped here because the job was running
	n := uncounted{Last: d.first + extra, Uncounted: extra, Delay: o.delay}
	if o.uncounted {
		n.Uncounted++
	}
	if n.Uncounted > 0 {
		w.note(d, n)
	}
	if w.mayBeOthers(d) { // by now
		return OutcomeFenced
	}
	if o.kind == OutcomeRetried {
		w.recordFailure(d, o.delay, err)
	}
	answer := ackLater
	if o.delay > 0 {
		answer = fmt.Sprintf("%s {\"delay\": %d}", ackLater, o.delay.Nanoseconds())
	}
	if err := w.answer(d, reply, answer); err != nil {
		w.log.Warn(EventJobUnknown, append(d.attrs(), "outcome", o.kind, "error", w.denial(err))...)
		return OutcomeUnknown
	}
	return o.kind
}

// leave drops a job that another attempt has taken over, without an answer that could settle the job or start it again. The job is given
// back only if its newest delivery came to this worker after all, so that no other worker holds it.
func (w *Worker) leave(d *delivery, o outcome) Outcome {
	if w.deliveries.redelivered(d) && !w.mayBeOthers(d) {
		return w.release(d, o, nil)
	}
	w.deliveries.release(d)
	return o.kind
}

// answer sends an answer to a delivery and waits for the server to confirm it.
func (w *Worker) answer(d *delivery, reply, answer string) error {
	if reply == "" {
		return errOrphan
	}
	if d.line == nil && !w.nc.IsConnected() {
		// The client keeps the answer until it is connected again. The answer of an ordered job could arrive when another worker has the job.
		_ = w.nc.Publish(reply, []byte(answer)) // Request returns the reason that it cannot be sent
	}
	if _, err := w.inbox.Request(w.settling, &nats.Msg{Subject: reply, Data: []byte(answer)}, w.cfg.RequestTimeout); err != nil {
		return fmt.Errorf("worker: %s: %w", answer, err)
	}
	return nil
}

// note records what a delivery adds to the attempts of its job.
func (w *Worker) note(d *delivery, n uncounted) {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.AckWait)
	defer cancel()
	err := repeat(ctx, firstWait, isConnected, func() error {
		once, stop := context.WithTimeout(ctx, w.cfg.RequestTimeout)
		defer stop()
		return addUncounted(once, w.bucket, d.place(), d.noted, n)
	})
	if err != nil {
		w.log.Warn(EventUncountedFailed, append(d.attrs(), "error", w.denial(err))...)
	}
}

// recordReplay records, before a replayed job leaves its stream, that the job has been worked. If the replay was interrupted after it
// published the job and before it removed the letter, only this record shows a later replay that the job was published.
//
// The server accepts this record only while the record of the replay is the last on its subject. That one is removed together with the
// letter, so as a rule the server refuses this record and nothing is left.
func (w *Worker) recordReplay(d *delivery) {
	record := d.msg.Header.Get(jobmsg.HeaderReplayRecord)
	if record == "" {
		return
	}
	replay, err := strconv.ParseUint(record, 10, 64)
	_, letter, _ := strings.Cut(d.msg.Header.Get(HeaderReplayOf), ":")
	if _, bad := strconv.ParseUint(letter, 10, 64); err != nil || bad != nil || replay == 0 {
		return
	}
	msg := nats.NewMsg(fmt.Sprintf("%s.%s.%s.%s", w.cfg.DeadSubject, d.info.Stream, jobmsg.TokenReplay, letter))
	msg.Header.Set(jobmsg.HeaderReplayState, jobmsg.ReplayWorked)
	const tries = 2
	for range tries {
		ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
		_, err = w.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(replay))
		cancel()
		var refused *jetstream.APIError
		if err == nil || errors.As(err, &refused) {
			return
		}
	}
	w.log.Warn(EventReplayUnmarked, append(d.attrs(), "error", w.denial(err))...)
}

// report logs an outcome and calls the hook.
func (w *Worker) report(d *delivery, o outcome, err error, ended time.Time) {
	early := d.started.IsZero() // later, a handler's error may match anything
	switch {
	case early && errors.Is(err, errUnhandled):
		w.log.Error(EventJobUnhandled, append(d.attrs(), "delay", o.delay)...)
		w.recent.unhandled.Store(d.describeUnhandled(ended))
	case early && errors.Is(err, errLimitUnreadable):
		w.log.Error(EventLimitUnreadable, append(d.attrs(), "error", err)...)
	case o.kind == OutcomeDead:
		w.log.Error(EventJobDead, append(d.attrs(), "error", err, "reason", o.reason)...)
	case o.kind == OutcomeFenced:
		w.log.Warn(EventJobFenced, append(d.attrs(), "error", err)...)
	case o.kind == OutcomeRetried:
		w.logRetry(d, o, err)
	case o.kind == OutcomeHandedBack:
		w.log.Info(EventJobHandedBack, d.attrs()...)
	}
	if !early || o.kind == OutcomeDead { // an attempt that ended before its handler does not count, unless its job was given up
		w.recent.add(d.describeEnd(o, err, ended))
	}
	if w.cfg.Hooks.Settled == nil {
		return
	}
	s := Settlement{Info: d.info, Delay: o.delay, Err: err, Outcome: o.kind}
	if !early {
		s.Ran, s.Waited = ended.Sub(d.started), d.started.Sub(d.info.EnqueuedAt)
	}
	w.observe("Hooks.Settled", func() { w.cfg.Hooks.Settled(s) })
}

// logRetry logs a failed attempt, as a warning where it is the first failure of its kind in a minute.
func (w *Worker) logRetry(d *delivery, o outcome, err error) {
	level, attrs := slog.LevelDebug, append(d.attrs(), "error", err, "delay", o.delay)
	if n := w.failures.add(d.info.Pattern, d.failed, time.Now()); n > 0 {
		level, attrs = slog.LevelWarn, append(attrs, "failures", n)
	}
	w.log.Log(w.settling, level, EventJobRetried, attrs...)
}

const (
	warnedEach = time.Minute // of the failures of one kind
	maxKinds   = 200         // of failures: all others are one kind
)

// failures counts failed attempts by handler and kind, for warnings.
type failures struct {
	// sorted bound signatures, each of which may take as much time as the rest of an attempt: one for each hash of the words of a text, so
	// that a kind is also counted while others fail very often.
	sorted [64]*rate.Limiter

	mu    sync.Mutex
	kinds map[string]*failureKind
}

type failureKind struct {
	count  int // since warned
	warned time.Time
}

func newFailures() *failures {
	const perSecond, atOnce = 4, 100
	f := &failures{kinds: make(map[string]*failureKind)}
	for i := range f.sorted {
		f.sorted[i] = rate.NewLimiter(perSecond, atOnce)
	}
	return f
}

// mayCount reports whether a failure is counted. Words that look like ids do not tell texts apart; a code such as 503 does.
func (f *failures) mayCount(pattern, text string, now time.Time) bool {
	const code = 4 // bytes
	words := fnv.New32a()
	_, _ = io.WriteString(words, pattern)
	for word := range strings.FieldsSeq(text) {
		if len(word) <= code || !strings.ContainsAny(word, digits) {
			_, _ = io.WriteString(words, word)
		}
	}
	return f.sorted[words.Sum32()%uint32(len(f.sorted))].AllowN(now, 1)
}

// add counts a failure. It returns the failures of its kind since the last warning if another is due, and otherwise 0.
func (f *failures) add(pattern, text string, now time.Time) int {
	if !f.mayCount(pattern, text, now) {
		return 0
	}
	name := pattern + " " + signatureOf(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds[name] == nil && len(f.kinds) >= maxKinds { // those that are due for a warning anyway make room
		maps.DeleteFunc(f.kinds, func(_ string, k *failureKind) bool { return now.Sub(k.warned) >= warnedEach })
	}
	if f.kinds[name] == nil && len(f.kinds) >= maxKinds {
		name = ""
	}
	kind := f.kinds[name]
	if kind == nil {
		kind = new(failureKind)
		f.kinds[name] = kind
	}
	kind.count++
	if now.Sub(kind.warned) < warnedEach {
		return 0
	}
	due := kind.count
	kind.count, kind.warned = 0, now
	return due
}

// RetryError is the error of [Retry].
type RetryError struct {
	// After is the wait before the next attempt, without backoff and jitter.
	After time.Duration

	// Cause is the reason. It may be nil.
	Cause error
}

// Retry fails this attempt and asks for the next one after the given wait, instead of the policy's backoff. Use it when a
// provider answered with the time of the next call. The worker waits for at least 100 ms and at most ten years. After the last attempt the
// job goes to the dead letters all the same.
func Retry(after time.Duration, cause error) error {
	return &RetryError{After: after, Cause: shown.Error(cause)}
}

// Error implements error: the text of the cause, because a dead letter says by its Reason how the job ended.
func (e *RetryError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return fmt.Sprintf("worker: retry after %s", e.After)
}

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Cause }

// SnoozeError is the error of [Snooze].
type SnoozeError struct {
	// Delay is the wait before the job is delivered again.
	Delay time.Duration
}

// Snooze puts the job off without using an attempt: the next delivery has the same Job.Attempt. It costs two round trips more
// than [Retry]. The worker waits for at least 100 ms and at most ten years. A job may be snoozed without limit.
func Snooze(delay time.Duration) error { return &SnoozeError{Delay: delay} }

// Error implements error.
func (e *SnoozeError) Error() string { return fmt.Sprintf("worker: snooze for %s", e.Delay) }

// DiscardError is the error of [Discard].
type DiscardError struct {
	// Cause is the reason. It may be nil.
	Cause error
}

// Discard gives up on the job: it goes to the dead letters at once, even if it has attempts left. Use it for errors that no retry can fix.
// A job that shall leave no dead letter is cancelled, see [Client.Cancel].
func Discard(cause error) error { return &DiscardError{Cause: shown.Error(cause)} }

// Error implements error: the text of the cause, because a dead letter says by its Reason how the job ended.
func (e *DiscardError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return "worker: discarded"
}

// Unwrap returns the cause.
func (e *DiscardError) Unwrap() error { return e.Cause }
