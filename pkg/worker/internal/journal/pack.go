package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/internal/compress"
)

// MaxResult bounds the result of a step, in bytes.
const MaxResult = 64 << 20

const (
	// compressAbove is the size below which compression saves nothing that matters.
	compressAbove = 4 << 10

	// What is larger, or would make the record larger, is put into messages of its own: the
	// record is written with every step.
	maxInline = 4 << 10
	maxRecord = 32 << 10

	// maxPart bounds those messages. maxParts is what MaxResult takes with the smallest
	// messages that a server is likely to be set to.
	maxPart  = 512 << 10
	maxParts = 64 << 10
)

// errMissing is returned when a message of a result is gone.
var errMissing = errors.New("step: a part of the result is missing")

// pack makes the entry of a result, and stores what does not go into the record.
func (j *Journal) pack(ctx context.Context, until time.Time, name string, data []byte) (entry, error) {
	if len(data) > MaxResult {
		return entry{}, fmt.Errorf("%w: step %q: %d bytes, the limit is %d", ErrTooLarge, name, len(data), MaxResult)
	}

	e := entry{Name: name, At: time.Now().UnixMilli()}
	stored := data

	if len(data) > compressAbove {
		packed, saves, err := j.limits.codec.Compress(data)
		if err != nil {
			return entry{}, fmt.Errorf("step: %w", err)
		}

		if saves {
			e.Codec, e.Length, stored = compress.Zstd, len(data), packed
		}
	}

	total := len(stored)
	for _, other := range j.steps {
		total += other.Size
	}

	if len(stored) <= maxInline && total <= maxRecord {
		e.Size, e.data = len(stored), bytes.Clone(stored)
		return e, nil
	}

	e.Object = &object{ID: nuid.Next(), Parts: (len(stored)-1)/j.limits.part + 1, Size: len(stored)}

	for part := range e.parts() {
		rest := stored[part*j.limits.part:]
		if err := j.put(ctx, until, e.Object.subject(part), rest[:min(len(rest), j.limits.part)]); err != nil {
			return entry{}, fmt.Errorf("%w: step %q: %w", ErrNotRecorded, name, err)
		}
	}
	return e, nil
}

// put stores one part. Storing it twice does no harm: no attempt knows its subject before the record is written.
func (j *Journal) put(ctx context.Context, until time.Time, subject string, data []byte) error {
	return j.persist(ctx, until, func() error { return j.store.put(ctx, subject, data) })
}

// result is the inverse of pack. What it returns is the caller's.
func (j *Journal) result(ctx context.Context, until time.Time, e entry) ([]byte, error) {
	stored := e.data

	for part := range e.parts() {
		err := j.persist(ctx, until, func() error {
			data, err := j.store.fetch(ctx, e.Object.subject(part))
			if err == nil {
				stored = append(stored, data...)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("step: result of %q of job %s: %w", e.Name, j.attempt.Job, err)
		}
	}

	if e.Object != nil && len(stored) != e.Object.Size {
		return nil, &RecordError{Cause: fmt.Errorf("%d bytes instead of %d", len(stored), e.Object.Size), Job: j.attempt.Job, Step: e.Name}
	}

	if e.Codec == "" {
		return append(make([]byte, 0, len(stored)), stored...), nil
	}

	data, err := j.limits.codec.Decompress(stored, e.Length)
	if err != nil {
		return nil, &RecordError{Cause: err, Job: j.attempt.Job, Step: e.Name}
	}
	return data, nil
}

// persist repeats try until it succeeds, its time is over, or another try cannot succeed.
func (j *Journal) persist(ctx context.Context, until time.Time, try func() error) error {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		err := try()
		if err == nil || errors.Is(err, errMissing) || isPermanent(err) || !pause(ctx, wait, until) {
			return err
		}
	}
}
