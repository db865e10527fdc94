package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

const (
	// cancelKept is the time for which the record of a cancelled job is kept, for a worker that is cut off.
	cancelKept = 24 * time.Hour

	// nearDue is the time before a schedule is due in which it is not replaced or cancelled, because it may be firing.
	nearDue = 300 * time.Millisecond

	// firedBy is the time after it is due by which a schedule has fired.
	firedBy = 500 * time.Millisecond
)

// ErrCancelled is the cause of the end of a handler's context when Client.Cancel has cancelled its job.
var ErrCancelled = errors.New("worker: job cancelled by a client")

// repeat calls try until it succeeds, or fails with an error that is not transient.
func (c *Client) repeat(ctx context.Context, try func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer stop()
	return retry(ctx, firstPause, func(err error) bool { return isPassing(err) && !isFinal(err) }, func() error { return try(ctx) })
}

// recordCancelled records that a job is cancelled, for the worker that may have it, and removes the job, so that no other worker gets it.
func (c *Client) recordCancelled(ctx context.Context, k key.Key, last jsapi.Message, s StoredJob) error {
	sequence := last.Header.Get(HeaderSequence) // of a running mark
	if s.State == StateQueued {
		sequence = strconv.FormatUint(last.Sequence, 10)
	}
	record := recordMsg(c.cfg.Stream, k, s.ID, sequence, StateCancelled, cancelKept)
	setExpected(record.Header, k, last.Sequence)
	once, stop := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer stop()
	if _, err := c.js.PublishMsg(once, record); err != nil {
		return err
	}
	return c.removeJob(ctx, k, record.Header)
}

// removeJob removes the job of a record.
func (c *Client) removeJob(ctx context.Context, k key.Key, record nats.Header) error {
	sequence, err := strconv.ParseUint(record.Get(HeaderSequence), 10, 64)
	if err != nil {
		return fmt.Errorf("record of %q: %w", k.Job(), err)
	}
	return c.remove(ctx, sequence)
}

// errFiring is returned for a delayed job without a key that becomes due: its place is not known then.
var errFiring = errors.New("it becomes due at this moment: cancel it when it is listed as queued")

// Cancel removes a job that has not ended, unique or not, and returns its former state. The job does not become a dead letter, and uses
// no attempt. A job that is queued, or waits for its next attempt, does not start any more. The context of a running handler ends within
// AckWait/3 (of its worker, 5/3 seconds by default) with the cause [ErrCancelled]; a handler that returns before does not notice, and its
// effects stand. The key of a unique job is free at once. A record of the cancellation is kept for a day, for the worker that may have the
// job, and for [Client.Job]: in the stream for a unique job, and in the bucket for others. A delayed job leaves no record; without a key it
// cannot be cancelled in the last 300 ms before it is due, and with a key Cancel waits until it has fired.
//
// A job that has ended is not an error: see StoredJob.State. After an error the job may have been cancelled, and another call of Cancel is
// safe; if that finds nothing, with an ID and a Subject, the job is gone. The error wraps [ErrNoJob] when there is no job. Five round trips.
func (c *Client) Cancel(ctx context.Context, ref JobRef) (StoredJob, error) {
	j, err := c.Job(ctx, ref)
	if err != nil {
		return j, err
	}
	k, err := key.Of(j.Subject)
	_, unique := keepOf(j.Header)
	switch {
	case j.State == StateDone, j.State == StateDead, j.State == StateCancelled && j.Header.Get(HeaderSequence) == "":
		return j, nil
	case j.State == StateCancelled: // maybe by a call that did not come to its end
		err = c.repeat(ctx, func(ctx context.Context) error { return c.removeJob(ctx, k, j.Header) })
	case err == nil && unique:
		err = c.repeat(ctx, func(ctx context.Context) error { return c.cancelUnique(ctx, k, &j) })
	case j.State == StateScheduled:
		err = jsretry.Do(ctx, c.cfg.SettleTimeout, func(ctx context.Context) error {
			if time.Until(j.Due) < nearDue { // once it has fired there is nothing to remove, and its job is at another place
				return errFiring
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
func (c *Client) cancelUnique(ctx context.Context, k key.Key, j *StoredJob) error {
	msg, found, err := c.last(ctx, k.Any())
	if err != nil {
		return err
	}
	s, err := c.statusOf(ctx, k, msg)
	switch {
	case err != nil:
		return err
	case !found, s.ID != j.ID, s.State == StateFree:
		return ErrNoJob
	case s.State == StateScheduled && time.Until(s.Due) < nearDue:
		return errBusy // if the schedule is firing, its job could come after the removal
	case s.State == StateScheduled:
		return c.remove(ctx, s.Sequence)
	case s.State == StateQueued, s.State == StateRunning:
		if j.State == StateScheduled { // it has fired since
			*j = s
		}
		return c.recordCancelled(ctx, k, msg, s)
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
	once, stop := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer stop()
	if _, err := c.js.PublishMsg(once, msg); err != nil {
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
	k, named := keyOf(ref.Subject, &Unique{Key: ref.Key})
	ok = (ref.ID == "" || ref.ID == was.ID) && (named != nil || k.Job() == was.Subject)
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
	if !d.cancelled {
		d.cancelled = true
		w.log.Info(EventJobCancelled, "job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence) // attempt may be changing
		d.cancel(ErrCancelled)
	}
}

var errNotUnique = errors.New("NewJob.Unique is nil: only a unique job can replace the job of its key")

// Replace inserts a unique job. If an earlier Replace inserted a job of its key that is scheduled or queued, it replaces that job in one
// step: payload, time and headers. Repeated calls with a Delay are a debounce. A job that is running, or that Insert inserted, or that is
// done and kept, is not replaced: the receipt is then that of a duplicate and has the job's state.
//
// The old job and the new one never both run. A worker starts a replaceable job with a write under the same condition as the replacement,
// and ends it with another write; these two writes are the additional cost of a replaceable job. Within 300 ms of the time of a schedule
// Replace waits, since the schedule may be firing. If this process is killed during a replacement that close to the time, the old job may
// run instead of the new.
//
// One round trip when there is nothing to replace, otherwise three.
func (c *Client) Replace(ctx context.Context, job NewJob) (Receipt, error) {
	p, err := c.plan(job)
	if err == nil && !p.unique {
		err = errNotUnique
	}
	if err != nil {
		return Receipt{}, &InsertError{Cause: err, ID: job.ID, Subject: job.Subject}
	}
	p.replace = true
	p.header.Set(HeaderReplaceable, "1")
	for {
		receipt, err := c.insert(ctx, p)
		if err == nil && !receipt.Duplicate && p.old.isWaiting() {
			receipt.Replaced = true
			err = c.replaced(ctx, p, receipt)
		}
		switch {
		case err == nil:
			return receipt, nil
		case !errors.Is(err, errFreed):
			return Receipt{}, p.failed(err)
		}
	}
}

// canReplace reports whether p may replace the job that was found.
func (p *plan) canReplace(msg jsapi.Message, s StoredJob) bool {
	return p.replace && msg.Header.Get(HeaderReplaceable) != "" && s.isWaiting()
}

// mayBeFiring reports whether p has to wait until the schedule that was found has fired.
func (p *plan) mayBeFiring(s StoredJob) bool {
	return p.replace && s.State == StateScheduled && time.Until(s.Due) < nearDue
}

// supersede sets the headers with which the server replaces the old message by p.
func (p *plan) supersede(old StoredJob) {
	h := p.header
	for _, name := range []string{jetstream.MsgRollup, jetstream.ScheduleNextHeader, jetstream.SchedulerHeader} {
		h.Del(name)
	}
	switch {
	case !p.due.IsZero():
	case old.State == StateScheduled: // the schedule goes with the same write
		h.Set(jetstream.SchedulerHeader, p.key.Later())
		h.Set(jetstream.ScheduleNextHeader, "purge")
	case old.State == StateQueued:
		h.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	}
	p.old = old
	setExpected(h, p.key, old.Sequence)
}

// replaced finishes a replacement that the server has accepted.
func (c *Client) replaced(ctx context.Context, p *plan, r Receipt) error {
	switch {
	case p.old.State == StateQueued && !p.due.IsZero():
		// No worker starts the old job any more. The removal saves its delivery.
		_ = c.remove(ctx, p.old.Sequence) // see above
	case p.old.State == StateScheduled && time.Until(p.old.Due) < nearDue/2:
		return c.recheck(ctx, p, r)
	}
	return nil
}

// recheck checks whether the old schedule fired during its replacement. The old job may have been under way when the server accepted the
// new one, arrive after it, and remove all schedules of the key. If it arrived before, no worker starts it.
func (c *Client) recheck(ctx context.Context, p *plan, r Receipt) error {
	p.unknown = true
	if !backoff.Sleep(ctx, time.Until(p.old.Due)+firedBy) {
		return context.Cause(ctx)
	}
	last, found, err := c.last(ctx, p.key.Job())
	if err != nil {
		return err
	}
	gone := found && last.Sequence > r.Sequence && last.Header.Get(jetstream.SchedulerHeader) != "" && insertOf(last.Header) != p.insertID
	if !gone && time.Now().Before(p.due) {
		if last, found, err = c.last(ctx, p.key.Later()); err != nil {
			return err
		}
		gone = !found || insertOf(last.Header) != p.insertID && last.Sequence < r.Sequence
	}
	if !gone {
		return nil
	}
	if err := c.remove(ctx, r.Sequence); err != nil {
		return err
	}
	// The server remembers the first message ID, and would take the next publication for a duplicate of the first.
	p.insertID = nuid.Next()
	p.header.Set(nats.MsgIdHdr, p.insertID)
	p.header.Set(HeaderInsert, p.insertID)
	p.header.Set(HeaderID, p.id)
	p.supersede(StoredJob{})
	return errFreed
}
