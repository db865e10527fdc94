package flight_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// memoryBound is how old a value from memory can be.
const memoryBound = 3 * time.Second

func remembering() flight.Config {
	return flight.Config{Memory: flight.MemoryConfig{MaxBytes: 1 << 20}}
}

// reads counts the requests for values, and calls the filter, too.
func reads(p *natstest.Proxy, filter func(natstest.Frame) natstest.Verdict) func() int {
	var n atomic.Int64
	p.Filter(func(f natstest.Frame) natstest.Verdict {
		if f.FromClient && (strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET.") || strings.HasPrefix(f.Subject, "$JS.API.STREAM.MSG.GET.")) {
			n.Add(1)
		}
		if filter != nil {
			return filter(f)
		}
		return natstest.Relay
	})
	return func() int { return int(n.Load()) }
}

// store makes value the result of key, in any earlier state of the key.
func replace(t testing.TB, f *flight.Flight, key, value string) flight.Entry {
	t.Helper()
	check.OK(t, f.Invalidate(t.Context(), key))
	return testbed.Complete(t, testbed.Begin(t, f, key, flight.BeginOptions{}), value)
}

func TestMemoryCostsNoRoundTrip(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		asked := reads(p, nil)
		f, g := b.Flight(t, remembering(), p.Through()), b.Flight(t, flight.Config{})
		replace(t, g, "a", "1")
		replace(t, g, "b", "2")
		natstest.Pass(time.Millisecond)
		for range 3 {
			wantEntry(t, f, "a", flight.Done, "1")
			r, err := f.Do(t.Context(), "a", nil, flight.DoOptions{})
			check.That(t,
				err == nil && r.Memory && r.Outcome == flight.Cached && string(r.Value) == "1" && r.Stored && r.Owner != "" && r.Claim != "",
				"got %+v, %v", r, err)
		}
		check.Equal(t, asked(), 1, "asked()")
		entries, err := f.GetMany(t.Context(), []string{"b", "a", "absent", "b"})
		if err != nil || string(entries[0].Value) != "2" || string(entries[1].Value) != "1" || entries[2].State != flight.Absent || string(entries[3].Value) != "2" {
			t.Errorf("got %+v, %v", entries, err)
		}
		check.Equal(t, asked(), 2, "asked()")
		check.ErrorIs(t, check.Err(f.Do(t.Context(), "a", nil, flight.DoOptions{Fingerprint: "other"})), kvlock.ErrMismatch)
	})
}

// A push drops a value that another process changes, long before the leader is asked.
func TestMemoryLearnsOfChanges(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, remembering()), b.Flight(t, remembering())
		replace(t, g, "k", "1")
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Done, "1")
		check.OK(t, g.Invalidate(t.Context(), "k"))
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Absent, "")
		c := testbed.Begin(t, g, "k", flight.BeginOptions{})
		wantEntry(t, f, "k", flight.Pending, "")
		testbed.Complete(t, c, "2")
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Done, "2")
	})
}

// A process sees its own writes at once, without a push.
func TestMemoryOfOwnWrites(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		asked := reads(p, testbed.LosePushes)
		f := b.Flight(t, remembering(), p.Through())
		for i := range 10 {
			v := fmt.Sprint(i)
			replace(t, f, "k", v)
			before := asked()
			wantEntry(t, f, "k", flight.Done, v)
			check.Equal(t, asked(), before, "reads after a store")
			check.OK(t, f.Invalidate(t.Context(), "k"))
			wantEntry(t, f, "k", flight.Absent, "")
			c := testbed.Begin(t, f, "k", flight.BeginOptions{})
			wantEntry(t, f, "k", flight.Pending, "")
			check.OK(t, c.Fail(t.Context(), "r", time.Hour))
			before = asked()
			s := testbed.Get(t, f, "k")
			check.That(t, s.State == flight.Failed && s.Reason == "r" && asked() == before, "got %+v, after %d reads", s, asked()-before)
		}
	})
}

// The push of an invalidation overtakes the answer to a read that began before it. The old value is returned once, to
// the caller that asked before the change, and not kept.
func TestStaleRefillIsImpossible(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, remembering(), p.Through()), b.Flight(t, flight.Config{})
		replace(t, g, "k", "old")
		natstest.Pass(time.Millisecond)
		overtaken := overtake(p)
		var read sync.WaitGroup
		read.Go(func() { check.Equal(t, string(testbed.Get(t, f, "k").Value), "old", "result") })
		<-overtaken
		check.OK(t, g.Invalidate(t.Context(), "k"))
		natstest.Pass(time.Millisecond) // its push is taken
		testbed.Begin(t, g, "other", flight.BeginOptions{})
		read.Wait()
		wantEntry(t, f, "k", flight.Absent, "")
		check.Equal(t, f.Stats().Memory.Refused, 1, "refused")
	})
}

// overtake holds back the answer to the next read, until key "other" is pushed. The channel is closed when the answer is there.
func overtake(p *natstest.Proxy) (overtaken chan struct{}) {
	overtaken = make(chan struct{})
	var reply string
	var answer []byte
	delivered := false
	p.Change(func(f natstest.Frame) []byte {
		switch {
		case delivered:
		case f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET."):
			reply = f.Reply
		case !f.FromClient && f.Subject == reply:
			if answer = append(answer, f.Raw...); strings.Contains(string(f.Raw), " 204 EOB") {
				close(overtaken)
			}
			return []byte("PING\r\n")
		case testbed.IsPush(f) && strings.HasSuffix(f.Subject, ".other"):
			delivered = true
			return append(answer, f.Raw...)
		}
		return nil
	})
	return overtaken
}

// A read is under way while the bucket is deleted and made again, and its answer comes when the memory knows the new bucket. The value
// is not kept: its revision is greater than all that follow.
func TestMemoryOfAReadOfAFormerBucket(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, remembering(), p.Through()), b.Flight(t, flight.Config{})
		replace(t, g, "k", "old")
		natstest.Pass(900 * time.Millisecond) // the leader is asked every second, and a read is repeated after one
		overtaken := overtake(p)
		var read sync.WaitGroup
		read.Go(func() { check.Equal(t, string(testbed.Get(t, f, "k").Value), "old", "result") })
		<-overtaken
		b.RecreateBucket(t, 0)
		natstest.Pass(200 * time.Millisecond)
		testbed.Begin(t, g, "other", flight.BeginOptions{})
		read.Wait()
		replace(t, g, "k", "new")
		natstest.Pass(time.Millisecond)
		for range 2 {
			wantEntry(t, f, "k", flight.Done, "new")
		}
		check.Equal(t, f.Stats().Memory.Hits, 1, "hits of the new value")
	})
}

// One push is lost. The next one, of any key, shows that.
func TestMemoryNoticesAGap(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, remembering(), p.Through()), b.Flight(t, flight.Config{})
		replace(t, g, "k", "old")
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Done, "old")
		p.Filter(testbed.LosePushes)
		check.OK(t, g.Invalidate(t.Context(), "k"))
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Done, "old") // no push arrived
		p.Filter(nil)
		testbed.Begin(t, g, "other", flight.BeginOptions{})
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Absent, "")
	})
}

// The last push is lost, or all are; or the connection is, with or without a word. Nothing is served that was replaced
// longer ago than the bound.
func TestMemoryIsNeverOlderThanItsBound(t *testing.T) {
	for name, fault := range map[string]func(p *natstest.Proxy){
		"pushes are lost":   func(p *natstest.Proxy) { p.Filter(testbed.LosePushes) },
		"partition":         (*natstest.Proxy).Partition,
		"connection is cut": (*natstest.Proxy).Cut,
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			p := natstest.NewProxy(t, b.Srv)
			cfg := remembering()
			cfg.OpTimeout = 10 * time.Millisecond
			f, g := b.Flight(t, cfg, p.Through()), b.Flight(t, flight.Config{})
			replace(t, g, "k", "old")
			natstest.Pass(time.Duration(rand.N(int64(3 * time.Second))))
			wantEntry(t, f, "k", flight.Done, "old")
			fault(p)
			replaced := time.Now()
			replace(t, g, "k", "new")
			served := replaced
			for time.Since(replaced) < time.Minute {
				natstest.Pass(10 * time.Millisecond)
				if s, err := f.Get(t.Context(), "k"); err == nil && string(s.Value) == "old" {
					served = time.Now()
				}
			}
			old := served.Sub(replaced)
			check.That(t, old <= memoryBound, "the old value was served %s after it was replaced", old)
		})
	}
}

// After a reconnect kept values are served again, if nothing changed in the meantime.
func TestMemoryOutlivesAReconnect(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		asked := reads(p, nil)
		f, g := b.Flight(t, remembering(), p.Through(), nats.ReconnectWait(time.Second)), b.Flight(t, flight.Config{})
		replace(t, g, "a", "1")
		replace(t, g, "b", "2")
		for _, change := range []bool{false, true} {
			natstest.Pass(time.Second)
			wantEntry(t, f, "a", flight.Done, "1")
			wantEntry(t, f, "b", flight.Done, "2")
			before := asked()
			p.Cut()
			if change {
				replace(t, g, "a", "1")
			}
			p.Heal()
			natstest.Pass(5 * time.Second)
			wantEntry(t, f, "a", flight.Done, "1")
			wantEntry(t, f, "b", flight.Done, "2")
			n := asked() - before
			check.That(t, change == (n == 2) && (change || n == 0), "changed in between: %v: %d reads", change, n)
		}
	})
}

func TestMemoryEndsWithTheTTL(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, remembering()), b.Flight(t, flight.Config{})
		c := testbed.Begin(t, g, "k", flight.BeginOptions{})
		check.OK(t, check.Err(c.Complete(t.Context(), []byte("v"), 5*time.Second)))
		c = testbed.Begin(t, f, "own", flight.BeginOptions{})
		check.OK(t, check.Err(c.Complete(t.Context(), []byte("v"), 5*time.Second)))
		natstest.Pass(3 * time.Second)
		wantEntry(t, f, "k", flight.Done, "v")
		natstest.Pass(2*time.Second + testbed.Lateness)
		wantEntry(t, f, "k", flight.Absent, "")
		wantEntry(t, f, "own", flight.Absent, "")
	})
}

// The clock of this process is ten seconds behind the server's: a value that has five left by ours has ended by theirs.
func TestMemoryBelievesTheServersClock(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		ts := regexp.MustCompile(`"ts":"[^"]*"`)
		p.Change(func(f natstest.Frame) []byte {
			payload := string(f.Payload())
			if f.FromClient || !strings.Contains(payload, "stream_info_response") {
				return nil
			}
			now := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339Nano)
			return f.With([]byte(ts.ReplaceAllString(payload, `"ts":"`+now+`"`)), 0)
		})
		f, g := b.Flight(t, remembering(), p.Through()), b.Flight(t, flight.Config{})
		for _, ttl := range []time.Duration{5 * time.Second, 20 * time.Second} {
			key := ttl.String()
			c := testbed.Begin(t, g, key, flight.BeginOptions{})
			check.OK(t, check.Err(c.Complete(t.Context(), []byte("v"), ttl)))
			natstest.Pass(time.Millisecond)
			testbed.Get(t, f, key)
			before := f.Stats().Memory.Hits
			testbed.Get(t, f, key)
			check.Equal(t, f.Stats().Memory.Hits > before, ttl > 10*time.Second, fmt.Sprintf("TTL of %s: kept", ttl))
		}
	})
}

// The bucket is deleted and recreated, with the same keys at the same revisions.
func TestMemoryOfARecreatedBucket(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, remembering()), b.Flight(t, flight.Config{})
		replace(t, g, "k", "old")
		natstest.Pass(time.Second)
		wantEntry(t, f, "k", flight.Done, "old")
		b.RecreateBucket(t, 0)
		natstest.Pass(memoryBound)
		wantEntry(t, f, "k", flight.Absent, "")
		replace(t, g, "k", "new")
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Done, "new")
	})
}

// Nobody can wait, or keep results in memory, where changes are not pushed. Reading needs no pushes.
func TestBucketThatDoesNotRepublish(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	sc := kvlock.StreamConfig(kvlock.BucketConfig{Bucket: testbed.Bucket})
	sc.RePublish = nil
	check.OK(t, check.Err(js.CreateStream(t.Context(), sc)))
	cfg := remembering()
	cfg.Bucket = testbed.Bucket
	check.ErrorContains(t, check.Err(flight.New(t.Context(), js, cfg)), "republish")
	f := testbed.FlightOn(t, js, flight.Config{})
	check.ErrorContains(t, check.Err(f.Watch("k")), "republish")
	wantEntry(t, f, "k", flight.Absent, "")
}

// The bucket is gone for a moment, and back as if it were the same: restored from a backup, and written to again. The
// memory's values of it are not believed.
func TestMemoryOfABucketThatWasGone(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		asked := reads(p, nil)
		f := b.Flight(t, remembering(), p.Through())
		replace(t, b.Flight(t, flight.Config{}), "k", "1")
		natstest.Pass(time.Millisecond)
		wantEntry(t, f, "k", flight.Done, "1")
		var gone atomic.Bool
		p.Change(func(f natstest.Frame) []byte {
			if f.FromClient || !strings.Contains(string(f.Payload()), "stream_info_response") || gone.Swap(true) {
				return nil
			}
			return f.With([]byte(`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`), 0)
		})
		natstest.Pass(memoryBound + time.Second)
		before := asked()
		wantEntry(t, f, "k", flight.Done, "1")
		n := asked() - before
		check.That(t, n == 1 && gone.Load(), "%d reads, want 1; the bucket was gone: %v", n, gone.Load())
	})
}
