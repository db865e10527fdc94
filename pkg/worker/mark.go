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

// HeaderReplaceable marks a job that Replace may replace while it is queued.
const HeaderReplaceable = "Job-Replaceable"

// markKept bounds how long the mark of a running job is kept. It is removed when the job
// ends or waits again, whatever becomes of its worker.
const markKept = 30 * 24 * time.Hour

// freeKept is how long the record of a replaceable job that is not kept is kept: until the
// job is acknowledged, perhaps by another worker. It holds nothing.
const freeKept = time.Minute

// errReplaced is the error of an attempt at a job that another has replaced.
var errReplaced = errors.New("worker: another job has taken the place of this one")

// mark records that a replaceable job starts, so that it is not replaced from now on. It
// is one write with the same condition as a replacement: one of the two is refused.
func (w *Worker) mark(d *delivery) error {
	if d.msg.Header.Get(HeaderReplaceable) == "" {
		return nil
	}

	k, err := key.Of(d.info.Subject)
	if err != nil {
		return nil // it cannot have been replaced
	}

	ctx, cancel := context.WithTimeout(w.settling, w.cfg.SettleTimeout)
	defer cancel()

	for wait := firstPause; ; wait = min(2*wait, lastWait) {
		err := w.writeMark(ctx, d, k)
		if err == nil || errors.Is(err, errReplaced) {
			return err
		}

		if _, ended := errors.AsType[*endedError](err); ended {
			return err
		}

		closed := errors.Is(err, nats.ErrConnectionClosed)

		if !closed && !isPassing(err) || w.homeless(ctx, k, err) {
			w.log.Error(EventRecordFailed, append(d.attrs(), "error", err)...)

			return nil
		}

		if closed || !sleep(ctx, wait) {
			return fmt.Errorf("%w: %w", errForgetful, err)
		}
	}
}

func (w *Worker) writeMark(ctx context.Context, d *delivery, k key.Key) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()

	ack, refused := w.js.PublishMsg(ctx, d.recordMsg(k, StateRunning, markKept))

	switch {
	case refused == nil:
		d.last = ack.Sequence

		return nil
	case !api.Conflict(refused):
		return refused //nolint:wrapcheck // the caller says of what
	}

	last, found, err := api.Last(ctx, w.js, d.info.Stream, k.Any())

	switch {
	case err != nil:
		return err
	case d.isNews(refused, last, found), found && last.Sequence == d.info.Sequence:
		return errBusy
	case !found || !isRecordOf(last, d):
		return errReplaced
	}

	// A mark of an earlier delivery is replaced by one of this, so that the worker of that,
	// should it still be there, cannot remove it.
	if err := d.recalled(last); err != nil {
		return err
	}

	return errBusy
}

// unmark removes the mark of a job that waits again, if it is still this delivery's. When
// it stays, the job is not replaced before its next attempt.
func (w *Worker) unmark(d *delivery) {
	if d.last == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()

	if err := api.Delete(ctx, w.js, d.info.Stream, d.last); err != nil {
		w.log.Warn(EventRecordFailed, append(d.attrs(), "error", err)...)
	}

	d.last = 0
}

// recalled takes what an earlier delivery of the job recorded.
func (d *delivery) recalled(msg api.Message) error {
	switch State(msg.Header.Get(HeaderState)) {
	case StateRunning:
		d.last = msg.Sequence

		return nil
	case StateCancelled:
		return &endedError{outcome: OutcomeCancelled}
	case StateDead:
		return &endedError{outcome: OutcomeDead}
	default:
		return &endedError{outcome: OutcomeCompleted}
	}
}

// recordMsg is a record of a job. The server takes it only while the job, or the mark that
// it runs, is the last word on its key.
func (d *delivery) recordMsg(k key.Key, state State, keep time.Duration) *nats.Msg {
	msg := nats.NewMsg(k.Done())
	msg.Header.Set(HeaderID, d.info.ID)
	msg.Header.Set(HeaderSequence, strconv.FormatUint(d.info.Sequence, 10))
	msg.Header.Set(HeaderState, string(state))
	msg.Header.Set(jetstream.ExpectedStreamHeader, d.info.Stream)
	msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	msg.Header.Set(jetstream.MsgTTLHeader, keep.String())
	setExpected(msg.Header, k, d.lastWord())

	if mark := d.msg.Header.Get(HeaderInsert); mark != "" {
		msg.Header.Set(HeaderInsert, mark)
	}

	return msg
}

// lastWord is what the job's worker knows to be last on its key.
func (d *delivery) lastWord() uint64 { return max(d.last, d.info.Sequence) }

// isStale reports whether the job that a mark speaks of is gone: it was deleted by hand.
func (c *Client) isStale(ctx context.Context, k key.Key, mark api.Message) (bool, error) {
	job, found, err := c.lastOn(ctx, k.Job())

	return err == nil && (!found || strconv.FormatUint(job.Sequence, 10) != mark.Header.Get(HeaderSequence)), err
}
