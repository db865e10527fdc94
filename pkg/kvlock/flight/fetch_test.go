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

// The fetch of a large value blocks no other waiter, and a waiter that gives up in the meantime gets the value with its next call.
func TestFetchingBlocksNobody(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		withLargeValueBucket(t, b)
		p := natstest.NewProxy(t, b.Srv)
		f, other := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, largeValues)
		value := noise(2 << 20)
		large, small := testbed.Begin(t, other, "large", flight.BeginOptions{}), testbed.Begin(t, other, "small", flight.BeginOptions{})
		var watchers []*flight.Watcher
		for _, key := range []string{"large", "small"} {
			w := check.Must(f.Watch(key))(t)
			t.Cleanup(w.Close)
			s, err := w.Next(testbed.Within(t))
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
		go func() { gaveUp <- check.Err(watchers[0].Next(hasty)) }()
		testbed.Await(t, asked, "nobody asks for the object")
		start := time.Now()
		testbed.Complete(t, small, "v")
		if s, err := watchers[1].Next(testbed.Within(t)); err != nil || string(s.Value) != "v" || time.Since(start) > 10*time.Millisecond {
			t.Errorf("after %s the other waiter got %+v, %v", time.Since(start), s, err)
		}
		bored := errors.New("bored")
		cancel(bored)
		check.ErrorIs(t, testbed.Await(t, gaveUp, "it did not give up"), bored)
		p.Filter(nil)
		s, err := watchers[0].Next(testbed.Within(t))
		check.That(t, err == nil && bytes.Equal(s.Value, value), "got %s with %d bytes, %v", s.State, len(s.Value), err)
	})
}

// storeLarge has another process complete key "k" with a value of so many bytes, which goes into the Object Store.
func storeLarge(t *testing.T, b *testbed.Bed, size int) (value []byte) {
	t.Helper()
	withLargeValueBucket(t, b)
	value = noise(size)
	completeBytes(t, testbed.Begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), value)
	return value
}

// A replica that lags behind knows the record and not the object yet. The leader does.
func TestReplicaWithoutTheObject(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		value, log := storeLarge(t, b, 2<<20+5), &testbed.Logged{}
		f, p := b.ProxiedFlight(t, flight.Config{Logger: log.Logger()})
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
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		value := storeLarge(t, b, 4<<20)
		f, p := b.ProxiedFlight(t, flight.Config{})
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
		s := testbed.Get(t, f, "k")
		p.Filter(nil)
		check.That(t, bytes.Equal(s.Value, value), "got %s with %d bytes", s.State, len(s.Value))
		check.That(t, len(asked) == 1 && asked["$JS.API.DIRECT.GET.OBJ_"+attic] == 2, "asked %v", asked)
	})
}

// A leader that is slow has OpTimeout for each message of an object, not for all of them.
func TestLeaderOfTheObjectIsSlow(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		value := storeLarge(t, b, 8<<20)
		f, p := b.ProxiedFlight(t, flight.Config{})
		p.Filter(natstest.Losing(func(m natstest.Frame) bool { return m.FromClient && m.Subject == "$JS.API.DIRECT.GET.OBJ_"+attic }))
		p.Slow(300 * time.Millisecond)
		start := time.Now()
		s := testbed.Get(t, f, "k")
		p.Slow(0)
		check.That(t, bytes.Equal(s.Value, value), "got %s with %d bytes", s.State, len(s.Value))
		took := time.Since(start)
		check.That(t, took > 4*time.Second, "took %s: the leader was not asked for each message", took)
	})
}

// An Object Store that does not answer is no reason to remove a record.
func TestObjectStoreDoesNotAnswer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		value := storeLarge(t, b, 2<<20)
		f, p := b.ProxiedFlight(t, flight.Config{})
		before := b.Present(t, "k").Sequence
		p.Filter(natstest.Losing(func(m natstest.Frame) bool { return m.FromClient && strings.HasSuffix(m.Subject, ".GET.OBJ_"+attic) }))
		start := time.Now()
		check.ErrorIs(t, check.Err(f.Get(t.Context(), "k")), kvlock.ErrUnavailable)
		testbed.Took(t, "gave up", start, 0, 3*time.Second)
		check.ErrorIs(t, check.Err(f.Wait(t.Context(), "k")), kvlock.ErrUnavailable)
		p.Filter(nil)
		check.Equal(t, b.Present(t, "k").Sequence, before, "revision")
		readEveryWay(t, f, "k", value)
	})
}

// An object costs one request for each 4 MB, and the leader none.
func TestRoundTripsOfAnObject(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		storeLarge(t, b, 10<<20)
		f, p := b.ProxiedFlight(t, flight.Config{})
		asked := map[string]int{}
		p.Filter(func(m natstest.Frame) natstest.Verdict {
			if m.FromClient && m.Subject != "" {
				asked[m.Subject]++
			}
			return natstest.Relay
		})
		s := testbed.Get(t, f, "k")
		check.That(t, len(s.Value) == 10<<20, "got %s with %d bytes", s.State, len(s.Value))
		p.Filter(nil)
		check.That(t, len(asked) == 2 && asked["$JS.API.DIRECT.GET.KV_"+testbed.Bucket] == 1 && asked["$JS.API.DIRECT.GET.OBJ_"+attic] == 3,
			"asked %v", asked)
	})
}
