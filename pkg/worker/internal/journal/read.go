package journal

import (
	"context"
	"fmt"
	"time"
)

// Step is a step as the record of its job has it.
type Step struct {
	// At is when it was recorded, by the clock of its worker.
	At time.Time

	// Name is that of the step, and Size the bytes of its result.
	Name string
	Size int

	// Value is its result, nil for one that has messages of its own.
	Value []byte
}

// Read returns the recorded steps of an attempt's job, in their order, for display. One round trip.
func (s *Store) Read(ctx context.Context, a Attempt) ([]Step, error) {
	data, _, err := s.journal(a).load(ctx)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	rec, err := decode(data)
	if err != nil {
		return nil, &RecordError{Cause: err, Job: a.Job}
	}
	steps := make([]Step, 0, len(rec.Steps))
	for _, e := range rec.Steps {
		step := Step{At: time.UnixMilli(e.At).UTC(), Name: e.Name, Size: max(e.Size, e.Length), Value: e.data}
		switch {
		case e.Object != nil:
			step.Size, step.Value = max(e.Object.Size, e.Length), nil
		case e.Codec != "":
			if step.Value, err = s.codec.Decompress(e.data, e.Length); err != nil {
				return nil, &RecordError{Cause: fmt.Errorf("decompress: %w", err), Job: a.Job, Step: e.Name}
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}
