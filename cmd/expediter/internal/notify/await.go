package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/services/notifier"
)

// The waits between two requests for rows that have not ended.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Tally counts the rows of events by their states.
type Tally map[notifier.State]int

// Rows is how many there are.
func (t Tally) Rows() int {
	n := 0
	for _, of := range t {
		n += of
	}
	return n
}

// Open is how many have not ended.
func (t Tally) Open() int {
	n := 0
	for state, of := range t {
		if !state.Ended() {
			n += of
		}
	}
	return n
}

// Await waits until all rows of an event have ended, and adds them to a tally. It goes through them a page at a time, and
// asks again about a page until all of it has ended. When ctx ends before, the error wraps ErrNotEnded, and the tally has
// the rows that were seen as they were then. An event that was refused has none, and is an *UnplannedError.
func (c *Client) Await(ctx context.Context, eventID string, tally Tally) error {
	wait := firstPause
	again := func() bool {
		waited := wait
		wait = min(2*wait, lastPause)
		return pause.For(ctx, waited)
	}
	for {
		e, err := c.Event(ctx, eventID)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && (e.State == stateExpanded || e.State == stateCancelled) {
			break
		}
		if err == nil && e.State == stateRefused {
			return &UnplannedError{EventID: eventID, Reason: e.Reason}
		}
		if !again() {
			return fmt.Errorf("%w: %q is not planned; see expediter dead list --job-stream EVENTS", ErrNotEnded, eventID)
		}
	}
	q := notifier.Query{EventID: eventID, Limit: pageLimit}
	for {
		page, of, err := c.tallied(ctx, q)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && of.Open() == 0 {
			tally.add(of)
			if q.Cursor, wait = page.Next, firstPause; q.Cursor == "" {
				return nil
			}
			continue
		}
		if !again() {
			tally.add(of)
			return fmt.Errorf("%w: rows of %q are under way", ErrNotEnded, eventID)
		}
	}
}

const (
	stateCancelled = "cancelled" // no more rows of the event are sent
	stateExpanded  = "expanded"  // all rows of the event are there
	stateRefused   = "refused"   // the event could not be planned
)

// tallied returns a page and its tally.
func (c *Client) tallied(ctx context.Context, q notifier.Query) (notifier.Page, Tally, error) {
	page, err := c.page(ctx, q)
	of := Tally{}
	for _, row := range page.Notifications {
		of[row.State]++
	}
	return page, of, err
}

func (t Tally) add(other Tally) {
	for state, n := range other {
		t[state] += n
	}
}
