package flight_test

import (
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var lastSequence = regexp.MustCompile(`"last_seq":\d+`)

// overtaken has changes be made, and pushed, while the leader answers for the first time what the last one is: it does not
// tell of them. It returns how often values are asked for, and whether that was so.
func overtaken(t *testing.T, b *bed, p *natstest.Proxy) (asked func() int, done func() bool) {
	t.Helper()
	last := b.Writes(t)
	var pushed, answered atomic.Bool
	p.Slow(time.Millisecond) // one after the other
	p.Change(func(f natstest.Frame) []byte {
		if isPush(f) {
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
				check.Is(t, check.Err(b.JS.Publish(t.Context(), "$KV."+bucket+".other", nil)), nil)
			}
		}
		return natstest.Relay
	}), answered.Load
}

// The first answer of the leader is overtaken by pushes. They are not taken for lost when no others come, and their
// changes are kept.
func TestPushesThatOvertakeTheFirstAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		log := &logged{}
		p, g := natstest.NewProxy(t, b.Srv), b.Flight(t, flight.Config{})
		replace(t, g, "k", "1")
		asked, overtook := overtaken(t, b, p)
		cfg := remembering()
		cfg.Logger = log.Logger()
		f := b.Flight(t, cfg, p.Through())
		wantSlot(t, f, "k", flight.Done, "1")
		pass(memoryBound + time.Second)
		before := asked()
		wantSlot(t, f, "k", flight.Done, "1")
		if n, s := asked()-before, f.Stats().Memory; n > 0 || s.Flushes > 0 || !overtook() {
			t.Errorf("%d reads, %+v; an answer was overtaken: %v", n, s, overtook())
		}
		if n := log.Count("level=WARN"); n > 0 {
			t.Errorf("%d warnings", n)
		}
	})
}

// The same, for many keys that are watched.
func TestPushesThatOvertakeTheFirstAnswerToACrowd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		log := &logged{}
		c := &watchedKeys{t: t, b: b, proxy: natstest.NewProxy(t, b.Srv)}
		c.watching, c.writing = b.Flight(t, flight.Config{Logger: log.Logger()}, c.proxy.Through()), b.Flight(t, flight.Config{})
		for i := range 20 {
			c.claims = append(c.claims, begin(t, c.writing, fmt.Sprintf("k%d", i), flight.BeginOptions{TTL: time.Hour}))
		}
		asked, overtook := overtaken(t, b, c.proxy)
		for _, claim := range c.claims {
			c.watchers = append(c.watchers, c.watch(claim.Key(), flight.Pending))
		}
		pass(4 * time.Second)
		before := asked()
		pass(5 * time.Second) // no read is put off for longer than 10
		if n := asked() - before; n > len(c.claims) || !overtook() {
			t.Errorf("%d reads; an answer was overtaken: %v", n, overtook())
		}
		if n := log.Count("level=WARN"); n > 0 {
			t.Errorf("%d warnings", n)
		}
	})
}
