package flight

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/record"
)

// A value keeps its age through any claims that carry it.
func TestCarriedValueKeepsItsAge(t *testing.T) {
	t.Parallel()
	stored := time.Now().Add(-20 * time.Second).Truncate(time.Millisecond)
	s := claimRecord{Head: record.Head{State: "done", Claim: "c", Owner: "o", Instance: "i"}, TTL: 100, Kept: staleValue{Fresh: 60_000}}.slot("k", []byte("v"), 1, stored)
	s.aged = s.seen.Sub(stored)
	for hop := range 5 {
		c := s.carry()
		ch, r := change{ttl: 30 * time.Second}, claimRecord{Head: record.Head{State: "pending", Claim: "d", Owner: "p", Instance: "j"}, TTL: 30}
		c.load(&ch, &r)
		if r.Kept.Holds != 30 || ch.ttl < 79*time.Second || ch.ttl > 80*time.Second || r.TTL != kv.Seconds(ch.ttl) {
			t.Fatalf("hop %d: kept for %s, %+v; want what is left of 100s, and the claim for 30s", hop, ch.ttl, r)
		}
		created := time.Now()
		s = r.slot("k", ch.value, 2, created)
		if hop%2 == 0 {
			again := s.carry()
			again.restore(&r, again.left(), 0, "")
			s = r.slot("k", again.data, 3, created)
			if s.State != Done || s.Claim != "c" || s.Owner != "i" {
				t.Fatalf("hop %d: put back as %+v", hop, s)
			}
		}
		if age := s.valueAge(); age < 20*time.Second || age > 21*time.Second || !bytes.Equal(s.Value, []byte("v")) || s.Stale() {
			t.Fatalf("hop %d: %s old, %+v; want 20s", hop, age, s)
		}
	}
	s.earlier += 41 * time.Second
	if !s.Stale() {
		t.Errorf("not stale after its TTL: %+v", s)
	}
}

func TestJitterStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 10_000 {
		ttl := time.Duration(1+r.Int64N(int64(kv.MaxTTL/time.Second))) * time.Second
		if r.IntN(2) == 0 {
			ttl = time.Duration(1+r.IntN(100)) * time.Second
		}
		fraction := r.Float64() / 2
		got := jitter(ttl, fraction)
		spread := time.Duration(fraction*float64(ttl)) + time.Second/2 // rounded
		if kv.CheckTTL(got) != nil || got < min(ttl-spread, kv.MaxTTL) || got > ttl+spread {
			t.Fatalf("%s ±%.2f became %s: %v", ttl, fraction, got, kv.CheckTTL(got))
		}
	}
	if jitter(time.Minute, 0) != time.Minute || jitter(0, 0.5) != 0 {
		t.Error("jitter where there is none")
	}
	different := map[time.Duration]bool{}
	for range 100 {
		different[jitter(time.Hour, 0.1)] = true
	}
	if len(different) < 50 {
		t.Errorf("only %d different of 100", len(different))
	}
}

func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: time.Second, time.Second: time.Second, 1001 * time.Millisecond: 2 * time.Second,
		kv.MaxTTL: kv.MaxTTL, kv.MaxTTL + 1: kv.MaxTTL, 1<<63 - 1: kv.MaxTTL,
	} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}
