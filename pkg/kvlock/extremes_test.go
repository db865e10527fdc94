package kvlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// An error about a text that is far too long, or is not UTF-8, shows no more than its beginning, wherever the text was given.
func TestErrorsClipTexts(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	ctx, js := t.Context(), b.JS
	over, cancel := context.WithCancel(ctx)
	cancel()
	l, f, g := b.Locker(t, kvlock.LockerConfig{}), b.Flight(t, flight.Config{}), b.Guard(t, kvlock.GuardConfig{})
	s, r := semaphore(t, b, 1), limiter(t, b, kvlock.RateLimiterConfig{Per: time.Second, Rate: 1})
	records := check.Must(kvrecord.New(kvrecord.Config{JetStream: js}))(t)
	t.Cleanup(records.Close)
	token := kvlock.Token{Epoch: 1}
	for name, do := range map[string]func(text string) error{
		"lock":    func(x string) error { return check.Err(l.Acquire(ctx, x, kvlock.AcquireOptions{})) },
		"inspect": func(x string) error { return check.Err(l.Inspect(ctx, x)) },
		"metadata": func(x string) error {
			return check.Err(l.TryAcquire(ctx, "l", kvlock.AcquireOptions{Metadata: map[string]string{x: x}}))
		},
		"do":          func(x string) error { return check.Err(f.Do(ctx, x, nil, flight.DoOptions{})) },
		"fingerprint": func(x string) error { return check.Err(f.Do(ctx, "k", nil, flight.DoOptions{Fingerprint: x})) },
		"begin":       func(x string) error { return check.Err(f.Begin(ctx, x, flight.BeginOptions{Fingerprint: x})) },
		"ref":         func(x string) error { return check.Err(f.Resume(ctx, "k", x, flight.ResumeOptions{})) },
		"get":         func(x string) error { return check.Err(f.Get(ctx, x)) },
		"watch":       func(x string) error { return check.Err(f.Watch(x)) },
		"work":        func(x string) error { return check.Err(flight.Work{Process: x + "\xff"}.Key()) },
		"guard":       func(x string) error { return g.Put(ctx, x, token, nil) },
		"token":       func(x string) error { return check.Err(kvlock.ParseToken(x)) },
		"bucket":      func(x string) error { return check.Err(kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: x})) },
		"create":      func(x string) error { return kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: x}) },
		"restored":    func(x string) error { return kvlock.MarkRestored(ctx, js, x) },
		"large values": func(x string) error {
			return check.Err(flight.New(ctx, js, flight.Config{Bucket: testbed.Bucket, LargeValueBucket: x}))
		},
		"limit": func(x string) error {
			return check.Err(kvlock.NewSemaphore(ctx, js, kvlock.SemaphoreConfig{Bucket: testbed.Bucket, Name: x, Permits: 1}))
		},
		"permit": func(x string) error { return check.Err(s.Acquire(over, x)) },
		"rate":   func(x string) error { return r.Wait(over, x) },
		"record": func(x string) error {
			return check.Err(records.Bucket(testbed.Bucket).Put(ctx, kvrecord.Write{Subject: x}))
		},
		"read record":     func(x string) error { return check.Err(records.Bucket(testbed.Bucket).Get(ctx, x)) },
		"record's stream": func(x string) error { return check.Err(records.Stream(x).Latest(over, "k")) },
	} {
		for _, text := range []string{strings.Repeat("aß ", 5000), strings.Repeat("\xff\x00", 5000), strings.Repeat("\xed\xa0\x80", 4000)} {
			err := do(text)
			check.That(t, err != nil && len(err.Error()) < 1200 && utf8.ValidString(err.Error()), "%s: %v", name, err)
		}
	}
	check.OK(t, check.Err(l.Inspect(ctx, "l"))) // the connection has survived all of them
}

// Times that are out of range are refused by name, and none of them overflows.
func TestTimesOutOfRange(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	ctx, js := t.Context(), b.JS
	l, f := b.Locker(t, kvlock.LockerConfig{}), b.Flight(t, flight.Config{})
	records := check.Must(kvrecord.New(kvrecord.Config{JetStream: js}))(t)
	t.Cleanup(records.Close)
	large := make([]byte, 2<<20)
	check.OK(t, check.Err(rand.Read(large)))
	check.OK(t, flight.CreateLargeValueBucket(ctx, js, kvlock.BucketConfig{Bucket: "large"}))
	big := b.Flight(t, flight.Config{LargeValueBucket: "large"})
	for name, do := range map[string]func(d time.Duration) error{
		"Wait is": func(d time.Duration) error {
			return check.Err(l.Acquire(ctx, "l", kvlock.AcquireOptions{Wait: min(d, -1)}))
		},
		"is not a TTL": func(d time.Duration) error { return check.Err(l.Acquire(ctx, "l", kvlock.AcquireOptions{TTL: d})) },
		"TTL: ": func(d time.Duration) error {
			return check.Err(kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: testbed.Bucket, TTL: d}))
		},
		"OpTimeout is": func(d time.Duration) error {
			return check.Err(flight.New(ctx, js, flight.Config{Bucket: testbed.Bucket, OpTimeout: d}))
		},
		"OpTimeout is ": func(d time.Duration) error {
			return check.Err(kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: testbed.Bucket, OpTimeout: d}))
		},
		"ClaimTTL": func(d time.Duration) error { return check.Err(f.Do(ctx, "k", nil, flight.DoOptions{ClaimTTL: d})) },
		"TTL is": func(d time.Duration) error {
			return check.Err(kvlock.NewSemaphore(ctx, js, kvlock.SemaphoreConfig{Bucket: testbed.Bucket, Name: "s", Permits: 1, TTL: d}))
		},
		"Per is": func(d time.Duration) error {
			return check.Err(kvlock.NewRateLimiter(ctx, js, kvlock.RateLimiterConfig{Bucket: testbed.Bucket, Name: "r", Rate: 1, Per: d}))
		},
		"a TTL of": func(d time.Duration) error {
			return check.Err(records.Bucket(testbed.Bucket).Put(ctx, kvrecord.Write{Subject: "$KV.b.r", TTL: d.Truncate(time.Second)}))
		},
		`of "k": `: func(d time.Duration) error {
			c := testbed.Begin(t, big, "k", flight.BeginOptions{})
			held, stop := c.AutoRenew(ctx, d)
			defer stop()
			check.ErrorContains(t, context.Cause(held), `of "k": `)
			return errors.Join(check.Err(c.Complete(ctx, large, d)), c.Release(ctx))
		},
	} {
		for _, d := range []time.Duration{math.MinInt64, -time.Second, math.MaxInt64} {
			check.ErrorContains(t, do(d), name)
		}
	}
	_, err := flight.New(ctx, js, flight.Config{Bucket: testbed.Bucket, ProbeInterval: math.MaxInt64})
	check.ErrorContains(t, err, "ProbeInterval")
	objects := check.Must(js.Stream(ctx, "OBJ_large"))(t)
	check.Equal(t, objects.CachedInfo().State.LastSeq, 0, "parts of values whose TTL is refused")
	testbed.Release(t, check.Must(l.Acquire(ctx, "l", kvlock.AcquireOptions{Wait: math.MaxInt64}))(t))
	_, _, err = kvlock.ListLimits(ctx, js, testbed.Bucket, -1)
	check.OK(t, err)
}
