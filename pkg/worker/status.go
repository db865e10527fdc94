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

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// State is the state of a job.
type State string

const (
	// StateCancelled means that Client.Cancel removed the job. Its record does not hold the key.
	StateCancelled State = "cancelled"

	// StateDead means that the job was given up. It has a dead letter.
	StateDead State = "dead"

	// StateDelivered means that a worker was given the job and has recorded nothing of it, see [Client.Jobs].
	StateDelivered State = "delivered"

	// StateDone means that the job is completed.
	StateDone State = "done"

	// StateFree means that there is no job.
	StateFree State = "free"

	// StateQueued means that the job waits for a worker. In the status of a key, it may also wait for its next attempt.
	StateQueued State = "queued"

	// StateRetrying means that the job waits for its next attempt, see [Client.Jobs].
	StateRetrying State = "retrying"

	// StateRunning means that a worker has the job.
	StateRunning State = "running"

	// StateScheduled means that the job is not due yet.
	StateScheduled State = "scheduled"
)

// Status describes the message that holds a key.
type Status struct {
	// Due is the time at which a scheduled job becomes due.
	Due time.Time `json:"due,omitzero"`

	// ID is the ID of the job.
	ID string `json:"id"`

	// Sequence is the position in the stream of the message: the job, its schedule or its record.
	Sequence uint64 `json:"sequence"`

	// Since is the time at which the server stored the message.
	Since time.Time `json:"since"`

	// State is the state of the job.
	State State `json:"state"`

	// Stream is the stream of the message.
	Stream string `json:"stream"`

	// Subject is the subject of the job.
	Subject string `json:"subject"`
}

// isWaiting reports whether there is a job that no worker has.
func (s Status) isWaiting() bool { return s.State == StateQueued || s.State == StateScheduled }

// Inspect returns the status of a key: of the job with the given subject and, unless uniqueKey is "", that Unique.Key. A job is shown as
// running once it has run for a third of its worker's AckWait. The status may have changed by the time that Inspect returns: do not base
// an Insert on it. One round trip, two for a job that may be running.
func (c *Client) Inspect(ctx context.Context, subject, uniqueKey string) (Status, error) {
	k, err := uniqueKeyOf("inspect", subject, uniqueKey)
	if err != nil {
		return Status{}, err
	}
	return c.inspect(ctx, k)
}

func (c *Client) inspect(ctx context.Context, k key.Key) (Status, error) {
	msg, found, err := c.last(ctx, k.Any())
	switch {
	case err != nil:
		return Status{}, err
	case !found:
		return Status{State: StateFree, Subject: k.Job()}, nil
	}
	s, err := c.statusOf(ctx, k, msg)
	if s.State == StateFree {
		return Status{State: StateFree, Subject: k.Job()}, err
	}
	if err == nil && s.State == StateQueued {
		if p, err := c.progressOf(ctx, k, msg); err == nil && p.State == StateRunning {
			s.State = StateRunning
		}
	}
	return s, err
}

// statusOf reads a status from the last message of a key. A running mark costs one more read, of its job.
func (c *Client) statusOf(ctx context.Context, k key.Key, msg jsapi.Message) (Status, error) {
	s := c.statusIn(msg)
	s.Subject = k.Job()
	if s.State != StateRunning {
		return s, nil
	}
	job, found, err := c.last(ctx, k.Job())
	if err == nil && (!found || strconv.FormatUint(job.Sequence, 10) != msg.Header.Get(HeaderSequence)) {
		s.State = StateFree // the job was deleted by hand
	}
	return s, err
}

// statusIn returns the status that a message of the stream has: a job, a schedule or a record. Due is zero for a schedule that repeats.
func (c *Client) statusIn(msg jsapi.Message) Status {
	s := Status{
		ID: jobID(msg.Header, c.cfg.Stream, msg.Sequence), Sequence: msg.Sequence, Since: msg.Time,
		State: StateQueued, Stream: c.cfg.Stream, Subject: msg.Subject,
	}
	switch key.KindOf(msg.Subject) {
	case key.Later:
		s.State, s.Subject = StateScheduled, msg.Header.Get(headerScheduleTarget)
		s.Due, _ = time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), "@at ")) // zero then
	case key.Done:
		s.State, s.Subject = State(cmp.Or(msg.Header.Get(HeaderState), string(StateDone))), key.JobOf(msg.Subject)
	case key.Job:
	}
	return s
}

// insertOf returns the ID of the insert of a message.
func insertOf(header nats.Header) string {
	return cmp.Or(header.Get(HeaderInsert), header.Get(HeaderID), header.Get(nats.MsgIdHdr))
}

// setExpected makes the server refuse a message unless the last message of the key has the given sequence, 0 for none.
func setExpected(header nats.Header, k key.Key, sequence uint64) {
	header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(sequence, 10))
	header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, k.Any())
}

// JobRef names a job.
type JobRef struct {
	// ID must be the ID of the job. Defaults to any ID.
	ID string

	// Key is the Unique.Key. Defaults to none: the Subject of a Receipt or StoredJob contains the key.
	Key string

	// Sequence is the Sequence of a Receipt or StoredJob. Defaults to 0: the present job of the subject, the latest if it has several.
	Sequence uint64

	// Subject is the subject of the job. With a Sequence it also finds a job that has become due since, or that has ended and left a record.
	Subject string
}

// String returns the fields of the reference that are set.
func (r JobRef) String() string {
	var said []string
	for _, part := range []struct{ name, value string }{{"id", r.ID}, {"subject", r.Subject}, {"key", r.Key}} {
		if part.value != "" {
			said = append(said, fmt.Sprintf("%s %.80q", part.name, part.value))
		}
	}
	if r.Sequence != 0 {
		said = append(said, fmt.Sprint("sequence ", r.Sequence))
	}
	return strings.Join(said, ", ")
}

const (
	maxProgress  = 64 << 10 // bytes, encoded
	progressKept = 24 * time.Hour
)

// ErrNoProgress is returned when the progress of a job is not known.
var ErrNoProgress = errors.New("worker: no progress is known")

// Progress is the progress of a job. Its JSON is the value of progress.<stream>.<sequence> in the worker's bucket, and the message on
// ProgressSubject at each write. Fields may be added.
type Progress struct {
	// At is the time at which the worker wrote this, by the worker's clock.
	At time.Time `json:"at"`

	// Attempt is the number of the attempt.
	Attempt int `json:"attempt"`

	// ID is the ID of the job.
	ID string `json:"id"`

	// State is StateRunning, or StateQueued while the job waits for its next attempt.
	State State `json:"state"`

	// Subject is the subject of the job.
	Subject string `json:"subject"`

	// Value is the value that the handler last passed to Job.Progress, null before the first.
	Value json.RawMessage `json:"value"`

	// Worker is the Config.ID of the worker.
	Worker string `json:"worker"`
}

// ProgressSubject returns the subject on which the progress of a job is published at each write. To follow it, subscribe to it with
// nats.go, or watch the key in the bucket.
func ProgressSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".progress." + stream + "." + strconv.FormatUint(sequence, 10)
}

// Progress records the progress of the job: any value that JSON can hold, of at most 64 KiB. It replaces the former value and is kept for
// a day. One confirmed write: call it as often as a user may want to look, not in every turn of a loop. A job whose handler does not call
// it is recorded as running once it has run for AckWait/3. Outside a worker it does nothing.
func (j *Job[T]) Progress(ctx context.Context, value any) error {
	r, ok := ctx.Value(attemptKey{}).(*attemptContext)
	if !ok {
		return nil
	}
	data, err := json.Marshal(value)
	if err == nil && len(data) > maxProgress {
		err = fmt.Errorf("%d bytes: use at most %d", len(data), maxProgress)
	}
	if err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	return r.worker.writeProgress(ctx, r.delivery, StateRunning, data)
}

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

// showRunning records that a job runs whose handler has recorded no progress. A worker without the permission to write that record stops
// trying.
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

// show records a state, and reports whether it was recorded.
func (w *Worker) show(d *delivery, state State) bool {
	err := w.writeProgress(w.settling, d, state, nil)
	if err != nil {
		w.log.Warn(EventProgressFailed, append(d.attrs(), "error", err)...)
	}
	return err == nil
}

// Progress returns the progress of the job of a key, see Job.Progress. The error wraps [ErrNoProgress] when the key has no job, or its job
// has not run for a while. Two round trips.
func (c *Client) Progress(ctx context.Context, subject, uniqueKey string) (Progress, error) {
	k, err := uniqueKeyOf("progress", subject, uniqueKey)
	if err != nil {
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
	case !found || p.ID != jobID(job.Header, c.cfg.Stream, job.Sequence): // or a record of a stream that was made again
		return Progress{}, fmt.Errorf("%w: of %q", ErrNoProgress, k.Job())
	}
	return p, nil
}
