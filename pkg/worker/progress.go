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
