package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// errForgetful is the error of an attempt that did not begin, since it could not be known
// whether the job had ended already.
var errForgetful = errors.New("worker: the record of the job cannot be read")

// newsTime is how long a leader may take to come to a job that was delivered.
const newsTime = time.Second

// endedError is the error of an attempt at a job that had ended already.
type endedError struct{ outcome Outcome }

func (e *endedError) Error() string {
	return fmt.Sprintf("worker: %s by an earlier delivery, which was not acknowledged", e.outcome)
}

// keepOf returns how long the record of a job's completion is kept, and whether the job is
// unique at all.
func keepOf(header nats.Header) (time.Duration, bool) {
	text := header.Get(HeaderKeep)
	if text == "" {
		return 0, false
	}

	keep, err := time.ParseDuration(text)
	if err != nil || keep < 0 || keep > maxKeep {
		keep = 0 // set by hand, and wrong: free the key rather than hold it for ever
	}

	return wholeSeconds(keep), true
}

// recall looks whether a unique job that is delivered again has ended: its worker may have
// died between the record and the acknowledgement. Other jobs, and first deliveries, cost
// nothing. The leader of the stream knows all that was ever acknowledged: a new one answers
// when it has applied what it had at its election, and not before.
func (w *Worker) recall(d *delivery) error {
	if w.isFirst(d) && !d.waited {
		return nil
	}

	if _, unique := keepOf(d.msg.Header); !unique {
		return nil
	}

	k, err := key.Of(d.info.Subject)
	if err != nil {
		return nil // of such a job there is no record
	}

	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()

	msg, found, err := api.Last(ctx, w.js, d.info.Stream, k.Done())

	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errForgetful, err)
	case !found || !isRecordOf(msg, d):
		return nil
	default:
		return d.recalled(msg)
	}
}

// isRecordOf tells the record of a job from that of another with the same key. The ID
// tells a stream that was deleted and made again.
func isRecordOf(msg api.Message, d *delivery) bool {
	return msg.Header.Get(HeaderSequence) == strconv.FormatUint(d.info.Sequence, 10) && msg.Header.Get(HeaderID) == d.info.ID
}

// record stores how a unique job ended, before the job is acknowledged, so that there is
// no moment at which its key is free. It reports false when that could not be found out;
// the job is then left as it is, to be delivered again.
func (w *Worker) record(d *delivery, state State) bool {
	keep, unique := keepOf(d.msg.Header)

	switch {
	case !unique:
		return true
	case state == StateDone && keep == 0 && d.last == 0:
		return true
	case state == StateDone && keep == 0: // in place of the mark, so that nobody replaces what has run
		state, keep = StateFree, freeKept
	case state == StateDead:
		keep = deadKept
	}

	k, err := key.Of(d.info.Subject)
	if err != nil {
		return true // no key, no record
	}

	until := time.Now().Add(w.cfg.SettleTimeout)

	for wait := firstPause; ; wait = min(2*wait, lastWait) {
		err := w.writeRecord(d, k, state, keep)
		if err == nil {
			return true
		}

		if !api.Unknown(err) && !errors.Is(err, nats.ErrConnectionClosed) || w.homeless(w.settling, k, err) {
			w.log.Error(EventRecordFailed, append(d.attrs(), "error", err)...)

			return true
		}

		if errors.Is(err, nats.ErrConnectionClosed) || !sleepUntil(w.settling, wait, until) {
			w.log.Warn(EventJobUnknown, append(d.attrs(), "error", w.denial(err))...)

			return false
		}
	}
}

// writeRecord writes a record once. It is refused when the job is not the last word on its
// key: the record is there already, or the job has been replaced or taken away and another
// may be in its place, of which nothing must be said here.
func (w *Worker) writeRecord(d *delivery, k key.Key, state State, keep time.Duration) error {
	requests := d.requests(w)
	defer requests.Pause()

	ctx := requests.Begin()

	_, refused := w.js.PublishMsg(ctx, d.recordMsg(k, state, keep))
	if !api.Conflict(refused) {
		return refused //nolint:wrapcheck // logged by the caller, with the job
	}

	last, found, err := api.Last(ctx, w.js, d.info.Stream, k.Any())

	switch {
	case err != nil:
		return err
	case d.isNews(refused, last, found):
		return errBusy
	case found && last.Sequence == d.info.Sequence:
		d.last = 0 // its mark has been removed, or never was
	}

	if found && last.Sequence == d.lastWord() {
		return errBusy // a rival's write is under way, and will be refused
	}

	return nil
}

// isNews reports whether the leader of the stream, which refused a write, has not come to
// the job itself yet. With replicas it may get a job's record before it has stored the job:
// the consumer has a leader of its own, perhaps on another server, that may be ahead. What
// it says of the key then is of the past, and nothing that would free it.
func (d *delivery) isNews(refused error, last api.Message, found bool) bool {
	if found && last.Sequence >= d.info.Sequence {
		return false
	}

	if api.UnderWay(refused) {
		return true
	}

	// A new leader does not know what is under way. Or the job was deleted by hand.
	if d.missed.IsZero() {
		d.missed = time.Now()
	}

	return time.Since(d.missed) < newsTime
}

// homeless reports whether no stream takes the records of a key.
func (w *Worker) homeless(ctx context.Context, k key.Key, err error) bool {
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()

	_, err = w.js.StreamNameBySubject(ctx, k.Done())

	return errors.Is(err, jetstream.ErrStreamNotFound)
}
