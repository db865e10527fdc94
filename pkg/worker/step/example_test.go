package step_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// Import is the payload of a job.
type Import struct {
	URL string `json:"url"`
}

// A handler's first attempt fails in its second step. The next one goes on there.
func ExampleRun() {
	attempt := 0
	handle := func(ctx context.Context, job *worker.Job[Import]) error {
		attempt++
		text, err := step.Run(ctx, job, "transcript", func(context.Context) (string, error) {
			fmt.Println("transcribing", job.Args.URL)
			return "two eggs, one lemon", nil
		})
		if err != nil {
			return err
		}
		lines, err := step.Run(ctx, job, "extract", func(context.Context) ([]string, error) {
			if attempt == 1 {
				return nil, errors.New("the model is busy")
			}
			return strings.Split(text, ", "), nil
		})
		if err != nil {
			return err
		}
		fmt.Printf("%q\n", lines)
		return nil
	}
	// A worker calls the handler like this. In a test, Memory takes its place.
	memory := step.NewMemory()
	job := &worker.Job[Import]{Args: Import{URL: "video/7"}}
	fmt.Println(handle(memory.Attempt(context.Background()), job))
	fmt.Println(handle(memory.Attempt(context.Background()), job))
	// Output:
	// transcribing video/7
	// the model is busy
	// ["two eggs" "one lemon"]
	// <nil>
}

// Steps of a loop need names of their own.
func ExampleDo() {
	ctx := step.NewMemory().Attempt(context.Background())
	job := &worker.Job[[]string]{Args: []string{"ada", "eve"}}
	for _, name := range job.Args {
		err := step.Do(ctx, job, "invite "+name, func(context.Context) error {
			fmt.Println("inviting", name)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	err := step.Do(ctx, job, "invite ada", func(context.Context) error { return nil })
	fmt.Println(errors.Is(err, step.ErrMisuse))
	// Output:
	// inviting ada
	// inviting eve
	// true
}

// An attempt that was overtaken records nothing, and its context ends.
func ExampleFencedError() {
	memory := step.NewMemory()
	job := &worker.Job[Import]{}
	nothing := func(context.Context) error { return nil }
	first := memory.Attempt(context.Background())
	if err := step.Do(first, job, "transcript", nothing); err != nil {
		fmt.Println(err)
	}
	second := memory.Attempt(context.Background()) // the job was given to another worker
	if err := step.Do(second, job, "transcript", nothing); err != nil {
		fmt.Println(err)
	}
	err := step.Do(first, job, "extract", nothing)
	if fenced, ok := errors.AsType[*step.FencedError](err); ok {
		fmt.Println("delivery", fenced.Deliveries)
	}
	fmt.Println(errors.Is(err, step.ErrFenced), errors.Is(context.Cause(first), step.ErrFenced))
	// Output:
	// delivery 2
	// true true
}

// A result whose type has changed is not taken for one of the new type.
func ExampleRecordError() {
	memory := step.NewMemory()
	job := &worker.Job[Import]{}
	_, err := step.Run(memory.Attempt(context.Background()), job, "duration", func(context.Context) (int, error) { return 90, nil })
	if err != nil {
		fmt.Println(err)
	}
	_, err = step.Run(memory.Attempt(context.Background()), job, "duration", func(context.Context) (string, error) { return "1m30s", nil })
	if unreadable, ok := errors.AsType[*step.RecordError](err); ok {
		fmt.Println("recorded as another type:", unreadable.Step)
	}
	// Output: recorded as another type: duration
}
