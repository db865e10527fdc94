package flight_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestFailuresAreKeptByPolicy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		errClosed := errors.New("closed for ever")
		var now error
		var runs atomic.Int64
		fn := func(context.Context) ([]byte, error) { runs.Add(1); return nil, now }
		opts := flight.DoOptions{FailureTTL: func(err error) time.Duration {
			if errors.Is(err, errClosed) {
				return 59500 * time.Millisecond // a minute
			}
			return 0
		}}
		for range 3 {
			now = errOven
			wantErr(t, check.Err(f.Do(t.Context(), "k", fn, opts)), errOven)
		}
		now = errClosed
		wantErr(t, check.Err(f.Do(t.Context(), "k", fn, opts)), errClosed)
		for _, x := range []*flight.Flight{f, g} {
			_, err := x.Do(t.Context(), "k", fn, opts)
			var failed *flight.FailedError
			check.That(t, errors.As(err, &failed) && failed.Reason == errClosed.Error(), "got %v, want the failure that is kept", err)
		}
		s := wantEntry(t, g, "k", flight.Failed, "")
		check.That(t, s.TTL == time.Minute && runs.Load() == 4, "got %+v after %d runs", s, runs.Load())
		pass(time.Minute + lateness)
		wantDo(t, g, value(&runs, "v"), opts, "v", flight.Computed)
	})
}

func TestJitterOfATTL(t *testing.T) {
	t.Parallel()
	f := setup(t).Flight(t, flight.Config{})
	opts := flight.DoOptions{Jitter: 0.2, TTL: 1000 * time.Second}
	ttls := map[time.Duration]bool{}
	for i := range 20 {
		key := fmt.Sprint(i)
		check.OK(t, check.Err(f.Do(t.Context(), key, func(context.Context) ([]byte, error) { return nil, nil }, opts)))
		ttl := get(t, f, key).TTL
		ttls[ttl] = true
		check.That(t, ttl >= 800*time.Second && ttl <= 1200*time.Second, "kept for %s", ttl)
	}
	check.That(t, len(ttls) >= 10, "got %v, want different ones", ttls)
}

func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := setup(t).Flight(t, flight.Config{})
	for name, opts := range map[string]flight.DoOptions{
		"Jitter": {Jitter: 0.6}, "TTL": {TTL: time.Millisecond}, "ClaimTTL": {ClaimTTL: -time.Second},
	} {
		check.Contains(t, check.Err(f.Do(t.Context(), "k", nil, opts)), name)
	}
}

// With FailOpen a caller gets its value whenever the server goes away: before it reads, while another process computes,
// and between its own claim and the result.
func TestFailOpen(t *testing.T) {
	open := flight.DoOptions{FailOpen: true}
	runInBubble(t, "before", func(t *testing.T, b *bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		p.Cut()
		var runs atomic.Int64
		start := time.Now()
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), open)
		check.That(t, err == nil && string(r.Value) == "v" && !r.Stored && r.Outcome == flight.Computed, "got %+v, %v", r, err)
		took(t, "gave up after OpTimeout", start, 0, 2100*time.Millisecond)
		wantErr(t, check.Err(f.Do(t.Context(), "k", value(&runs, "v"), flight.DoOptions{})), kvlock.ErrUnavailable)
	})
	runInBubble(t, "while somebody else computes", func(t *testing.T, b *bed) {
		begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{TTL: 24 * time.Hour})
		f, p := b.ProxiedFlight(t, flight.Config{})
		start := time.Now()
		time.AfterFunc(time.Minute, p.Partition)
		var runs atomic.Int64
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), open)
		check.That(t, err == nil && string(r.Value) == "v" && !r.Stored, "got %+v, %v", r, err)
		took(t, "computed soon after the cut", start, time.Minute, 70*time.Second)
	})
	runInBubble(t, "between claim and result", func(t *testing.T, b *bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		fn := func(context.Context) ([]byte, error) {
			p.Partition()
			return []byte("v"), nil
		}
		r, err := f.Do(t.Context(), "k", fn, open)
		check.That(t, err == nil && string(r.Value) == "v" && !r.Stored, "got %+v, %v", r, err)
	})
	t.Run("the bucket is full", func(t *testing.T) {
		b := setup(t)
		b.DeleteBucket(t)
		b = bedOn(t, b.Srv, kvlock.BucketConfig{Bucket: bucket, MaxBytes: 2000})
		f := b.Flight(t, flight.Config{})
		big := func(context.Context) ([]byte, error) { return noise(5000), nil }
		wantErr(t, check.Err(f.Do(t.Context(), "k", big, flight.DoOptions{})), kvlock.ErrUnavailable)
		r, err := f.Do(t.Context(), "l", big, open)
		check.That(t, err == nil && len(r.Value) == 5000 && !r.Stored, "got %d bytes, stored %v, %v", len(r.Value), r.Stored, err)
	})
}
