package enrich

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// enricherFunc makes an Enricher of a function.
type enricherFunc func(ctx context.Context, req contracts.EnrichRequest) (Answer, error)

func (f enricherFunc) Enrich(ctx context.Context, req contracts.EnrichRequest) (Answer, error) {
	return f(ctx, req)
}

// states answers each restaurant with the result of state.
func states(req contracts.EnrichRequest, state func(id string) contracts.ProviderState) Answer {
	answer := Answer{Response: contracts.EnrichResponse{RequestID: "r"}}
	for _, r := range req.Results {
		r.SetState(contracts.ProviderWolt, state(r.PlaceID), false)
		answer.Response.Results = append(answer.Response.Results, r)
	}
	return answer
}

func found(id string) contracts.ProviderState {
	return contracts.FoundState("https://wolt.com/en/isr/haifa/restaurant/" + id)
}

// places makes n places with the ids p0, p1, ...
func places(n int) iter.Seq2[input.Place, error] {
	return func(yield func(input.Place, error) bool) {
		for i := range n {
			id := fmt.Sprintf("p%d", i)
			var r contracts.Restaurant
			body := []byte(`{"placeId":"` + id + `","name":"N","stars":5}`)
			if err := r.UnmarshalJSON(body); err != nil {
				panic(err)
			}
			if !yield(input.Place{Bytes: len(body), Offset: int64(i + 1), Position: input.Position{File: "f", Line: i + 1}, Restaurant: r}, nil) {
				return
			}
		}
	}
}

// collector is an output.Writer that keeps the rows.
type collector struct {
	err  error
	rows []output.Row
}

func (c *collector) Close() error { return nil }
func (c *collector) Flush() error { return c.err }
func (c *collector) Write(row output.Row) error {
	c.rows = append(c.rows, row)
	return nil
}

func (c *collector) ids() []string {
	var ids []string
	for _, row := range c.rows {
		ids = append(ids, row.PlaceID)
	}
	return ids
}

func TestRunKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 503
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		under, most := 0, 0
		e := enricherFunc(func(ctx context.Context, req contracts.EnrichRequest) (Answer, error) {
			mu.Lock()
			under++
			most = max(most, under)
			wait := time.Duration(random.IntN(1000)) * time.Millisecond
			mu.Unlock()
			if !pause.For(ctx, wait) {
				return Answer{}, context.Cause(ctx)
			}
			mu.Lock()
			under--
			mu.Unlock()
			return states(req, found), nil
		})
		var out collector
		var offsets []int64
		last := ""
		told := func(text string, offset int64) { last, offsets = text, append(offsets, offset) }
		summary := check.Must(Run(t.Context(), e, places(n), &out, Config{BatchSize: 7, Concurrency: 5, Progress: told}))(t)
		want := make([]string, n)
		for i := range want {
			want[i] = fmt.Sprintf("p%d", i)
		}
		diff := cmp.Diff(want, out.ids())
		check.That(t, diff == "", "seed %d: %s", seed, diff)
		check.Same(t, fmt.Sprintf("seed %d: requests at a time", seed), most, 5)
		check.Equal(t, Summary{Found: n}, summary)
		check.That(t, len(offsets) == n && slices.IsSorted(offsets), "offsets: %d", offsets)
		check.Says(t, last, strconv.Itoa(summary.Found)+" found, ", ", 0 pending")
	})
}

// A slow first request must not let the input run ahead without a bound.
func TestRunHoldsFewPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read := 0
		counted := func(yield func(input.Place, error) bool) {
			for place, err := range places(10_000) {
				read++
				if !yield(place, err) {
					return
				}
			}
		}
		release := make(chan struct{})
		e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			if req.Results[0].PlaceID == "p0" {
				<-release
			}
			return states(req, found), nil
		})
		done := make(chan error)
		go func() {
			_, err := Run(t.Context(), e, counted, &collector{}, Config{BatchSize: 10, Concurrency: 4})
			done <- err
		}()
		synctest.Wait() // until everything is blocked
		check.That(t, read <= 10*(4+3), "%d places were read while the first request was not answered", read)
		close(release)
		check.Is(t, <-done, nil)
	})
}

func TestRunRows(t *testing.T) {
	t.Parallel()
	e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
		answer := states(req, func(id string) contracts.ProviderState {
			switch id {
			case "p0":
				return found(id)
			case "p1":
				return contracts.NotFoundState()
			case "p2":
				return contracts.ProviderState{Status: contracts.StatusPending, Reason: contracts.ReasonAmbiguous}
			}
			return contracts.PendingState()
		})
		answer.Details = map[string]contracts.EnrichResult{"p0": {Score: 0.97, Venue: &contracts.Venue{ID: "v0", Name: "Venue"}}}
		return answer, nil
	})
	var out collector
	summary := check.Must(Run(t.Context(), e, places(4), &out, Config{Full: true}))(t)
	var text bytes.Buffer
	w := output.New(&text, output.FormatJSONLines, false)
	for _, row := range out.rows {
		check.OK(t, w.Write(row))
	}
	check.OK(t, w.Close())
	want := `{"placeId":"p0","name":"N","status":"FOUND","url":"https://wolt.com/en/isr/haifa/restaurant/p0","score":0.97,"venueId":"v0","venue":"Venue","reason":null,"place":{"placeId":"p0","name":"N","stars":5,"providers":{"wolt":{"status":"FOUND","url":"https://wolt.com/en/isr/haifa/restaurant/p0"}}}}
{"placeId":"p1","name":"N","status":"NOT_FOUND","url":null,"score":null,"venueId":null,"venue":null,"reason":null,"place":{"placeId":"p1","name":"N","stars":5,"providers":{"wolt":{"status":"NOT_FOUND","url":null}}}}
{"placeId":"p2","name":"N","status":"PENDING","url":null,"score":null,"venueId":null,"venue":null,"reason":"ambiguous","place":{"placeId":"p2","name":"N","stars":5,"providers":{"wolt":{"status":"PENDING","url":null,"reason":"ambiguous"}}}}
{"placeId":"p3","name":"N","status":"PENDING","url":null,"score":null,"venueId":null,"venue":null,"reason":null,"place":{"placeId":"p3","name":"N","stars":5,"providers":{"wolt":{"status":"PENDING","url":null}}}}
`
	check.Equal(t, want, text.String())
	check.Equal(t, Summary{Found: 1, NotFound: 1, Pending: 2}, summary)
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failing := func(yield func(input.Place, error) bool) {
		for place := range places(5) {
			if !yield(place, nil) {
				return
			}
		}
		yield(input.Place{}, broken)
	}
	good := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) { return states(req, found), nil })
	for name, tc := range map[string]struct {
		enricher enricherFunc
		out      *collector
		places   iter.Seq2[input.Place, error]
		rows     int
		want     error
	}{
		"input": {good, &collector{}, failing, 5, broken},
		"enricher": {func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			if req.Results[0].PlaceID == "p4" {
				return Answer{}, fmt.Errorf("%w: %w", ErrUnavailable, broken)
			}
			return states(req, found), nil
		}, &collector{}, places(1000), -1, ErrUnavailable},
		"output": {good, &collector{err: broken}, places(1000), 2, broken},
		"fewer results": {func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			req.Results = req.Results[:1]
			return states(req, found), nil
		}, &collector{}, places(4), 0, ErrMismatch},
		"other results": {func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			slices.Reverse(req.Results)
			return states(req, found), nil
		}, &collector{}, places(4), 0, ErrMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // an enricher that is unavailable is asked again for two minutes
				summary, err := Run(t.Context(), tc.enricher, tc.places, tc.out, Config{BatchSize: 2, Concurrency: 2})
				check.Is(t, err, tc.want)
				check.That(t, len(tc.out.rows) == tc.rows || tc.rows < 0, "%d rows were written, want %d", len(tc.out.rows), tc.rows)
				check.That(t, tc.out.err != nil || summary.Found == len(tc.out.rows),
					"the summary %+v does not count the %d rows", summary, len(tc.out.rows))
			})
		})
	}
}

func TestRunEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e := enricherFunc(func(ctx context.Context, _ contracts.EnrichRequest) (Answer, error) {
		cancel()
		<-ctx.Done()
		return Answer{}, ctx.Err()
	})
	check.Is(t, check.Err(Run(ctx, e, places(1000), &collector{}, Config{})), context.Canceled)
}

func TestConfigReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), nil, nil, nil, Config{BatchSize: 101, Concurrency: -1, Timeout: -1})
	for _, want := range []string{"BatchSize", "Concurrency", "Timeout"} {
		check.That(t, strings.Contains(fmt.Sprint(err), want), "%v does not mention %s", err, want)
	}
}
