package flight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// After any fault of a write or of its answer the true outcome is reported. Each kind of write is tried through each
// fault, once and twice in a row, on a separate connection.
func TestLostAcknowledgements(t *testing.T) {
	renewed := func(ctx context.Context, c *flight.Claim, err error) error { // which fails unless the server has the claim
		if err != nil {
			return err
		}
		return c.Renew(ctx, 0)
	}
	for name, write := range map[string]struct {
		want flight.State
		do   func(ctx context.Context, f *flight.Flight, c *flight.Claim) error
	}{
		"Begin": {flight.Pending, func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error {
			c, err := f.Begin(ctx, "k", flight.BeginOptions{})
			return renewed(ctx, c, err)
		}},
		"Resume": {flight.Pending, func(ctx context.Context, f *flight.Flight, c *flight.Claim) error {
			c, err := f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{})
			return renewed(ctx, c, err)
		}},
		"Renew":   {flight.Pending, func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Renew(ctx, 0) }},
		"HandOff": {flight.Pending, func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.HandOff(ctx, 0) }},
		"Complete": {flight.Done, func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error {
			return check.Err(c.Complete(ctx, []byte("w"), 0))
		}},
		"Fail":       {flight.Failed, func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Fail(ctx, "s", time.Hour) }},
		"Fail now":   {flight.Absent, func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Fail(ctx, "s", 0) }},
		"Release":    {flight.Absent, func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Release(ctx) }},
		"Invalidate": {flight.Absent, func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error { return f.Invalidate(ctx, "k") }},
	} {
		for _, how := range []natstest.Fault{natstest.ReplyLost, natstest.WriteLost, natstest.RefusedApplied} {
			for _, times := range []int{1, 2} {
				testbed.RunInBubble(t, fmt.Sprint(name, "/", how, "/", times), func(t *testing.T, b *testbed.Bed) {
					f, p := b.ProxiedFlight(t, flight.Config{OpTimeout: 10 * time.Second})
					var c *flight.Claim
					if name != "Begin" {
						c = testbed.Begin(t, f, "k", flight.BeginOptions{})
					}
					p.Hit(testbed.Writes("k"), how, times)
					check.OK(t, write.do(t.Context(), f, c))
					p.Filter(nil)
					wantEntry(t, b.Flight(t, flight.Config{}), "k", write.want, map[flight.State]string{flight.Done: "w"}[write.want])
				})
			}
		}
	}
}

// A write of unknown outcome is followed by another operation of the same claim.
func TestOperationsAfterAnUnknownOutcome(t *testing.T) {
	for name, after := range map[string]struct {
		want flight.State
		do   func(ctx context.Context, c *flight.Claim) error
	}{
		"Renew":    {flight.Pending, func(ctx context.Context, c *flight.Claim) error { return c.Renew(ctx, 0) }},
		"Complete": {flight.Done, func(ctx context.Context, c *flight.Claim) error { return check.Err(c.Complete(ctx, nil, 0)) }},
		"Fail":     {flight.Absent, func(ctx context.Context, c *flight.Claim) error { return c.Fail(ctx, "r", 0) }},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			f, p := b.ProxiedFlight(t, flight.Config{})
			c := testbed.Begin(t, f, "k", flight.BeginOptions{})
			p.Hit(testbed.Writes("k"), natstest.ReplyLost, 1)
			hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			check.ErrorIs(t, c.Renew(hasty, 0), kvlock.ErrUnavailable) // applied, without an acknowledgement
			p.Filter(nil)
			check.ErrorIs(t, after.do(t.Context(), c), nil)
			wantEntry(t, f, "k", after.want, "")
		})
	}
}

// A result whose acknowledgement never came stands. The owner that does not know of it does not replace it by a
// failure.
func TestAnUnknownResultIsNotOverwritten(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		p.Hit(testbed.Writes("k"), natstest.ReplyLost, 1)
		hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		check.ErrorIs(t, check.Err(c.Complete(hasty, []byte("v"), 0)), kvlock.ErrUnavailable)
		p.Filter(nil)
		check.ErrorIs(t, c.Fail(t.Context(), "r", 0), kvlock.ErrLost)
		wantEntry(t, f, "k", flight.Done, "v")
	})
}

// The acknowledgement of a result is lost, and the key is invalidated before the result is read back. Complete returns
// ErrLost for a value that readers have got in the meantime, and the key stays invalidated.
func TestResultInvalidatedBeforeItIsReadBack(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, other := b.Flight(t, flight.Config{OpTimeout: 10 * time.Second}, p.Through()), b.Flight(t, flight.Config{})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		p.Hit(testbed.Writes("k"), natstest.ReplyLost, 1)
		completed := make(chan error, 1)
		go func() { completed <- check.Err(c.Complete(t.Context(), []byte("v"), 0)) }()
		natstest.Pass(time.Millisecond) // stored; the answer is waited for
		wantEntry(t, other, "k", flight.Done, "v")
		check.OK(t, other.Invalidate(t.Context(), "k"))
		check.ErrorIs(t, <-completed, kvlock.ErrLost)
		wantEntry(t, b.Flight(t, flight.Config{}), "k", flight.Absent, "")
	})
}

// Of many that begin at once, through connections that lose answers, one holds the claim, and knows it.
func TestOwnershipIsNeverDoubled(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		for _, how := range []natstest.Fault{natstest.ReplyLost, natstest.RefusedApplied} {
			const n = 6
			key := map[natstest.Fault]string{natstest.ReplyLost: "a", natstest.RefusedApplied: "b"}[how]
			claims := make([]*flight.Claim, n)
			var all sync.WaitGroup
			for i := range n {
				f, p := b.ProxiedFlight(t, flight.Config{OpTimeout: 10 * time.Second})
				p.Hit(testbed.Writes(key), how, 1)
				all.Go(func() {
					c, err := f.Begin(t.Context(), key, flight.BeginOptions{})
					check.That(t, err == nil || errors.Is(err, flight.ErrTaken), "%s: got %v", how, err)
					claims[i] = c
				})
			}
			all.Wait()
			var holder *flight.Claim
			for _, c := range claims {
				switch {
				case c == nil:
				case holder != nil:
					t.Errorf("%s: both %s and %s hold the claim", how, holder.ID(), c.ID())
				default:
					holder = c
				}
			}
			check.Require(t, holder != nil, "%s: nobody holds the claim", how)
			testbed.Complete(t, holder, "v")
		}
	})
}

// Nothing is sent while the connection is down, and the error says so.
func TestUnreachableServer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{OpTimeout: 100 * time.Millisecond})
		c := testbed.Begin(t, f, "held", flight.BeginOptions{})
		p.Cut()
		natstest.Pass(time.Millisecond) // the client notices
		ctx := t.Context()
		for name, do := range map[string]func() error{
			"Begin":      func() error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{})) },
			"Resume":     func() error { return check.Err(f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{})) },
			"Renew":      func() error { return c.Renew(ctx, 0) },
			"Complete":   func() error { return check.Err(c.Complete(ctx, nil, 0)) },
			"Invalidate": func() error { return f.Invalidate(ctx, "k") },
			"GetMany":    func() error { return check.Err(f.GetMany(ctx, []string{"k"})) },
			"Do": func() error {
				return check.Err(f.Do(ctx, "k", func(context.Context) ([]byte, error) { return nil, nil }, flight.DoOptions{}))
			},
		} {
			check.ErrorIs(t, do(), kvlock.ErrUnavailable, name)
		}
		p.Heal()
		natstest.Pass(10 * time.Second)
		wantEntry(t, b.Flight(t, flight.Config{}), "held", flight.Pending, "")
		check.Equal(t, b.Last(t, "k"), nil, "sent after all")
	})
}

// A caller that has given up gets its own reason, and no claim that the server was unreachable. Nothing is sent: an
// answer might come before the context is checked again.
func TestCancelledOperation(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f, p := b.ProxiedFlight(t, flight.Config{})
	requests := make(chan string, 100)
	p.Filter(func(m natstest.Frame) natstest.Verdict {
		if m.FromClient && m.Reply != "" {
			requests <- m.Subject
		}
		return natstest.Relay
	})
	cause := errors.New("bored")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, do := range map[string]func() error{
		"Begin":   func() error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{})) },
		"Get":     func() error { return check.Err(f.Get(ctx, "k")) },
		"GetMany": func() error { return check.Err(f.GetMany(ctx, []string{"k", "l"})) },
	} {
		err := do()
		check.ErrorIs(t, err, cause)
		check.That(t, !errors.Is(err, kvlock.ErrUnavailable), "%s: got %v", name, err)
	}
	testbed.Get(t, f, "k") // all earlier requests have arrived before it
	check.Equal(t, len(requests), 1, "len(requests)")
}

// The outcome of a write is unknown, and the leader that is asked about it was deposed long ago. Its answer is not
// taken for a loss.
func TestDeposedLeaderIsNotBelieved(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, f, g *flight.Flight) flight.Entry{
		"it knows somebody else's claim": func(t *testing.T, f, g *flight.Flight) flight.Entry {
			t.Helper()
			c := testbed.Begin(t, g, "k", flight.BeginOptions{})
			check.ErrorIs(t, check.Err(f.Begin(t.Context(), "k", flight.BeginOptions{})), flight.ErrTaken)
			check.OK(t, c.Release(t.Context()))
			return testbed.Get(t, g, "k")
		},
		"it knows nothing": func(t *testing.T, f, _ *flight.Flight) flight.Entry {
			t.Helper()
			check.OK(t, check.Err(f.Begin(t.Context(), "k", flight.BeginOptions{Seen: flight.Entry{Revision: 7}}))) // asks, and begins
			check.OK(t, f.Invalidate(t.Context(), "k"))
			return testbed.Get(t, f, "k")
		},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			p := natstest.NewProxy(t, b.Srv)
			f, g := b.Flight(t, flight.Config{OpTimeout: 10 * time.Second}, p.Through()), b.Flight(t, flight.Config{})
			deposed := answerAsBefore(p, 3)
			c := testbed.Begin(t, f, "k", flight.BeginOptions{Seen: before(t, f, g)})
			deposed()
			p.Hit(testbed.Writes("k"), natstest.RefusedApplied, 1)
			check.ErrorIs(t, c.Renew(t.Context(), 0), nil)
			p.Filter(nil)
			testbed.Complete(t, c, "v")
		})
	}
}

// Somebody else answers the write: a service that listens to the same subjects. It is not taken for the bucket.
func TestAcknowledgementOfAnotherStream(t *testing.T) {
	for _, answer := range []string{`{"stream":"OTHER","seq":99}`, `{}`, `{"stream":"KV_b"}`, `+OK`} {
		testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
			f, p := b.ProxiedFlight(t, flight.Config{})
			answerWrites(p, "k", answer)
			c := testbed.Begin(t, f, "k", flight.BeginOptions{})
			last := b.Present(t, "k")
			check.That(t, c.Token().Revision == last.Sequence, "%s: the token is %s, the key is at %d", answer, c.Token(), last.Sequence)
		})
	}
}

// answerAsBefore replaces the n answers of the leader after its first answer about keys by the first, as from a deposed leader that does
// not know of it.
func answerAsBefore(p *natstest.Proxy, n int) (start func()) {
	asked := map[string]bool{}
	var old []byte
	var started atomic.Bool
	p.Change(func(f natstest.Frame) []byte {
		if f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.STREAM.MSG.GET.") {
			asked[f.Reply] = true
		}
		if f.FromClient || !asked[f.Subject] {
			return nil
		}
		if old == nil {
			old = bytes.Clone(f.Payload())
		}
		if !started.Load() || n == 0 {
			return nil
		}
		n--
		return f.With(old, 0)
	})
	return func() { started.Store(true) }
}

// answerWrites replaces the first answer to a write of key.
func answerWrites(p *natstest.Proxy, key, text string) {
	reply := ""
	p.Change(func(f natstest.Frame) []byte {
		switch {
		case testbed.IsWrite(f, key) && reply == "":
			reply = f.Reply
		case !f.FromClient && f.Subject == reply:
			reply = "done"
			return f.With([]byte(text), 0)
		}
		return nil
	})
}
