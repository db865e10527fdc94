// Package journal records the results of a job's steps, so that a later attempt at the job
// has them.
//
// All steps of a job are in one record, and every write replaces the revision that the writer knows. An attempt takes the record over by a
// write: then it has seen every acknowledged step, and the server refuses the writes of earlier attempts. So one record holds the results
// and their order, and is the fence as well. A write after a stale read fails.
package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// MaxSteps is the largest number of steps of a job. One record has the names of all.
const MaxSteps = 256

// Attempt is one attempt at one job.
type Attempt struct {
	// Check is called before each step that runs. It reports whether another attempt may have begun since this one, and returns ErrGone when
	// the job has ended, or the error of the check. Nil checks nothing.
	Check func(context.Context) (doubted bool, err error)

	// Consumer is the durable name of the consumer.
	Consumer string

	// Created is the time at which the consumer, which counts deliveries, was made, in Unix nanoseconds.
	Created int64

	// Deliveries is the number of deliveries of the job's message, this one included.
	Deliveries int

	// Job is the job's ID, for messages.
	Job string

	// Lost is called once when another attempt has taken the journal over.
	Lost func(error)

	// Resume is the key of the journal to continue, empty for the message's own journal.
	Resume string

	// Sequence is the position of the job's message in its stream.
	Sequence uint64

	// Stored is the time at which the stream stored the message.
	Stored time.Time

	// Stream is the stream.
	Stream string

	// Unsure is true when the server may have forgotten an earlier attempt.
	Unsure bool
}

// fresh reports whether this is the first attempt: there is no journal yet.
func (a Attempt) fresh() bool { return a.Deliveries <= 1 && a.Resume == "" }

// origin returns a text that is equal for attempts whose deliveries can be compared.
func (a Attempt) origin() string {
	return strconv.FormatInt(a.Created, 36) + "-" + strconv.FormatUint(a.Sequence, 10)
}

// Journal is the journal of one job, as one attempt uses it. Its methods are safe for concurrent use.
type Journal struct {
	attempt Attempt
	base    context.Context
	server  *Store // makes store, once a step needs it
	store   *journalOf
	turn    chan struct{} // holds an element while a goroutine uses the fields below

	acked    bool // a write of this attempt was acknowledged
	broken   error
	closed   bool
	head     int // bytes of written
	lines    int // the length, in written, of the head and the lines of all steps; only of the head when other steps have replaced them
	opened   bool
	revision uint64
	running  int // steps
	steps    []entry
	taken    bool     // the journal was taken over from an earlier attempt
	used     []string // names, by this attempt
	writer   string   // unique to this attempt: it settles a write whose outcome is unknown
	written  []byte   // the last record that this attempt has sent
}

// Do returns the recorded result of the step, or runs the step and records its result. An error of run is returned as it is, and nothing
// is recorded. With ErrTooLarge it returns the result as well.
func (j *Journal) Do(ctx context.Context, name string, run func(context.Context) ([]byte, error)) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	data, done, err := j.begin(ctx, name)
	if err != nil || done {
		return data, err
	}
	recorded := false
	defer func() {
		if !recorded { // also when run panics
			j.abort(name)
		}
	}()
	if data, err = run(ctx); err != nil {
		return nil, err
	}
	result, err := j.record(name, data)
	if err != nil {
		if errors.Is(err, ErrTooLarge) {
			return data, err
		}
		return nil, err
	}
	recorded = true
	return result, nil
}

// Fenced returns the error with which another attempt's take-over was noticed, or nil.
func (j *Journal) Fenced() error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if errors.Is(j.broken, ErrFenced) {
		return j.broken
	}
	return nil
}

// Close ends the attempt: no step begins after it.
func (j *Journal) Close() {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.closed = true
}

// failure returns the reason that no step may begin or be recorded, or nil.
func (j *Journal) failure() error {
	if j.broken == nil && j.closed {
		return fmt.Errorf("%w: the attempt at job %s has ended", ErrMisuse, j.attempt.Job)
	}
	return j.broken
}

// Forget is called when the server has confirmed that the job is completed. The journal of a job that was delivered once is kept for
// another minute, for a delivery that is already under way. After more deliveries it is kept as long as other journals, since an earlier
// attempt may still run. Forget does not wait for an answer.
func (j *Journal) Forget() {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if !j.acked || !j.attempt.fresh() || j.taken || errors.Is(j.broken, ErrFenced) || errors.Is(j.broken, ErrNotRecorded) {
		return
	}
	for _, e := range j.steps {
		for part := range e.parts() {
			j.store.drop(e.Object.subject(part))
		}
	}
	j.steps = slices.DeleteFunc(j.steps, func(e entry) bool { return e.Object != nil })
	data, _ := encode(j.written[:j.head], 0, j.steps)
	j.store.forget(data, j.revision)
}

// begin looks the step up. When done is true, data is its result; otherwise the caller runs the step.
func (j *Journal) begin(ctx context.Context, name string) (data []byte, done bool, err error) {
	if err := j.enter(ctx); err != nil {
		return nil, false, fmt.Errorf("step: %q was not started: %w", name, err)
	}
	defer j.leave()
	if err := j.failure(); err != nil {
		return nil, false, fmt.Errorf("step: %q was not started: %w", name, err)
	}
	if err := j.check(ctx); err != nil {
		return nil, false, fmt.Errorf("step: %q was not started: %w", name, err)
	}
	if slices.Contains(j.used, name) {
		return nil, false, fmt.Errorf("%w: step %q comes twice in one attempt: number the steps of a loop", ErrMisuse, name)
	}
	if data, done, err = j.recall(ctx, name); err != nil {
		return data, done, err
	}
	if !done {
		if len(j.steps)+j.running >= MaxSteps {
			return nil, false, fmt.Errorf("%w: step %q is one too many: a job may have %d", ErrMisuse, name, MaxSteps)
		}
		j.running++
	}
	j.used = append(j.used, name)
	return data, done, nil
}

// enter waits for the turn of its caller. It returns an error when ctx has ended.
func (j *Journal) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	select { // as a rule the turn is free; a select of two cases takes longer
	case j.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case j.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (j *Journal) leave() { <-j.turn }

// ended returns the error for a context that has ended, with the cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return errors.Join(ctx.Err(), cause)
	}
	return context.Cause(ctx)
}

func (j *Journal) abort(name string) {
	j.turn <- struct{}{}
	defer j.leave()
	j.running--
	j.used = slices.DeleteFunc(j.used, func(used string) bool { return used == name })
}

// recall returns the recorded result of a step. A result in separate messages is rewritten when half of their TTL is over, since a
// write of the record does not prolong it.
func (j *Journal) recall(ctx context.Context, name string) (data []byte, found bool, err error) {
	i := slices.IndexFunc(j.steps, func(e entry) bool { return e.Name == name })
	if i < 0 {
		return nil, false, nil
	}
	e, until := j.steps[i], j.until()
	data, err = j.result(ctx, until, e)
	if errors.Is(err, errMissing) {
		j.steps, j.lines = slices.Delete(slices.Clone(j.steps), i, i+1), j.head // the result has expired: treat the step as never recorded
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if e.Object != nil && time.Since(time.UnixMilli(e.At)) > j.server.cfg.TTL/2 {
		if err := j.renew(ctx, until, i, data); err != nil {
			return nil, false, err
		}
	}
	return data, true, nil
}

func (j *Journal) renew(ctx context.Context, until time.Time, i int, data []byte) error {
	again, err := j.pack(ctx, until, j.steps[i].Name, data)
	if err != nil {
		return err
	}
	steps := slices.Clone(j.steps)
	steps[i], j.lines = again, j.head
	return j.write(ctx, until, steps)
}

// record writes the result of a step and returns it. If an earlier attempt recorded a result that this attempt did not know
// of, record returns that. It does not end with the handler's context: a result most needs a record when there is no time to compute it
// again.
func (j *Journal) record(name string, data []byte) ([]byte, error) {
	j.turn <- struct{}{}
	defer j.leave()
	if err := j.failure(); err != nil {
		return nil, fmt.Errorf("step: %q was not recorded: %w", name, err)
	}
	ctx, until := j.base, j.until()
	added, err := j.pack(ctx, until, name, data)
	if err != nil {
		return nil, err
	}
	err = j.write(ctx, until, append(j.steps, added))
	if errors.Is(err, errOutrun) {
		err = j.takeOver(ctx, until, false)
		if err == nil {
			if earlier, found, rerr := j.recall(ctx, name); found || rerr != nil {
				if found {
					j.running--
				}
				return earlier, rerr
			}
			err = j.write(ctx, until, append(j.steps, added))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("step: %q was not recorded: %w", name, err)
	}
	j.running--
	return bytes.Clone(data), nil
}

// ContextKey is the type of the key under which a context has its journal.
type ContextKey struct{}

// From returns the journal that a context carries, or nil.
func From(ctx context.Context) *Journal {
	found, _ := ctx.Value(ContextKey{}).(*Journal)
	return found
}

// Sequence returns the position of the job's message in its stream.
func (j *Journal) Sequence() uint64 { return j.attempt.Sequence }
