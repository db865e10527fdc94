package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	// cancelKept is the time for which the record of a cancelled job is kept, for a worker that is cut off.
	cancelKept = 24 * time.Hour

	// nearDue is the time before a schedule is due in which it is not cancelled, because it may be firing.
	nearDue = 300 * time.Millisecond
)

// ErrCancelled is the cause of the end of a handler's context when Client.Cancel has cancelled its job.
var ErrCancelled = errors.New("worker: job cancelled by a client")

// SharedError is returned by [Client.Cancel] for a job of a stream that is not a work queue. All who read the stream have its message, so
// removing it would take the job from each of them.
type SharedError struct {
	// Consumers are those that take the job, "none now" if none does. Others may read it: ordered consumers, mirrors, and later consumers.
	Consumers []string

	// Sequence is the position of the job in Stream.
	Sequence uint64
	Stream   string
}

// Error implements error.
func (e *SharedError) Error() string {
	return fmt.Sprintf("worker: job %d was not cancelled: stream %s is not a work queue, so its consumers (%s) and other readers would "+
		"all lose the job; to end it for one consumer, make its handler return worker.Discard; to delete it for all, run: nats stream rmm %s %d",
		e.Sequence, e.Stream, strings.Join(e.Consumers, ", "), e.Stream, e.Sequence)
}

// CancelRefusal returns the [*SharedError] with which [Client.Cancel] refuses the job, nil for a job that it cancels or that has ended.
func (j *StoredJob) CancelRefusal() error {
	if !j.Shared || j.HasEnded() {
		return nil
	}
	e := &SharedError{Sequence: j.Sequence, Stream: j.Stream}
	for _, as := range j.Each() {
		e.Consumers = append(e.Consumers, cmp.Or(as.Consumer, "none now"))
	}
	return e
}

// HasEnded reports whether the job will never run again, at any of its consumers.
func (j *StoredJob) HasEnded() bool {
	return j.State == StateDone || j.State == StateDead || j.State == StateCancelled
}

// repeat calls try until it succeeds, or fails with an error that is not transient.
func (c *Client) repeat(ctx context.Context, try func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer stop()
	return repeat(ctx, firstPause, func(err error) bool { return isPassing(err) && !isFinal(err) }, func() error { return try(ctx) })
}

// recordCancelled records that a job is cancelled, for the worker that may have it, and removes the job, so that no other worker gets it.
func (c *Client) recordCancelled(ctx context.Context, k jobmsg.Key, j StoredJob) error {
	record := recordMsg(c.cfg.Stream, k, j.ID, strconv.FormatUint(j.Sequence, 10), StateCancelled, cancelKept)
	setExpected(record.Header, k, j.Sequence)
	if _, err := c.send(ctx, record); err != nil {
		return err
	}
	return c.remove(ctx, j.Sequence)
}

// removeJob removes the job of a record.
func (c *Client) removeJob(ctx context.Context, k jobmsg.Key, record nats.Header) error {
	sequence, err := strconv.ParseUint(record.Get(HeaderSequence), 10, 64)
	if err != nil {
		return fmt.Errorf("record of %q: %w", k.Job(), err)
	}
	return c.remove(ctx, sequence)
}

// Cancel removes a job that has not ended, unique or not, and returns its former state. The job does not become a dead letter, and uses
// no attempt. A job that is queued, or waits for its next attempt, does not start any more. The context of a running handler ends within
// AckWait/3 (of its worker, 5/3 seconds by default) with the cause [ErrCancelled]; a handler that returns before does not notice, and its
// effects stand. The key of a unique job is free at once. A record of the cancellation is kept for a day, for the worker that may have the
// job, and for [Client.Job]: in the stream for a unique job, and in the bucket for others. A delayed job leaves no record; without a key it
// cannot be cancelled in the last 300 ms before it is due, and with a key Cancel waits until it has fired.
//
// In a stream that is not a work queue the error is a [*SharedError], and nothing was changed.
//
// A job that has ended is not an error: see StoredJob.State. After an error the job may have been cancelled, and another call of Cancel is
// safe; if that finds nothing, with an ID and a Subject, the job is gone. The error wraps [ErrNoJob] when there is no job.
// Five round trips.
func (c *Client) Cancel(ctx context.Context, ref JobRef) (StoredJob, error) {
	j, err := c.Job(ctx, ref)
	if err != nil {
		return j, err
	}
	k, err := jobmsg.KeyOf(j.Subject)
	_, unique := jobmsg.KeepOf(j.Header)
	switch refusal := j.CancelRefusal(); {
	case j.HasEnded():
		return j, nil
	case refusal != nil:
		return j, refusal
	case err == nil && unique:
		err = c.repeat(ctx, func(ctx context.Context) error { return c.cancelUnique(ctx, k, &j) })
	case j.State == StateScheduled:
		err = jsapi.Retry(ctx, c.cfg.SettleTimeout, func(ctx context.Context) error {
			if time.Until(j.Due) < nearDue { // once it has fired there is nothing to remove, and its job is at another place
				return errors.New("it becomes due at this moment: cancel it when it is listed as queued")
			}
			return c.remove(ctx, j.Sequence)
		})
	default:
		err = c.repeat(ctx, func(ctx context.Context) error { return c.cancelOther(ctx, j) })
	}
	if err != nil {
		err = fmt.Errorf("worker: cancel job %s: %w", ref, err)
	}
	return j, err
}

// cancelUnique tries once to cancel the unique job j, and returns errBusy when another try is needed. If the job has ended by now, j has
// its end.
func (c *Client) cancelUnique(ctx context.Context, k jobmsg.Key, j *StoredJob) error {
	msg, found, err := c.last(ctx, k.Any())
	if err != nil {
		return err
	}
	s := c.statusIn(msg)
	switch {
	case !found, s.ID != j.ID:
		return ErrNoJob
	case s.State == StateScheduled && time.Until(s.Due) < nearDue:
		return errBusy // if the schedule is firing, its job could come after the removal
	case s.State == StateScheduled:
		return c.remove(ctx, s.Sequence)
	case s.State == StateQueued:
		if j.State == StateScheduled { // it has fired since
			*j = s
		}
		return c.recordCancelled(ctx, k, s)
	case s.State == StateCancelled: // by a call that did not come to its end
		return c.removeJob(ctx, k, msg.Header)
	default:
		*j = s
		return nil
	}
}

// cancellation is the record of a job that was cancelled and is not unique.
type cancellation struct {
	ID      string    `json:"id"`
	Stored  time.Time `json:"stored"` // distinguishes the jobs of a stream that was deleted and made again
	Subject string    `json:"subject"`
}

func cancelSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".cancelled." + stream + "." + strconv.FormatUint(sequence, 10)
}

// cancelOther records that a job is cancelled, and removes it.
func (c *Client) cancelOther(ctx context.Context, j StoredJob) error {
	data, err := json.Marshal(cancellation{ID: j.ID, Stored: j.Since, Subject: j.Subject})
	if err != nil {
		return err
	}
	msg := nats.NewMsg(c.api.Target(cancelSubject(c.cfg.Bucket, c.cfg.Stream, j.Sequence)))
	msg.Data = data
	msg.Header.Set(jetstream.MsgTTLHeader, cancelKept.String())
	if _, err := c.send(ctx, msg); err != nil {
		return err
	}
	return c.remove(ctx, j.Sequence)
}

// byCancellation finds the record of a job that was cancelled.
func (l *list) byCancellation(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	c := l.client
	if ref.Sequence == 0 {
		return j, false, nil
	}
	m, found, err := c.api.Get(ctx, "KV_"+c.cfg.Bucket, jsapi.Query{LastBySubject: cancelSubject(c.cfg.Bucket, c.cfg.Stream, ref.Sequence)})
	if jsapi.IsNoStream(err) {
		err = nil
	}
	var was cancellation
	if err != nil || !found || json.Unmarshal(m.Data, &was) != nil {
		return j, false, err
	}
	ok = (ref.ID == "" || ref.ID == was.ID) && (ref.Subject == "" || ref.Subject == was.Subject)
	j = StoredJob{ID: was.ID, Sequence: ref.Sequence, Since: m.Time, State: StateCancelled, Stream: c.cfg.Stream, Subject: was.Subject}
	return j, ok, nil
}

// checkCancelled ends the contexts of cancelled jobs that are not unique. One round trip for each 512 jobs.
func (w *Worker) checkCancelled(ctx context.Context, held []*delivery) {
	subjects := make([]string, 0, len(held))
	at := make(map[string]*delivery)
	for _, d := range held {
		to := cancelSubject(w.cfg.Bucket, d.info.Stream, d.info.Sequence)
		subjects, at[to] = append(subjects, to), d
	}
	records, err := w.bucket.GetMany(ctx, subjects)
	if err != nil {
		return // the next heartbeat tries again
	}
	for _, r := range records {
		var was cancellation
		d := at[r.Subject]
		if d != nil && json.Unmarshal(r.Data, &was) == nil && was.Stored.Equal(d.info.EnqueuedAt) {
			w.cancelHandler(d)
		}
	}
}

// cancelHandler ends the context of a job that was cancelled.
func (w *Worker) cancelHandler(d *delivery) {
	if !d.cancelled.Swap(true) {
		w.log.Info(EventJobCancelled, "job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence) // attempt may be changing
		d.cancel(ErrCancelled)
	}
}
