package flight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func list(t testing.TB, f *flight.Flight, prefix string) []string {
	t.Helper()
	var all []string
	for s, err := range f.List(t.Context(), prefix) {
		check.OK(t, err)
		all = append(all, fmt.Sprintf("%s:%s:%s", s.Key, s.State, s.Value))
	}
	return all
}

// flood stores n results under prefix as fast as it can.
func flood(t testing.TB, js jetstream.JetStream, prefix string, n, size int) {
	t.Helper()
	value := strings.Repeat("x", size)
	for i := range n {
		hours := 1 + i%100
		data := fmt.Sprintf(`{"v":1,"state":"done","claim":"4BZ1nDZkLiy7uDiTUv8rWK","owner":"4BZ1nDZkLiy7uDiTUv8rZj",`+
			`"instance":"host-1-abcdef","attempt":1,"ttl":%d}`+"\n%s", 3600*hours, value)
		subject, header := fmt.Sprintf("$KV.%s.%s.%d", testbed.Bucket, prefix, i), nats.Header{"Nats-TTL": {fmt.Sprintf("%dh", hours)}}
		m := &nats.Msg{Subject: subject, Header: header, Data: []byte(data)}
		check.OK(t, check.Err(js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	check.Equal(t, len(list(t, f, "")), 0, "an empty bucket has")
	large := strings.Repeat("v", 100<<10) // compressed
	testbed.Complete(t, testbed.Begin(t, f, "a.done", flight.BeginOptions{}), "v")
	testbed.Complete(t, testbed.Begin(t, f, "a.large", flight.BeginOptions{}), large)
	testbed.Complete(t, testbed.Begin(t, f, "a.gone", flight.BeginOptions{}), "v")
	testbed.Begin(t, f, "a.pending", flight.BeginOptions{})
	check.OK(t, testbed.Begin(t, f, "ab", flight.BeginOptions{}).Fail(t.Context(), "r", time.Hour))
	check.OK(t, testbed.Begin(t, f, "a.failed", flight.BeginOptions{}).Fail(t.Context(), "r", 0))
	check.OK(t, f.Invalidate(t.Context(), "a.gone"))
	for prefix, want := range map[string][]string{
		"":       {"a.done:done:v", "a.large:done:" + large, "a.pending:pending:", "ab:failed:"},
		"a":      {"a.done:done:v", "a.large:done:" + large, "a.pending:pending:"},
		"a.done": nil,
		"none":   nil,
	} {
		got := list(t, f, prefix)
		check.That(t, slices.Equal(got, want), "%q: got %.200q", prefix, got)
	}
	for _, err := range f.List(t.Context(), "a.*") {
		check.ErrorIs(t, err, kvlock.ErrInvalidKey)
	}
}

// A page of all keys is requested by its sequence alone: the server counts what follows another filter, message by message.
func TestListOfAllKeysCountsNothing(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f, p := b.ProxiedFlight(t, flight.Config{})
	testbed.Complete(t, testbed.Begin(t, f, "a.done", flight.BeginOptions{}), "v")
	var asked struct {
		Filter string `json:"next_by_subj"`
	}
	p.Filter(func(m natstest.Frame) natstest.Verdict {
		if m.FromClient && m.Subject == "$JS.API.DIRECT.GET.KV_"+testbed.Bucket {
			check.OK(t, json.Unmarshal(m.Payload(), &asked))
		}
		return natstest.Relay
	})
	all := list(t, f, "")
	check.That(t, len(all) == 1 && asked.Filter == ">", "got %q with the filter %q", all, asked.Filter)
}

// A record that cannot be read is yielded with an error, and does not hide the others.
func TestListOfRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	for key, data := range map[string]string{"newer": `{"v":99}` + "\n", "corrupt": "?"} {
		check.OK(t, check.Err(b.JS.Publish(t.Context(), "$KV."+testbed.Bucket+"."+key, []byte(data))))
	}
	testbed.Complete(t, testbed.Begin(t, f, "done", flight.BeginOptions{}), "v")
	got := map[string]error{}
	for s, err := range f.List(t.Context(), "") {
		got[s.Key] = err
	}
	check.That(t, len(got) == 3 && got["done"] == nil && got["corrupt"] != nil && errors.Is(got["newer"], kvlock.ErrVersion), "got %v", got)
	check.That(t, b.Last(t, "corrupt") != nil, "looking at it removed it")
}

// More keys than one request reads, written to while they are listed: none that is there all the time is missed, and of
// a key that is yielded twice the later revision comes later.
func TestListWhileItIsWrittenTo(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, patient)
	const n = 3000 // of 3 kB: the server answers with 4 MiB at a time
	flood(t, b.JS, "a", n, 3000)
	seen := map[string]uint64{}
	yielded, written := 0, 0
	for s, err := range f.List(t.Context(), "a") {
		check.OK(t, err)
		check.Require(t, s.Revision > seen[s.Key], "%s is yielded at %d, after %d", s.Key, s.Revision, seen[s.Key])
		seen[s.Key] = s.Revision
		yielded++
		if yielded%10 == 0 && written < 100 {
			written++
			replace(t, f, fmt.Sprintf("a.%d", (written*7919)%n), "new")
		}
	}
	check.That(t, len(seen) == n && yielded > n, "%d of %d keys, %d in all", len(seen), n, yielded)
	for _, err := range f.List(t.Context(), "a") {
		check.ErrorIs(t, err, nil)
		break // and no more is read
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for s, err := range f.List(ctx, "a") {
		check.Equal(t, s.Key, "", "s.Key")
		check.ErrorIs(t, err, context.Canceled)
	}
}

// Messages are lost on their way: the rest is asked for again, and nothing is missed. An answer that takes longer than an operation may
// take is continued where it ended.
func TestListSurvivesLostMessages(t *testing.T) {
	for name, lost := range map[string]func(message int, since time.Duration) bool{
		"some":                        func(n int, _ time.Duration) bool { return n == 100 || 1000 < n && n < 1200 },
		"all of two seconds and more": func(n int, since time.Duration) bool { return n > 100 && since < 2500*time.Millisecond },
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			const n = 3000
			flood(t, b.JS, "a", n, 10)
			f, p := b.ProxiedFlight(t, flight.Config{OpTimeout: 2 * time.Second})
			messages, start := 0, time.Now()
			p.Filter(func(f natstest.Frame) natstest.Verdict {
				if !f.FromClient && strings.Contains(string(f.Raw), "Nats-Num-Pending") {
					messages++
					if lost(messages, time.Since(start)) {
						return natstest.Lose
					}
				}
				return natstest.Relay
			})
			all := list(t, f, "")
			check.That(t, len(all) == n && messages > n, "%d of %d keys, %d messages", len(all), n, messages)
		})
	}
}

func TestStats(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, remembering()), b.Flight(t, flight.Config{})
		fn := func(context.Context) ([]byte, error) { natstest.Pass(time.Second); return []byte("v"), nil }
		do := func(f *flight.Flight, key string) {
			check.ErrorIs(t, check.Err(f.Do(t.Context(), key, fn, flight.DoOptions{})), nil)
		}
		var waiter sync.WaitGroup
		waiter.Go(func() { natstest.Pass(time.Millisecond); do(g, "a") })
		do(f, "a") // computed, and g waits
		waiter.Wait()
		do(f, "a") // from memory
		do(g, "a") // from the bucket
		check.That(t, check.Err(g.Do(t.Context(), "e", func(context.Context) ([]byte, error) { panic("p") }, flight.DoOptions{})) != nil,
			"no error")
		s := f.Stats()
		check.That(t, s.Computed == 1 && s.Cached == 0 && s.Memory.Hits == 1 && s.Misses == 1, "got %+v", s)
		s = g.Stats()
		check.That(t, s.Coalesced == 1 && s.Cached == 1 && s.Hits == 1 && s.Misses == 2 && s.Errors == 1 && s.Waits == 1,
			"got %+v", s)
	})
}
