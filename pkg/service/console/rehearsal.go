package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	rehearsed     = 5000 // letters of a dry run
	rehearsalTime = 3 * time.Second
)

// rehearsal is a dry run of a replay.
type rehearsal struct {
	deadletter.Result

	Of      int
	Partial bool // the dry run did not come to its end
	Reasons map[string]int
}

// Kept returns the reasons for which letters would stay.
func (p rehearsal) Kept() string {
	all := make([]string, 0, len(p.Reasons))
	for _, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		all = append(all, number(p.Reasons[reason])+" "+reason)
	}
	return strings.Join(all, "; ")
}

// showRehearsal shows the outcome that a replay would have. Four round trips for each letter, for three seconds at most.
func (c *Console) showRehearsal(r *request) error {
	d, err := c.deadQuery(r, r.URL.Query())
	if err != nil {
		return err
	}
	p := rehearsal{Reasons: map[string]int{}}
	looked, err := c.look(r.Context())
	if err != nil {
		return err
	}
	defer looked()
	ctx, cancel := context.WithTimeout(r.Context(), rehearsalTime)
	defer cancel()
	p.Result, err = d.store.Replay(ctx, d.frozen(), deadletter.ReplayOptions{
		DryRun: true, Limit: rehearsed, Each: func(o deadletter.Outcome) {
			if o.Err != nil {
				p.Reasons[reasonOf(o.Err)]++
			}
		},
	})
	if err != nil && ctx.Err() == nil {
		return err
	}
	p.Of = p.Done + p.Skipped + p.Failed
	p.Partial = err != nil || p.Of == rehearsed
	r.Command = deadCommand(actionReplay, d.Account, d.Filter)
	return r.render("deadrehearsal", "Dry run", p)
}

// reasonOf returns, in a few words, the reason for which a letter stays.
func reasonOf(err error) string {
	var taken *deadletter.TakenError
	switch {
	case errors.Is(err, deadletter.ErrGone):
		return "gone"
	case errors.Is(err, deadletter.ErrUnreadable):
		return "that are no letters"
	case errors.Is(err, deadletter.ErrUnsettled):
		return "that an interrupted replay may have published"
	case errors.Is(err, deadletter.ErrNotFound):
		return "not there any more"
	case errors.Is(err, deadletter.ErrSkip):
		return "stranded in a stream that is no work queue"
	case errors.As(err, &taken):
		return "whose place another job has"
	}
	return "that the server refuses"
}

// look waits until the request may read letters: only a few requests do so at a time, because each costs a second of CPU time where there
// are many letters.
func (c *Console) look(ctx context.Context) (done func(), err error) {
	select {
	case c.looks <- struct{}{}:
		return func() { <-c.looks }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other readers of letters: %w", ctx.Err())
	}
}

// survey reads letters.
func (c *Console) survey(
	ctx context.Context, d deadQuery, f deadletter.Filter, by deadletter.Grouping, newest uint64,
) (deadletter.Overview, error) {
	looked, err := c.look(ctx)
	if err != nil {
		return deadletter.Overview{}, err
	}
	defer looked()
	return d.store.Survey(ctx, f, deadletter.SurveyOptions{By: by, Newest: newest, Parts: deadParts})
}
