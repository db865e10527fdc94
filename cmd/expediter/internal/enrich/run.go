package enrich

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// maxBatchBytes keeps a request of places with many foreign fields well below contracts.MaxBody.
const maxBatchBytes = contracts.MaxBody / 2

// Summary counts the rows that a run has written.
type Summary struct {
	// Found, NotFound and Pending count the rows by status.
	Found, NotFound, Pending int

	// TimedOut is how many of the pending places were given up after Config.Timeout.
	TimedOut int
}

// batch is one request and, once done is closed, its answer.
type batch struct {
	done   chan struct{}
	places []input.Place
	rows   []output.Row
}

// Run asks e about the places and writes a row for each of them to out, in their order; it flushes out after every
// request. It ends with the last place, or at the first error of the input, the enricher, the output or ctx; rows before
// it have been written. When places stayed pending for too long, it goes on to the end and returns ErrTimeout.
func Run(ctx context.Context, e Enricher, places iter.Seq2[input.Place, error], out output.Writer, cfg Config) (Summary, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return Summary{}, err
	}
	group, ctx := errgroup.WithContext(ctx)
	// The channel holds the batches in their order. With the one that is being written and the one that is being read
	// it bounds how many exist.
	ordered := make(chan *batch, max(cfg.Concurrency-1, 0))
	slots := make(chan struct{}, cfg.Concurrency)
	var unread error
	var answered atomic.Bool
	group.Go(func() error {
		defer close(ordered)
		var err error
		unread, err = read(ctx, places, cfg.BatchSize, func(b *batch) error {
			return start(ctx, group, e, b, slots, ordered, &answered, cfg)
		})
		return err
	})
	var summary Summary
	group.Go(func() error { return write(ctx, ordered, out, cfg.Progress, &summary) })
	err := errors.Join(group.Wait(), unread)
	if err == nil && summary.TimedOut > 0 {
		err = fmt.Errorf("%w: %d places were still pending after %s", ErrTimeout, summary.TimedOut, cfg.Timeout)
	}
	return summary, err
}

// read cuts the places into batches. It returns an error of the input separately: the places before it are still looked
// up, while an error of next ends the run.
func read(ctx context.Context, places iter.Seq2[input.Place, error], size int, next func(*batch) error) (unread, err error) {
	var b *batch
	bytes := 0
	flush := func() error {
		if b == nil {
			return nil
		}
		full := b
		b, bytes = nil, 0
		return next(full)
	}
	for place, unread := range places {
		if unread == nil {
			unread = ctx.Err()
		}
		if unread != nil {
			return unread, flush()
		}
		if b != nil && (len(b.places) == size || bytes+len(place.Body) > maxBatchBytes) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if b == nil {
			b = &batch{done: make(chan struct{})}
		}
		b.places = append(b.places, place)
		bytes += len(place.Body)
	}
	return nil, flush()
}

// start waits for a free slot and sends the batch off.
func start(
	ctx context.Context, group *errgroup.Group, e Enricher, b *batch, slots chan struct{}, ordered chan<- *batch, answered *atomic.Bool,
	cfg Config,
) error {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	cfg.Progress.Asked(len(b.places))
	group.Go(func() error {
		defer func() { <-slots }()
		rows, err := ask(ctx, e, b.places, answered, cfg)
		if err != nil {
			return err
		}
		b.rows = rows
		close(b.done)
		return nil
	})
	select {
	case ordered <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write hands the rows on in the order of the batches.
func write(ctx context.Context, ordered <-chan *batch, out output.Writer, progress Progress, summary *Summary) error {
	for b := range ordered {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		for i, row := range b.rows {
			if err := out.Write(row); err != nil {
				return err
			}
			summary.add(row)
			progress.Answered(row.Status, b.places[i].Offset)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Rows is how many rows were written.
func (s Summary) Rows() int { return s.Found + s.NotFound + s.Pending }

func (s *Summary) add(row output.Row) {
	switch row.Status {
	case string(contracts.StatusFound):
		s.Found++
	case string(contracts.StatusNotFound):
		s.NotFound++
	default:
		s.Pending++
		if row.Reason == reasonTimeout {
			s.TimedOut++
		}
	}
}
