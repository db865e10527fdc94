package flight_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The fetch of a large value blocks no other waiter, and a waiter that gives up meanwhile gets the value with its next call.
func TestFetchingBlocksNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		p := natstest.NewProxy(t, b.Srv)
		f, other := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, largeValues)
		value := noise(2 << 20)
		large, small := begin(t, other, "large", flight.BeginOptions{}), begin(t, other, "small", flight.BeginOptions{})
		var watchers []*flight.Watcher
		for _, key := range []string{"large", "small"} {
			w := check.Must(f.Watch(key))(t)
			t.Cleanup(w.Close)
			s, err := w.Next(within(t))
			check.Require(t, err == nil && s.State == flight.Pending, "got %+v, %v", s, err)
			watchers = append(watchers, w)
		}
		asked := make(chan struct{}, 100)
		p.Filter(func(m natstest.Frame) natstest.Verdict {
			if m.FromClient && strings.HasSuffix(m.Subject, ".GET.OBJ_"+attic) {
				asked <- struct{}{}
				return natstest.Lose
			}
			return natstest.Relay
		})
		completeBytes(t, large, value)
		hasty, cancel := context.WithCancelCause(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := watchers[0].Next(hasty)
			gaveUp <- err
		}()
		testbed.Await(t, asked, "nobody asks for the object")
		start := time.Now()
		complete(t, small, "v")
		if s, err := watchers[1].Next(within(t)); err != nil || string(s.Value) != "v" || time.Since(start) > 10*time.Millisecond {
			t.Errorf("after %s the other waiter got %+v, %v", time.Since(start), s, err)
		}
		bored := errors.New("bored")
		cancel(bored)
		wantErr(t, testbed.Await(t, gaveUp, "it did not give up"), bored)
		p.Filter(nil)
		s, err := watchers[0].Next(within(t))
		check.That(t, err == nil && bytes.Equal(s.Value, value), "got %s with %d bytes, %v", s.State, len(s.Value), err)
	})
}

// A replica that lags behind knows the record and not the object yet. The leader does.
func TestReplicaWithoutTheObject(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		p, log := natstest.NewProxy(t, b.Srv), &logged{}
		f := b.Flight(t, flight.Config{Logger: log.Logger()}, p.Through())
		value := noise(2<<20 + 5)
		completeBytes(t, begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), value)
		asked := map[string]bool{}
		p.Change(func(m natstest.Frame) []byte {
			switch {
			case m.FromClient && m.Subject == "$JS.API.DIRECT.GET.OBJ_"+attic:
				asked[m.Reply] = true
			case !m.FromClient && asked[m.Subject]:
				const none = "NATS/1.0 404 Message Not Found\r\n\r\n"
				return m.With([]byte(none), len(none))
			}
			return nil
		})
		readEveryWay(t, f, "k", value)
		check.That(t, len(asked) != 0 && log.Count("corrupt") == 0, "asked %d times; %s", len(asked), log.String())
	})
}

// An answer that ends in its midst, because the rest of it was lost, is gone on with behind it. The leader is not asked.
func TestAnswerWithAnObjectIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, flight.Config{})
		value := noise(4 << 20)
		completeBytes(t, begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), value)
		asked, chunks := map[string]int{}, map[string]int{}
		var first string
		p.Filter(func(m natstest.Frame) natstest.Verdict {
			if m.FromClient && strings.Contains(m.Subject, ".GET.OBJ_") {
				asked[m.Subject]++
				first = cmp.Or(first, m.Reply)
				return natstest.Relay
			}
			chunks[m.Subject]++
			if m.Subject == first && chunks[first] > 3 {
				return natstest.Lose
			}
			return natstest.Relay
		})
		s := get(t, f, "k")
		p.Filter(nil)
		check.That(t, bytes.Equal(s.Value, value), "got %s with %d bytes", s.State, len(s.Value))
		check.That(t, len(asked) == 1 && asked["$JS.API.DIRECT.GET.OBJ_"+attic] == 2, "asked %v", asked)
	})
}

// A leader that is slow has OpTimeout for each message of an object, not for all of them.
func TestLeaderOfTheObjectIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, flight.Config{})
		value := noise(8 << 20)
		completeBytes(t, begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), value)
		p.Filter(losing(func(m natstest.Frame) bool { return m.FromClient && m.Subject == "$JS.API.DIRECT.GET.OBJ_"+attic }))
		p.Slow(300 * time.Millisecond)
		start := time.Now()
		s := get(t, f, "k")
		p.Slow(0)
		check.That(t, bytes.Equal(s.Value, value), "got %s with %d bytes", s.State, len(s.Value))
		took := time.Since(start)
		check.That(t, took > 4*time.Second, "took %s: the leader was not asked for each message", took)
	})
}

// An Object Store that does not answer is no reason to remove a record.
func TestObjectStoreDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, flight.Config{})
		value := noise(2 << 20)
		completeBytes(t, begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), value)
		before := b.Present(t, "k").Sequence
		p.Filter(losing(func(m natstest.Frame) bool { return m.FromClient && strings.HasSuffix(m.Subject, ".GET.OBJ_"+attic) }))
		start := time.Now()
		wantErr(t, check.Err(f.Get(t.Context(), "k")), kvlock.ErrUnavailable)
		took(t, "gave up", start, 0, 3*time.Second)
		wantErr(t, check.Err(f.Wait(t.Context(), "k")), kvlock.ErrUnavailable)
		p.Filter(nil)
		check.Same(t, "revision", b.Present(t, "k").Sequence, before)
		readEveryWay(t, f, "k", value)
	})
}

// An object costs one request for each 4 MB, and the leader none.
func TestRoundTripsOfAnObject(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, flight.Config{})
		completeBytes(t, begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), noise(10<<20))
		asked := map[string]int{}
		p.Filter(func(m natstest.Frame) natstest.Verdict {
			if m.FromClient && m.Subject != "" {
				asked[m.Subject]++
			}
			return natstest.Relay
		})
		s := get(t, f, "k")
		check.That(t, len(s.Value) == 10<<20, "got %s with %d bytes", s.State, len(s.Value))
		p.Filter(nil)
		check.That(t, len(asked) == 2 && asked["$JS.API.DIRECT.GET.KV_"+bucket] == 1 && asked["$JS.API.DIRECT.GET.OBJ_"+attic] == 3,
			"asked %v", asked)
	})
}

// A value that is computed anew, or cannot be, is there meanwhile, however it is stored; and it goes in the end.
func TestStaleValueHoweverItIsStored(t *testing.T) {
	for name, value := range map[string][]byte{
		"raw": noise(1 << 10), "compressed": document(100 << 10), "object": noise(2 << 20), "compressed object": document(30 << 20),
	} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			withLargeValueBucket(t, b)
			log := &logged{}
			cfg := flight.Config{LargeValueBucket: attic, Logger: log.Logger()}
			f, g := b.Flight(t, cfg), b.Flight(t, cfg)
			opts := flight.DoOptions{ClaimTTL: 10 * time.Second, Stale: 10 * time.Minute, TTL: time.Minute}
			do := func(f *flight.Flight, want flight.Outcome, fn func(context.Context) ([]byte, error)) {
				t.Helper()
				r, err := f.Do(t.Context(), "k", fn, opts)
				check.That(t, err == nil && r.Outcome == want && bytes.Equal(r.Value, value),
					"got %s with %d bytes, %v; want %s with %d", r.Outcome, len(r.Value), err, want, len(value))
			}
			do(f, flight.Computed, func(context.Context) ([]byte, error) { return value, nil })
			size := len(b.Present(t, "k").Data)
			pass(70 * time.Second)
			failed := make(chan struct{})
			do(f, flight.Stale, func(context.Context) ([]byte, error) { close(failed); return nil, errors.New("oven is cold") })
			<-failed
			pass(time.Minute)
			started, end := make(chan struct{}), make(chan struct{})
			do(f, flight.Stale, func(context.Context) ([]byte, error) { close(started); <-end; return value, nil })
			<-started
			for range 10 { // renewals carry it
				never := func(context.Context) ([]byte, error) { t.Error("ran twice"); return nil, nil }
				do(g, flight.Stale, never)
				n := len(b.Present(t, "k").Data)
				check.That(t, n <= size+500, "carried in %d bytes, stored in %d", n, size)
				pass(10 * time.Second)
			}
			close(end)
			pass(time.Second)
			do(g, flight.Cached, nil)
			pass(15 * time.Minute)
			wantEntry(t, g, "k", flight.Absent, "")
			n := largeValueMessages(t, b)
			check.That(t, n == 0 && log.Count("corrupt") == 0, "%d messages are left; %s", n, log.String())
		})
	}
}

// A claim whose earlier value cannot be had is none the worse for it.
func TestClaimOverAnObjectThatIsTorn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		f, g := b.Flight(t, largeValues), b.Flight(t, flight.Config{})
		value := noise(2 << 20)
		opts := flight.DoOptions{Stale: 10 * time.Minute, TTL: time.Minute}
		fn := func(context.Context) ([]byte, error) { return value, nil }
		check.OK(t, check.Err(f.Do(t.Context(), "k", fn, opts)))
		pass(70 * time.Second)
		started, end := make(chan struct{}), make(chan struct{})
		if r, err := f.Do(t.Context(), "k", func(context.Context) ([]byte, error) { close(started); <-end; return value, nil }, opts); err != nil {
			t.Fatal(r.Outcome, err)
		}
		<-started
		check.OK(t, largeValueStream(t, b).Purge(t.Context()))
		wantEntry(t, g, "k", flight.Pending, "")
		wantEntry(t, g, "k", flight.Pending, "")
		close(end)
		s, err := g.Wait(t.Context(), "k")
		check.That(t, err == nil && bytes.Equal(s.Value, value), "got %s with %d bytes, %v", s.State, len(s.Value), err)
	})
}

// While the newer value is uploaded the claim is renewed for its own TTL, not for that of the value which it carries.
func TestUploadOverAStaleValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, flight.Config{LargeValueBucket: attic, OpTimeout: 30 * time.Second})
		value := noise(2 << 20)
		opts := flight.DoOptions{ClaimTTL: 3 * time.Second, Stale: 10 * time.Minute, TTL: time.Minute}
		do := func() {
			t.Helper()
			r, err := f.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return value, nil }, opts)
			check.Require(t, err == nil, "%v %v", r.Outcome, err)
		}
		do()
		pass(70 * time.Second)
		start := time.Now()
		p.Filter(losing(func(m natstest.Frame) bool {
			return m.FromClient && strings.HasPrefix(m.Subject, "$O.") && time.Since(start) < 15*time.Second
		}))
		do()
		pass(10 * time.Second)
		meta, _ := recordOf(t, b, "k")
		kept, _ := meta["kept"].(map[string]any)
		check.That(t, meta["state"] == "pending" && kept["holds"] == 3.0, "got %v", meta)
		pass(20 * time.Second)
		s := get(t, f, "k")
		check.That(t, s.State == flight.Done && s.Age() <= time.Minute, "%s of %s", s.State, s.Age())
	})
}
