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

// cancelKept is how long a worker that is cut off has to see that its job was cancelled.
const cancelKept = 24 * time.Hour

// ErrCancelled is the cause with which a handler's context ends when Client.Cancel has
// cancelled its job.
var ErrCancelled = errors.New("worker: job cancelled by a client")

// Cancel takes away the scheduled, queued or running job of a key, and returns what it
// was. Nothing is left of it but a note, for a day, which holds no key and is no dead
// letter. One that is queued or waits for its next attempt does not start any more. The
// context of a running handler ends within AckWait/3 (of its worker, 5/3 seconds by
// default) with the cause [ErrCancelled]; it is not told apart from a queued one unless
// Replace inserted it, its key is free at once, and a handler that is done before hears
// nothing of it. A key without a live job is no error: see Status.State.
//
// Only unique jobs can be cancelled. Three round trips; more for a schedule within 300 ms
// of its time, which is waited for.
func (c *Client) Cancel(ctx context.Context, subject, uniqueKey string) (Status, error) {
	k, err := keyOf(subject, &Unique{Key: uniqueKey})
	if err != nil {
		return Status{}, fmt.Errorf("worker: cancel: %w", err)
	}

	ctx, stop := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer stop()

	for pause := firstPause; ; pause = min(2*pause, lastWait) {
		s, err := c.cancel(ctx, k)
		if err == nil {
			return s, nil
		}

		if !isPassing(err) || !sleep(ctx, pause) {
			return s, fmt.Errorf("worker: cancel %q: %w", k.Job(), err)
		}
	}
}

// cancel tries once, and returns errBusy when it has to look again.
func (c *Client) cancel(ctx context.Context, k key.Key) (Status, error) {
	msg, found, err := c.last(ctx, k)
	if err != nil || !found {
		return Status{State: StateFree, Subject: k.Job()}, err
	}

	s, err := c.statusOf(ctx, k, msg)

	switch {
	case err != nil:
		return s, err
	case s.State == StateScheduled:
		return s, c.cancelSchedule(ctx, s)
	case s.State == StateQueued, s.State == StateRunning:
		return s, c.cancelJob(ctx, k, msg, s)
	case s.State == StateCancelled: // by a call that did not come to its end
		return s, c.removeJob(ctx, k, msg)
	default:
		return s, nil
	}
}

// cancelSchedule removes a schedule, unless it may be firing: its job could come after.
func (c *Client) cancelSchedule(ctx context.Context, s Status) error {
	if time.Until(s.Due) < nearDue {
		return errBusy
	}

	return c.remove(ctx, s.Sequence)
}

// cancelJob notes that a job is cancelled, for the worker that may have it, and removes it,
// so that no other gets it.
func (c *Client) cancelJob(ctx context.Context, k key.Key, last api.Message, s Status) error {
	sequence := last.Header.Get(HeaderSequence) // of a mark
	if s.State == StateQueued {
		sequence = strconv.FormatUint(last.Sequence, 10)
	}

	note := nats.NewMsg(k.Done())
	note.Header.Set(HeaderID, s.ID)
	note.Header.Set(HeaderSequence, sequence)
	note.Header.Set(HeaderState, string(StateCancelled))
	note.Header.Set(jetstream.ExpectedStreamHeader, c.cfg.Stream)
	note.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	note.Header.Set(jetstream.MsgTTLHeader, cancelKept.String())
	setExpected(note.Header, k, last.Sequence)

	once, stop := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer stop()

	if _, err := c.js.PublishMsg(once, note); err != nil {
		return err //nolint:wrapcheck // the caller says of what
	}

	return c.removeJob(ctx, k, api.Message{Header: note.Header})
}

// removeJob removes the job that a note speaks of.
func (c *Client) removeJob(ctx context.Context, k key.Key, note api.Message) error {
	sequence, err := strconv.ParseUint(note.Header.Get(HeaderSequence), 10, 64)
	if err != nil {
		return fmt.Errorf("record of %q: %w", k.Job(), err)
	}

	return c.remove(ctx, sequence)
}

// lookForCancelled ends the contexts of running jobs that have been cancelled, each time it
// is asked to. It costs a read for each unique job that runs longer than from one heartbeat
// to the next.
func (w *Worker) lookForCancelled(asked <-chan time.Time) {
	for now := range asked {
		w.cancelJobs(now)
	}
}

func (w *Worker) cancelJobs(now time.Time) {
	var running []*delivery

	w.table.each(func(d *delivery) {
		since := d.gathered
		if d.running {
			since = d.started
		}

		if !since.IsZero() && now.Sub(since) >= w.cfg.AckWait/beatsPerAckWait {
			running = append(running, d)
		}
	})

	for _, d := range running {
		w.showRunning(d)

		if d.cancel != nil && w.isCancelled(d) {
			w.log.Info(EventJobCancelled, d.attrs()...)
			d.cancel(ErrCancelled)
		}
	}
}

func (w *Worker) isCancelled(d *delivery) bool {
	k, err := key.Of(d.info.Subject)
	if err != nil {
		return false
	}

	ctx, stop := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer stop()

	// When it cannot be read, the next heartbeat is near.
	msg, found, err := api.Last(ctx, w.js, d.info.Stream, k.Done())

	return err == nil && found && isRecordOf(msg, d) && State(msg.Header.Get(HeaderState)) == StateCancelled
}
