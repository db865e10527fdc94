package flight_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

// value is a function for Do that counts its runs.
func value(runs *atomic.Int64, v string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		runs.Add(1)
		return []byte(v), nil
	}
}

func TestDoComputesOnce(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	var runs atomic.Int64
	outcomes := map[flight.Outcome]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 3 {
		f := b.Flight(t, flight.Config{})
		for range 200 {
			all.Go(func() {
				r, err := f.Do(t.Context(), "k", value(&runs, "v"), flight.DoOptions{})
				check.That(t, err == nil && string(r.Value) == "v" && r.Key == "k" && r.Stored && r.Owner != "", "got %+v, %v", r, err)
				mu.Lock()
				defer mu.Unlock()
				outcomes[r.Outcome]++
			})
		}
	}
	all.Wait()
	check.That(t, runs.Load() == 1, "ran %d times, want once; outcomes %v", runs.Load(), outcomes)
	wantDo(t, b.Flight(t, flight.Config{}), value(&runs, "w"), flight.DoOptions{}, "v", flight.Cached)
	check.Equal(t, runs.Load(), 1, "runs afterwards")
}

// However a function ends without a value, callers here and elsewhere learn how, and the next caller computes.
func TestDoOfAFunctionThatFails(t *testing.T) {
	errOven := errors.New("oven is cold")
	for name, tt := range map[string]struct {
		fn     func(context.Context) ([]byte, error)
		here   func(error) bool
		reason string
	}{
		"error": {func(context.Context) ([]byte, error) { return nil, errOven }, func(err error) bool { return errors.Is(err, errOven) }, "oven is cold"},
		"panic": {func(context.Context) ([]byte, error) { panic("fire") }, func(err error) bool {
			var p *flight.PanicError
			return errors.As(err, &p) && p.Value == "fire" && strings.Contains(string(p.Stack), "do_test.go") && p.Key == "k"
		}, "panic: fire"},
		"Goexit":                    {func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil }, func(err error) bool { return err != nil }, "Goexit"},
		"typed nil":                 {func(context.Context) ([]byte, error) { var err *failure; return nil, err }, func(err error) bool { return errors.Is(err, (*failure)(nil)) }, "*flight_test.failure without a text"},
		"typed nil of ours":         {func(context.Context) ([]byte, error) { var err *flight.PanicError; return nil, err }, func(err error) bool { return errors.Is(err, (*flight.PanicError)(nil)) }, "*flight.PanicError without a text"},
		"error whose methods panic": {func(context.Context) ([]byte, error) { return nil, errors.Join(&failure{}, errOven) }, func(err error) bool { return err != nil }, "joinError without a text: *flight_test.failure"},
		"panic with such an error": {func(context.Context) ([]byte, error) { panic(&failure{}) }, func(err error) bool {
			_, ok := errors.AsType[*flight.PanicError](err)
			return ok && err.Error() != ""
		}, "panic: *flight_test.failure without a text"},
		"claim of another key is lost": {func(context.Context) ([]byte, error) { return nil, fmt.Errorf("oven: %w", kvlock.ErrLost) }, func(err error) bool { return errors.Is(err, kvlock.ErrLost) }, "oven: kvlock: claim lost"},
		"too large":                    {func(context.Context) ([]byte, error) { return make([]byte, 65<<20), nil }, func(err error) bool { return errors.Is(err, kvlock.ErrTooLarge) }, "too large"},
		"binary text":                  {func(context.Context) ([]byte, error) { return nil, errors.New(strings.Repeat("\x00<\xff", 5000)) }, func(err error) bool { return err != nil }, "\x00<"},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{})
			started, end := make(chan struct{}), make(chan struct{})
			fn := func(ctx context.Context) ([]byte, error) {
				close(started)
				<-end
				return tt.fn(ctx)
			}
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					_, err := f.Do(t.Context(), "k", fn, flight.DoOptions{})
					check.That(t, tt.here(err), "in the same process: got %v", err)
				})
			}
			<-started
			never := func(context.Context) ([]byte, error) { t.Error("ran elsewhere"); return nil, nil }
			for range 5 {
				all.Go(func() {
					_, err := g.Do(t.Context(), "k", never, flight.DoOptions{})
					var failed *flight.FailedError
					check.That(t,
						errors.As(err, &failed) && errors.Is(err, flight.ErrFailed) && failed.Owner == "f" && strings.Contains(failed.Reason, tt.reason),
						"elsewhere: got %v, want a failure of f with %q", err, tt.reason)
				})
			}
			natstest.Pass(100 * time.Millisecond) // they have all begun to wait
			start := time.Now()
			close(end)
			all.Wait()
			testbed.Took(t, "waiters learnt of it by a push", start, 0, 10*time.Millisecond)
			var runs atomic.Int64
			wantDo(t, g, value(&runs, "v"), flight.DoOptions{}, "v", flight.Computed)
		})
	}
}

// failure is an error whose methods panic with itself.
type failure struct{}

func (f *failure) Error() string   { panic(f) }
func (f *failure) Is(error) bool   { panic(f) }
func (f *failure) As(any) bool     { panic(f) }
func (f *failure) Unwrap() []error { panic(f) }

// badHandler is a handler of a logger that panics.
type badHandler struct{ slog.Handler }

func (badHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (badHandler) Handle(context.Context, slog.Record) error { panic(&failure{}) }
func (h badHandler) WithAttrs([]slog.Attr) slog.Handler      { return h }

// lateContext has a Value that misbehaves once, when it is armed.
type lateContext struct {
	context.Context

	armed     atomic.Bool
	misbehave func()
}

func (c *lateContext) Value(key any) any {
	if c.armed.Swap(false) {
		c.misbehave()
	}
	return c.Context.Value(key)
}

// A callback that panics or ends its goroutine, and a value in the context of a caller that does, end neither the process nor a wait.
// The handler of the logger panics, too.
func TestCallbacksMayMisbehave(t *testing.T) {
	for name, misbehave := range map[string]func(){"panic": func() { panic(&failure{}) }, "Goexit": runtime.Goexit} {
		for place, want := range map[string]error{"acquired": nil, "released": nil, "FailureTTL": errOven, "context": &flight.PanicError{}} {
			testbed.RunInBubble(t, name+" in "+place, func(t *testing.T, b *testbed.Bed) {
				f := b.Flight(t, flight.Config{ClaimTTL: time.Second, Logger: slog.New(badHandler{}), Observe: func(_ context.Context, e flight.Event) {
					if string(e.Kind) == place {
						misbehave()
					}
				}})
				ctx := &lateContext{Context: t.Context(), misbehave: misbehave}
				fn := func(context.Context) ([]byte, error) {
					ctx.armed.Store(place == "context")
					if place == "FailureTTL" {
						return nil, errOven
					}
					return []byte("v"), nil
				}
				done := make(chan error, 1)
				go func() {
					done <- check.Err(f.Do(ctx, "k", fn, flight.DoOptions{FailureTTL: func(error) time.Duration { misbehave(); return time.Hour }}))
				}()
				err := testbed.Await(t, done, place)
				switch {
				case name == "Goexit":
					check.ErrorContains(t, err, "Goexit")
				case place == "context":
					check.That(t, errors.As(err, new(*flight.PanicError)), "got %v", err)
				default:
					check.ErrorIs(t, err, want)
				}
				natstest.Pass(time.Second + testbed.Lateness)
				r, err := b.Flight(t, flight.Config{}).Do(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("v"), nil }, flight.DoOptions{})
				check.That(t, err == nil && string(r.Value) == "v", "afterwards: got %+v, %v", r, err)
			})
		}
	}
}

// A failure that ended before a waiter looked for the first time, but after it saw the claim, is its failure too. One
// from before it came is not.
func TestFailureBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	check.OK(t, testbed.Begin(t, f, "k", flight.BeginOptions{}).Fail(t.Context(), "r", 0))
	s, err := f.Wait(testbed.Within(t), "k")
	check.That(t, err == nil && s.State == flight.Absent && s.Reason == "", "got %+v, %v; want absent", s, err)
	w := check.Must(f.Watch("k"))(t)
	defer w.Close()
	s, err = w.Next(testbed.Within(t))
	check.That(t, err == nil && s.State == flight.Absent, "got %+v, %v; want absent", s, err)
}

// A caller that leaves does not end a computation that others in its process wait for; the last one does, and the claim
// is given back: a waiter in another process takes over, and gets no failure.
func TestDoWhenCallersGo(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		cancelled := make(chan error, 1)
		fn := func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			cancelled <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		var here, elsewhere sync.WaitGroup
		var leave []context.CancelFunc
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			leave = append(leave, cancel)
			here.Go(func() { check.ErrorIs(t, check.Err(f.Do(ctx, "k", fn, flight.DoOptions{})), context.Canceled) })
		}
		natstest.Pass(time.Second)
		var runs atomic.Int64
		elsewhere.Go(func() {
			wantDo(t, g, value(&runs, "v"), flight.DoOptions{}, "v", flight.Computed)
		})
		for _, cancel := range leave {
			natstest.Pass(time.Second)
			select {
			case err := <-cancelled:
				t.Errorf("cancelled with callers left: %v", err)
			default:
			}
			cancel()
		}
		start := time.Now()
		<-cancelled
		here.Wait()
		elsewhere.Wait()
		testbed.Took(t, "taken over", start, 0, 10*time.Millisecond)
	})
}

func TestDoOfAnotherInput(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
	ctx := t.Context()
	var runs atomic.Int64
	started, end := make(chan struct{}), make(chan struct{})
	fn := func(context.Context) ([]byte, error) {
		close(started)
		<-end
		return []byte("one"), nil
	}
	first := make(chan error, 1)
	go func() { first <- check.Err(f.Do(ctx, "k", fn, flight.DoOptions{Fingerprint: "one"})) }()
	testbed.Await(t, started, "the function starts")
	other := flight.DoOptions{Fingerprint: "two"}
	check.ErrorIs(t, check.Err(f.Do(ctx, "k", value(&runs, "two"), other)), kvlock.ErrMismatch)
	check.ErrorIs(t, check.Err(g.Do(ctx, "k", value(&runs, "two"), other)), kvlock.ErrMismatch)
	check.ErrorIs(t, check.Err(g.Begin(ctx, "k", flight.BeginOptions{Fingerprint: "two"})), kvlock.ErrMismatch)
	close(end)
	check.ErrorIs(t, testbed.Await(t, first, "the first call returns"), nil)
	r, err := g.Do(ctx, "k", value(&runs, "two"), other)
	check.That(t, errors.Is(err, kvlock.ErrMismatch) && r.Value == nil, "got %+v, %v; the value answers another question", r, err)
	check.Equal(t, runs.Load(), 0, "runs.Load()")
}

func TestDoIsInvalidatedInFlight(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, flight.Config{ClaimTTL: 6 * time.Second}), b.Flight(t, flight.Config{})
		var runs atomic.Int64
		fn := func(context.Context) ([]byte, error) {
			n := runs.Add(1)
			natstest.Pass(time.Second) // and does not look at its context
			return fmt.Appendf(nil, "%d", n), nil
		}
		var all sync.WaitGroup
		for _, x := range []*flight.Flight{f, f, g} {
			all.Go(func() {
				r, err := x.Do(t.Context(), "k", fn, flight.DoOptions{})
				check.That(t, err == nil && string(r.Value) == "2", "got %q, %v; want the value computed after the invalidation", r.Value, err)
			})
		}
		natstest.Pass(500 * time.Millisecond)
		check.OK(t, g.Invalidate(t.Context(), "k"))
		all.Wait()
		check.That(t, runs.Load() <= 3, "ran %d times", runs.Load())
	})
}

func TestCloseEndsComputationsAndWaits(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		testbed.Begin(t, g, "theirs", flight.BeginOptions{})
		var all sync.WaitGroup
		all.Go(func() {
			_, err := f.Do(t.Context(), "mine", func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				natstest.Pass(time.Second) // to clean up
				return nil, context.Cause(ctx)
			}, flight.DoOptions{})
			check.ErrorIs(t, err, kvlock.ErrClosed)
		})
		all.Go(func() {
			check.ErrorIs(t, check.Err(f.Do(t.Context(), "theirs", nil, flight.DoOptions{})), kvlock.ErrClosed)
		})
		all.Go(func() { check.ErrorIs(t, check.Err(f.Wait(t.Context(), "theirs")), kvlock.ErrClosed) })
		natstest.Pass(time.Second)
		f.Close()
		f.Close()
		all.Wait()
		wantEntry(t, g, "mine", flight.Absent, "") // given back
		for name, do := range map[string]func() error{
			"Do":    func() error { return check.Err(f.Do(t.Context(), "k", nil, flight.DoOptions{})) },
			"Get":   func() error { return check.Err(f.Get(t.Context(), "k")) },
			"Begin": func() error { return check.Err(f.Begin(t.Context(), "k", flight.BeginOptions{})) },
			"Watch": func() error { return check.Err(f.Watch("k")) },
		} {
			check.ErrorIs(t, do(), kvlock.ErrClosed, name)
		}
	})
}

func TestNestedDo(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	type name struct{}
	ctx := context.WithValue(testbed.Within(t), name{}, "carried")
	r, err := f.Do(ctx, "menu", func(ctx context.Context) ([]byte, error) {
		dish, err := f.Do(ctx, "dish", func(ctx context.Context) ([]byte, error) {
			check.That(t, ctx.Value(name{}) == "carried", "values of the caller's context are gone")
			check.ErrorIs(t, check.Err(f.Do(ctx, "menu", nil, flight.DoOptions{})), flight.ErrRecursive)
			return []byte("soup"), nil
		}, flight.DoOptions{})
		return append([]byte("menu of "), dish.Value...), err
	}, flight.DoOptions{})
	check.That(t, err == nil && string(r.Value) == "menu of soup", "got %q, %v", r.Value, err)
}

// Functions of one process that wait for each other's keys do not wait for ever: one of them gets an error that names the
// circle, and the others its consequence. A function that waits for a key which waits for another is no circle.
func TestCircleOfKeys(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f := b.Flight(t, flight.Config{})
		needs := map[string]string{"a": "b", "b": "c", "c": "a", "x": "y", "y": "z", "z": ""}
		var do func(ctx context.Context, key string) error
		do = func(ctx context.Context, key string) error {
			return check.Err(f.Do(ctx, key, func(ctx context.Context) ([]byte, error) {
				natstest.Pass(time.Second) // until all have begun
				if needs[key] == "" {
					return nil, nil
				}
				return nil, do(ctx, needs[key])
			}, flight.DoOptions{}))
		}
		var all sync.WaitGroup
		var circles atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for key := range needs {
			all.Go(func() {
				err := do(ctx, key)
				if circular := key < "x"; circular != errors.Is(err, flight.ErrRecursive) {
					t.Errorf("%s: got %v", key, err)
				} else if circular && strings.Count(err.Error(), "which waits for") == 2 {
					circles.Add(1)
				}
			})
		}
		all.Wait()
		check.That(t, circles.Load() != 0, "no error names the circle")
	})
}
