package flight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Free keys are computed at once, although another process holds the others. When that process dies its key is computed
// too.
func TestDoManyTakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		begin(t, g, "b", flight.BeginOptions{TTL: 10 * time.Second}) // and never renewed
		begin(t, g, "d", flight.BeginOptions{TTL: 10 * time.Second})
		var a asked
		var all sync.WaitGroup
		all.Go(func() {
			results, err := f.DoMany(t.Context(), []string{"a", "b", "c", "d"}, a.by("f"), flight.DoOptions{})
			wantSummary(t, results, err, "computed a by f", "computed b by f", "computed c by f", "computed d by f")
		})
		pass(time.Second)
		a.want(t, []string{"a", "c"})
		wantSlot(t, g, "a", flight.Done, "a by f")
		wantSlot(t, g, "c", flight.Done, "c by f")
		all.Wait()
		a.sort()
		a.want(t, []string{"a", "c"}, []string{"b"}, []string{"d"})
	})
}

// Claims are kept for as long as the function runs. The key of a lost claim is computed again, or by its new owner, and
// the other keys are not affected. When all claims are lost the function's context ends.
func TestDoManyLosesClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{Instance: "f", ClaimTTL: 3 * time.Second}), b.Flight(t, flight.Config{})
		keys := []string{"a", "b", "c"}
		var calls atomic.Int64
		lost := make(chan error, 1)
		fn := func(ctx context.Context, missing []string) (map[string][]byte, error) {
			n := calls.Add(1)
			if n == 1 {
				pass(time.Minute)
				if ctx.Err() != nil {
					lost <- context.Cause(ctx)
				}
			}
			return valuesBy(fmt.Sprint(n), missing), nil
		}
		var all sync.WaitGroup
		var results []flight.Result
		var err error
		run := func() { all.Go(func() { results, err = f.DoMany(t.Context(), keys, fn, flight.DoOptions{}) }) }

		run()
		pass(30 * time.Second)
		for _, key := range keys {
			wantSlot(t, g, key, flight.Pending, "")
		}
		check.OK(t, g.Invalidate(t.Context(), "b"))
		complete(t, begin(t, g, "b", flight.BeginOptions{Seen: get(t, g, "b")}), "b by g")
		all.Wait()
		wantSummary(t, results, err, "computed a by 1", "coalesced b by g", "computed c by 1")
		check.That(t, len(lost) == 0 && calls.Load() == 1, "%d calls; %d were told that all was lost", calls.Load(), len(lost))

		calls.Store(0)
		for _, key := range keys {
			check.OK(t, g.Invalidate(t.Context(), key))
		}
		run()
		pass(30 * time.Second)
		for _, key := range keys {
			check.OK(t, g.Invalidate(t.Context(), key))
		}
		all.Wait()
		wantErr(t, testbed.Await(t, lost, "the function is told"), kvlock.ErrLost)
		for _, r := range results {
			check.That(t, err == nil && string(r.Value) != r.Key+" by 1", "got %+v, %v; want the value computed after the invalidation", r, err)
		}
	})
}

// A caller that leaves ends only the computations that no other caller waits for; their claims are given back, and a
// waiter in another process takes over.
func TestDoManyWhenCallersGo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		keys := []string{"a", "b", "a"}
		ended := make(chan error, 1)
		fn := func(ctx context.Context, _ []string) (map[string][]byte, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		ctx, leave := context.WithCancelCause(t.Context())
		other, leaveOther := context.WithCancel(t.Context())
		errLeft := errors.New("left")
		var all sync.WaitGroup
		all.Go(func() {
			results, err := f.DoMany(ctx, keys, fn, flight.DoOptions{})
			wantErr(t, err, errLeft)
			wantSummary(t, results, err, `a failed: wait for "a": left`, `b failed: wait for "b": left`, `a failed: wait for "a": left`)
		})
		pass(time.Second)
		all.Go(func() {
			_, err := f.Do(other, "b", nil, flight.DoOptions{})
			wantErr(t, err, context.Canceled)
		})
		pass(time.Second)
		leave(errLeft)
		pass(time.Second)
		check.That(t, len(ended) == 0, "ended though somebody waits for b")
		var a asked
		all.Go(func() {
			results, err := g.DoMany(t.Context(), keys, a.by("g"), flight.DoOptions{})
			wantSummary(t, results, err, "computed a by g", "computed b by g", "computed a by g")
		})
		pass(time.Second)
		leaveOther()
		start := time.Now()
		all.Wait()
		took := time.Since(start)
		check.That(t, took <= 10*time.Millisecond && len(ended) == 1, "taken over after %s", took)
	})
}

func TestDoManyThatKeepsRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.DoMany(ctx, []string{"a", "b"}, func(_ context.Context, missing []string) (map[string][]byte, error) {
			pass(10 * time.Minute)
			return valuesBy("f", missing), nil
		}, flight.DoOptions{KeepRunning: true})
		wantErr(t, err, context.DeadlineExceeded)
		pass(11 * time.Minute)
		wantSlot(t, f, "a", flight.Done, "a by f")
		wantSlot(t, f, "b", flight.Done, "b by f")
	})
}

func TestDoManyWithinItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := b.Flight(t, flight.Config{})
	results, err := f.DoMany(within(t), []string{"a", "b", "c"}, func(ctx context.Context, missing []string) (map[string][]byte, error) {
		for _, key := range missing {
			_, err := f.Do(ctx, key, nil, flight.DoOptions{})
			wantErr(t, err, flight.ErrRecursive)
		}
		inner, err := f.DoMany(ctx, []string{"c", "d"}, func(ctx context.Context, missing []string) (map[string][]byte, error) {
			_, err := f.Do(ctx, "a", nil, flight.DoOptions{})
			wantErr(t, err, flight.ErrRecursive)
			return valuesBy("inner", missing), nil
		}, flight.DoOptions{})
		wantSummary(t, inner, err, `c failed: function asks for the key that it computes: "c"`, "computed d by inner")
		return valuesBy("outer", missing), nil
	}, flight.DoOptions{})
	wantSummary(t, results, err, "computed a by outer", "computed b by outer", "computed c by outer")
}

// A key that has another input, or a record that cannot be read, or a failure that is kept, is an error for itself.
func TestDoManyOfKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{Instance: "g"})
	complete(t, begin(t, g, "b", flight.BeginOptions{Fingerprint: "x"}), "of x")
	begin(t, g, "c", flight.BeginOptions{Fingerprint: "y"})
	check.OK(t, begin(t, g, "d", flight.BeginOptions{Fingerprint: "x"}).Fail(t.Context(), "none", time.Minute))
	keys := []string{"a", "b", "c", "d"}
	var a asked
	results, err := f.DoMany(within(t), keys, a.by("f"), flight.DoOptions{Fingerprint: "x"})
	wantSummary(t, results, err, "computed a by f", "cached of x",
		`c failed: key is in use for another input: key "c" was begun with fingerprint "y", not "x"`, `d failed: computation of "d" by g failed: none`)

	check.OK(t, check.Err(b.JS.Publish(t.Context(), "$KV."+bucket+".n", []byte(`{"v":99}`+"\n"))))
	results, err = f.DoMany(within(t), []string{"a", "n", "z"}, a.by("f"), flight.DoOptions{Fingerprint: "x"})
	errs, _ := errors.AsType[flight.KeysError](err)
	if len(errs) != 1 || !errors.Is(errs["n"], kvlock.ErrVersion) || string(results[0].Value) != "a by f" || string(results[2].Value) != "z by f" {
		t.Errorf("got %s", summary(results, err))
	}
	a.want(t, []string{"a"}, []string{"z"})
}

func TestDoManyThatCannotBegin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := b.Flight(t, flight.Config{})
	for name, tt := range map[string]struct {
		keys []string
		opts flight.DoOptions
		want error
	}{
		"a bad key":    {[]string{"a", "b c"}, flight.DoOptions{}, kvlock.ErrInvalidKey},
		"a bad option": {[]string{"a"}, flight.DoOptions{TTL: time.Millisecond}, nil},
	} {
		results, err := f.DoMany(t.Context(), tt.keys, nil, tt.opts)
		check.That(t, results == nil && err != nil && (tt.want == nil || errors.Is(err, tt.want)), "%s: got %v, %v", name, results, err)
	}
	f.Close()
	_, err := f.DoMany(t.Context(), []string{"a"}, nil, flight.DoOptions{})
	wantErr(t, err, kvlock.ErrClosed)
}

func TestCloseEndsDoMany(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		begin(t, g, "b", flight.BeginOptions{})
		var all sync.WaitGroup
		all.Go(func() {
			_, err := f.DoMany(t.Context(), []string{"a", "b", "c"}, func(ctx context.Context, _ []string) (map[string][]byte, error) {
				<-ctx.Done()
				pass(time.Second) // to clean up
				return nil, context.Cause(ctx)
			}, flight.DoOptions{})
			errs, _ := errors.AsType[flight.KeysError](err)
			for _, key := range []string{"a", "b", "c"} {
				wantErr(t, errs[key], kvlock.ErrClosed)
			}
		})
		pass(time.Second)
		f.Close()
		all.Wait()
		wantSlot(t, g, "a", flight.Absent, "")
		wantSlot(t, g, "c", flight.Absent, "")
	})
}

// The function is called once for all keys when JetStream is unreachable, too.
func TestDoManyFailsOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
		var a asked
		p.Cut()
		results, err := f.DoMany(t.Context(), []string{"a", "b"}, a.by("f"), flight.DoOptions{FailOpen: true})
		wantSummary(t, results, err, "computed a by f", "computed b by f")
		check.That(t, !results[0].Stored && !results[1].Stored, "says that it is stored")
		a.want(t, []string{"a", "b"})
		_, err = f.DoMany(t.Context(), []string{"a", "b"}, a.by("f"), flight.DoOptions{})
		wantErr(t, err, kvlock.ErrUnavailable)
	})
}
