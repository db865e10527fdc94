package imports

import (
	"context"
	"fmt"
)

const (
	// maxCrashes is how many workers a job may have killed until it is worked alone, and maxAlone how many it may have killed then until
	// it has failed: one of them may have died of something else.
	maxCrashes = 2
	maxAlone   = 2

	// allTurns is more than jobs are worked at a time.
	allTurns = 1 << 30
)

// inTurn takes the steps beside those of other jobs, or alone when the job may have killed its workers: the others shall not die
// with it.
func (a *attempt) inTurn(ctx context.Context) error {
	turns := int64(1)
	if a.record.Crashes >= maxCrashes {
		turns = allTurns
	}
	if err := a.turns.Acquire(ctx, turns); err != nil {
		return fmt.Errorf("importer: wait for the other jobs: %w", context.Cause(ctx))
	}
	defer a.turns.Release(turns)
	return a.steps(ctx)
}
