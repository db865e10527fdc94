package flight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// fill completes keys k0 to k<n-1>, but for every seventh, and returns the keys.
func fill(t testing.TB, f *flight.Flight, n int) []string {
	t.Helper()
	keys := make([]string, n)
	next := make(chan int)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range next {
				testbed.Complete(t, testbed.Begin(t, f, keys[i], flight.BeginOptions{}), fmt.Sprint(i))
			}
		})
	}
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
		if i%7 != 6 {
			next <- i
		}
	}
	close(next)
	all.Wait()
	return keys
}

// requests counts a client's messages, without the commands of the connection itself.
func requests(p *natstest.Proxy) (count func() map[string]int) {
	var mu sync.Mutex
	n := map[string]int{}
	p.Filter(func(f natstest.Frame) natstest.Verdict {
		if f.FromClient {
			mu.Lock()
			defer mu.Unlock()
			n[f.Subject]++
		}
		return natstest.Relay
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestGetManyIsInOrderAndOneRoundTrip(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		all := fill(t, b.Flight(t, flight.Config{}), 1500)
		for n, want := range map[int]int{0: 0, 1: 1, 2: 1, 512: 1, 513: 2, 600: 2, 1500: 3} {
			f, p := b.ProxiedFlight(t, flight.Config{})
			sent := requests(p)
			keys := append([]string(nil), all[:n]...)
			if n == 600 {
				copy(keys[590:], keys[:10]) // the same key in both round trips
				keys[1] = keys[0]           // and twice in one
			}
			entries, err := f.GetMany(t.Context(), keys)
			check.Require(t, err == nil && len(entries) == n, "%d keys: got %d entries, %v", n, len(entries), err)
			for i, s := range entries {
				var number int
				check.OK(t, check.Err(fmt.Sscanf(keys[i], "k%d", &number)))
				state, value := flight.Done, fmt.Sprint(number)
				if number%7 == 6 {
					state, value = flight.Absent, ""
				}
				check.Require(t, s.Key == keys[i] && s.State == state && string(s.Value) == value && (s.Revision > 0) == (state == flight.Done),
					"%d keys: entry %d is %+v, want %s %q", n, i, s, state, value)
			}
			total := 0
			for _, c := range sent() {
				total += c
			}
			check.That(t, total == want, "%d keys took %d requests, want %d: %v", n, total, want, sent())
		}
	})
}

// Each answer comes later than a request waits for it at first. The requests wait longer and longer until one is heard.
func TestGetManyOfASlowServer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		testbed.Complete(t, testbed.Begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{}), "v")
		f, p := b.ProxiedFlight(t, flight.Config{OpTimeout: 10 * time.Second})
		p.Slow(600 * time.Millisecond)
		entries, err := f.GetMany(t.Context(), []string{"k"})
		check.That(t, err == nil && len(entries) == 1 && string(entries[0].Value) == "v", "got %+v, %v, want v", entries, err)
	})
}

// The documented round trips of each operation when all is well. Under fake time no request is repeated because the
// machine is slow.
func TestRoundTrips(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		ctx := t.Context()
		var c *flight.Claim
		steps := []struct {
			name string
			want int
			do   func() error
		}{
			{"Begin of a new key", 1, func() (err error) { c, err = f.Begin(ctx, "k", flight.BeginOptions{}); return err }},
			{"Renew", 1, func() error { return c.Renew(ctx, 0) }},
			{"Resume", 1, func() (err error) { c, err = f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{}); return err }},
			{"Complete", 1, func() error { return check.Err(c.Complete(ctx, nil, 0)) }},
			{"Get", 1, func() error { return check.Err(f.Get(ctx, "k")) }},
			{"Do of a cached value", 1, func() error { return check.Err(f.Do(ctx, "k", nil, flight.DoOptions{})) }},
			{"Begin of a done key", 2, func() error { _, err := f.Begin(ctx, "k", flight.BeginOptions{}); return ignore(err, flight.ErrTaken) }},
			{"Invalidate", 2, func() error { return f.Invalidate(ctx, "k") }},
			{"Begin over a marker, unknown", 3, func() (err error) { c, err = f.Begin(ctx, "k", flight.BeginOptions{}); return err }},
			{"Fail", 1, func() error { return c.Fail(ctx, "r", 0) }},
			{"Do that computes", 3, func() error {
				return check.Err(f.Do(ctx, "k", func(context.Context) ([]byte, error) { return nil, nil }, flight.DoOptions{}))
			}},
		}
		for _, s := range steps {
			sent := requests(p)
			err := s.do()
			check.Require(t, err == nil, "%s: %v", s.name, err)
			total := 0
			for _, n := range sent() {
				total += n
			}
			check.That(t, total == s.want, "%s took %d round trips, want %d: %v", s.name, total, s.want, sent())
		}
	})
}

// Values near the server's limit, and more of them than the server sends at once.
func TestGetManyOfLargeValues(t *testing.T) {
	t.Parallel()
	const maxPending = 4 << 20
	srv := natstest.Server(t, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.MaxPending = maxPending })
	})
	b := testbed.On(t, srv, kvlock.BucketConfig{Bucket: testbed.Bucket})
	f := b.Flight(t, flight.Config{OpTimeout: time.Minute}) // ten megabytes take their time on a busy machine
	large := bytes.Repeat([]byte("x"), 1<<20-1000)
	var keys []string
	for i := range 10 {
		key := fmt.Sprintf("k%d", i)
		keys = append(keys, key)
		value := append([]byte(key), large...)
		check.OK(t, check.Err(testbed.Begin(t, f, key, flight.BeginOptions{}).Complete(t.Context(), value, 0)))
	}
	entries := check.Must(f.GetMany(t.Context(), keys))(t)
	for i, s := range entries {
		check.That(t, s.State == flight.Done && bytes.HasPrefix(s.Value, []byte(keys[i]+"x")) && len(s.Value) == len(large)+2,
			"%s is %s with %d bytes", s.Key, s.State, len(s.Value))
	}
	// The settling of an unknown write reads such a value from the leader.
	check.That(t, check.Err(f.Begin(t.Context(), "k0", flight.BeginOptions{})) != nil, "a done key was claimed")
}

func TestCorruptRecordIsReportedOnceAndRemoved(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	log := &testbed.Logged{}
	f := b.Flight(t, flight.Config{Logger: log.Logger()})
	ctx := t.Context()
	kv := check.Must(b.JS.KeyValue(ctx, testbed.Bucket))(t)
	for _, key := range []string{"read", "claimed", "invalidated"} {
		check.OK(t, check.Err(kv.Put(ctx, key, []byte("{not ours"))))
	}
	for range 3 {
		s := testbed.Get(t, f, "read")
		check.That(t, s.State == flight.Absent && s.Value == nil, "got %+v, want absent", s)
	}
	m := b.Last(t, "read")
	check.That(t, m != nil && len(m.Data) == 0 && m.Header.Get("KV-Operation") == "PURGE", "got %+v, want a marker", m)
	testbed.Complete(t, testbed.Begin(t, f, "read", flight.BeginOptions{}), "v")
	testbed.Complete(t, testbed.Begin(t, f, "claimed", flight.BeginOptions{}), "v")
	check.OK(t, f.Invalidate(ctx, "invalidated"))
	check.Equal(t, log.Count("corrupt record is removed"), 3, "reported")
	for _, key := range []string{"read", "claimed"} {
		wantEntry(t, f, key, flight.Done, "v")
	}
}

// A record of a form that this module does not know is not destroyed.
func TestRecordOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	ctx := t.Context()
	kv := check.Must(b.JS.KeyValue(ctx, testbed.Bucket))(t)
	const newer = `{"v":2,"state":{"of":"the art"}}` + "\nvalue"
	check.OK(t, check.Err(kv.Put(ctx, "k", []byte(newer))))
	for name, do := range map[string]func() error{
		"Get":        func() error { return check.Err(f.Get(ctx, "k")) },
		"Begin":      func() error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{})) },
		"Do":         func() error { return check.Err(f.Do(ctx, "k", nil, flight.DoOptions{})) },
		"Wait":       func() error { return check.Err(f.Wait(testbed.Within(t), "k")) },
		"Invalidate": func() error { return f.Invalidate(ctx, "k") },
	} {
		err := do()
		check.That(t, ignore(err, kvlock.ErrVersion) == nil && err != nil && strings.Contains(err.Error(), "version 2"), "%s: got %v", name, err)
	}
	m := b.Last(t, "k")
	check.That(t, m != nil && string(m.Data) == newer, "became %+v", m)
}

func TestOtherMarkersAreAbsence(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	kv := check.Must(b.JS.KeyValue(t.Context(), testbed.Bucket))(t)
	for name, remove := range map[string]func(key string) error{
		"deleted": func(key string) error { return kv.Delete(t.Context(), key) },
		"purged": func(key string) error {
			m := &nats.Msg{Subject: "$KV." + testbed.Bucket + "." + key, Header: nats.Header{"KV-Operation": {"PURGE"}}}
			return check.Err(b.JS.PublishMsg(t.Context(), m, jetstream.WithMsgTTL(time.Minute)))
		},
	} {
		testbed.Complete(t, testbed.Begin(t, f, name, flight.BeginOptions{}), "v")
		check.OK(t, remove(name))
		s := wantEntry(t, f, name, flight.Absent, "")
		testbed.Begin(t, f, name, flight.BeginOptions{Seen: s})
	}
}

// A replica lags behind, and shows a key absent that is done. A claim finds the value, which the leader has.
func TestClaimFindsWhatAReplicaLacks(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		testbed.Complete(t, testbed.Begin(t, f, "k", flight.BeginOptions{}), "v")
		testbed.Lag(p)
		absent := wantEntry(t, f, "k", flight.Absent, "")
		_, err := f.Begin(t.Context(), "k", flight.BeginOptions{Seen: absent})
		taken, ok := errors.AsType[*flight.TakenError](err)
		check.That(t, ok && taken.Entry.State == flight.Done && string(taken.Entry.Value) == "v", "got %v; want the value", err)
	})
}
