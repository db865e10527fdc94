package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A program that was cut off while the bucket was divided learns of it between its choice of a bucket and its write: it does not take
// a lock or a claim that another holds.
func TestCutOffDuringTheDivision(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		late, other := b.Flight(t, flight.Config{Partitions: parts}, p.Through()), b.Flight(t, flight.Config{Partitions: parts})
		p.Partition()
		grow(t, b.JS)
		claim := begin(t, other, "r.a", flight.BeginOptions{})
		p.Heal()
		pass(5 * time.Second)
		wantErr(t, check.Err(late.Begin(t.Context(), "r.a", flight.BeginOptions{})), flight.ErrTaken)
		check.Same(t, "bucket", in(t, b.JS, "r.a"), buckets[2])
		complete(t, claim, "v")
	})
}

// A division takes as long as a result is kept. Changes to the configuration of the first bucket meanwhile stay, such as the mark of a
// restore: without it tokens would become smaller.
func TestFirstBucketChangesDuringTheDivision(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		l := b.Locker(t, kvlock.LockerConfig{Partitions: parts})
		lease := acquire(t, l, "r.a")
		done := growing(t, b.JS)
		check.OK(t, kvlock.MarkRestored(t.Context(), b.JS, bucket))
		last := acquire(t, b.Locker(t, kvlock.LockerConfig{Partitions: parts}), "r.k1")
		release(t, last)
		_ = lease.Release(t.Context()) //nolint:errcheck // it may have been lost
		check.OK(t, <-done)
		pass(10 * time.Minute) // until no entry tells of it
		next := acquire(t, b.Locker(t, kvlock.LockerConfig{Partitions: parts}), "r.k1")
		check.That(t, next.Token().Compare(last.Token()) > 0, "%s after %s", next.Token(), last.Token())
		release(t, next)
	})
}

// Programs that know of a division follow when the bucket is made anew without one, and when that is divided again.
func TestDividedBucketIsMadeAnew(t *testing.T) {
	for name, adopts := range map[string]bool{"asked": false, "told by an entry": true} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			grow(t, b.JS)
			f := b.Flight(t, flight.Config{Partitions: parts})
			last := map[string]kvlock.Token{}
			keys := []string{"r.a", "r.k1", "r.k2"}
			for _, key := range keys {
				claim := begin(t, f, key, flight.BeginOptions{})
				last[key] = claim.Token()
				complete(t, claim, "old")
			}
			remakes["by CreateBucket"](t, b)
			for _, part := range buckets[1:] {
				check.OK(t, b.JS.DeleteStream(t.Context(), "KV_"+part))
			}
			other := b.Flight(t, flight.Config{Partitions: parts})
			complete(t, begin(t, other, "r.k1", flight.BeginOptions{}), "new")
			if adopts {
				get(t, f, "r.k1")
			}
			pass(11 * time.Second)
			for round := range 2 {
				for _, key := range keys {
					check.OK(t, other.Invalidate(t.Context(), key))
					claim := begin(t, f, key, flight.BeginOptions{})
					check.That(t, claim.Token().Compare(last[key]) > 0, "%s has %s after %s", key, claim.Token(), last[key])
					last[key] = claim.Token()
					wantErr(t, check.Err(other.Begin(t.Context(), key, flight.BeginOptions{})), flight.ErrTaken)
					check.OK(t, claim.Release(t.Context()))
				}
				if round == 0 {
					grow(t, b.JS)
				}
			}
		})
	}
}

// The next call of Grow makes a bucket anew whose stream was lost, while programs run: its entries are gone, and its tokens are the greater
// ones, also where that bucket alone had been marked as restored. The entries of the other buckets stay.
func TestLostPartitionIsMadeAnew(t *testing.T) {
	for name, settled := range map[string]bool{"settled": true, "a key is left in the first": false} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			f, l := b.Flight(t, flight.Config{Partitions: parts}), b.Locker(t, kvlock.LockerConfig{Partitions: parts})
			again := func() { grow(t, b.JS) }
			if !settled {
				complete(t, begin(t, f, "r.k3", flight.BeginOptions{}), "left")
				again = func() { _ = growing(t, b.JS) }
			}
			again()
			complete(t, begin(t, f, "r.k2", flight.BeginOptions{}), "kept")
			config := func() jetstream.StreamConfig {
				cfg := check.Must(b.JS.Stream(t.Context(), "KV_"+buckets[2]))(t).CachedInfo().Config
				cfg.FirstSeq = 0
				delete(cfg.Metadata, "kvlock-epoch")
				return cfg
			}
			made := config()
			for range 2 {
				pass(time.Second)
				check.OK(t, kvlock.MarkRestored(t.Context(), b.JS, buckets[2]))
				pass(2 * time.Second)
				claim, lease := begin(t, f, "r.a", flight.BeginOptions{}), acquire(t, l, "r.k9")
				check.Same(t, "bucket of the claim", in(t, b.JS, "r.a"), buckets[2])
				check.Same(t, "bucket of the lock", in(t, b.JS, "r.k9"), buckets[2])
				check.OK(t, b.JS.DeleteStream(t.Context(), "KV_"+buckets[2]))
				pass(time.Second)
				again()
				check.Equal(t, config(), made)
				next := begin(t, f, "r.a", flight.BeginOptions{})
				check.That(t, next.Token().Compare(claim.Token()) > 0, "%s after %s", next.Token(), claim.Token())
				wantErr(t, check.Err(claim.Complete(t.Context(), []byte("old"), 0)), kvlock.ErrLost)
				check.OK(t, next.Release(t.Context()))
				<-lease.Context().Done()
				after := acquire(t, l, "r.k9")
				check.That(t, after.Token().Compare(lease.Token()) > 0, "%s after %s", after.Token(), lease.Token())
				release(t, after)
				check.Same(t, "value", string(get(t, f, "r.k2").Value), "kept")
			}
		})
	}
}

// With a clock that is behind, a lost bucket could give tokens again.
func TestLostPartitionIsNotMadeInThePast(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		grow(t, b.JS)
		stream := check.Must(b.JS.Stream(t.Context(), "KV_"+bucket))(t)
		cfg := stream.CachedInfo().Config
		cfg.Metadata["kvlock-epoch"] = fmt.Sprint(time.Now().Add(time.Hour).UnixNano())
		check.Must(b.JS.UpdateStream(t.Context(), cfg))(t)
		check.OK(t, kvlock.Grow(t.Context(), b.JS, bucket, parts, nil))
		check.OK(t, b.JS.DeleteStream(t.Context(), "KV_"+buckets[2]))
		err := kvlock.Grow(t.Context(), b.JS, bucket, parts, nil)
		check.That(t, err != nil && strings.Contains(err.Error(), "set the clock"), "made anew: %v", err)
		pass(time.Hour + time.Second)
		grow(t, b.JS)
	})
}

// A division refuses streams of a former or another division in place of its partitions.
func TestPartitionsOfAnotherDivision(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		acquire(t, b.Locker(t, kvlock.LockerConfig{Partitions: parts}), "r.a")
		wantErr(t, kvlock.Grow(ctx, b.JS, bucket, parts, nil), context.DeadlineExceeded)
		undivided := func() {
			t.Helper()
			remakes["by CreateBucket"](t, b)
		}
		undivided() // its partitions are left
		refused := func(n int) {
			t.Helper()
			err := kvlock.Grow(t.Context(), b.JS, bucket, n, nil)
			check.That(t, err != nil && !errors.Is(err, context.Canceled), "divided into %d: %v", n, err)
		}
		refused(3)
		release(t, acquire(t, b.Locker(t, kvlock.LockerConfig{}), "r.a"))
		stream := check.Must(b.JS.Stream(t.Context(), "KV_"+buckets[1]))(t)
		cfg := stream.CachedInfo().Config
		check.OK(t, b.JS.DeleteStream(t.Context(), cfg.Name))
		check.Must(b.JS.CreateStream(t.Context(), cfg))(t)
		check.Must(b.JS.Publish(t.Context(), "$KV."+buckets[1]+".k", nil))(t)
		refused(parts)
		check.OK(t, stream.Purge(t.Context()))
		refused(parts)
		check.OK(t, b.JS.DeleteStream(t.Context(), cfg.Name))
		grow(t, b.JS)
	})
}

// A division that was interrupted before it began leaves partitions, and the bucket is restored before it is divided: their tokens are
// the greater ones all the same.
func TestRestoredBeforeTheDivisionGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		stream := check.Must(b.JS.Stream(t.Context(), "KV_"+bucket))(t)
		undivided := stream.CachedInfo().Config
		grow(t, b.JS)
		for i, name := range buckets { // as an interrupted call leaves them
			cfg := check.Must(b.JS.Stream(t.Context(), "KV_"+name))(t).CachedInfo().Config
			if i == 0 {
				cfg = undivided
			}
			check.OK(t, b.JS.DeleteStream(t.Context(), "KV_"+name))
			check.Must(b.JS.CreateStream(t.Context(), cfg))(t)
		}
		check.OK(t, kvlock.MarkRestored(t.Context(), b.JS, bucket))
		l := b.Locker(t, kvlock.LockerConfig{Partitions: parts})
		before := acquire(t, l, "r.a")
		release(t, before)
		grow(t, b.JS)
		after := acquire(t, l, "r.a")
		check.That(t, after.Token().Compare(before.Token()) > 0, "%s after %s", after.Token(), before.Token())
		release(t, after)
	})
}

// A program without the setting that only reads is refused, too: it would not find the keys that have moved.
func TestReaderWithoutTheSetting(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{})
		grow(t, b.JS)
		complete(t, begin(t, b.Flight(t, flight.Config{Partitions: parts}), "r.a", flight.BeginOptions{}), "v")
		pass(11 * time.Second)
		_, _ = f.Get(t.Context(), "r.a") //nolint:errcheck // it asks
		pass(time.Second)
		for what, try := range map[string]func() error{
			"get":        func() error { _, err := f.Get(t.Context(), "r.a"); return err },
			"latest":     func() error { _, err := f.Latest(t.Context(), "r.a"); return err },
			"invalidate": func() error { return f.Invalidate(t.Context(), "r.a") },
		} {
			begun, err := time.Now(), try()
			_, ok := errors.AsType[*kvlock.PartitionsError](err)
			check.That(t, ok && time.Since(begun) < time.Second, "%s: %v, after %s", what, err, time.Since(begun))
		}
	})
}

// A lock that comes to its own bucket while locks are listed is listed.
func TestListedWhileItMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		const many = 520 // more than are read at a time
		for i := range many {
			check.Must(b.JS.Publish(t.Context(), fmt.Sprintf("$KV.%s.lock.%03d", bucket, i), nil))(t)
		}
		l := b.Locker(t, kvlock.LockerConfig{Partitions: parts})
		name := "lock.k2"
		lease := acquire(t, l, name)
		_ = growing(t, b.JS)
		listed := false
		for lock, err := range l.List(t.Context(), "lock") {
			if lease != nil {
				release(t, lease)
				lease = nil
				acquire(t, l, name)
				check.That(t, in(t, b.JS, name) != bucket, "it stays where it was")
			}
			listed = listed || err == nil && lock.Name == name
		}
		check.That(t, listed, "it is not listed")
	})
}

// A call whose answers come late goes on with the division of another, and keeps what was set in the bucket's configuration meanwhile: without
// the mark of a restore tokens would become smaller.
func TestTwoDivisionsOfABucketAtOnce(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, b *bed){
		"divided": func(t *testing.T, b *bed) {
			t.Helper()
			grow(t, b.JS)
		},
		"divided, and in use": func(t *testing.T, b *bed) {
			t.Helper()
			grow(t, b.JS)
			f := b.Flight(t, flight.Config{Partitions: parts})
			for _, key := range []string{"r.a", "r.k1", "r.k2", "r.k3"} {
				complete(t, begin(t, f, key, flight.BeginOptions{}), "v")
			}
		},
		"restored": func(*testing.T, *bed) { pass(2600 * time.Millisecond) }, // the first of the others is made
	} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			p := natstest.NewProxy(t, b.Srv)
			_, js := natstest.Connect(t, b.Srv, p.Through())
			p.Slow(1500 * time.Millisecond)
			grew := make(chan error, 1)
			go func() { grew <- kvlock.Grow(t.Context(), js, bucket, parts, nil) }()
			pass(2 * time.Second)
			meanwhile(t, b)
			check.OK(t, kvlock.MarkRestored(t.Context(), b.JS, bucket))
			generation := func(name string) time.Time {
				info := check.Must(b.JS.Stream(t.Context(), "KV_"+name))(t).CachedInfo()
				mark := check.Must(strconv.ParseInt(info.Config.Metadata["kvlock-epoch"], 10, 64))(t)
				return time.Unix(0, max(mark, info.Created.UnixNano()))
			}
			first := generation(bucket)
			p.Slow(0)
			check.OK(t, <-grew)
			check.Same(t, "generation", generation(bucket), first)
			for _, part := range buckets[1:] {
				check.That(t, generation(part).After(first), "%s is of %s, the first of %s", part, generation(part), first)
			}
			grow(t, b.JS)
		})
	}
}

// A division that may not look up its partitions ends, and says why.
func TestDivisionWithoutPermission(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, admin := natstest.Connect(t, srv)
		check.OK(t, kvlock.CreateBucket(t.Context(), admin, kvlock.BucketConfig{Bucket: bucket}))
		_, js := natstest.Connect(t, srv, natstest.Restricted(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		err := kvlock.Grow(ctx, js, bucket, parts, nil)
		check.That(t, err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "ermissions"), "divided: %v", err)
	}, natstest.Restrict(server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$JS.API.STREAM.INFO.KV_" + buckets[1]}},
	}))
}
