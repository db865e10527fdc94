package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
)

// firstPause is the first wait between two tries to insert.
const firstPause = 2 * time.Millisecond

var (
	errBusy  = errors.New("worker: another write of the key is under way")
	errFreed = errors.New("worker: the key has become free")
)

// Receipt says what came of an insert.
type Receipt struct {
	// Duplicate says that nothing was inserted, since another job stands in the way.
	Duplicate bool

	// ID is that of the job inserted, or in the way.
	ID string

	// Replaced says that the job took the place of another, see [Client.Replace].
	Replaced bool

	// Sequence is where the job, its schedule or its record lies in the stream.
	Sequence uint64

	// State is how far the job has come. It is empty for a duplicate that is not unique:
	// of that the server knows only that its ID was there.
	State State

	// Subject is the job's.
	Subject string
}

// Insert stores one job and returns when the server has confirmed it: one round trip, as a
// rule. A unique job whose key is taken costs one more and is no error: see Receipt.
//
// An answer that is lost is asked for again, until the context or
// ClientConfig.SettleTimeout ends, without storing the job twice: a unique job is refused
// while one of its key is there, and the message ID covers the time after that, for as
// long as the stream's duplicate window. The error is an [*InsertError]; when it says
// Unknown, the job may be there or not, and the same job inserted again, with the same ID
// or key, is safe.
func (c *Client) Insert(ctx context.Context, job NewJob) (Receipt, error) {
	p, err := c.plan(job)
	if err != nil {
		return Receipt{}, &InsertError{Cause: err, ID: job.ID, Subject: job.Subject}
	}

	receipt, err := c.insert(ctx, p)
	if err != nil {
		return Receipt{}, p.failed(0, err)
	}

	return receipt, nil
}

func (c *Client) insert(ctx context.Context, p *plan) (Receipt, error) {
	if err := c.ready(ctx, p); err != nil {
		return Receipt{}, err
	}

	receipt, err := c.try(ctx, p)
	if err == nil {
		return receipt, nil
	}

	return c.settle(ctx, p, err)
}

// try publishes once.
func (c *Client) try(ctx context.Context, p *plan) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()

	ack, err := c.js.PublishMsg(ctx, p.message())
	if err != nil {
		return Receipt{}, err //nolint:wrapcheck // InsertError says what failed
	}

	return p.receipt(ack), nil
}

// receipt reads the server's confirmation.
func (p *plan) receipt(ack *jetstream.PubAck) Receipt {
	r := Receipt{ID: p.id, Sequence: ack.Sequence, State: StateQueued, Subject: p.key.Job()}
	if !p.due.IsZero() {
		r.State = StateScheduled
	}

	// A message ID that nobody else can have is known from a try whose answer was lost.
	if ack.Duplicate && p.mark == p.id && !p.unsure && !p.unique {
		r.Duplicate, r.State = true, ""
	}

	return r
}

// settle finds out what came of a try that failed, and tries again if need be.
func (c *Client) settle(ctx context.Context, p *plan, err error) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()

	for pause := firstPause; ; pause = min(2*pause, lastWait) {
		switch {
		case p.unique && api.Conflict(err):
			var receipt Receipt
			if receipt, err = c.inTheWay(ctx, p); err == nil {
				return receipt, nil
			}
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			if lack := c.look(ctx, p); isFinal(lack) {
				return Receipt{}, lack
			}
		default:
			p.unsure = p.unsure || api.Unknown(err) || errors.Is(err, nats.ErrConnectionClosed)
		}

		if !errors.Is(err, errFreed) && (!isPassing(err) || !sleep(ctx, pause)) {
			return Receipt{}, err
		}

		receipt, failed := c.try(ctx, p)
		if failed == nil {
			return receipt, nil
		}

		err = failed
	}
}

// isPassing reports whether to try again.
func isPassing(err error) bool {
	return errors.Is(err, errBusy) || api.Conflict(err) || api.Unknown(err)
}

// inTheWay reads what made the server refuse a unique job. A refusal is no proof: after a
// change of leaders the server may refuse a write that it has carried out.
func (c *Client) inTheWay(ctx context.Context, p *plan) (Receipt, error) {
	msg, found, err := c.last(ctx, p.key)
	if err != nil {
		return Receipt{}, err
	}

	if !found {
		p.place(Status{})

		return Receipt{}, errBusy // or done and gone meanwhile
	}

	s, err := c.statusOf(ctx, p.key, msg)
	if err != nil {
		return Receipt{}, err
	}

	r := Receipt{Duplicate: true, ID: s.ID, Sequence: s.Sequence, State: s.State, Subject: s.Subject}
	if insertOf(msg.Header) == p.mark {
		r.Duplicate = false

		return r, nil
	}

	if p.isFiring(s) {
		if !sleep(ctx, firstWait) {
			return Receipt{}, context.Cause(ctx)
		}

		return c.inTheWay(ctx, p)
	}

	if p.displace(msg, s) {
		return Receipt{}, errFreed
	}

	if s.State == StateCancelled { // perhaps by a call that did not come to its end
		if err := c.removeJob(ctx, p.key, msg); err != nil {
			return Receipt{}, err
		}
	}

	if s.State == StateCancelled || s.State == StateFree {
		p.place(s)

		return Receipt{}, errFreed
	}

	if s.State != StateDead || p.holdDead {
		return r, nil
	}

	p.place(Status{})

	// The record goes first. A crash after it leaves the key free, one between a new job
	// and the removal of an old record would leave two.
	if err := c.remove(ctx, s.Sequence); err != nil {
		return Receipt{}, err
	}

	return Receipt{}, errFreed
}

func (p *plan) failed(index int, err error) *InsertError {
	return &InsertError{Cause: err, ID: p.id, Index: index, Subject: p.key.Job(), Unknown: p.unsure}
}

// InsertError is returned when a job could not be inserted.
type InsertError struct {
	// Cause is why.
	Cause error

	// ID is the job's.
	ID string

	// Index is the job's place in the slice that InsertMany was given.
	Index int

	// Subject is the job's.
	Subject string

	// Unknown says that the job may have been stored all the same.
	Unknown bool
}

// Error implements error.
func (e *InsertError) Error() string {
	outcome := "not inserted"
	if e.Unknown {
		outcome = "perhaps inserted"
	}

	return fmt.Sprintf("worker: job %d (%q on %q) %s: %v", e.Index, clip(e.ID, 64), clip(e.Subject, 256), outcome, e.Cause)
}

// Unwrap returns the cause.
func (e *InsertError) Unwrap() error { return e.Cause }
