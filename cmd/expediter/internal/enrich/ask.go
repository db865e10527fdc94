package enrich

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	// askAgain is the least time between two requests for the same places to an enricher that does not wait.
	askAgain = 200 * time.Millisecond

	// maxAgain bounds the time between two requests to an enricher that is unavailable.
	maxAgain = 5 * time.Second

	// reasonTimeout is the reason of a place that was still pending after Config.Timeout.
	reasonTimeout = "timeout"
)

// ask returns the row of each place. With Config.Wait it asks again for pending places. It also asks again when an enricher that has
// answered in this run is unavailable, for up to Config.Timeout.
func ask(ctx context.Context, e Enricher, places []input.Place, answered *atomic.Bool, cfg Config) ([]output.Row, error) {
	limit, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, ErrTimeout)
	defer cancel()
	rows := make([]output.Row, len(places))
	open := make([]int, len(places))
	for i := range places {
		open[i] = i
		rows[i] = output.Row{
			PlaceID: places[i].Restaurant.PlaceID, Name: places[i].Restaurant.Name, Status: string(contracts.StatusPending),
		}
	}
	for again := askAgain; ; {
		sent := time.Now()
		pending, err := round(limit, e, places, open, rows, cfg)
		if errors.Is(err, ErrUnavailable) && answered.Load() && pause.For(limit, again) {
			again = min(2*again, maxAgain)
			continue
		}
		if err == nil {
			answered.Store(true)
			again = askAgain
		}
		if err == nil && cfg.Wait && len(pending) > 0 {
			pause.For(limit, askAgain-time.Since(sent))
			err = context.Cause(limit)
		}
		switch {
		case err != nil && ctx.Err() == nil && limit.Err() != nil && !errors.Is(err, ErrUnavailable):
			return timedOut(rows, pending), nil // the time is up; an answer to some of the places counts as an answer
		case err != nil:
			return nil, err
		case !cfg.Wait || len(pending) == 0:
			return rows, nil
		}
		open = pending
	}
}

// round asks once about the open places, fills their rows, and returns those that may still get an answer. When it
// fails, it returns all open places.
func round(ctx context.Context, e Enricher, places []input.Place, open []int, rows []output.Row, cfg Config) ([]int, error) {
	req := contracts.EnrichRequest{Providers: cfg.Providers, Results: make([]contracts.Restaurant, len(open))}
	for i, at := range open {
		req.Results[i] = places[at].Restaurant
	}
	if deadline, ok := ctx.Deadline(); ok && cfg.Wait {
		req.WaitMS = int(min(max(time.Until(deadline), 0), contracts.MaxWait) / time.Millisecond)
	}
	answer, err := e.Enrich(ctx, req)
	if err != nil {
		return open, fmt.Errorf("enrich: places from %s on: %w", places[open[0]].Position, err)
	}
	answer.Provider = cmp.Or(answer.Provider, contracts.ProviderWolt)
	results := answer.Response.Results
	if len(results) != len(open) {
		return open, fmt.Errorf("%w: asked about %d places from %s on, got %d", ErrMismatch, len(open), places[open[0]].Position, len(results))
	}
	var pending []int
	for i, at := range open {
		if want, got := places[at].Restaurant.PlaceID, results[i].PlaceID; want != got {
			return open, fmt.Errorf("%w: asked about place %q of %s, got %q", ErrMismatch, want, places[at].Position, got)
		}
		if err := fill(&rows[at], results[i], answer, cfg.Full); err != nil {
			return open, fmt.Errorf("enrich: place %q of %s: %w", results[i].PlaceID, places[at].Position, err)
		}
		if rows[at].Status == string(contracts.StatusPending) && (rows[at].Reason == "" || rows[at].Reason == contracts.SkippedStoreDown) {
			pending = append(pending, at)
		}
	}
	return pending, nil
}

// fill sets the row of a place from its state.
func fill(row *output.Row, restaurant contracts.Restaurant, answer Answer, full bool) error {
	state, ok := restaurant.State(answer.Provider)
	if !ok {
		state = contracts.PendingState()
	}
	if state.Reason == "" && state.Status == contracts.StatusPending {
		state.Reason = answer.Response.Skipped
	}
	row.Status, row.Reason, row.URL = string(state.Status), state.Reason, ""
	if state.URL != nil {
		row.URL = *state.URL
	}
	if detail, known := answer.Details[restaurant.PlaceID]; known {
		score := detail.Score
		row.Score = &score
		if detail.Venue != nil {
			row.Venue, row.VenueID = detail.Venue.Name, detail.Venue.ID
		}
	}
	if !full {
		return nil
	}
	body, err := restaurant.AppendJSON(nil)
	row.Place = body
	if err != nil {
		return errors.Join(ErrMismatch, err)
	}
	return nil
}

func timedOut(rows []output.Row, pending []int) []output.Row {
	for _, at := range pending {
		rows[at].Reason = reasonTimeout
	}
	return rows
}
