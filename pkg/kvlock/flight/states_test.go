package flight_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The next holder's token is greater than that of every earlier one, however the claim changed hands.
func TestTokensGrow(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	ctx := t.Context()
	last := kvlock.Token{}
	next := func(how string, c *flight.Claim) *flight.Claim {
		t.Helper()
		check.That(t, c.Token().Compare(last) > 0, "%s: token %s is not greater than %s", how, c.Token(), last)
		last = c.Token()
		return c
	}
	c := next("begun", check.Must(f.Begin(ctx, "k", flight.BeginOptions{}))(t))
	for range 3 {
		check.OK(t, c.Renew(ctx, 0))
	}
	zombie := c
	c = next("resumed", check.Must(f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{}))(t))
	check.ErrorIs(t, zombie.Renew(ctx, 0), kvlock.ErrLost)
	check.OK(t, c.Fail(ctx, "r", 0))
	next("begun after a failure", check.Must(f.Begin(ctx, "k", flight.BeginOptions{}))(t))
	check.OK(t, f.Invalidate(ctx, "k"))
	next("begun after an invalidation", check.Must(f.Begin(ctx, "k", flight.BeginOptions{}))(t))

	// The bucket is recreated, under the running process and for one that comes.
	b.RecreateBucket(t, 0)
	c = next("begun in a recreated bucket", check.Must(f.Begin(ctx, "k", flight.BeginOptions{}))(t))
	next("resumed by a new process", check.Must(b.Flight(t, flight.Config{}).Resume(ctx, "k", c.Ref(), flight.ResumeOptions{}))(t))
}

// A reference stays good while its claim is there; the key's entry decides whether Resume takes the claim.
func TestResume(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := testbed.New(t)
	f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{Instance: "g"})

	c := testbed.Begin(t, f, "attempts", flight.BeginOptions{})
	first := c.Ref()
	for attempt := 2; attempt <= 4; attempt++ {
		check.OK(t, c.HandOff(ctx, 0))
		ref := c.Ref()
		if attempt == 4 {
			ref = first // stale: the same job, delivered again
		}
		c = check.Must(g.Resume(ctx, "attempts", ref, flight.ResumeOptions{}))(t)
		s := testbed.Get(t, f, "attempts")
		check.That(t, s.Attempt == attempt && s.Owner == "g" && !s.HandOff, "got %+v, want attempt %d of g, not to hand off", s, attempt)
	}

	// Another input's hand-off is not adopted.
	testbed.Begin(t, f, "input", flight.BeginOptions{HandOff: true, Fingerprint: "one"})
	check.ErrorIs(t, check.Err(g.Resume(ctx, "input", c.Ref(), flight.ResumeOptions{Fingerprint: "two"})), kvlock.ErrMismatch)
	s := testbed.Get(t, f, "input")
	check.That(t, s.Fingerprint == "one" && s.Owner == "f", "got %+v, want f's claim of one", s)

	// The job of the other finds the adopter's result.
	mine := testbed.Begin(t, f, "adopted", flight.BeginOptions{HandOff: true})
	c = check.Must(g.Resume(ctx, "adopted", c.Ref(), flight.ResumeOptions{}))(t)
	testbed.Complete(t, c, "v")
	var taken *flight.TakenError
	_, err := f.Resume(ctx, "adopted", mine.Ref(), flight.ResumeOptions{})
	check.That(t, errors.As(err, &taken) && string(taken.Entry.Value) == "v", "got %v, want that the key is done", err)
}

// A pending entry has the same reference as its claim, so that any reader can publish the work again. A result has none.
func TestReferenceInAnEntry(t *testing.T) {
	t.Parallel()
	f := testbed.New(t).Flight(t, flight.Config{})
	for key, handOff := range map[string]bool{"works": false, "waits": true} {
		c := testbed.Begin(t, f, key, flight.BeginOptions{HandOff: handOff})
		ref := testbed.Get(t, f, key).Ref()
		check.Equal(t, ref, c.Ref(), key)
		testbed.Complete(t, check.Must(f.Resume(t.Context(), key, ref, flight.ResumeOptions{Yield: handOff}))(t), "v")
		check.Equal(t, testbed.Get(t, f, key).Ref(), "", key)
	}
}

func TestBadArgumentsWriteNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := testbed.New(t)
	f := b.Flight(t, flight.Config{})
	long := string(make([]byte, 2000))
	for name, do := range map[string]func() error{
		"key":         func() error { return check.Err(f.Begin(ctx, "a.>", flight.BeginOptions{})) },
		"fraction":    func() error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{TTL: 1500 * time.Millisecond})) },
		"negative":    func() error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{TTL: -time.Second})) },
		"fingerprint": func() error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{Fingerprint: long})) },
		"reference":   func() error { return check.Err(f.Resume(ctx, "k", "../../etc", flight.ResumeOptions{})) },
		"Do TTL": func() error {
			return check.Err(f.Do(ctx, "k", func(context.Context) ([]byte, error) { t.Error("ran"); return nil, nil }, flight.DoOptions{TTL: 1}))
		},
		"jitter": func() error { return check.Err(f.Do(ctx, "k", nil, flight.DoOptions{Jitter: 0.6})) },
		"read":   func() error { return check.Err(f.GetMany(ctx, []string{"k", "*"})) },
		"watch":  func() error { return check.Err(f.Watch("k", ">")) },
		"inval":  func() error { return f.Invalidate(ctx, ">") },
	} {
		check.That(t, do() != nil, "%s: was taken", name)
	}
	check.ErrorIs(t, check.Err(f.Resume(ctx, "k", "../../etc", flight.ResumeOptions{})), flight.ErrInvalidRef)
	check.Equal(t, b.Last(t, "k"), nil, "written")
}
