package flight_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// reached has the states of key "k", with the arrows that lead there after a claim has begun.
var reached = map[string]struct {
	key    string // of the claim
	first  flight.BeginOptions
	arrows []string
}{
	"absent":                       {"other", flight.BeginOptions{}, nil},
	"pending":                      {"k", flight.BeginOptions{}, nil},
	"begun to hand off":            {"k", flight.BeginOptions{HandOff: true}, nil},
	"handed off":                   {"k", flight.BeginOptions{}, []string{"HandOff"}},
	"done":                         {"k", flight.BeginOptions{}, []string{"Complete"}},
	"failed":                       {"k", flight.BeginOptions{}, []string{"Fail"}},
	"failed, gone at once":         {"k", flight.BeginOptions{}, []string{"Fail now"}},
	"released":                     {"k", flight.BeginOptions{}, []string{"Release"}},
	"invalidated":                  {"k", flight.BeginOptions{}, []string{"Invalidate"}},
	"begun by another":             {"k", flight.BeginOptions{}, []string{"Invalidate", "Begin over the entry"}},
	"begun by another to hand off": {"k", flight.BeginOptions{}, []string{"Release", "Begin to hand off"}},
	"resumed by another":           {"k", flight.BeginOptions{}, []string{"Resume"}},
}

// reach brings key "k" into a state, and returns the first claim.
func reach(t *testing.T, f *flight.Flight, state string) *flight.Claim {
	t.Helper()
	way := reached[state]
	c := begin(t, f, way.key, way.first)
	for _, arrow := range way.arrows {
		check.OK(t, arrows[arrow](t.Context(), f, c))
	}
	return c
}

// arrows are the writes, each on the claim that brought the key where it is, or on its reference.
var arrows = map[string]func(ctx context.Context, f *flight.Flight, c *flight.Claim) error{
	"Begin": func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error {
		return check.Err(f.Begin(ctx, "k", flight.BeginOptions{}))
	},
	"Begin over the entry": func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error {
		seen, err := f.Get(ctx, "k")
		if err != nil {
			return err
		}
		return check.Err(f.Begin(ctx, "k", flight.BeginOptions{Seen: seen}))
	},
	"Begin and renew": func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error {
		c, err := f.Begin(ctx, "k", flight.BeginOptions{})
		return renewed(ctx, c, err)
	},
	"Begin to hand off": func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error {
		return check.Err(f.Begin(ctx, "k", flight.BeginOptions{HandOff: true}))
	},
	"Resume": func(ctx context.Context, f *flight.Flight, c *flight.Claim) error {
		return check.Err(f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{}))
	},
	"Resume and renew": func(ctx context.Context, f *flight.Flight, c *flight.Claim) error {
		c, err := f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{})
		return renewed(ctx, c, err)
	},
	"Renew":   func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Renew(ctx, 0) },
	"HandOff": func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.HandOff(ctx, 0) },
	"Complete": func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error {
		return check.Err(c.Complete(ctx, []byte("w"), 0))
	},
	"Fail":       func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Fail(ctx, "s", time.Hour) },
	"Fail now":   func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Fail(ctx, "s", 0) },
	"Release":    func(ctx context.Context, _ *flight.Flight, c *flight.Claim) error { return c.Release(ctx) },
	"Invalidate": func(ctx context.Context, f *flight.Flight, _ *flight.Claim) error { return f.Invalidate(ctx, "k") },
}

// renewed renews a claim, which fails unless the server has it.
func renewed(ctx context.Context, c *flight.Claim, err error) error {
	if err != nil {
		return err
	}
	return c.Renew(ctx, 0)
}

// outcome of an arrow: where the key is after it, or the error, after which the key is where it was.
type outcome struct {
	state flight.State
	err   error
}

func TestEveryArrow(t *testing.T) {
	t.Parallel()
	ends := func(state flight.State) outcome { return outcome{state: state} }
	refused := func(err error) outcome { return outcome{err: err} }
	held := map[string]outcome{
		"Begin": refused(flight.ErrTaken), "Resume": ends(flight.Pending), "Renew": ends(flight.Pending), "HandOff": ends(flight.Pending),
		"Complete": ends(flight.Done), "Fail": ends(flight.Failed), "Fail now": ends(flight.Absent), "Release": ends(flight.Absent),
		"Invalidate": ends(flight.Absent),
	}
	// without returns the outcomes when the claim has ended.
	without := func(begin, resume outcome) map[string]outcome {
		lost := refused(kvlock.ErrLost)
		return map[string]outcome{
			"Begin": begin, "Resume": resume, "Renew": lost, "HandOff": lost, "Complete": lost, "Fail": lost, "Fail now": lost, "Release": lost,
			"Invalidate": ends(flight.Absent),
		}
	}
	taken := refused(flight.ErrTaken)
	pending := ends(flight.Pending)
	want := map[string]map[string]outcome{
		"absent":                       {"Begin": pending, "Resume": pending, "Invalidate": ends(flight.Absent)}, // its claim is of another key
		"pending":                      held,
		"begun to hand off":            held,
		"handed off":                   without(taken, pending),
		"done":                         without(taken, taken),
		"failed":                       without(taken, taken),
		"failed, gone at once":         without(pending, pending),
		"released":                     without(pending, pending),
		"invalidated":                  without(pending, pending),
		"begun by another":             without(taken, taken),
		"begun by another to hand off": without(taken, pending),
		"resumed by another":           without(taken, pending),
	}
	for state := range reached {
		for arrow, do := range arrows {
			w, tried := want[state][arrow]
			if !tried {
				continue
			}
			t.Run(state+"/"+arrow, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				f := b.Flight(t, flight.Config{})
				c := reach(t, f, state)
				before := get(t, f, "k")
				err := do(t.Context(), f, c)
				after := get(t, f, "k")
				if w.err != nil {
					wantErr(t, err, w.err)
					check.Equal(t, after.Revision, before.Revision, "revision after a refusal")
					var taken *flight.TakenError
					if errors.As(err, &taken) && (taken.Entry.Revision != before.Revision || taken.Entry.State != before.State) {
						t.Errorf("refused with %+v, want %+v", taken.Entry, before)
					}
					return
				}
				check.That(t, err == nil && after.State == w.state, "got %v, and the key is %s; want %s", err, after.State, w.state)
			})
		}
	}
}

// The next holder's token is greater than that of every earlier one, however the claim changed hands.
func TestTokensGrow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := b.Flight(t, flight.Config{})
	ctx := t.Context()
	last := kvlock.Token{}
	next := func(how string, c *flight.Claim, err error) *flight.Claim {
		t.Helper()
		check.Require(t, err == nil, "%s: %v", how, err)
		check.That(t, c.Token().Compare(last) > 0, "%s: token %s is not greater than %s", how, c.Token(), last)
		last = c.Token()
		return c
	}
	c, err := f.Begin(ctx, "k", flight.BeginOptions{})
	c = next("begun", c, err)
	for range 3 {
		check.OK(t, c.Renew(ctx, 0))
	}
	zombie := c
	c, err = f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{})
	c = next("resumed", c, err)
	wantErr(t, zombie.Renew(ctx, 0), kvlock.ErrLost)
	check.OK(t, c.Fail(ctx, "r", 0))
	c, err = f.Begin(ctx, "k", flight.BeginOptions{})
	next("begun after a failure", c, err)
	check.OK(t, f.Invalidate(ctx, "k"))
	c, err = f.Begin(ctx, "k", flight.BeginOptions{})
	next("begun after an invalidation", c, err)

	// The bucket is recreated, under the running process and for one that comes.
	b.MakeBucketAnew(t, 0)
	c, err = f.Begin(ctx, "k", flight.BeginOptions{})
	c = next("begun in a recreated bucket", c, err)
	c, err = b.Flight(t, flight.Config{}).Resume(ctx, "k", c.Ref(), flight.ResumeOptions{})
	next("resumed by a new process", c, err)
}

// A reference stays good while its claim is there; the key's entry decides whether Resume takes the claim.
func TestResume(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := setup(t)
	f, g := b.Flight(t, flight.Config{Instance: "f"}), b.Flight(t, flight.Config{Instance: "g"})

	c := begin(t, f, "attempts", flight.BeginOptions{})
	first := c.Ref()
	for attempt := 2; attempt <= 4; attempt++ {
		check.OK(t, c.HandOff(ctx, 0))
		ref := c.Ref()
		if attempt == 4 {
			ref = first // stale: the same job, delivered again
		}
		c = check.Must(g.Resume(ctx, "attempts", ref, flight.ResumeOptions{}))(t)
		s := get(t, f, "attempts")
		check.That(t, s.Attempt == attempt && s.Owner == "g" && !s.HandOff, "got %+v, want attempt %d of g, not to hand off", s, attempt)
	}

	// Another input's hand-off is not adopted.
	begin(t, f, "input", flight.BeginOptions{HandOff: true, Fingerprint: "one"})
	wantErr(t, check.Err(g.Resume(ctx, "input", c.Ref(), flight.ResumeOptions{Fingerprint: "two"})), kvlock.ErrMismatch)
	s := get(t, f, "input")
	check.That(t, s.Fingerprint == "one" && s.Owner == "f", "got %+v, want f's claim of one", s)

	// The job of the other finds the adopter's result.
	mine := begin(t, f, "adopted", flight.BeginOptions{HandOff: true})
	c = check.Must(g.Resume(ctx, "adopted", c.Ref(), flight.ResumeOptions{}))(t)
	complete(t, c, "v")
	var taken *flight.TakenError
	_, err := f.Resume(ctx, "adopted", mine.Ref(), flight.ResumeOptions{})
	check.That(t, errors.As(err, &taken) && string(taken.Entry.Value) == "v", "got %v, want that the key is done", err)
}

// A pending entry has the same reference as its claim, so that any reader can publish the work again. Other entries have
// none.
func TestReferenceInAnEntry(t *testing.T) {
	t.Parallel()
	for state := range reached {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := setup(t).Flight(t, flight.Config{})
			c := reach(t, f, state)
			entry := get(t, f, "k")
			switch ref := entry.Ref(); {
			case entry.State != flight.Pending && ref != "":
				t.Errorf("reference of the %s entry is %q, want none", entry.State, ref)
			case entry.State == flight.Pending && entry.Claim == c.ID() && entry.Attempt == 1 && ref != c.Ref(): // nobody resumed it
				t.Errorf("reference is %q, want the holder's %q", ref, c.Ref())
			case entry.State == flight.Pending:
				check.ErrorIs(t, check.Err(f.Resume(t.Context(), "k", ref, flight.ResumeOptions{Yield: entry.HandOff})), nil, ref)
			}
		})
	}
}

func TestBadArgumentsWriteNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := setup(t)
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
	wantErr(t, check.Err(f.Resume(ctx, "k", "../../etc", flight.ResumeOptions{})), flight.ErrInvalidRef)
	if m := b.Last(t, "k"); m != nil {
		t.Errorf("wrote %q", m.Data)
	}
}
