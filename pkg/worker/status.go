package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
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

	// StateQueued means that the job waits for a worker. In the status of a key, it may also wait for its next attempt.
	StateQueued State = "queued"

	// StateRetrying means that the job waits for its next attempt, see [Client.Jobs].
	StateRetrying State = "retrying"

	// StateRunning means that a worker has the job.
	StateRunning State = "running"

	// StateScheduled means that the job is not due yet.
	StateScheduled State = "scheduled"
)

// statusIn returns the status that a message of the stream has: a job, a schedule or a record. Due is zero for a schedule that repeats.
func (c *Client) statusIn(msg jsapi.Message) StoredJob {
	s := StoredJob{
		ID: jobmsg.ID(msg.Header, c.cfg.Stream, msg.Sequence), Sequence: msg.Sequence, Since: msg.Time,
		State: StateQueued, Stream: c.cfg.Stream, Subject: msg.Subject,
	}
	switch jobmsg.KindOf(msg.Subject) {
	case jobmsg.Later:
		s.State, s.Subject = StateScheduled, msg.Header.Get(headerScheduleTarget)
		s.Due, _ = time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), "@at ")) // zero then
	case jobmsg.Done:
		s.State, s.Subject = State(cmp.Or(msg.Header.Get(HeaderState), string(StateDone))), jobmsg.JobOf(msg.Subject)
	case jobmsg.Job:
	}
	return s
}

// insertOf returns the ID of the insert of a message.
func insertOf(header nats.Header) string {
	return cmp.Or(header.Get(HeaderInsert), header.Get(HeaderID), header.Get(nats.MsgIdHdr))
}

// setExpected makes the server refuse a message unless the last message of the key has the given sequence, 0 for none.
func setExpected(header nats.Header, k jobmsg.Key, sequence uint64) {
	header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(sequence, 10))
	header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, k.Any())
}

// JobRef is the address of a job. Set Sequence, Subject or both, such as those of a Receipt or StoredJob; [JobByKey] returns the address of
// a unique job.
type JobRef struct {
	// ID must be the ID of the job. Defaults to any ID.
	ID string

	// Sequence is the Sequence of a Receipt or StoredJob. Defaults to 0: the present job of the subject, the latest if it has several.
	Sequence uint64

	// Subject is the subject of the job, including its key. With a Sequence it also finds a job that has become due since, or that has ended
	// and left a record.
	Subject string
}

// JobByKey returns the address of the job that was inserted with a NewJob.Subject and a Unique.Key. A key that Unique refuses is the
// address of no job.
func JobByKey(subject, key string) JobRef {
	return JobRef{Subject: keyed(subject, key)}
}

// String returns the fields of the reference that are set.
func (r JobRef) String() string {
	var said []string
	for _, part := range []struct{ name, value string }{{"id", r.ID}, {"subject", r.Subject}} {
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
// nats.go, or watch the key in the bucket. In a stream that is not a work queue each consumer has its own progress, under this subject with
// its name as one more token.
func ProgressSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".progress." + stream + "." + strconv.FormatUint(sequence, 10)
}

// progressOf returns the subject for the progress of a job as a consumer has it.
func progressOf(bucket, stream string, sequence uint64, consumer string, shared bool) string {
	to := ProgressSubject(bucket, stream, sequence)
	if shared {
		to += "." + consumer
	}
	return to
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
	msg := nats.NewMsg(w.api.Target(progressOf(w.cfg.Bucket, d.info.Stream, d.info.Sequence, d.info.Consumer, w.shared.Load())))
	msg.Data = data
	msg.Header.Set(jetstream.MsgTTLHeader, progressKept.String())
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	if _, err := w.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	d.recorded.Store(true)
	return nil
}

// recordState records the state of a job, and reports whether it was recorded.
func (w *Worker) recordState(d *delivery, state State) bool {
	err := w.writeProgress(w.settling, d, state, nil)
	if err != nil {
		w.log.Warn(EventProgressFailed, append(d.attrs(), "error", err)...)
	}
	return err == nil
}
