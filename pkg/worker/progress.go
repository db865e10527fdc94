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

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

const (
	maxProgress  = 64 << 10 // bytes, encoded
	progressKept = 24 * time.Hour
)

// ErrNoProgress is returned when the progress of a job is not known.
var ErrNoProgress = errors.New("worker: no progress is known")

// Progress is how far a job is. Its JSON is the value of progress.<stream>.<sequence> in the worker's bucket, and the
// message on ProgressSubject each time it is written. Fields may be added.
type Progress struct {
	// At is when the worker wrote this, by its clock.
	At time.Time `json:"at"`

	// Attempt is the number of the attempt.
	Attempt int `json:"attempt"`

	// ID is the job's.
	ID string `json:"id"`

	// State is StateRunning, or StateQueued while the job waits for its next attempt.
	State State `json:"state"`

	// Subject is the job's.
	Subject string `json:"subject"`

	// Value is the value that the handler last passed to Job.Progress, null before the first.
	Value json.RawMessage `json:"value"`

	// Worker is the Config.ID of the worker.
	Worker string `json:"worker"`
}

// ProgressSubject is where the progress of a job appears as it is written. To follow it, subscribe there with nats.go, or watch
// the key in the bucket.
func ProgressSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".progress." + stream + "." + strconv.FormatUint(sequence, 10)
}

// Progress records how far the job is: any value that JSON can hold, of at most 64 KiB. It replaces the former value and is kept
// for a day. One confirmed write; a handler calls it as often as a user may want to look, not in every turn of a loop. A job
// whose handler does not call it is recorded as running once it has run for AckWait/3. Outside a worker it does nothing.
func (j *Job[T]) Progress(ctx context.Context, value any) error {
	r, ok := ctx.Value(reporterKey{}).(*reporter)
	if !ok {
		return nil
	}
	data, err := encodeBounded(value)
	if err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	return r.worker.writeProgress(ctx, r.delivery, StateRunning, data)
}

// reporter is the value of a handler's context by which Job.Progress finds the delivery of its job.
type reporter struct {
	delivery *delivery
	worker   *Worker
}

type reporterKey struct{}

func (w *Worker) writeProgress(ctx context.Context, d *delivery, state State, value json.RawMessage) error {
	data, err := json.Marshal(Progress{
		At: time.Now().UTC(), Attempt: d.info.Attempt, ID: d.info.ID, State: state, Subject: d.info.Subject,
		Value: value, Worker: w.cfg.ID,
	})
	if err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	msg := nats.NewMsg(w.api.Target(ProgressSubject(w.cfg.Bucket, d.info.Stream, d.info.Sequence)))
	msg.Data = data
	msg.Header.Set(jetstream.MsgTTLHeader, progressKept.String())
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	if _, err := w.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	d.shown.Store(true)
	return nil
}

// showRunning records that a job runs whose handler has recorded no progress. A worker that may not write that stops trying.
func (w *Worker) showRunning(d *delivery) {
	if !d.shown.Load() && !w.silent.Load() && !w.show(d, StateRunning) {
		w.silent.Store(true)
	}
}

// showWaiting records that a job that was shown as running does not run any more.
func (w *Worker) showWaiting(d *delivery) {
	if d.shown.Load() {
		w.show(d, StateQueued)
	}
}

// show reports whether the state was recorded.
func (w *Worker) show(d *delivery, state State) bool {
	err := w.writeProgress(w.settling, d, state, nil)
	if err != nil {
		w.log.Warn(EventProgressFailed, append(d.attrs(), "error", err)...)
	}
	return err == nil
}

// Progress returns how far the job of a key is, see Job.Progress. The error wraps [ErrNoProgress] when there is no job, or none
// that has run for a while. Two round trips.
func (c *Client) Progress(ctx context.Context, subject, uniqueKey string) (Progress, error) {
	k, err := keyOf(subject, &Unique{Key: uniqueKey})
	if err != nil {
		return Progress{}, fmt.Errorf("worker: progress: %w", err)
	}
	if c, err = c.at(ctx, k); err != nil {
		return Progress{}, err
	}
	job, found, err := c.last(ctx, k.Job())
	switch {
	case err != nil:
		return Progress{}, err
	case !found:
		return Progress{}, fmt.Errorf("%w: no job on %q", ErrNoProgress, k.Job())
	}
	return c.progressOf(ctx, k, job)
}

func (c *Client) progressOf(ctx context.Context, k key.Key, job jsapi.Message) (Progress, error) {
	subject := ProgressSubject(c.cfg.Bucket, c.cfg.Stream, job.Sequence)
	msg, found, err := c.api.Get(ctx, "KV_"+c.cfg.Bucket, jsapi.Query{LastBySubject: subject})
	if err != nil {
		return Progress{}, fmt.Errorf("worker: progress: %w", err)
	}
	var p Progress
	if found {
		err = json.Unmarshal(msg.Data, &p)
	}
	switch {
	case err != nil:
		return Progress{}, fmt.Errorf("worker: progress of %q: %w", k.Job(), err)
	case !found || p.ID != jobID(job.Header, c.cfg.Stream, job.Sequence): // or of a stream that was made again
		return Progress{}, fmt.Errorf("%w: of %q", ErrNoProgress, k.Job())
	}
	return p, nil
}

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
	ref = JobRef{ID: j.ID, Sequence: j.Sequence, Stream: j.Stream, Subject: j.Subject} // of this job, and not of the next one of its subject
	ended := make(chan struct{}, 1)
	if k, err := keyOf(j.Subject, nil); err == nil {
		done := k.Done()
		if j.Stream != c.cfg.Stream {
			done = j.Stream + "." + done
		}
		sub, err := c.nc.Subscribe(done, func(*nats.Msg) {
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
		case <-ended: // the push may come before the record is stored
			wait = firstWait / 2
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("worker: await %q: %w", j.Subject, context.Cause(ctx))
		}
		timer.Stop()
	}
}
