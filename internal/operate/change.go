package operate

import (
	"context"
	"errors"

	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// maxProblems is the number of letters that stay and are reported one by one.
const maxProblems = 20

// Change is a replay or a discard of dead letters, as far as it has come.
type Change struct {
	deadletter.Result

	Action string `json:"action"`
	DryRun bool   `json:"dryRun"`

	// Problems are the first letters that stay.
	Problems []Problem `json:"problems"`

	// Error is the reason that it did not come to its end.
	Error string `json:"error,omitempty"`

	// Missing is the number of letters that were named and are not there.
	Missing int `json:"-"`
}

// Problem is a letter that stays.
type Problem struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Skipped  bool   `json:"skipped"`
	Error    string `json:"error"`
}

// Add notes the outcome of a letter.
func (c *Change) Add(o deadletter.Outcome) {
	c.Result.Add(o)
	if errors.Is(o.Err, deadletter.ErrNotFound) {
		c.Missing++
	}
	if l := o.Entry.Letter; o.Err != nil && len(c.Problems) < maxProblems {
		text := redact.Error(o.Err).Error()
		c.Problems = append(c.Problems, Problem{o.Entry.Sequence, l.ID, l.Subject, o.Skipped(), text})
	}
}

// Run changes the letters of a filter. Set opts.Each to [Change.Add], or to a function that calls it.
func (c *Change) Run(
	ctx context.Context, store *deadletter.Store, f deadletter.Filter, opts deadletter.ReplayOptions,
) (done int, err error) {
	var result deadletter.Result
	if opts.DryRun = c.DryRun; c.Action == Discard {
		result, err = store.Discard(ctx, f, deadletter.DiscardOptions{DryRun: opts.DryRun, Each: opts.Each, Limit: opts.Limit})
	} else {
		result, err = store.Replay(ctx, f, opts)
	}
	return result.Done, err
}

// Over returns the number of letters that it has come to.
func (c Change) Over() int { return c.Done + c.Failed + c.Skipped }
