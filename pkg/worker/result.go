package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrDead is returned when a job that was waited for has been given up.
var ErrDead = errors.New("worker: the job was given up")

// SetResult sets the result of the job: any value that JSON can hold, of at most 64 KiB. When this attempt completes the job, the
// record of a unique one has it, for as long as Unique.Keep: in the same write. Of other jobs, and outside a worker, no result is
// kept. A second call replaces the value of the first.
func (j *Job[T]) SetResult(ctx context.Context, value any) error {
	r, ok := ctx.Value(reporterKey{}).(*reporter)
	if !ok {
		return nil
	}
	data, err := encodeBounded(value)
	if err != nil {
		return fmt.Errorf("worker: result: %w", err)
	}
	r.delivery.result.Store(&data)
	return nil
}

// encodeBounded encodes what is stored beside a job.
func encodeBounded(value any) (data []byte, err error) {
	if data, err = json.Marshal(value); err == nil && len(data) > maxProgress {
		err = fmt.Errorf("%d bytes: use at most %d", len(data), maxProgress)
	}
	return data, err
}

// Result returns what the handler of a job that is done and kept passed to Job.SetResult, nil for nothing. The error of a job that
// has not ended wraps [ErrLive], that of one that was given up [ErrDead], that of a cancelled one [ErrCancelled], and when nothing
// is known of it [ErrNoJob]: then it may be done, and was not kept. It costs what [Client.Job] costs.
func (c *Client) Result(ctx context.Context, ref JobRef) (json.RawMessage, error) {
	j, err := c.Job(ctx, ref)
	if err != nil {
		return nil, err
	}
	return j.result()
}

// result returns the result of a job that is done.
func (j StoredJob) result() (json.RawMessage, error) {
	switch {
	case j.State == StateDone:
		return j.Result, nil
	case j.State == StateCancelled:
		return nil, fmt.Errorf("%w: %q", ErrCancelled, j.Subject)
	case j.State == StateDead && j.Letter != nil:
		return nil, fmt.Errorf("%w: %q: %s: %s", ErrDead, j.Subject, j.Letter.Reason, j.Letter.Error)
	case j.State == StateDead:
		return nil, fmt.Errorf("%w: %q", ErrDead, j.Subject)
	default:
		return nil, fmt.Errorf("%w: %q is %s", ErrLive, j.Subject, j.State)
	}
}

// Await waits until a job has ended, and returns its result as [Client.Result] does. It looks when the worker records the end of a
// unique job, if this client may subscribe to the subject of the record, and every two seconds.
func (c *Client) Await(ctx context.Context, ref JobRef) (json.RawMessage, error) {
	j, err := c.Job(ctx, ref)
	if err != nil {
		return nil, err
	}
	ref = JobRef{ID: j.ID, Sequence: j.Sequence, Subject: j.Subject} // of this job, and not of the next one of its subject
	ended := make(chan struct{}, 1)
	if k, err := keyOf(j.Subject, nil); err == nil {
		sub, err := c.nc.Subscribe(k.Done(), func(*nats.Msg) {
			select {
			case ended <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return nil, fmt.Errorf("worker: await %q: %w", j.Subject, err)
		}
		defer func() { _ = sub.Unsubscribe() }() //nolint:errcheck // the connection is closed then
	}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		j, err := c.Job(ctx, ref)
		if err == nil {
			if result, err := j.result(); !errors.Is(err, ErrLive) {
				return result, err
			}
		} else if errors.Is(err, ErrNoJob) || isFinal(err) || !isPassing(err) {
			return nil, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ended:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("worker: await %q: %w", j.Subject, context.Cause(ctx))
		}
		timer.Stop()
	}
}
