package flight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The server restarts under fifty goroutines of three processes that do everything at once. Each gets the right value,
// each key is computed once, and no waiter is left behind.
func TestRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		callers  = 50
		keys     = 60
		restarts = 4
	)
	b := setup(t)
	cfg := flight.Config{OpTimeout: 20 * time.Second}
	flights := []*flight.Flight{b.Flight(t, cfg), b.Flight(t, cfg), b.Flight(t, cfg)}
	ctx := within(t)

	// A waiter for each of these is there before the first restart, and they are completed after the last.
	held := make([]*flight.Claim, 20)
	var waiters, load sync.WaitGroup
	for i := range held {
		held[i] = begin(t, flights[i%3], fmt.Sprintf("held%d", i), flight.BeginOptions{})
		for _, f := range flights {
			waiters.Go(func() {
				s, err := f.Wait(ctx, held[i].Key())
				check.That(t, err == nil && string(s.Value) == "v", "waiter of %s: got %+v, %v", held[i].Key(), s, err)
			})
		}
	}

	var runs [keys]atomic.Int64
	var values [keys]sync.Map
	stop := make(chan struct{})
	for i := range callers {
		f := flights[i%3]
		load.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				k := rand.IntN(keys)
				key := fmt.Sprintf("k%d", k)
				r, err := f.Do(ctx, key, func(context.Context) ([]byte, error) {
					return fmt.Appendf(nil, "%s by %d, run %d", key, i, runs[k].Add(1)), nil
				}, flight.DoOptions{})
				check.Is(t, err, nil)
				values[k].Store(string(r.Value), true)

				own := fmt.Sprintf("own.%d.%d", i, round)
				c, err := f.Begin(ctx, own, flight.BeginOptions{})
				if err != nil {
					t.Errorf("Begin: %v", err)
					continue
				}
				check.Is(t, check.Err(c.Complete(ctx, []byte(own), 0)), nil)
				entries, err := f.GetMany(ctx, []string{own, key})
				check.That(t, err == nil && string(entries[0].Value) == own && bytes.Equal(entries[1].Value, r.Value), "GetMany: got %+v, %v", entries, err)
			}
		})
	}
	for range restarts {
		check.OK(t, b.Srv.Restart(ctx))
		// Some work in between, for the next one to interrupt.
		check.Is(t, check.Err(flights[0].Do(ctx, fmt.Sprintf("between%d", rand.Uint64()), func(context.Context) ([]byte, error) { return nil, nil }, flight.DoOptions{})), nil)
	}
	close(stop)
	load.Wait()
	for _, c := range held {
		complete(t, c, "v")
	}
	waiters.Wait()
	for k := range keys {
		n := 0
		values[k].Range(func(any, any) bool { n++; return true })
		check.That(t, n <= 1 && runs[k].Load() <= 1, "k%d was computed %d times, and callers saw %d values", k, runs[k].Load(), n)
	}
}

// The connection is cut in one of several ways, at any moment between two renewals. The holder's context ends before
// another process can have the key.
func TestNeverTwoHoldersWhenCutOff(t *testing.T) {
	cuts := map[string]func(p *natstest.Proxy){
		"silence":      (*natstest.Proxy).Partition,
		"disconnected": (*natstest.Proxy).Cut,
		"one way: requests are lost": func(p *natstest.Proxy) {
			p.Filter(losing(func(f natstest.Frame) bool { return f.FromClient }))
		},
		"one way: answers are lost": func(p *natstest.Proxy) {
			p.Filter(losing(func(f natstest.Frame) bool { return !f.FromClient }))
		},
	}
	for name, cut := range cuts {
		for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
			runInBubble(t, name+"/"+ttl.String(), func(t *testing.T, b *bed) { cutOff(t, b, ttl, 0, cut) })
		}
	}
}

// An answer that comes late does not prolong the claim: it counts from when the request was sent.
func TestNeverTwoHoldersWhenAnswersAreSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		cutOff(t, b, 5*time.Second, 900*time.Millisecond, (*natstest.Proxy).Partition)
	})
}

// cutOff cuts the connection of a holder, and compares when its context ends with when another process gets the claim.
func cutOff(t *testing.T, b *bed, ttl, slow time.Duration, cut func(*natstest.Proxy)) {
	t.Helper()
	f, p := b.ProxiedFlight(t, flight.Config{ClaimTTL: ttl})
	p.Slow(slow)
	c := begin(t, f, "k", flight.BeginOptions{})
	held, stop := c.AutoRenew(t.Context(), 0)
	defer stop()
	pass(3*ttl + rand.N(ttl))
	cut(p)
	start := time.Now()
	other := b.Flight(t, flight.Config{})
	took := make(chan time.Time, 1)
	go func() {
		for {
			_, err := other.Begin(t.Context(), "k", flight.BeginOptions{})
			if err == nil {
				took <- time.Now()
				return
			}
			pause := 100 * time.Millisecond
			// The holder's context ends in the last second of the TTL.
			if taken, ok := errors.AsType[*flight.TakenError](err); !ok || taken.Entry.TTL-taken.Entry.Age() < 2*time.Second {
				pause = 5 * time.Millisecond
			}
			pass(pause)
		}
	}()
	<-held.Done()
	ended := time.Now()
	wantErr(t, context.Cause(held), kvlock.ErrLost)
	second := <-took
	check.That(t, ended.Before(second), "held until %s after the cut, the second holder came after %s", ended.Sub(start), second.Sub(start))
	check.Failsf(t, check.Err(c.Complete(t.Context(), nil, 0)), "completed a claim that another process holds")
}
