package flight_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// With FailOpen a caller gets its value whenever the server goes away: before it reads, while another process computes,
// and between its own claim and the result.
func TestFailOpen(t *testing.T) {
	open := flight.DoOptions{FailOpen: true}
	runInBubble(t, "before", func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
		p.Cut()
		var runs atomic.Int64
		start := time.Now()
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), open)
		if err != nil || string(r.Value) != "v" || r.Stored || r.Outcome != flight.Computed {
			t.Errorf("got %+v, %v", r, err)
		}
		if took := time.Since(start); took > 2100*time.Millisecond {
			t.Errorf("took %s, more than OpTimeout", took)
		}
		_, err = f.Do(t.Context(), "k", value(&runs, "v"), flight.DoOptions{})
		wantErr(t, err, kvlock.ErrUnavailable)
	})
	runInBubble(t, "while somebody else computes", func(t *testing.T, b *bed) {
		begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{TTL: 24 * time.Hour})
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
		start := time.Now()
		time.AfterFunc(time.Minute, p.Partition)
		var runs atomic.Int64
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), open)
		if err != nil || string(r.Value) != "v" || r.Stored {
			t.Errorf("got %+v, %v", r, err)
		}
		if took := time.Since(start); took < time.Minute || took > 70*time.Second {
			t.Errorf("computed after %s, want soon after the cut at a minute", took)
		}
	})
	runInBubble(t, "between claim and result", func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
		fn := func(context.Context) ([]byte, error) {
			p.Partition()
			return []byte("v"), nil
		}
		r, err := f.Do(t.Context(), "k", fn, open)
		if err != nil || string(r.Value) != "v" || r.Stored {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("the bucket is full", func(t *testing.T) {
		b := setup(t)
		b.DeleteBucket(t)
		b = bedOn(t, b.Srv, kvlock.BucketConfig{Bucket: bucket, MaxBytes: 2000})
		f := b.Flight(t, flight.Config{})
		big := func(context.Context) ([]byte, error) { return noise(5000), nil }
		_, err := f.Do(t.Context(), "k", big, flight.DoOptions{})
		wantErr(t, err, kvlock.ErrUnavailable)
		r, err := f.Do(t.Context(), "l", big, open)
		if err != nil || len(r.Value) != 5000 || r.Stored {
			t.Errorf("got %d bytes, stored %v, %v", len(r.Value), r.Stored, err)
		}
	})
}
