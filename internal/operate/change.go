package operate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// Asks reports whether an action on n jobs or dead letters asks before it acts: it cannot be undone, or runs more than one job.
func Asks(verb string, n int) bool { return n > 1 || verb != Replay && verb != RunJobs.Verb }

// Confirmed reports whether a person has typed the number of things that an action is to change.
func Confirmed(typed string, n int) bool {
	return strings.NewReplacer(",", "", " ", "").Replace(typed) == strconv.Itoa(n)
}

// DeadLetter is a dead letter in a list.
type DeadLetter struct {
	deadletter.Entry

	Problem string `json:"problem,omitempty"`
}

// NewDeadLetter returns the entry as lists show it.
func NewDeadLetter(e deadletter.Entry) DeadLetter {
	l := DeadLetter{Entry: e}
	if e.Problem != nil {
		l.Problem = redact.Error(e.Problem).Error()
	}
	return l
}

// About is the subject of the job, or of the message if that cannot be read.
func (l DeadLetter) About() string { return cmp.Or(l.DeadLetter.Subject, l.Subject) }

// Text is the error of the job, or the reason that it cannot be replayed.
func (l DeadLetter) Text() string { return cmp.Or(l.Problem, l.DeadLetter.Error) }

// maxProblems is how many of the dead letters that stay are reported one by one.
const maxProblems = 20

// Change is a replay or a discard of dead letters, as far as it has come.
type Change struct {
	deadletter.Result

	Action string `json:"action"`
	DryRun bool   `json:"dryRun"`

	Problems []Problem `json:"problems"` // of the first dead letters that stay

	// Note says which streams deliver the replayed jobs to all of their consumers, see [Reach].
	Note string `json:"note,omitempty"`

	Error   string `json:"error,omitempty"` // the reason that it did not come to its end
	Missing int    `json:"-"`               // named dead letters that are not there

	streams []string // of replayed jobs
}

// Problem is the reason that a dead letter stays.
type Problem struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Skipped  bool   `json:"skipped"`
	Error    string `json:"error"`
}

// Add notes the outcome of a dead letter.
func (c *Change) Add(o deadletter.Outcome) {
	c.Result.Add(o)
	if errors.Is(o.Err, deadletter.ErrNotFound) {
		c.Missing++
	}
	if s := o.Entry.DeadLetter.Stream; o.Err == nil && len(c.streams) < maxProblems && !slices.Contains(c.streams, s) {
		c.streams = append(c.streams, s)
	}
	if l := o.Entry.DeadLetter; o.Err != nil && len(c.Problems) < maxProblems {
		text := redact.Error(o.Err).Error()
		c.Problems = append(c.Problems, Problem{o.Entry.Sequence, l.ID, l.Subject, o.Skipped(), text})
	}
}

// Run changes the dead letters of a filter. Set opts.Each to [Change.Add], or to a function that calls it. js has the streams of the jobs.
func (c *Change) Run(
	ctx context.Context, js jetstream.JetStream, store *deadletter.Store, f deadletter.Filter, opts deadletter.ReplayOptions,
) (done int, err error) {
	if opts.DryRun = c.DryRun; c.Action == Discard {
		result, err := store.Discard(ctx, f, deadletter.DiscardOptions{DryRun: opts.DryRun, Each: opts.Each, Limit: opts.Limit})
		return result.Done, err
	}
	result, err := store.Replay(ctx, f, opts)
	note, failed := Reach(context.WithoutCancel(ctx), js, c.streams...) // also of a dry run whose time has ended
	c.Note = strings.TrimSpace(note)
	return result.Done, cmp.Or(err, failed)
}

// Over returns the number of dead letters that it has processed.
func (c Change) Over() int { return c.Done + c.Failed + c.Skipped }
