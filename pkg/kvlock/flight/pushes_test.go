package flight_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// recheck is within how long a lost push is noticed: the leader is asked every second, and the push may be on its way for
// a while.
const recheck = 2*time.Second + 50*time.Millisecond

// watchedKeys are so many watched keys that they are not read again as long as no push is missing.
type watchedKeys struct {
	t        *testing.T
	b        *testbed.Bed
	proxy    *natstest.Proxy
	watching *flight.Flight // through the proxy
	writing  *flight.Flight
	claims   []*flight.Claim
	watchers []*flight.Watcher
}

func watchManyKeys(t *testing.T, b *testbed.Bed, cfg flight.Config) *watchedKeys {
	t.Helper()
	c := &watchedKeys{t: t, b: b, proxy: natstest.NewProxy(t, b.Srv)}
	c.watching, c.writing = b.Flight(t, cfg, c.proxy.Through()), b.Flight(t, flight.Config{})
	for i := range 20 {
		c.claims = append(c.claims, testbed.Begin(t, c.writing, fmt.Sprintf("k%d", i), flight.BeginOptions{TTL: time.Hour}))
		c.watchers = append(c.watchers, c.watch(c.claims[i].Key(), flight.Pending))
	}
	natstest.Pass(4 * time.Second) // all have been read by now, after the leader was asked
	return c
}

// watch watches a key that is in the given state.
func (c *watchedKeys) watch(key string, state flight.State) *flight.Watcher {
	c.t.Helper()
	w := check.Must(c.watching.Watch(key))(c.t)
	c.t.Cleanup(w.Close)
	c.wantNext(w, state, time.Second)
	return w
}

// wantNext checks that the next entry of the watcher has the state, and comes in time.
func (c *watchedKeys) wantNext(w *flight.Watcher, state flight.State, within time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), within)
	defer cancel()
	s, err := w.Next(ctx)
	check.That(c.t, err == nil && s.State == state, "got %+v, %v; want that it is %s within %s", s, err, state, within)
}

func isCheck(f natstest.Frame) bool {
	return f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.STREAM.INFO.")
}

// Keys are not read as long as all pushes arrive, but for a few reads that confirm it. Waiters that give up when the
// bucket is silent know that no push is missing.
func TestNothingIsReadWhileNothingIsMissing(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		c := watchManyKeys(t, b, flight.Config{})
		asked := reads(c.proxy, nil)
		var bounded sync.WaitGroup
		bounded.Go(func() {
			r, err := c.watching.Do(t.Context(), "k0", nil, flight.DoOptions{FailOpen: true})
			check.That(t, err == nil && string(r.Value) == "v" && r.Stored, "got %+v, %v", r, err)
		})
		natstest.Pass(time.Second)
		before := asked()
		natstest.Pass(5 * time.Second) // no read is deferred for longer than 10
		n := asked() - before
		check.That(t, n <= len(c.claims), "%d reads", n)
		before = asked()
		natstest.Pass(time.Minute)
		n = asked() - before
		check.That(t, n >= len(c.claims)*60/20/3 && n <= len(c.claims)*60/10, "%d reads within a minute", n)
		for i, claim := range c.claims {
			testbed.Complete(t, claim, "v")
			c.wantNext(c.watchers[i], flight.Done, time.Millisecond)
		}
		bounded.Wait()
	})
}

// The push that a caller waits for gets lost. The next push shows that, or the leader's answer.
func TestALostPushIsNoticed(t *testing.T) {
	for _, others := range []bool{false, true} {
		testbed.RunInBubble(t, fmt.Sprintf("others %t", others), func(t *testing.T, b *testbed.Bed) {
			c := watchManyKeys(t, b, flight.Config{})
			for i, claim := range c.claims[1:] {
				natstest.Pass(rand.N(5 * time.Second))
				c.proxy.Filter(testbed.LosePushes)
				testbed.Complete(t, claim, "v")
				natstest.Pass(time.Millisecond)
				c.proxy.Filter(nil)
				within := recheck
				if others {
					natstest.Pass(rand.N(time.Second / 2))
					check.OK(t, c.claims[0].Renew(t.Context(), time.Hour))
					if within = 2 * time.Millisecond; i > 0 { // all are read at once, but not all the time
						within = recheck
					}
				}
				c.wantNext(c.watchers[i+1], flight.Done, within)
			}
		})
	}
}

// A replica that lags behind answers the first read with an entry from before a push, which this process received
// when it did not watch the key yet.
func TestFirstReadFromAReplicaThatLags(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		c := watchManyKeys(t, b, flight.Config{})
		claim := testbed.Begin(t, c.writing, "k", flight.BeginOptions{TTL: time.Hour})
		asked, old, again := "", [][]byte(nil), false // the test changes it between reads
		c.proxy.Change(func(f natstest.Frame) []byte {
			switch {
			case f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET.") && bytes.Contains(f.Raw, []byte(`.k"]`)):
				asked = f.Reply
			case f.FromClient || f.Subject != asked:
			case !again:
				old = append(old, bytes.Clone(f.Payload()))
			case len(old) > 0:
				answer := old[0]
				old = old[1:]
				return f.With(answer, bytes.Index(answer, []byte("\r\n\r\n"))+4)
			}
			return nil
		})
		wantEntry(t, c.watching, "k", flight.Pending, "")
		testbed.Complete(t, claim, "v")
		natstest.Pass(3 * time.Second)
		again = true
		c.wantNext(c.watch("k", flight.Pending), flight.Done, recheck)
		check.That(t, len(old) == 0, "no old answer was given: nothing was tested")
	})
}

// No server answers for the stream, or one that may not be its leader: keys are read as often as without the leader's
// answers, and a lost push is noticed.
func TestWithoutALeaderKeysAreRead(t *testing.T) {
	for name, answer := range map[string]string{
		"nobody": "", "another": `{"leader":"a","replicas":[{"name":"a","active":1},{"name":"b","active":1}]}`,
		"one that was cut off": `{"leader":"a","replicas":[{"name":"b","active":60000000000},{"name":"c","active":60000000000}]}`,
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			c := watchManyKeys(t, b, flight.Config{})
			var lost atomic.Bool
			asked := reads(c.proxy, func(f natstest.Frame) natstest.Verdict {
				if isCheck(f) && answer == "" || testbed.IsPush(f) && lost.Load() {
					return natstest.Lose
				}
				return natstest.Relay
			})
			var stale []byte // knows of nothing new
			c.proxy.Change(func(f natstest.Frame) []byte {
				payload := f.Payload()
				if f.FromClient || answer == "" || !bytes.Contains(payload, []byte("stream_info_response")) {
					return nil
				}
				if stale == nil {
					stale = append(bytes.Clone(payload[:len(payload)-1]), `,"cluster":`+answer+`}`...)
				}
				return f.With(stale, 0)
			})
			natstest.Pass(4 * time.Second)
			before := asked()
			natstest.Pass(10 * time.Second)
			n := asked() - before
			check.That(t, n >= 5, "%d reads within 10s", n)
			lost.Store(true)
			for i, claim := range c.claims {
				natstest.Pass(rand.N(5 * time.Second))
				testbed.Complete(t, claim, "v")
				c.wantNext(c.watchers[i], flight.Done, recheck)
			}
		})
	}
}

// The connection is lost with everything that is pushed in the meantime, with a word or without.
func TestCrowdAfterAReconnect(t *testing.T) {
	for name, fault := range map[string]func(p *natstest.Proxy){
		"partition": (*natstest.Proxy).Partition, "connection is cut": (*natstest.Proxy).Cut,
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			c := watchManyKeys(t, b, flight.Config{})
			for i, claim := range c.claims {
				fault(c.proxy)
				testbed.Complete(t, claim, "v")
				natstest.Pass(rand.N(3 * time.Second))
				c.proxy.Heal()
				c.wantNext(c.watchers[i], flight.Done, 5*time.Second) // the client tries again every two
				natstest.Pass(rand.N(3 * time.Second))
			}
		})
	}
}

// The bucket is recreated, with revisions that begin again: all is different, and nothing is pushed.
func TestCrowdOnARecreatedBucket(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		c := watchManyKeys(t, b, flight.Config{})
		b.RecreateBucket(t, 0)
		for _, w := range c.watchers {
			c.wantNext(w, flight.Absent, recheck)
		}
		for i, w := range c.watchers {
			testbed.Begin(t, c.writing, fmt.Sprintf("k%d", i), flight.BeginOptions{})
			c.wantNext(w, flight.Pending, recheck)
		}
	})
}

// The expiry of an entry is not pushed, and noticed without delay all the same.
func TestCrowdLearnsOfExpiry(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		c := watchManyKeys(t, b, flight.Config{})
		testbed.Begin(t, c.writing, "claim", flight.BeginOptions{TTL: 7 * time.Second})
		pending := c.watch("claim", flight.Pending)
		result := testbed.Begin(t, c.writing, "result", flight.BeginOptions{})
		check.OK(t, check.Err(result.Complete(t.Context(), []byte("v"), 17*time.Second)))
		done := c.watch("result", flight.Done)
		natstest.Pass(7*time.Second - 100*time.Millisecond)
		c.wantNext(pending, flight.Absent, 100*time.Millisecond+testbed.Lateness+testbed.Step)
		natstest.Pass(9 * time.Second)
		c.wantNext(done, flight.Absent, time.Second+testbed.Lateness+recheck)
	})
}
