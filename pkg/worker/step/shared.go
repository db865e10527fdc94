package step

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Source is where the results of a step are shared by jobs, see [Shared].
type Source struct {
	// Flight computes and keeps the results. Required.
	Flight *flight.Flight

	// Key says which results are the same. Required.
	Key string

	// Options are those of Flight.Do; Options.TTL is how long others get the result.
	// Options.Job defaults to the job's ID.
	Options flight.DoOptions
}

// Shared is [Run] for a result that other jobs want as well. Of all jobs that ask for the
// key of source at the same time, in whatever process, one runs fn; those that ask later
// get the result for as long as the Flight keeps it. The job's own journal has it too, so
// a later attempt at this job gets the same although the Flight may have another by then.
//
// fn runs on a context of the Flight's, which outlives that of a job when others wait. So
// it must not begin steps of its own. Besides those of Run there are the errors of
// [flight.Flight.Do].
func Shared[T, A any](
	ctx context.Context, job *worker.Job[A], name string, source Source, fn func(context.Context) (T, error),
) (T, error) {
	return Run(ctx, job, name, func(ctx context.Context) (T, error) {
		var result T

		if source.Flight == nil {
			return result, fmt.Errorf("%w: step %q: Source.Flight is nil", ErrMisuse, name)
		}

		if source.Options.Job == "" {
			source.Options.Job = job.ID[:min(len(job.ID), maxJob)]
		}

		found, err := source.Flight.Do(ctx, source.Key, func(ctx context.Context) ([]byte, error) {
			result, err := fn(ctx)
			if err != nil {
				return nil, err
			}
			return encode(name, result)
		}, source.Options)
		if err != nil {
			return result, err
		}

		if err := decode(found.Value, &result); err != nil {
			return result, fmt.Errorf("step: %q: the value of key %q: %w", name, source.Key, err)
		}
		return result, nil
	})
}

// maxJob is how much of a job's ID a Flight keeps.
const maxJob = 128
