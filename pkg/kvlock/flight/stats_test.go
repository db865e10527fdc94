package flight

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/compress"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Each field of Stats counts something, and nothing counts in two.
func TestEachFieldOfStatsMoves(t *testing.T) {
	t.Parallel()
	f := &Flight{store: &kv.Store{}}
	steps := []func(){
		func() { f.counts.read(Entry{State: Done}) }, func() { f.counts.read(Entry{}) },
		func() { f.counts.returned(&Result{}, errors.New("no")) },
	}
	for _, o := range []Outcome{Cached, Coalesced, Computed} {
		steps = append(steps, func() { f.counts.returned(&Result{Outcome: o}, nil) })
	}
	for _, kind := range []EventKind{
		EventTakeOver, EventWaiting,
	} {
		steps = append(steps, func() { f.emit(t.Context(), Event{Kind: kind}) })
	}
	values := func() (all []uint64) {
		for _, v := range reflect.ValueOf(f.Stats()).Fields() {
			if v.CanUint() { // Memory is counted by itself
				all = append(all, v.Uint())
			}
		}
		return all
	}
	moved := map[int]bool{}
	for i, step := range steps {
		before := values()
		step()
		var now []int
		for field, v := range values() {
			if v != before[field] {
				now = append(now, field)
			}
		}
		if len(now) != 1 || moved[now[0]] {
			t.Errorf("step %d moved the fields %v", i, now)
			continue
		}
		moved[now[0]] = true
	}
	n := len(values())
	check.That(t, len(moved) == n, "%d of %d fields move", len(moved), n)
}

func TestConfigReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Bucket: "a.b", ClaimTTL: 1500 * time.Millisecond, ResultTTL: -time.Second, OpTimeout: -1, Instance: strings.Repeat("x", 300),
	}.validate()
	for _, want := range []string{"Bucket", "ClaimTTL", "ResultTTL", "OpTimeout", "Instance"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want), "%s is not named in %v", want, err)
	}
	check.Is(t, (Config{Bucket: "b"}).withDefaults().validate(), nil, "defaults")
	for _, bucket := range []string{"", "a/b", "a b", "a=", "*", "ä"} {
		check.Failsf(t, (Config{Bucket: bucket}).withDefaults().validate(), "bucket %q was taken", bucket)
	}
}

// A watcher returns the latest entry of each key once, in the order in which the keys first changed.
func TestWatcherCoalesces(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a", "b"}, nil)
	entry := func(key string, revision uint64, state State) *Entry {
		return &Entry{Key: key, Revision: revision, State: state}
	}
	w.deliver(entry("a", 1, Pending), true)
	w.deliver(entry("b", 2, Pending), true)
	w.deliver(entry("a", 3, Done), false)
	w.deliver(entry("a", 1, Pending), true) // late
	for _, want := range []*Entry{entry("a", 3, Done), entry("b", 2, Pending)} {
		got, ok := takenBy(w)
		check.That(t, ok && got.Key == want.Key && got.Revision == want.Revision, "got %+v, %v; want %+v", got, ok, want)
	}
	got, ok := takenBy(w)
	check.That(t, !ok, "got %+v after all was told", got)
}

func TestWatcherThatKnowsNothingIsToldWhatWasReadForIt(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a"}, nil)
	w.deliver(&Entry{Key: "a", Revision: 1, State: Done}, false)
	got, ok := takenBy(w)
	check.That(t, !ok, "was told %+v, which others knew before it came", got)
	w.deliver(&Entry{Key: "a", Revision: 2, State: Pending}, true)
	w.deliver(&Entry{Key: "a", Revision: 3, State: Done}, false)
	got, ok = takenBy(w)
	check.That(t, ok && got.Revision == 3, "got %+v, %v; want revision 3", got, ok)
}

func TestWatcherIsNotToldThatAMarkerHasGone(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a"}, nil)
	w.deliver(&Entry{Key: "a", Revision: 4, State: Failed, marker: true, Claim: "c"}, true)
	got, ok := takenBy(w)
	check.That(t, ok && got.past, "got %+v, %v; want a failure that is past", got, ok)
	w.deliver(&Entry{Key: "a"}, false)
	got, ok = takenBy(w)
	check.That(t, !ok, "was told %+v", got)
	w.deliver(&Entry{Key: "a", Revision: 5, State: Pending, Claim: "d"}, false)
	w.deliver(&Entry{Key: "a", Revision: 6, State: Failed, marker: true, Claim: "d"}, false)
	got, ok = takenBy(w)
	check.That(t, ok && !got.past && got.Revision == 6, "got %+v, %v; want the failure of the claim that was watched", got, ok)
}

// A computation that is woken while it looks looks again.
func TestWakeWhileRunning(t *testing.T) {
	t.Parallel()
	c := &call{}
	c.state.Store(running)
	c.wake()
	check.That(t, !c.rests(), "it rests though it was woken")
	c.state.Store(running)
	check.That(t, c.rests(), "it does not rest though nothing woke it")
}

func takenBy(w *Watcher) (entry Entry, ok bool) {
	news := w.take()
	if news == nil {
		return Entry{}, false
	}
	return *news, true
}

// Without an observer events cost nothing. It is not parallel: the allocations of other tests would count.
func TestNoObserverCostsNothing(t *testing.T) {
	f := &Flight{store: &kv.Store{Instance: "i"}}
	claim := &Claim{flight: f, id: "c", key: "k", taken: time.Now()}
	entry := Entry{Key: "k", State: Failed, Claim: "c", Owner: "o", Reason: "r"}
	err := &FailedError{Key: "k"}
	n := testing.AllocsPerRun(1000, func() {
		ctx := t.Context()
		f.emit(ctx, Event{Kind: EventReturned, Key: "k", Claim: "c", Owner: "o", Outcome: Cached, Elapsed: 1, Err: err})
		f.emit(ctx, entry.event(EventWaiting))
		claim.publish(ctx, EventAcquired, err)
		claim.tellReleased(ctx, entry)
	})
	check.That(t, n == 0, "%.1f allocations", n)
}

// Callers that want a value at the same time open it once; a large one is not kept after the last caller.
func TestContentIsOpenedOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{keptOpen, keptOpen + 1} {
		f := &Flight{codec: compress.New()}
		data, _, err := f.codec.Compress(make([]byte, n))
		check.OK(t, err)
		c := packed{Codec: compress.Zstd, Size: n}.content(data)
		const users = 50
		c.turn <- struct{}{}
		var all sync.WaitGroup
		values := make([][]byte, users)
		for i := range users {
			c.enter() // so that none of them is the last before all came
			all.Go(func() {
				defer c.leave()
				values[i], _, _ = c.open(context.WithoutCancel(t.Context()), f, "k") // compared below
			})
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = c.open(ended, f, "k")
		check.That(t, errors.Is(err, context.Canceled), "the caller that gave up got %v", err)
		<-c.turn
		all.Wait()
		for i := range values {
			check.Require(t, len(values[i]) == n && &values[i][0] == &values[0][0],
				"caller %d has a value of its own, of %d bytes", i, len(values[i]))
		}
		kept := c.value != nil
		check.That(t, kept == (n <= keptOpen) && c.users == 0, "%d bytes: kept is %v, with %d users", n, kept, c.users)
	}
}

// Each caller that finds a value broken gets an error; only the first reports it.
func TestBrokenContentIsToldOnce(t *testing.T) {
	t.Parallel()
	f := &Flight{codec: compress.New()}
	c := packed{Codec: compress.Zstd, Size: 7}.content([]byte("no frame"))
	for i := range 3 {
		value, first, err := c.open(t.Context(), f, "k")
		check.That(t, errors.Is(err, errBroken) && first == (i == 0) && value == nil, "call %d: got %q, %v, %v", i, value, first, err)
	}
}

// An object's name has to be one token of a subject, and its size is bounded.
func TestReferenceOfAnObject(t *testing.T) {
	t.Parallel()
	good := object{Bucket: "attic", Digest: "SHA-256=x", Name: "c-1-n", Size: 1}
	check.Is(t, good.check(), nil)
	for _, name := range []string{"", "c", "c-1", "c-1-", "-1-n", "c--n", "c-1-n-m", "c.d-1-n", "c-*-n", "c-1->", "c-1-n.d", "c-1-n d", "c-1-\n"} {
		bad := good
		bad.Name = name
		check.Failsf(t, bad.check(), "name %q is taken", name)
	}
	for _, bad := range []object{
		{Bucket: "", Name: good.Name, Size: 1},
		{Bucket: "a.b", Name: good.Name, Size: 1},
		{Bucket: ">", Name: good.Name, Size: 1},
		{Bucket: "attic", Name: good.Name},
		{Bucket: "attic", Name: good.Name, Size: -1},
		{Bucket: "attic", Name: good.Name, Size: maxValue + 1},
	} {
		check.Failsf(t, bad.check(), "%+v is taken", bad)
	}
}
