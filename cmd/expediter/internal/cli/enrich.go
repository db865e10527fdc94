package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	defaultEnricher = "http://127.0.0.1:8080"

	// placesAsked and requestsAtOnce bound the places that the command holds, and the load that it is for a service.
	placesAsked, requestsAtOnce = 20, 4

	// askAgain is the least time between two requests for the same places, to an enricher that does not wait.
	askAgain = 200 * time.Millisecond

	maxPlace = contracts.MaxBody / 2 / placesAsked
)

var (
	errBadPlaces = errors.New("places cannot be used")
	errPending   = errors.New("places are still pending")
)

// enrichment is a run of the enrich command.
type enrichment struct {
	serviceFlags

	city    string
	timeout time.Duration

	batches              [][]contracts.Restaurant
	bad, pending, places int
	status               *terminal.Status
}

func newEnrich(g *globals) *cobra.Command {
	e := &enrichment{serviceFlags: serviceFlags{globals: g}}
	cmd := action("enrich FILE", func(ctx context.Context, args []string) (err error) {
		if err := e.usage(e.check(), refuse(e.timeout <= 0, "--timeout %s: want more than 0", e.timeout)); err != nil {
			return err
		}
		return e.run(ctx, args[0])
	})
	flags := cmd.Flags()
	e.register(flags, "enricher", defaultEnricher)
	flags.StringVar(&e.city, "city", "", "city of places that name none")
	flags.DurationVar(&e.timeout, "timeout", 2*time.Minute, "longest time to wait for the results of a place")
	return cmd
}

func (e *enrichment) run(ctx context.Context, path string) error {
	e.status = terminal.NewStatus(e.config.stderr())
	err := e.read(ctx, path)
	e.status.Close()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s", counted(e.places, "place"))
	case err != nil:
		return err
	case e.bad > 0:
		return fmt.Errorf("%d of %d %w", e.bad, e.bad+e.places, errBadPlaces)
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
			e.notef("%s: %s\n", record.Where(), err)
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

// place returns the place of a record.
func (e *enrichment) place(record rows.Record) (contracts.Restaurant, error) {
	place, err := contracts.Decode[contracts.Restaurant](record.Body)
	if err == nil && place.CityText == "" {
		place.CityText = e.city
		err = place.Validate()
	}
	if invalid, ok := errors.AsType[*contracts.ValidationError](err); ok {
		err = errors.New(notify.Fields(invalid.Fields))
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
			if err == nil {
				err = e.say("%s\n", line)
			}
			if err != nil {
				return fmt.Errorf("write place %q: %w", place.PlaceID, err)
			}
			e.places++
			if isOpen(place) {
				e.pending++
			}
		}
	}
	e.batches = e.batches[:0]
	e.status.Setf("%d places, %d pending", e.places, e.pending)
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
		results, err := e.post(ctx, req)
		if err != nil {
			return fmt.Errorf("place %q and those after it: %w", places[open[0]].PlaceID, advise(err))
		}
		left := open[:0]
		for i, at := range open {
			if places[at] = results[i]; isOpen(results[i]) {
				left = append(left, at)
			}
		}
		if open = left; time.Now().After(until) || len(open) > 0 && !pause.For(ctx, askAgain-time.Since(sent)) {
			break
		}
	}
	return ctx.Err()
}

// post sends a request, and returns the same places with their results.
func (e *enrichment) post(ctx context.Context, req contracts.EnrichRequest) ([]contracts.Restaurant, error) {
	body, err := contracts.Encode(req)
	if err != nil {
		return nil, err
	}
	var data []byte
	if _, err := e.api.Do(ctx, http.MethodPost, "/v1/enrich", nil, body, &data); err != nil {
		return nil, err
	}
	resp, err := contracts.Decode[contracts.EnrichResponse](data)
	if err == nil && len(resp.Results) != len(req.Results) {
		err = fmt.Errorf("it has %d places, %d were asked for", len(resp.Results), len(req.Results))
	}
	if err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", e.api.URL, err)
	}
	return resp.Results, nil
}
