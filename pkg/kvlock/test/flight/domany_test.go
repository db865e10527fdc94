package flight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

type manyFunc = func(context.Context, []string) (map[string][]byte, error)

// asked is a function for DoMany that records the keys it was asked for, and answers with the name of its process.
type asked struct {
	mu    sync.Mutex
	calls [][]string
}

func (a *asked) by(name string) manyFunc {
	return func(_ context.Context, missing []string) (map[string][]byte, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls = append(a.calls, slices.Clone(missing))
		return valuesBy(name, missing), nil
	}
}

func (a *asked) want(t *testing.T, calls ...[]string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	check.Equal(t, calls, a.calls)
}

// sort is for calls in no particular order.
func (a *asked) sort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.calls, slices.Compare)
}

func valuesBy(name string, keys []string) map[string][]byte {
	values := map[string][]byte{}
	for _, key := range keys {
		values[key] = []byte(key + " by " + name)
	}
	return values
}

func keysFrom(first, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%03d", first+i)
	}
	return keys
}

// summary returns the outcome of each key, in order.
func summary(results []flight.Result, err error) string {
	errs, _ := errors.AsType[flight.KeysError](err)
	if errs == nil && err != nil {
		return err.Error()
	}
	var all []string
	for _, r := range results {
		outcome := fmt.Sprintf("%s %s", r.Outcome, r.Value)
		if err, failed := errs[r.Key]; failed {
			outcome = r.Key + " failed: " + strings.TrimPrefix(err.Error(), "kvlock: ")
		}
		all = append(all, outcome)
	}
	return strings.Join(all, "; ")
}

func wantSummary(t *testing.T, results []flight.Result, err error, want ...string) {
	t.Helper()
	check.Equal(t, strings.Join(want, "; "), summary(results, err))
}

func TestDoManyComputesWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{Instance: "g"})
	complete(t, begin(t, g, "b", flight.BeginOptions{}), "b by g")
	var a asked
	results, err := f.DoMany(t.Context(), []string{"d", "b", "a", "d", "c"}, a.by("f"), flight.DoOptions{})
	wantSummary(t, results, err, "computed d by f", "cached b by g", "computed a by f", "computed d by f", "computed c by f")
	a.want(t, []string{"d", "a", "c"})
	for i, key := range []string{"d", "b", "a", "d", "c"} {
		r := results[i]
		owner := map[bool]string{true: "g", false: "f"}[key == "b"]
		check.That(t, r.Key == key && r.Owner == owner && r.Stored && r.Claim != "" && r.Elapsed > 0, "result %d is %+v", i, r)
		wantSlot(t, g, key, flight.Done, string(r.Value))
	}
	results, err = g.DoMany(t.Context(), []string{"a", "b", "c", "d"}, nil, flight.DoOptions{})
	wantSummary(t, results, err, "cached a by f", "cached b by g", "cached c by f", "cached d by f")
	if results, err = g.DoMany(t.Context(), nil, nil, flight.DoOptions{}); err != nil || len(results) != 0 {
		t.Errorf("no keys: got %v, %v", results, err)
	}
}

// One request reads all keys, and no request for a key waits for the answer to one for another key.
func TestDoManyTakesThreeRoundTrips(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
		var mu sync.Mutex
		sent := map[string][]time.Time{}
		p.Filter(func(f natstest.Frame) natstest.Verdict {
			mu.Lock()
			defer mu.Unlock()
			if kind, _, _ := strings.Cut(f.Subject, ".k"); f.FromClient {
				sent[kind] = append(sent[kind], time.Now())
			}
			return natstest.Relay
		})
		p.Slow(time.Millisecond) // an answer comes after another
		var a asked
		keys := keysFrom(0, 100)
		check.OK(t, check.Err(f.DoMany(t.Context(), keys, a.by("f"), flight.DoOptions{})))
		a.want(t, keys)
		reads := sent["$JS.API.DIRECT.GET.KV_b"]
		check.That(t, len(reads) == 1, "%d reads", len(reads))
		writes := sent["$KV.b"]
		if len(writes) != 200 || !writes[0].Equal(writes[99]) || !writes[100].Equal(writes[199]) {
			t.Errorf("%d writes: claims within %s, values within %s", len(writes), writes[99].Sub(writes[0]), writes[len(writes)-1].Sub(writes[100]))
		}
		clear(sent)
		if _, err := f.DoMany(t.Context(), keys, nil, flight.DoOptions{}); err != nil || len(sent) != 1 || len(sent["$JS.API.DIRECT.GET.KV_b"]) != 1 {
			t.Errorf("cached: %v, sent %v", err, slices.Collect(maps.Keys(sent)))
		}
	})
}

// A function's result or error counts for each key alone, here and in other processes, and a failure is not kept.
func TestDoManyFailsForEachKeyAlone(t *testing.T) {
	errOven := errors.New("oven is cold")
	keys := []string{"a", "b", "c"}
	for name, tt := range map[string]struct {
		fn   manyFunc
		want []string
	}{
		"an error for some": {
			func(context.Context, []string) (map[string][]byte, error) {
				return map[string][]byte{"a": []byte("1"), "c": []byte("3")}, flight.KeysError{"b": errOven}
			}, []string{"computed 1", "b failed: oven is cold", "computed 3"},
		},
		"an error beside a value": {
			func(context.Context, []string) (map[string][]byte, error) {
				return map[string][]byte{"a": []byte("1"), "b": nil}, fmt.Errorf("some: %w", flight.KeysError{"b": errOven})
			}, []string{"computed 1", "b failed: oven is cold", `c failed: function returned no value for the key: "c"`},
		},
		"an error after some": {
			func(context.Context, []string) (map[string][]byte, error) {
				return map[string][]byte{"a": []byte("1"), "b": nil}, errOven
			}, []string{"computed 1", "computed ", "c failed: oven is cold"},
		},
		"left out, and too many": {
			func(context.Context, []string) (map[string][]byte, error) {
				return map[string][]byte{"b": []byte("2"), "x": []byte("9")}, nil
			}, []string{`a failed: function returned no value for the key: "a"`, "computed 2", `c failed: function returned no value for the key: "c"`},
		},
		"too large": {
			func(context.Context, []string) (map[string][]byte, error) {
				return map[string][]byte{"a": []byte("1"), "b": make([]byte, 65<<20), "c": []byte("3")}, nil
			}, nil,
		},
		"panic": {
			func(context.Context, []string) (map[string][]byte, error) { panic("fire") },
			[]string{`a failed: function for "a" panicked: fire`, `b failed: function for "b" panicked: fire`, `c failed: function for "c" panicked: fire`},
		},
		"Goexit": {
			func(context.Context, []string) (map[string][]byte, error) { runtime.Goexit(); panic("unreachable") },
			[]string{"a failed: function called runtime.Goexit", "b failed: function called runtime.Goexit", "c failed: function called runtime.Goexit"},
		},
	} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{})
			end := make(chan struct{})
			fn := func(ctx context.Context, missing []string) (map[string][]byte, error) {
				<-end
				return tt.fn(ctx, missing)
			}
			var all sync.WaitGroup
			var results []flight.Result
			var err error
			all.Go(func() { results, err = f.DoMany(t.Context(), keys, fn, flight.DoOptions{}) })
			pass(time.Second)
			var there []flight.Result
			var thereErr error
			all.Go(func() { there, thereErr = g.DoMany(t.Context(), keys, nil, flight.DoOptions{}) })
			pass(time.Second)
			close(end)
			all.Wait()
			if tt.want != nil {
				wantSummary(t, results, err, tt.want...)
			}
			errs, _ := errors.AsType[flight.KeysError](err)
			thereErrs, _ := errors.AsType[flight.KeysError](thereErr)
			for i, key := range keys {
				var failed *flight.FailedError
				switch {
				case errs[key] == nil && (thereErrs[key] != nil || !bytes.Equal(there[i].Value, results[i].Value)):
					t.Errorf("%s elsewhere: %s, %v", key, there[i].Value, thereErrs[key])
				case errs[key] != nil && (!errors.As(thereErrs[key], &failed) || failed.Owner != "f"):
					t.Errorf("%s elsewhere: %v, want a failure of f", key, thereErrs[key])
				}
				if p, ok := errors.AsType[*flight.PanicError](errs[key]); ok && !strings.Contains(string(p.Stack), "domany_test.go") {
					t.Errorf("%s: stack %s", key, p.Stack)
				}
			}
			var a asked
			_, err = g.DoMany(t.Context(), keys, a.by("g"), flight.DoOptions{})
			check.Is(t, err, nil)
			a.want(t, slices.Sorted(maps.Keys(errs)))
		})
	}
}

// Calls for many keys and for one share computations, in one process and in two, and no two of them wait for each
// other: each function begins only when all have.
func TestDoManyShares(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{Instance: "g"})
		var running sync.WaitGroup
		running.Add(4)
		var mu sync.Mutex
		computed := map[string]int{}
		many := func(_ context.Context, missing []string) (map[string][]byte, error) {
			running.Done()
			running.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, key := range missing {
				computed[key]++
			}
			return valuesBy("one", missing), nil
		}
		one := func(key string) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) {
				values, err := many(ctx, []string{key})
				return values[key], err
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			r, err := f.Do(t.Context(), "c", one("c"), flight.DoOptions{})
			wantSummary(t, []flight.Result{r}, err, "computed c by one")
		})
		all.Go(func() {
			pass(2500 * time.Microsecond)
			r, err := g.Do(t.Context(), "b", one("b"), flight.DoOptions{})
			wantSummary(t, []flight.Result{r}, err, "coalesced b by one")
		})
		pass(time.Millisecond)
		for i, x := range []struct {
			f    *flight.Flight
			keys []string
		}{
			{f, []string{"a", "b", "c"}}, {g, []string{"c", "d", "b", "a"}}, {f, []string{"d", "c", "b", "e"}}, {g, []string{"e", "d"}}, {f, []string{"e"}},
		} {
			all.Go(func() {
				results, err := x.f.DoMany(t.Context(), x.keys, many, flight.DoOptions{})
				for k, r := range results {
					check.That(t, err == nil && string(r.Value) == x.keys[k]+" by one", "call %d: %s is %+v, %v", i, x.keys[k], r, err)
				}
			})
			pass(time.Millisecond)
		}
		all.Wait()
		check.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, computed)
	})
}

// Sets that overlap in any order, from many callers in some processes, at the same time: each key is computed once.
func TestDoManyOfRandomKeys(t *testing.T) {
	t.Parallel()
	r := crash.Random(t)(0)
	b := setup(t)
	var mu sync.Mutex
	computed := map[string]int{}
	fn := func(_ context.Context, missing []string) (map[string][]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range missing {
			computed[key]++
		}
		return valuesBy("one", missing), nil
	}
	all := keysFrom(0, 60)
	var callers sync.WaitGroup
	for range 3 {
		f := b.Flight(t, flight.Config{OpTimeout: 20 * time.Second}) // however busy the machine is
		for range 20 {
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			keys := slices.Clone(all[:1+r.IntN(30)])
			callers.Go(func() {
				results, err := f.DoMany(within(t), keys, fn, flight.DoOptions{})
				check.Is(t, err, nil)
				for i, result := range results {
					check.That(t, string(result.Value) == keys[i]+" by one", "%s is %+v", keys[i], result)
				}
			})
		}
	}
	callers.Wait()
	for key, n := range computed {
		check.Same(t, key, n, 1)
	}
}
