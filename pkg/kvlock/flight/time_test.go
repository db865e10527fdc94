package flight_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// AutoRenew begins with a claim that is nearly over, or was begun for less than it is kept for.
func TestKeepOfAShortClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{})
		c := begin(t, f, "k", flight.BeginOptions{TTL: 4 * time.Second})
		pass(2500 * time.Millisecond)
		held, stop := c.AutoRenew(t.Context(), time.Minute)
		defer stop()
		pass(10 * time.Minute)
		check.That(t, held.Err() == nil, "ended: %v", context.Cause(held))
	})
}

// A holder that ends the claim while it is renewed has not lost it.
func TestKeepOfAClaimThatIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		c := begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{TTL: 4 * time.Second})
		held, stop := c.AutoRenew(t.Context(), 4*time.Second)
		complete(t, c, "v")
		pass(time.Hour)
		check.That(t, held.Err() == nil, "ended: %v", context.Cause(held))
		stop()
		wantErr(t, context.Cause(held), context.Canceled)
	})
}

func TestKeepEndsWhenTheClaimIsTakenAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{})
		c := begin(t, f, "k", flight.BeginOptions{TTL: 6 * time.Second})
		held, stop := c.AutoRenew(t.Context(), 6*time.Second)
		defer stop()
		check.OK(t, f.Invalidate(t.Context(), "k"))
		start := time.Now()
		<-held.Done()
		wantErr(t, context.Cause(held), kvlock.ErrLost)
		took(t, "noticed by the next renewal", start, 0, 2*time.Second)
	})
}

// Hours of claims under contention, with -long a day. Holders crash, are paused past their TTL and come back, give up
// and complete.
func TestHoursOfContention(t *testing.T) {
	hours := 2
	if crash.Long() {
		hours = 24
	}
	const (
		flights  = 3
		workers  = 3 // of each Flight
		claimTTL = 20 * time.Second
	)
	of := crash.Random(t)
	inBubble(t, func(t *testing.T, b *bed) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(hours)*time.Hour)
		defer cancel()
		watch := &referee{t: t, live: map[string]string{}, dead: map[string]*death{}}
		var all sync.WaitGroup
		for i := range flights {
			f := b.Flight(t, flight.Config{ClaimTTL: claimTTL})
			for j := range workers {
				r := of(uint64(i*workers + j))
				all.Go(func() {
					for ctx.Err() == nil {
						watch.work(ctx, f, r, fmt.Sprintf("k%d", r.IntN(2)), claimTTL)
						pass(time.Duration(r.Int64N(int64(time.Minute))))
					}
				})
			}
		}
		all.Wait()
		watch.looking.Wait()
		t.Logf("%d claims: %d completed, %d crashed, %d zombies; longest wait for an entry that the server had removed %s",
			watch.claims, watch.completed, watch.crashed, watch.zombies, watch.longest)
		check.That(t, watch.claims >= 100*hours && watch.crashed >= 10*hours && watch.zombies >= 10*hours, "too little happened")
		check.That(t, watch.longest <= step, "a caller waited %s for an entry that the server had removed, want at most %s", watch.longest, step)
	})
}

// referee knows the true holder of each key.
type referee struct {
	t                                   *testing.T
	mu                                  sync.Mutex
	live                                map[string]string // key to its holder
	dead                                map[string]*death // of the last holder, until there is another
	looking                             sync.WaitGroup
	claims, completed, crashed, zombies int
	longest                             time.Duration
}

// death is of a holder that did not end its claim.
type death struct {
	over    time.Time // its TTL
	removed time.Time // when the server removed it; zero before
}

func (w *referee) work(ctx context.Context, f *flight.Flight, r *rand.Rand, key string, ttl time.Duration) {
	came := time.Now()
	c, err := f.Begin(ctx, key, flight.BeginOptions{})
	for errors.Is(err, flight.ErrTaken) {
		entry, waitErr := f.Wait(ctx, key)
		if waitErr != nil || entry.State != flight.Absent {
			return
		}
		c, err = f.Begin(ctx, key, flight.BeginOptions{Seen: entry})
	}
	if err != nil {
		check.That(w.t, ctx.Err() != nil, "begin: %v", err)
		return
	}
	w.took(key, c.ID(), came)
	held, stop := c.AutoRenew(ctx, 0)
	pass(time.Duration(r.Int64N(int64(40 * time.Second))))
	switch r.IntN(4) {
	case 0: // crashes
		stop()
		w.died(ctx, f, key, c.ID(), &w.crashed)
	case 1: // is paused past its TTL, and comes back
		stop()
		w.died(ctx, f, key, c.ID(), &w.zombies)
		pass(ttl + lateness + time.Duration(r.Int64N(int64(ttl))))
		if _, err := c.Complete(ctx, []byte("zombie"), 0); !errors.Is(err, kvlock.ErrLost) && ctx.Err() == nil {
			w.t.Errorf("a zombie's Complete: got %v", err)
		}
	case 2:
		stop()
		w.left(key, c.ID())
		if err := c.Fail(ctx, "r", 0); err != nil && ctx.Err() == nil {
			w.t.Errorf("fail: %v", err)
		}
	default:
		if held.Err() != nil && ctx.Err() == nil {
			w.t.Errorf("lost a claim that was kept: %v", context.Cause(held))
		}
		stop()
		w.left(key, c.ID())
		if _, err := c.Complete(ctx, []byte("v"), 5*time.Second); err != nil && ctx.Err() == nil {
			w.t.Errorf("complete: %v", err)
		}
		w.mu.Lock()
		w.completed++
		w.mu.Unlock()
	}
}

func (w *referee) took(key, holder string, came time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims++
	check.Equal(w.t, w.live[key], "", "the holder of "+key+", which "+holder+" got")
	if d := w.dead[key]; d != nil {
		early := time.Until(d.over)
		check.That(w.t, early <= 0, "%s got %s %s before the TTL of the dead one was over", holder, key, early)
		if !d.removed.IsZero() {
			w.longest = max(w.longest, min(time.Since(d.removed), time.Since(came)))
		}
	}
	delete(w.dead, key)
	w.live[key] = holder
}

func (w *referee) left(key, holder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	check.That(w.t, w.live[key] == holder, "%s held %s, which %s holds", holder, key, w.live[key])
	delete(w.live, key)
}

// died leaves the key to the server, which frees it when the TTL of the last renewal is over.
func (w *referee) died(ctx context.Context, f *flight.Flight, key, holder string, count *int) {
	entry, err := f.Get(ctx, key)
	check.That(w.t, ctx.Err() != nil || err == nil && entry.Claim == holder, "%s held %s, which has %+v, %v", holder, key, entry, err)
	w.left(key, holder)
	w.mu.Lock()
	defer w.mu.Unlock()
	d := &death{over: entry.Created.Add(entry.TTL)}
	w.dead[key] = d
	*count++
	w.looking.Go(func() { w.look(ctx, f, entry, d) })
}

// look finds out when the server removes the claim of a dead holder. That is up to lateness after its TTL, and in fake time
// may be much later: the server puts it off with each write, for as long as another clock of its own, of real time, stands
// still.
func (w *referee) look(ctx context.Context, f *flight.Flight, entry flight.Entry, d *death) {
	for pass(time.Until(d.over)); ctx.Err() == nil; pass(5 * time.Millisecond) {
		switch now, err := f.Get(ctx, entry.Key); {
		case ctx.Err() != nil:
		case err != nil:
			w.t.Errorf("get %s: %v", entry.Key, err)
		case now.Revision != entry.Revision:
			w.mu.Lock()
			d.removed = time.Now()
			w.mu.Unlock()
			return
		}
	}
}
