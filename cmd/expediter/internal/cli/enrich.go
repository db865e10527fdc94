package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	defaultEnricher = "http://127.0.0.1:8080"

	// placesAsked and requestsAtOnce bound the places that the command holds, and the load that it is for a service.
	placesAsked, requestsAtOnce = 20, 4

	// askAgain is the least time between two requests for the same places, to an enricher that does not wait.
	askAgain = 200 * time.Millisecond

	maxPlace = contracts.MaxBody / 2 / placesAsked
)

var errPending = errors.New("places are still pending")

type enrichment struct {
	serviceFlags

	city    string
	out     *terminal.Rows
	timeout time.Duration

	batches              [][]contracts.Restaurant
	bad, pending, places int
}

func newEnrich(g *globals) *cobra.Command {
	e := &enrichment{serviceFlags: serviceFlags{globals: g}}
	var format string
	cmd := action("enrich FILE", func(ctx context.Context, args []string) (err error) {
		if err := e.usage(e.check(), refuse(e.timeout <= 0, "--timeout %s: want more than 0", e.timeout)); err != nil {
			return err
		}
		e.out = e.rows(format, "No places.", "PLACE", "NAME~", "STATUS", "URL")
		return e.out.Close(e.run(ctx, args[0]))
	})
	e.outputFlag(cmd, &format, exportFormats...)
	flags := cmd.Flags()
	e.register(flags, "enricher", defaultEnricher)
	flags.StringVar(&e.city, "city", "", "city of places that name none")
	flags.DurationVar(&e.timeout, "timeout", 2*time.Minute, "longest time to wait for the results of a place")
	return cmd
}

func (e *enrichment) run(ctx context.Context, path string) error {
	switch err := e.read(ctx, path); {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s", counted(e.places, "place"))
	case err != nil:
		return err
	case e.bad > 0:
		return fmt.Errorf("%d of %d places cannot be used", e.bad, e.bad+e.places)
	case e.pending > 0:
		return fmt.Errorf("%w: %d after %s: call it again later", errPending, e.pending, e.timeout)
	}
	return nil
}

// read asks for the places of the file. Those before an error are asked for, too.
func (e *enrichment) read(ctx context.Context, path string) error {
	for record, err := range rows.Open(ctx, path, e.config.Stdin, rows.Options{MaxBytes: maxPlace}) {
		broken, one := errors.AsType[*rows.Error](err)
		if err != nil && !one {
			return errors.Join(e.flush(ctx), err)
		}
		place, err := e.place(record)
		if one {
			err = errors.New(broken.Problem)
		}
		if err != nil {
			e.bad++
			e.out.Notef("%s: %s", record.Where(), err)
			continue
		}
		if last := len(e.batches) - 1; last < 0 || len(e.batches[last]) == placesAsked {
			if len(e.batches) == requestsAtOnce {
				if err := e.flush(ctx); err != nil {
					return err
				}
			}
			e.batches = append(e.batches, nil)
		}
		last := len(e.batches) - 1
		e.batches[last] = append(e.batches[last], place)
	}
	return e.flush(ctx)
}

func (e *enrichment) place(record rows.Record) (contracts.Restaurant, error) {
	place, err := contracts.Decode[contracts.Restaurant](record.Body)
	if err == nil && place.CityText == "" {
		place.CityText = e.city
		err = place.Validate()
	}
	if invalid, ok := errors.AsType[*contracts.ValidationError](err); ok {
		err = errors.New(api.Fields(invalid.Fields))
	}
	return place, err
}

// flush asks for the batches, and writes their places in the order of the file.
func (e *enrichment) flush(ctx context.Context) error {
	group, asking := errgroup.WithContext(ctx)
	for _, batch := range e.batches {
		group.Go(func() error { return e.ask(asking, batch) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, batch := range e.batches {
		for _, place := range batch {
			line, err := place.AppendJSON(nil)
			if state, _ := place.State(contracts.ProviderWolt); err == nil {
				e.out.Add(json.RawMessage(line), place.PlaceID, place.Name, state.Status, *cmp.Or(state.URL, new(string)))
			}
			if err = cmp.Or(err, e.out.Err()); err != nil {
				return fmt.Errorf("write place %q: %w", place.PlaceID, err)
			}
			e.places++
			if isOpen(place) {
				e.pending++
			}
		}
	}
	e.batches = e.batches[:0]
	return nil
}

// isOpen reports whether a place may still get a result. A pending state with a reason is final.
func isOpen(place contracts.Restaurant) bool {
	state, ok := place.State(contracts.ProviderWolt)
	return !ok || state.Status == contracts.StatusPending && state.Reason == ""
}

// ask puts the results into the places, and asks again for those that are open, up to the timeout.
func (e *enrichment) ask(ctx context.Context, places []contracts.Restaurant) error {
	until := time.Now().Add(e.timeout)
	open := make([]int, len(places))
	for i := range places {
		open[i] = i
	}
	for len(open) > 0 {
		sent := time.Now()
		req := contracts.EnrichRequest{WaitMS: int(min(max(time.Until(until), 0), contracts.MaxWait).Milliseconds())}
		for _, at := range open {
			req.Results = append(req.Results, places[at])
		}
		answer, err := e.api.Enrich(ctx, req)
		if err != nil {
			return fmt.Errorf("place %q and those after it: %w", places[open[0]].PlaceID, advise(err))
		}
		left := open[:0]
		for i, at := range open {
			if places[at] = answer.Results[i]; isOpen(places[at]) {
				left = append(left, at)
			}
		}
		if open = left; time.Now().After(until) || len(open) > 0 && !retry.Sleep(ctx, askAgain-time.Since(sent)) {
			break
		}
	}
	return ctx.Err()
}
