package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

const (
	// MaxResult is the size of the largest encoded result of a step, in bytes.
	MaxResult = journal.MaxResult

	// MaxSteps is the largest number of steps of a job.
	MaxSteps = journal.MaxSteps
)

// Run returns the result that the step of this name returned in an earlier attempt at the job. If there is none, it runs fn
// and records its result. When Run has returned a result, no later attempt runs fn, even if this process crashes.
//
// The result is recorded as JSON, a []byte or a json.RawMessage unchanged. Run returns the recorded result, even in the first attempt: a
// field that JSON leaves out is empty in every attempt. When the type of a result changes, give the step a new name.
//
// fn is called with ctx. Run returns an error of fn as it is, and records nothing; a panic passes through. fn may then run again, even in
// the same attempt. A result that fn returns although ctx has ended is recorded.
//
// A name has 1 to 100 bytes and may be used once in an attempt. Otherwise Run returns [ErrMisuse], so that a second step
// does not silently get the result of the first. In a loop, make the item part of the name. Steps may run at the same time,
// in goroutines that the handler waits for.
//
// Errors: [ErrNoJournal] outside a worker; [ErrFenced] when another attempt has taken over; [ErrNotRecorded] when fn has run
// and its result may not be recorded, so that fn may run again; [ErrTooLarge], with the result, when it is larger than
// [MaxResult]; a [*RecordError] when the recorded result is not a T.
//
// One round trip when fn runs, and one or more in addition for a large result. None when fn does not run. In a later attempt the first
// step costs two in addition.
func Run[T, A any](ctx context.Context, job *worker.Job[A], name string, fn func(context.Context) (T, error)) (T, error) {
	var result T
	j, err := journalOf(ctx, job)
	if err != nil {
		return result, err
	}
	data, failed := j.Do(ctx, name, func(ctx context.Context) ([]byte, error) {
		result, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		data, err := jobmsg.Encode(result)
		if err != nil {
			return nil, fmt.Errorf("step: %q: its result has no JSON: %w", name, err)
		}
		return data, nil
	})
	if data == nil {
		return result, failed
	}
	if err := jobmsg.Decode(nil, data, &result); err != nil {
		return result, &RecordError{Cause: err, Job: job.ID, Step: name}
	}
	return result, failed
}

// Do is Run for a step without a result.
func Do[A any](ctx context.Context, job *worker.Job[A], name string, fn func(context.Context) error) error {
	_, err := Run(ctx, job, name, func(ctx context.Context) ([]byte, error) { return nil, fn(ctx) })
	return err
}

// journalOf returns the journal of the job that ctx carries.
func journalOf[A any](ctx context.Context, job *worker.Job[A]) (*journal.Journal, error) {
	if job == nil {
		return nil, fmt.Errorf("%w: the job is nil", ErrMisuse)
	}
	j := journal.From(ctx)
	switch {
	case j == nil:
		return nil, ErrNoJournal
	case j.Sequence() != job.Sequence:
		return nil, fmt.Errorf("%w: the context is that of another job than %s", ErrMisuse, job.ID)
	}
	return j, nil
}

// readTimeout bounds List, in addition to its context.
const readTimeout = 2 * time.Second

// Recorded is a step whose result is recorded. Its Value is nil when it has more than 4 KB, and is not empty.
type Recorded = journal.Step

// List returns the recorded steps of a job of a stream, in the order in which they ended, for display: the record may have changed
// since. bucket is the worker.Config.StepBucket of its worker. A job without a consumer, steps or a record has none. One round trip.
func List(ctx context.Context, js jetstream.JetStream, bucket, stream string, job worker.StoredJob) ([]Recorded, error) {
	a := journal.Attempt{
		Consumer: job.Consumer, Job: job.ID, Resume: job.Header.Get(worker.HeaderResume), Sequence: job.Sequence, Stored: job.Since,
		Stream: stream,
	}
	if l := job.DeadLetter; l != nil {
		a.Consumer, a.Resume = l.Consumer, l.Resume()
	}
	if a.Consumer == "" {
		return nil, nil
	}
	if !journal.ValidKey(a.Resume) {
		a.Resume = ""
	}
	steps, err := journal.New(journal.Config{API: jsapi.New(js, readTimeout), Bucket: bucket, Conn: js.Conn()}).Read(ctx, a)
	if jsapi.IsNoStream(err) {
		return nil, nil // no job of the stream has had steps
	}
	return steps, err
}

var (
	// ErrFenced is returned when another attempt at the job has taken over. The error is always a [FencedError], which is also the cause of
	// the end of the handler's context. The worker then leaves the job to the other attempt, whatever the handler returns.
	ErrFenced = journal.ErrFenced

	// ErrMisuse is returned when steps are used in a way that cannot work: with an invalid name, a name that was used in this attempt, too
	// many steps, the context of another job, or after the handler has returned.
	ErrMisuse = journal.ErrMisuse

	// ErrNoJournal is returned when the context does not come from a worker.
	ErrNoJournal = errors.New("step: no journal in the context: hand down the handler's; a test calls the handler by workertest.Run")

	// ErrNotRecorded is returned when the server did not confirm a result within the worker's SettleTimeout, or refused it.
	// The step runs again in the next attempt, unless the result was recorded after all.
	ErrNotRecorded = journal.ErrNotRecorded

	// ErrTooLarge is returned, beside the result, when the result has more than [MaxResult] bytes. Nothing was recorded:
	// store the result elsewhere, and return its address from the step.
	ErrTooLarge = journal.ErrTooLarge
)

// FencedError is returned when another attempt has taken over the job. It names the delivery of that attempt.
type FencedError = journal.FencedError

// RecordError is returned when a recorded result cannot be read.
type RecordError = journal.RecordError
