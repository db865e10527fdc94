package enrich

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestRunWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked [][]string
		e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			check.That(t, req.WaitMS > 0 && req.WaitMS <= int(contracts.MaxWait/time.Millisecond), "waitMs is %d", req.WaitMS)
			var ids []string
			for _, r := range req.Results {
				ids = append(ids, r.PlaceID)
			}
			asked = append(asked, ids)
			return states(req, func(id string) contracts.ProviderState {
				switch {
				case id == "p1":
					return contracts.ProviderState{Status: contracts.StatusPending, Reason: contracts.ReasonProviderError}
				case id == "p2" && len(asked) < 4, len(asked) < 2:
					return contracts.PendingState()
				}
				return found(id)
			}), nil
		})
		var out collector
		summary := check.Must(Run(t.Context(), e, places(3), &out, Config{Wait: true}))(t)
		// A place with a reason has no answer to wait for; one that is answered is not asked about again.
		want := [][]string{{"p0", "p1", "p2"}, {"p0", "p2"}, {"p2"}, {"p2"}}
		check.Equal(t, want, asked)
		check.Equal(t, Summary{Found: 2, Pending: 1}, summary)
	})
}

func TestRunDoesNotWaitForWhatIsSkipped(t *testing.T) {
	t.Parallel()
	e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
		answer := Answer{Response: contracts.EnrichResponse{RequestID: "r", Results: req.Results, Skipped: "flag_disabled"}}
		return answer, nil
	})
	var out collector
	check.OK(t, check.Err(Run(t.Context(), e, places(1), &out, Config{Wait: true})))
	got := out.rows[0]
	check.That(t, got.Status == "PENDING" && got.Reason == "flag_disabled", "got %+v", got)
}

// A store that was down when it was asked may be up again.
func TestRunAsksAgainWhenTheStoreWasDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			asked++
			if asked == 1 {
				return Answer{Response: contracts.EnrichResponse{RequestID: "r", Results: req.Results, Skipped: contracts.SkippedStoreDown}}, nil
			}
			return states(req, found), nil
		})
		for wait, want := range map[bool]output.Row{
			false: {PlaceID: "p0", Status: "PENDING", Reason: contracts.SkippedStoreDown},
			true:  {PlaceID: "p0", Status: "FOUND"},
		} {
			asked = 0
			var out collector
			check.OK(t, check.Err(Run(t.Context(), e, places(1), &out, Config{Wait: wait})))
			got := out.rows[0]
			check.That(t, got.Status == want.Status && got.Reason == want.Reason, "waits: %t: got %+v, want %+v", wait, got, want)
		}
	})
}

func TestRunTimesOut(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]enricherFunc{
		"an enricher that stays pending": func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
			return states(req, func(id string) contracts.ProviderState {
				if id == "p0" {
					return found(id)
				}
				return contracts.PendingState()
			}), nil
		},
		"an enricher that hangs": func(ctx context.Context, req contracts.EnrichRequest) (Answer, error) {
			if len(req.Results) == 2 {
				return states(req, func(id string) contracts.ProviderState {
					if id == "p0" {
						return found(id)
					}
					return contracts.PendingState()
				}), nil
			}
			<-ctx.Done()
			return Answer{}, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out collector
				began := time.Now()
				summary, err := Run(t.Context(), e, places(2), &out, Config{Timeout: 90 * time.Second, Wait: true})
				check.That(t, errors.Is(err, ErrTimeout) && time.Since(began) == 90*time.Second, "got %v after %s", err, time.Since(began))
				check.Equal(t, Summary{Found: 1, Pending: 1, TimedOut: 1}, summary)
				check.That(t, len(out.rows) == 2 && out.rows[1].Reason == "timeout", "rows: %+v", out.rows)
			})
		})
	}
}

// A request stays below the largest body, with places of any size.
func TestRunBoundsTheBody(t *testing.T) {
	t.Parallel()
	large := func(yield func(input.Place, error) bool) {
		for i := range 30 {
			body := fmt.Appendf(nil, `{"placeId":"p%d","name":"N","x":%q}`, i, strings.Repeat("x", 200_000))
			var r contracts.Restaurant
			if err := r.UnmarshalJSON(body); err != nil {
				panic(err)
			}
			if !yield(input.Place{Bytes: len(body), Restaurant: r}, nil) {
				return
			}
		}
	}
	e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
		body, err := req.AppendJSON(nil)
		check.That(t, err == nil && len(body) <= contracts.MaxBody, "a body of %d bytes, %v", len(body), err)
		return states(req, found), nil
	})
	summary, err := Run(t.Context(), e, large, &collector{}, Config{})
	check.That(t, err == nil && summary.Found == 30, "got %+v, %v", summary, err)
}

// TestRunOutlivesARestart: an enricher that has answered may be gone for a while; one that never has is not waited for.
func TestRunOutlivesARestart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		down bool // from the beginning
		gone time.Duration
		want error
	}{
		"never there": {true, time.Hour, ErrUnavailable}, "restart": {false, time.Minute, nil}, "gone": {false, time.Hour, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				began := time.Now()
				e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
					asked++
					if (asked > 1 || c.down) && time.Since(began) < c.gone {
						return Answer{}, fmt.Errorf("%w: connection refused", ErrUnavailable)
					}
					return states(req, found), nil
				})
				var out collector
				summary, err := Run(t.Context(), e, places(3), &out, Config{BatchSize: 1, Concurrency: 1})
				check.Is(t, err, c.want)
				if want := map[string]int{"never there": 0, "restart": 3, "gone": 1}[name]; summary.Rows() != want || c.down && asked > 2 {
					t.Errorf("%d rows after %d requests, want %d", summary.Rows(), asked, want)
				}
			})
		})
	}
}
