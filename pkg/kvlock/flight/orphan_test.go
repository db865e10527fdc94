package flight_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// gone is after how long an object of a few megabytes has gone at the latest, counted from the end of its record.
const gone = 90 * time.Second

// A value in the Object Store is there for as long as its record, and goes with it.
func TestObjectLivesAsLongAsItsRecord(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		withLargeValueBucket(t, b)
		log := &testbed.Logged{}
		f := b.Flight(t, flight.Config{LargeValueBucket: attic, Logger: log.Logger()})
		value := noise(2 << 20)
		const ttl = 10 * time.Minute
		check.OK(t, check.Err(testbed.Begin(t, f, "k", flight.BeginOptions{}).Complete(t.Context(), value, ttl)))
		for start := time.Now(); time.Since(start) < ttl-time.Second; natstest.Pass(10 * time.Second) {
			s := testbed.Get(t, f, "k")
			check.Require(t, bytes.Equal(s.Value, value), "after %s: %s with %d bytes", time.Since(start), s.State, len(s.Value))
		}
		natstest.Pass(2 * time.Second)
		wantEntry(t, f, "k", flight.Absent, "")
		check.That(t, largeValueMessages(t, b) != 0, "the object went as soon as the record")
		natstest.Pass(gone)
		check.Equal(t, largeValueMessages(t, b), 0, "messages in the Object Store")
		check.Equal(t, log.String(), "", "logged")
	})
}

// Objects to which no record refers expire by themselves, for any cause.
func TestOrphansGo(t *testing.T) {
	const ttl = 5 * time.Minute
	value := noise(2 << 20)
	for name, orphan := range map[string]func(t *testing.T, b *testbed.Bed, f *flight.Flight, p *natstest.Proxy){
		"a crash between object and record": func(t *testing.T, b *testbed.Bed, f *flight.Flight, p *natstest.Proxy) {
			t.Helper()
			c := testbed.Begin(t, f, "k", flight.BeginOptions{})
			p.Filter(natstest.Losing(func(m natstest.Frame) bool {
				return testbed.IsWrite(m, "k") && strings.Contains(string(m.Raw), `"done"`)
			}))
			check.ErrorIs(t, check.Err(c.Complete(t.Context(), value, ttl)), kvlock.ErrUnavailable)
			p.Cut()
			wantEntry(t, b.Flight(t, flight.Config{}), "k", flight.Pending, "")
		},
		"a crash during the upload": func(t *testing.T, _ *testbed.Bed, f *flight.Flight, p *natstest.Proxy) {
			t.Helper()
			c := testbed.Begin(t, f, "k", flight.BeginOptions{})
			n := 0
			p.Filter(func(m natstest.Frame) natstest.Verdict {
				if m.FromClient && strings.HasPrefix(m.Subject, "$O.") {
					n++
					if n > 2 {
						return natstest.Lose
					}
				}
				return natstest.Relay
			})
			check.ErrorIs(t, check.Err(c.Complete(t.Context(), value, ttl)), kvlock.ErrUnavailable)
			p.Cut()
		},
		"invalidated": func(t *testing.T, _ *testbed.Bed, f *flight.Flight, _ *natstest.Proxy) {
			t.Helper()
			_, err := testbed.Begin(t, f, "k", flight.BeginOptions{}).Complete(t.Context(), value, ttl)
			check.OK(t, errors.Join(err, f.Invalidate(t.Context(), "k")))
		},
		"a claim lost during the upload": func(t *testing.T, b *testbed.Bed, f *flight.Flight, p *natstest.Proxy) {
			t.Helper()
			c, other := testbed.Begin(t, f, "k", flight.BeginOptions{TTL: 4 * time.Second}), b.Flight(t, flight.Config{})
			n := 0
			p.Filter(func(m natstest.Frame) natstest.Verdict {
				if m.FromClient && strings.HasPrefix(m.Subject, "$O.") {
					n++
					if n == 2 {
						check.ErrorIs(t, other.Invalidate(t.Context(), "k"), nil)
					}
					if n > 2 {
						return natstest.Lose
					}
				}
				return natstest.Relay
			})
			_, err := c.Complete(t.Context(), value, ttl)
			check.ErrorIs(t, err, kvlock.ErrLost)
			check.That(t, !errors.Is(err, kvlock.ErrUnavailable), "got %v", err)
			p.Filter(nil)
			wantEntry(t, f, "k", flight.Absent, "")
		},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			withLargeValueBucket(t, b)
			p := natstest.NewProxy(t, b.Srv)
			orphan(t, b, b.Flight(t, flight.Config{LargeValueBucket: attic, OpTimeout: 10 * time.Second}, p.Through()), p)
			check.Require(t, largeValueMessages(t, b) != 0, "there is no orphan")
			natstest.Pass(ttl + gone)
			check.Equal(t, largeValueMessages(t, b), 0, "messages in the Object Store")
		})
	}
}

// While an object is written its claim is renewed, for the time that it was begun for: others neither take it over, nor
// wait long when the writer dies.
func TestClaimIsHeldDuringTheUpload(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, flight.Config{LargeValueBucket: attic, OpTimeout: 30 * time.Second})
		value := noise(2 << 20)
		c := testbed.Begin(t, f, "k", flight.BeginOptions{TTL: 3 * time.Second})
		start := time.Now()
		p.Filter(natstest.Losing(func(m natstest.Frame) bool {
			return m.FromClient && strings.HasPrefix(m.Subject, "$O.") && time.Since(start) < 20*time.Second
		}))
		completed := make(chan error, 1)
		go func() { completed <- check.Err(c.Complete(t.Context(), value, 0)) }()
		other := b.Flight(t, flight.Config{})
		for range 19 {
			natstest.Pass(time.Second)
			s := wantEntry(t, other, "k", flight.Pending, "")
			check.That(t, s.Claim == c.ID() && s.TTL == 3*time.Second, "after %s: claim %s with TTL %s", time.Since(start), s.Claim, s.TTL)
		}
		check.OK(t, <-completed)
		readEveryWay(t, other, "k", value)
	})
}

// A zombie that wakes up in mid-upload changes nothing, and its objects are not those of its successor.
func TestZombieWithAnObject(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		withLargeValueBucket(t, b)
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, largeValues, p.Through()), b.Flight(t, largeValues)
		zombie := testbed.Begin(t, f, "k", flight.BeginOptions{TTL: 2 * time.Second})
		theirs := noise(3 << 20)
		p.Filter(natstest.Losing(func(m natstest.Frame) bool {
			return m.FromClient && (strings.HasPrefix(m.Subject, "$O.") || testbed.IsWrite(m, "k"))
		}))
		check.ErrorIs(t, check.Err(zombie.Complete(t.Context(), noise(2<<20), 0)), kvlock.ErrLost) // is cut off until its claim is over
		natstest.Pass(3 * time.Second)
		c := check.Must(g.Resume(t.Context(), "k", zombie.Ref(), flight.ResumeOptions{}))(t)
		completeBytes(t, c, theirs)
		p.Filter(nil)
		check.ErrorIs(t, check.Err(zombie.Complete(t.Context(), noise(2<<20), 0)), kvlock.ErrLost)
		readEveryWay(t, g, "k", theirs)
	})
}

// A holder that completes again, because the outcome of the first time is unknown, writes another object.
func TestCompleteAgainWithAnObject(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		withLargeValueBucket(t, b)
		f, p := b.ProxiedFlight(t, largeValues)
		for key, how := range map[string]natstest.Fault{"unknown": natstest.ReplyLost, "not-applied": natstest.WriteLost} {
			c := testbed.Begin(t, f, key, flight.BeginOptions{})
			p.Hit(testbed.Writes(key), how, 1000)
			check.ErrorIs(t, check.Err(c.Complete(t.Context(), noise(2<<20), 0)), kvlock.ErrUnavailable)
			p.Filter(nil)
			value := noise(2<<20 + 1)
			completeBytes(t, c, value)
			readEveryWay(t, b.Flight(t, flight.Config{}), key, value)
		}
	})
}

// An acknowledgement that is lost makes the chunk be sent again, and not stored again.
func TestLostAcknowledgementOfAChunk(t *testing.T) {
	for name, how := range map[string]natstest.Fault{"lost": natstest.ReplyLost, "not stored": natstest.WriteLost} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			withLargeValueBucket(t, b)
			f, p := b.ProxiedFlight(t, flight.Config{LargeValueBucket: attic, OpTimeout: 10 * time.Second})
			seen, replies := map[string]int{}, map[string]bool{}
			p.Filter(func(m natstest.Frame) natstest.Verdict {
				switch {
				case m.FromClient && strings.HasPrefix(m.Subject, "$O."):
					_, id, _ := strings.Cut(string(m.Raw), jetstream.MsgIDHeader+": ")
					id, _, _ = strings.Cut(id, "\r")
					seen[id]++
					if seen[id] > 1 {
						return natstest.Relay
					}
					if how == natstest.WriteLost {
						return natstest.Lose
					}
					replies[m.Reply] = true
				case !m.FromClient && replies[m.Subject]:
					return natstest.Lose
				}
				return natstest.Relay
			})
			value := noise(2<<20 + 5)
			completeBytes(t, testbed.Begin(t, f, "k", flight.BeginOptions{}), value)
			n := largeValueMessages(t, b)
			check.That(t, len(seen) == 6 && n == 6, "%d messages were sent, %d stored, want 5 chunks and a description", len(seen), n)
			p.Filter(nil)
			readEveryWay(t, f, "k", value)
		})
	}
}

var lastSequence = regexp.MustCompile(`"last_seq":\d+`)

// overtaken has changes be made, and pushed, while the leader's first answer about the last sequence is under way, which
// does not include them. It returns how often values are asked for, and whether that was so.
func overtaken(t *testing.T, b *testbed.Bed, p *natstest.Proxy) (asked func() int, done func() bool) {
	t.Helper()
	last := b.Writes(t)
	var pushed, answered atomic.Bool
	p.Slow(time.Millisecond) // one after the other
	p.Change(func(f natstest.Frame) []byte {
		if testbed.IsPush(f) {
			pushed.Store(true)
		}
		payload := f.Payload()
		if f.FromClient || !pushed.Load() || !lastSequence.Match(payload) || answered.Swap(true) {
			return nil
		}
		return f.With(lastSequence.ReplaceAll(payload, fmt.Appendf(nil, `"last_seq":%d`, last)), 0)
	})
	return reads(p, func(f natstest.Frame) natstest.Verdict {
		if isCheck(f) && !answered.Load() {
			for range 5 {
				check.ErrorIs(t, check.Err(b.JS.Publish(t.Context(), "$KV."+testbed.Bucket+".other", nil)), nil)
			}
		}
		return natstest.Relay
	}), answered.Load
}

// The first answer of the leader is overtaken by pushes. They are not taken for lost when no others come, and their
// changes are kept.
func TestPushesThatOvertakeTheFirstAnswer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		log := &testbed.Logged{}
		p, g := natstest.NewProxy(t, b.Srv), b.Flight(t, flight.Config{})
		replace(t, g, "k", "1")
		asked, overtook := overtaken(t, b, p)
		cfg := remembering()
		cfg.Logger = log.Logger()
		f := b.Flight(t, cfg, p.Through())
		wantEntry(t, f, "k", flight.Done, "1")
		natstest.Pass(memoryBound + time.Second)
		before := asked()
		wantEntry(t, f, "k", flight.Done, "1")
		n, s := asked()-before, f.Stats().Memory
		check.That(t, n <= 0 && s.Flushes <= 0 && overtook(), "%d reads, %+v; an answer was overtaken: %v", n, s, overtook())
		n = log.Count("level=WARN")
		check.That(t, n <= 0, "%d warnings", n)
	})
}

// The same, for many keys that are watched.
func TestPushesThatOvertakeTheFirstAnswerToACrowd(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		log := &testbed.Logged{}
		c := &watchedKeys{t: t, b: b, proxy: natstest.NewProxy(t, b.Srv)}
		c.watching, c.writing = b.Flight(t, flight.Config{Logger: log.Logger()}, c.proxy.Through()), b.Flight(t, flight.Config{})
		for i := range 20 {
			c.claims = append(c.claims, testbed.Begin(t, c.writing, fmt.Sprintf("k%d", i), flight.BeginOptions{TTL: time.Hour}))
		}
		asked, overtook := overtaken(t, b, c.proxy)
		for _, claim := range c.claims {
			c.watchers = append(c.watchers, c.watch(claim.Key(), flight.Pending))
		}
		natstest.Pass(4 * time.Second)
		before := asked()
		natstest.Pass(5 * time.Second) // no read is deferred for longer than 10
		n := asked() - before
		check.That(t, n <= len(c.claims) && overtook(), "%d reads; an answer was overtaken: %v", n, overtook())
		n = log.Count("level=WARN")
		check.That(t, n <= 0, "%d warnings", n)
	})
}
