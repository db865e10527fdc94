package flight_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// job is the input of a worker.
type job struct {
	ID       string
	Distance float64
	Shape    string
	Asked    time.Time // is no input
}

type area struct {
	Size float64 `json:"size"`
	Of   string  `json:"of"`
}

func measure(runs *atomic.Int64) func(context.Context, job) (area, error) {
	return func(_ context.Context, j job) (area, error) {
		runs.Add(1)
		return area{Size: j.Distance * j.Distance, Of: j.Shape}, nil
	}
}

func inputs(j job) any   { return map[string]any{"distance": j.Distance, "shape": j.Shape} }
func jobID(j job) string { return j.ID }

func cacheOn(t *testing.T, f *flight.Flight, cfg flight.CacheConfig[job]) *flight.Cache[job, area] {
	t.Helper()
	if cfg.Process == "" {
		cfg.Process = "buffer"
	}
	if cfg.Inputs == nil {
		cfg.Inputs = inputs
	}
	if cfg.JobID == nil {
		cfg.JobID = jobID
	}
	return check.Must(flight.NewCache[job, area](f, cfg))(t)
}

// Which calls are the same is a matter of scope. The result says for which job it was made.
func TestCacheScopes(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{Instance: "g"})
	first := job{ID: "job-1", Distance: 100, Shape: "park", Asked: time.Now()}
	other := job{ID: "job-2", Distance: 1e2, Shape: "park", Asked: time.Now().Add(time.Hour)}
	for name, tt := range map[string]struct {
		scope   flight.Scope
		outcome flight.Outcome // of another job with the same inputs
		job     string
		runs    int64
	}{
		"by inputs": {flight.ByInputs, flight.Cached, "job-1", 1},
		"by job":    {flight.ByJob, flight.Computed, "job-2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			process := strings.ReplaceAll(name, " ", "-")
			here := cacheOn(t, f, flight.CacheConfig[job]{Process: process, Scope: tt.scope})
			there := cacheOn(t, g, flight.CacheConfig[job]{Process: process, Scope: tt.scope})
			out, r, err := here.Do(t.Context(), first, measure(&runs))
			check.That(t, err == nil && out == (area{10000, "park"}) && r.Outcome == flight.Computed && r.Job == "job-1" && r.Stored,
				"first: got %+v, %+v, %v", out, r, err)
			key, err := here.Key(first)
			check.That(t, err == nil && key == r.Key && strings.HasPrefix(key, process+".") && len(key) == len(process)+65,
				"key %q, %v; the result says %q", key, err, r.Key)
			out, r, err = there.Do(t.Context(), first, measure(&runs))
			check.That(t, err == nil && out == (area{10000, "park"}) && r.Outcome == flight.Cached && r.Owner == "f" && r.Elapsed > 0,
				"again: got %+v, %+v, %v", out, r, err)
			_, r, err = there.Do(t.Context(), other, measure(&runs))
			check.That(t, err == nil && r.Outcome == tt.outcome && r.Job == tt.job && runs.Load() == tt.runs,
				"another job: got %+v, %v after %d runs", r, err, runs.Load())
			s := testbed.Get(t, g, key)
			check.That(t, s.Job == "job-1" && string(s.Value) == `{"size":10000,"of":"park"}`, "stored as %+v", s)
		})
	}
}

// Everything that may change the result changes the key.
func TestCacheKeys(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	j := job{ID: "job-1", Distance: 1, Shape: "park"}
	seen := map[string]string{}
	for name, c := range map[string]*flight.Cache[job, area]{
		"plain":   cacheOn(t, f, flight.CacheConfig[job]{}),
		"process": cacheOn(t, f, flight.CacheConfig[job]{Process: "union"}),
		"version": cacheOn(t, f, flight.CacheConfig[job]{Version: "2"}),
		"scope":   cacheOn(t, f, flight.CacheConfig[job]{Scope: flight.ByJob}),
		"inputs":  cacheOn(t, f, flight.CacheConfig[job]{Inputs: func(j job) any { return j.Shape }}),
	} {
		key, err := c.Key(j)
		check.That(t, err == nil && seen[key] == "", "%s: %q, %v, as %s", name, key, err, seen[key])
		seen[key] = name
	}
	c := cacheOn(t, f, flight.CacheConfig[job]{Scope: flight.ByJob})
	for name, j := range map[string]job{"no job": {}, "NaN": {ID: "1", Distance: math.NaN()}, "not UTF-8": {ID: "1", Shape: "\xff"}} {
		_, errKey := c.Key(j)
		_, _, errDo := c.Do(t.Context(), j, nil)
		_, _, errGet := c.Get(t.Context(), j)
		for _, err := range []error{errKey, errDo, errGet, c.Invalidate(t.Context(), j)} {
			check.ErrorIs(t, err, flight.ErrInvalidInputs, name)
		}
	}
}

// A failure is not kept, and is that of the function; results are kept as long as their process says.
func TestCacheKeepsResultsOnly(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f := b.Flight(t, flight.Config{})
		c := cacheOn(t, f, flight.CacheConfig[job]{Options: flight.DoOptions{TTL: time.Minute}})
		j := job{Shape: "park", Distance: 2}
		errShape := errors.New("self-intersection")
		_, r, err := c.Do(t.Context(), j, func(context.Context, job) (area, error) { return area{}, errShape })
		check.ErrorIs(t, err, errShape)
		key, err := c.Key(j)
		check.That(t, err == nil && r.Key == key, "the result of a failure has the key %q, want %q, %v", r.Key, key, err)
		_, _, err = c.Do(t.Context(), j, func(context.Context, job) (area, error) { return area{Size: math.Inf(1)}, nil })
		_, ok := errors.AsType[*json.UnsupportedValueError](err)
		check.That(t, ok, "got %v, want that it cannot be encoded", err)
		var runs atomic.Int64
		for range 2 {
			out, _, err := c.Do(t.Context(), j, measure(&runs))
			check.Require(t, err == nil && out.Size == 4 && runs.Load() == 1, "got %+v, %v after %d runs", out, err, runs.Load())
		}
		out, entry, err := c.Get(t.Context(), j)
		check.That(t, err == nil && out.Size == 4 && entry.State == flight.Done && entry.TTL == time.Minute, "got %+v, %+v, %v", out, entry, err)
		check.OK(t, c.Invalidate(t.Context(), j))
		out, entry, err = c.Get(t.Context(), j)
		check.That(t, err == nil && entry.State == flight.Absent && out == (area{}), "invalidated: got %+v, %+v, %v", out, entry, err)
		_, r, err = c.Do(t.Context(), j, measure(&runs))
		check.That(t, err == nil && r.Outcome == flight.Computed, "invalidated: got %+v, %v", r, err)
		natstest.Pass(time.Minute + testbed.Lateness)
		_, r, err = c.Do(t.Context(), j, measure(&runs))
		check.That(t, err == nil && r.Outcome == flight.Computed && runs.Load() == 3, "expired: got %+v, %v", r, err)
	})
}

// Callers that share a computation get separate values.
func TestCacheResultsAreNotShared(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	c := check.Must(flight.NewCache[string, map[string]int](b.Flight(t, flight.Config{}), flight.CacheConfig[string]{Process: "p"}))(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			out, _, err := c.Do(t.Context(), "x", func(context.Context, string) (map[string]int, error) { return map[string]int{"n": 1}, nil })
			check.That(t, err == nil && out["n"] == 1, "got %v, %v", out, err)
			out["n"]++
		})
	}
	all.Wait()
}

// A value that was stored in another form is an error, not a result.
func TestCacheOfAnotherForm(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	c := cacheOn(t, f, flight.CacheConfig[job]{})
	bad := job{Shape: "lake"}
	key := check.Must(c.Key(bad))(t)
	testbed.Complete(t, testbed.Begin(t, f, key, flight.BeginOptions{Job: "old"}), `{"size":"large"}`)
	out, r, err := c.Do(t.Context(), bad, nil)
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	check.That(t, ok && out == (area{}) && r.Job == "old" && r.Outcome == flight.Cached, "Do: got %+v, %+v, %v", out, r, err)
	out, entry, err := c.Get(t.Context(), bad)
	check.That(t, err != nil && entry.State == flight.Done && out == (area{}), "Get: got %+v, %+v, %v", out, entry, err)
}

func TestCacheConfig(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  flight.CacheConfig[job]
		want []string
	}{
		"all that is wrong": {
			flight.CacheConfig[job]{
				Process: "a b", Scope: 7, Version: "\xff", Options: flight.DoOptions{Fingerprint: "f", Job: "j", TTL: time.Millisecond},
			},
			[]string{`"a b"`, "Scope is 7", "UTF-8", "Fingerprint", "Options.Job", "TTL"},
		},
		"nothing":        {flight.CacheConfig[job]{}, []string{"Process is empty"}},
		"no job":         {flight.CacheConfig[job]{Process: "p", Scope: flight.ByJob}, []string{"want JobID"}},
		"a long process": {flight.CacheConfig[job]{Process: strings.Repeat("p", kvlock.MaxKeyBytes-64)}, []string{"the limit is 959"}},
	} {
		_, err := flight.NewCache[job, area](nil, tt.cfg)
		for _, want := range tt.want {
			check.That(t, err != nil && strings.Contains(err.Error(), want), "%s: got %v, want %q in it", name, err, want)
		}
	}
}

func TestFailuresAreKeptByPolicy(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
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
			check.ErrorIs(t, check.Err(f.Do(t.Context(), "k", fn, opts)), errOven)
		}
		now = errClosed
		check.ErrorIs(t, check.Err(f.Do(t.Context(), "k", fn, opts)), errClosed)
		for _, x := range []*flight.Flight{f, g} {
			_, err := x.Do(t.Context(), "k", fn, opts)
			var failed *flight.FailedError
			check.That(t, errors.As(err, &failed) && failed.Reason == errClosed.Error(), "got %v, want the failure that is kept", err)
		}
		s := wantEntry(t, g, "k", flight.Failed, "")
		check.That(t, s.TTL == time.Minute && runs.Load() == 4, "got %+v after %d runs", s, runs.Load())
		natstest.Pass(time.Minute + testbed.Lateness)
		wantDo(t, g, value(&runs, "v"), opts, "v", flight.Computed)
	})
}

func TestJitterOfATTL(t *testing.T) {
	t.Parallel()
	f := testbed.New(t).Flight(t, flight.Config{})
	opts := flight.DoOptions{Jitter: 0.2, TTL: 1000 * time.Second}
	ttls := map[time.Duration]bool{}
	for i := range 20 {
		key := fmt.Sprint(i)
		check.OK(t, check.Err(f.Do(t.Context(), key, func(context.Context) ([]byte, error) { return nil, nil }, opts)))
		ttl := testbed.Get(t, f, key).TTL
		ttls[ttl] = true
		check.That(t, ttl >= 800*time.Second && ttl <= 1200*time.Second, "kept for %s", ttl)
	}
	check.That(t, len(ttls) >= 10, "got %v, want different ones", ttls)

	opts = flight.DoOptions{Jitter: 0.5, TTL: 87600 * time.Hour} // the longest
	for range 20 {
		check.OK(t, check.Err(f.Do(t.Context(), rand.Text(), func(context.Context) ([]byte, error) { return nil, nil }, opts)))
	}
}

// With FailOpen a caller gets its value whenever the server goes away: before it reads, while another process computes,
// and between its own claim and the result.
func TestFailOpen(t *testing.T) {
	open := flight.DoOptions{FailOpen: true}
	testbed.RunInBubble(t, "before", func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		p.Cut()
		var runs atomic.Int64
		start := time.Now()
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), open)
		check.That(t, err == nil && string(r.Value) == "v" && !r.Stored && r.Outcome == flight.Computed, "got %+v, %v", r, err)
		testbed.Took(t, "gave up after OpTimeout", start, 0, 2100*time.Millisecond)
		check.ErrorIs(t, check.Err(f.Do(t.Context(), "k", value(&runs, "v"), flight.DoOptions{})), kvlock.ErrUnavailable)
	})
	testbed.RunInBubble(t, "while somebody else computes", func(t *testing.T, b *testbed.Bed) {
		testbed.Begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{TTL: 24 * time.Hour})
		f, p := b.ProxiedFlight(t, flight.Config{})
		start := time.Now()
		time.AfterFunc(time.Minute, p.Partition)
		var runs atomic.Int64
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), open)
		check.That(t, err == nil && string(r.Value) == "v" && !r.Stored, "got %+v, %v", r, err)
		testbed.Took(t, "computed soon after the cut", start, time.Minute, 70*time.Second)
	})
	testbed.RunInBubble(t, "between claim and result", func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		fn := func(context.Context) ([]byte, error) {
			p.Partition()
			return []byte("v"), nil
		}
		r, err := f.Do(t.Context(), "k", fn, open)
		check.That(t, err == nil && string(r.Value) == "v" && !r.Stored, "got %+v, %v", r, err)
	})
	t.Run("the bucket is full", func(t *testing.T) {
		b := testbed.New(t)
		b.DeleteBucket(t)
		b = testbed.On(t, b.Srv, kvlock.BucketConfig{Bucket: testbed.Bucket, MaxBytes: 2000})
		f := b.Flight(t, flight.Config{})
		big := func(context.Context) ([]byte, error) { return noise(5000), nil }
		check.ErrorIs(t, check.Err(f.Do(t.Context(), "k", big, flight.DoOptions{})), kvlock.ErrUnavailable)
		r, err := f.Do(t.Context(), "l", big, open)
		check.That(t, err == nil && len(r.Value) == 5000 && !r.Stored, "got %d bytes, stored %v, %v", len(r.Value), r.Stored, err)
	})
}
