package imports

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
)

// TestProgressIsSeenByEveryInstance follows a job whose source tells how much it has fetched, on an instance that does not
// work. Each share is told once, at once, without another state; the second attempt does not begin with that of the first.
func TestProgressIsSeenByEveryInstance(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i, other := newInstance(t, srv), newInstance(t, srv)
		again := make(chan struct{})
		fetched := 0
		i.far.fetch = func(_ context.Context, req source.Request, progress func(string, float64)) (*source.Material, error) {
			fetched++
			for _, share := range []float64{0.25, 0.25, 0.5, 0.4, 2, 0.75} {
				elapse(progressEvery)
				progress("fetch", share)
			}
			elapse(10 * time.Second)
			if fetched == 1 {
				return nil, &source.Error{Code: contracts.CodeTimeout, Message: "later", Retryable: true, Err: errors.New("later")}
			}
			<-again
			return video(req.URL), nil
		}
		i.work(t)
		i.submit(t, job("j", "v"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		sub, err := other.Subscribe(ctx, "j", 0)
		check.OK(t, err)
		defer sub.Close()
		var shares []float64
		changes := map[uint64]bool{}
		for {
			j, change, err := sub.Next(ctx)
			check.OK(t, err)
			if j.Status.Final() {
				break
			}
			if j.Step != stepTranscript || j.Error != "" {
				continue // not begun, or put off
			}
			shares = append(shares, j.Progress)
			changes[change] = true
			if j.Attempt == 2 && j.Progress == 0.75 {
				got, err := other.Get(ctx, "j")
				check.That(t, err == nil && got.Progress == 0.75, "Get: %+v, %v", got, err)
				close(again)
			}
		}
		want := []float64{0, 0.25, 0.5, 0.75}
		if want = append(want, want...); !slices.Equal(shares, want) || len(changes) != 2 {
			t.Errorf("told %v in %d states, want %v in one for each attempt", shares, len(changes), want)
		}
		j, err := other.Get(ctx, "j")
		check.That(t, err == nil && j.Status == contracts.ImportReady && j.Progress == 0, "at the end: %+v, %v", j, err)
	})
}

// TestProgressOfADeadWorkerIsNotShown has a worker die in mid-step, after it has recorded progress. While the next attempt is in
// the same step and has recorded none, the job has none.
func TestProgressOfADeadWorkerIsNotShown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		dead, next, other := newInstance(t, srv), newInstance(t, srv), newInstance(t, srv)
		dead.cutOff = true
		recorded, begun, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
		dead.far.fetch = func(ctx context.Context, _ source.Request, progress func(string, float64)) (*source.Material, error) {
			progress("fetch", 0.5)
			close(recorded)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		next.far.fetch = func(_ context.Context, req source.Request, _ func(string, float64)) (*source.Material, error) {
			close(begun)
			<-end
			return video(req.URL), nil
		}
		dead.work(t)
		other.submit(t, job("j", "v"))
		<-recorded
		j, err := other.Get(t.Context(), "j")
		check.That(t, err == nil && j.Progress == 0.5 && j.Attempt == 1, "in the first attempt: %+v, %v", j, err)
		dead.js.Conn().Close()
		next.work(t)
		<-begun
		if j, err := other.Get(t.Context(), "j"); err != nil || j.Progress != 0 || j.Attempt != 2 || j.Step != stepTranscript {
			t.Errorf("in the second attempt: %+v, %v, want no progress", j, err)
		}
		close(end)
		other.ready(t, "j")
	})
}

func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
