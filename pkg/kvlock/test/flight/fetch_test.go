package flight_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// What a waiter waits for is fetched by itself. Others are woken meanwhile, and it does not miss it when it gives up.
func TestFetchingBlocksNobody(t *testing.T) { inBubble(t, testFetching) }

func testFetching(t *testing.T, b *bed) {
	t.Helper()
	b.withLargeValueBucket(t)
	p := natstest.NewProxy(t, b.Srv)
	f, other := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, largeValues)
	value := noise(2 << 20)
	large, small := begin(t, other, "large", flight.BeginOptions{}), begin(t, other, "small", flight.BeginOptions{})
	var watchers []*flight.Watcher
	for _, key := range []string{"large", "small"} {
		w := check.Must(f.Watch(key))(t)
		t.Cleanup(w.Close)
		if s, err := w.Next(within(t)); err != nil || s.State != flight.Pending {
			t.Fatalf("got %+v, %v", s, err)
		}
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
}

// A replica that lags behind knows the record and not the object yet. The leader does.
func TestReplicaWithoutTheObject(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		b.withLargeValueBucket(t)
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

// An Object Store that does not answer is no reason to remove a record.
func TestObjectStoreDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		b.withLargeValueBucket(t)
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
		value := noise(2 << 20)
		completeBytes(t, begin(t, b.Flight(t, largeValues), "k", flight.BeginOptions{}), value)
		before := b.Present(t, "k").Sequence
		p.Filter(losing(func(m natstest.Frame) bool { return m.FromClient && strings.HasSuffix(m.Subject, ".GET.OBJ_"+attic) }))
		start := time.Now()
		_, err := f.Get(t.Context(), "k")
		wantErr(t, err, kvlock.ErrUnavailable)
		took := time.Since(start)
		check.That(t, took <= 3*time.Second, "took %s", took)
		_, err = f.Wait(t.Context(), "k")
		wantErr(t, err, kvlock.ErrUnavailable)
		p.Filter(nil)
		check.Same(t, "revision", b.Present(t, "k").Sequence, before)
		readEveryWay(t, f, "k", value)
	})
}

// An object costs one request for each 4 MB, and the leader none.
func TestRoundTripsOfAnObject(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		b.withLargeValueBucket(t)
		p := natstest.NewProxy(t, b.Srv)
		f := b.Flight(t, flight.Config{}, p.Through())
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
