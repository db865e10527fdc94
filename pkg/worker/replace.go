package worker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
)

const (
	// nearDue is how close to its time a schedule is not replaced: it may be firing.
	nearDue = 300 * time.Millisecond

	// firedBy is when a schedule has fired, after its time.
	firedBy = 500 * time.Millisecond
)

var errNotUnique = errors.New("NewJob.Unique is nil: only a unique job has one that it can replace")

// Replace inserts a unique job, or puts it in the place of the one of its key that an
// earlier Replace inserted and that is scheduled or queued: payload, time and headers, at
// once. Repeated calls with a Delay are a debounce. A job that is running, or that Insert
// inserted, is not replaced: the receipt is then a duplicate's and says its state. So it
// is for a job that is done and kept.
//
// The old job and the new one never both run. A worker starts a replaceable job with a
// write under the same condition as the replacement, and ends it with another; that is
// what such a job costs more. A schedule within 300 ms of its time is waited for, since it
// may be firing; were this process killed just while it replaces one so close, the old job
// may run instead of the new.
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
			return Receipt{}, p.failed(0, err)
		}
	}
}

// displace makes the next try of p take the place of the job that was found. It reports
// false when that one must stay.
func (p *plan) displace(msg api.Message, s Status) bool {
	if !p.replace || msg.Header.Get(HeaderReplaceable) == "" || !s.isWaiting() {
		return false
	}

	p.place(s)

	return true
}

// isFiring reports whether p has to wait for what it found to change.
func (p *plan) isFiring(s Status) bool {
	return p.replace && s.State == StateScheduled && time.Until(s.Due) < nearDue
}

// place sets the headers with which the server puts p in the place of what there is.
func (p *plan) place(old Status) {
	h := p.header
	for _, name := range []string{jetstream.MsgRollup, jetstream.ScheduleNextHeader, jetstream.SchedulerHeader} {
		h.Del(name)
	}

	switch {
	case !p.due.IsZero():
	case old.State == StateScheduled: // it goes with the same write
		h.Set(jetstream.SchedulerHeader, p.key.Later())
		h.Set(jetstream.ScheduleNextHeader, "purge")
	case old.State == StateQueued:
		h.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	}

	p.old = old
	p.expect(old.Sequence)
}

// replaced finishes a replacement that the server has accepted.
func (c *Client) replaced(ctx context.Context, p *plan, r Receipt) error {
	switch {
	case p.old.State == StateQueued && !p.due.IsZero():
		// No worker starts the old job any more. It need not even see it.
		_ = c.remove(ctx, p.old.Sequence) //nolint:errcheck // see above
	case p.old.State == StateScheduled && time.Until(p.old.Due) < nearDue/2:
		return c.recheck(ctx, p, r)
	}

	return nil
}

// recheck looks whether the old schedule fired while it was being replaced. Its job may
// have been on the way when the server accepted the new one, arrive after it, and take all
// schedules of the key along. Had it arrived before, no worker would start it.
func (c *Client) recheck(ctx context.Context, p *plan, r Receipt) error {
	p.unsure = true

	if !sleep(ctx, time.Until(p.old.Due)+firedBy) {
		return context.Cause(ctx)
	}

	last, found, err := c.lastOn(ctx, p.key.Job())
	if err != nil {
		return err
	}

	gone := found && last.Sequence > r.Sequence && last.Header.Get(jetstream.SchedulerHeader) != "" && insertOf(last.Header) != p.mark

	if !gone && time.Now().Before(p.due) {
		if last, found, err = c.lastOn(ctx, p.key.Later()); err != nil {
			return err
		}

		gone = !found || insertOf(last.Header) != p.mark && last.Sequence < r.Sequence
	}

	if !gone {
		return nil
	}

	if err := c.remove(ctx, r.Sequence); err != nil {
		return err
	}

	// The server remembers the first message ID, and would take the next try for that.
	p.mark = nuid.Next()
	p.header.Set(nats.MsgIdHdr, p.mark)
	p.header.Set(HeaderInsert, p.mark)
	p.header.Set(HeaderID, p.id)
	p.place(Status{})

	return errFreed
}
