// Package enrich asks an enricher about the places of an input of any length and hands the results on in the order of
// the input.
//
// It sends some requests at a time, of some places each, and holds no other places. It does not depend on the way to
// the enricher: an embedded pipeline and a remote service look the same to it.
package enrich

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

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

	// TimedOut is the number of pending places that were given up after Config.Timeout.
	TimedOut int
}

// batch is one request and, once done is closed, its answer.
type batch struct {
	done   chan struct{}
	places []input.Place
	rows   []output.Row
}

// Run asks e about the places and writes a row for each of them to out, in their order; it flushes out after every
// request. It ends with the last place, or at the first error of the input, the enricher, the output or ctx; the rows
// before the error have been written. When places stayed pending for too long, it continues to the end and returns
// ErrTimeout.
func Run(ctx context.Context, e Enricher, places iter.Seq2[input.Place, error], out output.Writer, cfg Config) (Summary, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return Summary{}, err
	}
	group, ctx := errgroup.WithContext(ctx)
	// The channel holds the batches in their order. Together with the batch that is being written and the one that is
	// being read, it bounds their number.
	ordered := make(chan *batch, max(cfg.Concurrency-1, 0))
	slots := make(chan struct{}, cfg.Concurrency)
	var unread error
	var answered atomic.Bool
	var asked atomic.Int64
	group.Go(func() error {
		defer close(ordered)
		var err error
		unread, err = read(ctx, places, cfg.BatchSize, func(b *batch) error {
			asked.Add(int64(len(b.places)))
			return start(ctx, group, e, b, slots, ordered, &answered, cfg)
		})
		return err
	})
	var summary Summary
	group.Go(func() error {
		return write(ctx, ordered, out, &summary, func(offset int64) {
			pending := int(asked.Load()) - summary.Found - summary.NotFound
			cfg.Progress(fmt.Sprintf("%d found, %d not found, %d pending", summary.Found, summary.NotFound, pending), offset)
		})
	})
	err := errors.Join(group.Wait(), unread)
	if err == nil && summary.TimedOut > 0 {
		err = fmt.Errorf("%w: %d places were still pending after %s", ErrTimeout, summary.TimedOut, cfg.Timeout)
	}
	return summary, err
}

// read cuts the places into batches. It returns an error of the input separately, because the places before it are
// still looked up, while an error of next ends the run.
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
		if b != nil && (len(b.places) == size || bytes+place.Bytes > maxBatchBytes) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if b == nil {
			b = &batch{done: make(chan struct{})}
		}
		b.places = append(b.places, place)
		bytes += place.Bytes
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

// write writes the rows in the order of the batches.
func write(ctx context.Context, ordered <-chan *batch, out output.Writer, summary *Summary, report func(offset int64)) error {
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
			report(b.places[i].Offset)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Rows returns the number of rows that were written.
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

// Config configures a run.
type Config struct {
	// BatchSize is the number of places in one request, at most contracts.MaxResults. Defaults to 20.
	BatchSize int

	// Concurrency is the number of requests that are under way at a time. Defaults to 4.
	Concurrency int

	// Full adds the enriched place with all of its fields to each row. Defaults to false.
	Full bool

	// Progress is called for each row, with the counts in words and how many bytes of the input are done with. Defaults to none.
	Progress func(text string, offset int64)

	// Providers names the providers to ask. Defaults to all that the enricher has.
	Providers []string

	// Timeout bounds the wait for the places of one request, from the moment of sending. It applies with and without
	// Wait. Defaults to two minutes.
	Timeout time.Duration

	// Wait asks again until no place is pending any more. Defaults to false: the first answer counts.
	Wait bool
}

func (c Config) withDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, 20)
	c.Concurrency = cmp.Or(c.Concurrency, 4)
	if c.Progress == nil {
		c.Progress = func(string, int64) {}
	}
	c.Timeout = cmp.Or(c.Timeout, 2*time.Minute)
	return c
}

// Validate returns every mistake in the configuration. Run calls it too.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.BatchSize < 1 || c.BatchSize > contracts.MaxResults {
		errs = append(errs, fmt.Errorf("enrich: BatchSize is %d: want 1 to %d", c.BatchSize, contracts.MaxResults))
	}
	if c.Concurrency < 1 || c.Concurrency > 1000 {
		errs = append(errs, fmt.Errorf("enrich: Concurrency is %d: want 1 to 1000", c.Concurrency))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("enrich: Timeout is %s: want more than 0", c.Timeout))
	}
	return errors.Join(errs...)
}

// Enricher answers requests: an embedded pipeline, or a client of a service.
type Enricher interface {
	// Enrich answers a request of at most contracts.MaxResults restaurants with the same restaurants in the same order.
	// With req.WaitMS it may take that long. A place that is then PENDING without a reason is asked for again.
	//
	// It is called from several goroutines at once, and asking again for a place must be cheap and safe. An error ends
	// the run. An error that wraps ErrUnavailable ends it only when no request was answered before, or after
	// Config.Timeout.
	Enrich(ctx context.Context, req contracts.EnrichRequest) (Answer, error)
}

// Answer is the answer of an Enricher.
type Answer struct {
	// Details has the whole result, with score and venue, by place id, where it is known. Defaults to none, and then
	// only status, URL and reason are shown.
	Details map[string]contracts.EnrichResult

	// Provider is the provider whose state of each restaurant is the result. Defaults to contracts.ProviderWolt.
	Provider string

	// Response is the answer of the service.
	Response contracts.EnrichResponse
}

var (
	// ErrMismatch is returned when an answer is not about the places of its request.
	ErrMismatch = errors.New("enrich: the answer does not match the request")

	// ErrTimeout is returned when places were still pending after Config.Timeout. The rows of all places were written,
	// the pending ones with the reason "timeout".
	ErrTimeout = errors.New("enrich: timeout")

	// ErrUnavailable is wrapped by an Enricher that cannot be reached or refuses to work, so that callers can
	// distinguish this from a failure of their own.
	ErrUnavailable = errors.New("enrich: unavailable")
)
