package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const parts = 4

var buckets = []string{bucket, bucket + "-1", bucket + "-2", bucket + "-3"}

// grow divides the bucket, and returns when nothing is left in the first.
func grow(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	check.OK(t, kvlock.Grow(t.Context(), js, bucket, parts, nil))
}

// growing starts to divide the bucket, and returns when it is divided and a key is left in the first.
func growing(t *testing.T, js jetstream.JetStream) (done <-chan error) {
	t.Helper()
	left, end := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		end <- kvlock.Grow(t.Context(), js, bucket, parts, func(string) { once.Do(func() { close(left) }) })
	}()
	select {
	case <-left:
	case err := <-end:
		t.Fatalf("nothing was left: %v", err)
	}
	return end
}

// in returns the bucket that has a key, or those that have it.
func in(t testing.TB, js jetstream.JetStream, key string) string {
	t.Helper()
	var found []string
	for _, name := range buckets {
		if _, err := check.Must(js.KeyValue(t.Context(), name))(t).Get(t.Context(), key); err == nil {
			found = append(found, name)
		}
	}
	return strings.Join(found, ", ")
}

// These values must never change: entries that are stored would not be found again.
func TestKeysStayInTheirPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		grow(t, b.JS)
		f := b.Flight(t, flight.Config{Partitions: parts})
		l := b.Locker(t, kvlock.LockerConfig{Partitions: parts})
		for key, want := range map[string]string{
			"a": buckets[2], "k1": buckets[0], "k2": buckets[3], "k3": buckets[1], "oven.3": buckets[3], "jobs.mail.u17": buckets[0],
		} {
			complete(t, begin(t, f, "r."+key, flight.BeginOptions{}), "v")
			check.Same(t, key, in(t, b.JS, "r."+key), want)
			lease := acquire(t, l, "r.lock."+key)
			check.That(t, slices.Contains(buckets, in(t, b.JS, "r.lock."+key)), "a lock is in %s", in(t, b.JS, "r.lock."+key))
			release(t, lease)
		}
		counts := map[string]int{}
		const keys = 2000
		for i := range keys {
			complete(t, begin(t, f, fmt.Sprintf("spread.%d", i), flight.BeginOptions{}), "v")
		}
		for _, name := range buckets {
			stream := check.Must(b.JS.Stream(t.Context(), "KV_"+name))(t)
			info := check.Must(stream.Info(t.Context(), jetstream.WithSubjectFilter("$KV."+name+".spread.*")))(t)
			counts[name] = len(info.State.Subjects)
			check.That(t, counts[name] > 0 && counts[name] < keys*29/100, "%s has %d of %d keys", name, counts[name], keys)
		}
	})
}

// holds checks the invariants of the holders of locks.
type holds struct {
	t      *testing.T
	mu     sync.Mutex
	holder map[string]*kvlock.Lease
	last   map[string]kvlock.Token
	taken  int
}

// take records a holder. The one before it has given the lock up, or knows that it lost it.
func (h *holds) take(lease *kvlock.Lease) {
	name, token := lease.Name(), lease.Token()
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.holder[name]; other != nil && other.Context().Err() == nil {
		h.t.Errorf("lock %s is held with %s and with %s", name, other.Token(), token)
	}
	if last := h.last[name]; token.Compare(last) <= 0 || token.Revision <= last.Revision || token.Revision >= 1<<53 {
		h.t.Errorf("lock %s has token %s after %s", name, token, last)
	}
	h.holder[name], h.last[name] = lease, token
	h.taken++
}

func (h *holds) give(lease *kvlock.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder[lease.Name()] == lease {
		delete(h.holder, lease.Name())
	}
}

// While programs take locks and compute results the bucket is divided: no lock has two holders, tokens grow, and each result is computed
// once.
func TestDividedUnderLoad(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		const programs, locks, keys, rounds = 6, 8, 40, 60
		h := &holds{t: t, holder: map[string]*kvlock.Lease{}, last: map[string]kvlock.Token{}}
		var computed sync.Map
		var work sync.WaitGroup
		f := b.Flight(t, flight.Config{Partitions: parts})
		for i := range keys { // they are there before, and stay for longer than the test
			complete(t, begin(t, f, fmt.Sprintf("old.%d", i), flight.BeginOptions{}), "old")
		}
		for p := range programs {
			l := b.Locker(t, kvlock.LockerConfig{Partitions: parts, TTL: 5 * time.Second})
			f := b.Flight(t, flight.Config{Partitions: parts, Memory: flight.MemoryConfig{MaxBytes: 1 << 20}})
			work.Go(func() {
				for i := range rounds {
					name := fmt.Sprintf("lock.%d", (i+p)%locks)
					lease := acquire(t, l, name)
					h.take(lease)
					pass(time.Duration(10+(i*7+p*13)%90) * time.Millisecond)
					check.That(t, lease.Context().Err() == nil, "lock %s is lost: %v", name, context.Cause(lease.Context()))
					h.give(lease)
					release(t, lease)
				}
			})
			work.Go(func() {
				for i := range rounds {
					for _, key := range []string{fmt.Sprintf("new.%d", i), fmt.Sprintf("old.%d", i%keys)} {
						got, err := f.Do(t.Context(), key, func(context.Context) ([]byte, error) {
							by, twice := computed.LoadOrStore(key, p)
							check.That(t, !twice, "%s is computed by %d and by %d", key, by, p)
							pass(30 * time.Millisecond)
							return []byte(key), nil
						}, flight.DoOptions{TTL: time.Hour})
						check.That(t, err == nil && (string(got.Value) == key || string(got.Value) == "old"), "%s is %q: %v", key, got.Value, err)
					}
					pass(50 * time.Millisecond)
				}
			})
		}
		pass(time.Second)
		_ = growing(t, b.JS)
		work.Wait()
		check.Same(t, "locks taken", h.taken, programs*rounds)
		_, again := computed.Load("old.1")
		check.That(t, !again, "a result of before the division is computed again")
		for i := range locks {
			name := fmt.Sprintf("lock.%d", i)
			check.That(t, !inspect(t, b.Locker(t, kvlock.LockerConfig{Partitions: parts}), name).Held, "%s is held", name)
		}
	})
}

// A holder of before the division goes on where it was, waiters get the lock after it in their order, and the division ends with it.
func TestHolderOfBeforeTheDivision(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		holder, other := b.Locker(t, kvlock.LockerConfig{Partitions: parts}), b.Locker(t, kvlock.LockerConfig{Partitions: parts})
		names := []string{"r.a", "r.k2", "r.k3"}
		var leases []*kvlock.Lease
		for _, name := range names {
			leases = append(leases, acquire(t, holder, name))
		}
		before := queue(t, other, names[1], 1, kvlock.AcquireOptions{})
		done := growing(t, b.JS)
		after := queue(t, b.Locker(t, kvlock.LockerConfig{Partitions: parts}), names[1], 2, kvlock.AcquireOptions{})
		pass(time.Minute)
		for i, name := range names {
			check.OK(t, context.Cause(leases[i].Context()))
			wantErr(t, check.Err(other.TryAcquire(t.Context(), name, kvlock.AcquireOptions{})), kvlock.ErrHeld)
			check.Same(t, name, in(t, b.JS, name), bucket)
			release(t, leases[i])
		}
		second := patiently(t, before)
		check.That(t, second.Token().Compare(leases[1].Token()) > 0, "%s after %s", second.Token(), leases[1].Token())
		select {
		case <-after.Done:
			t.Error("the second waiter has the lock of the first")
		default:
		}
		check.Same(t, "bucket of a lock that was handed over", in(t, b.JS, names[1]), buckets[3])
		release(t, second)
		release(t, patiently(t, after))
		check.OK(t, <-done)
		lease := acquire(t, other, names[0])
		check.Same(t, names[0], in(t, b.JS, names[0]), buckets[2])
		release(t, lease)
	})
}

// A holder that was stopped before the division, and goes on when another has its lock or claim in another bucket, writes nothing.
func TestStoppedBeforeTheDivision(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		stopped, p := b.ProxiedLocker(t, kvlock.LockerConfig{Partitions: parts, TTL: 5 * time.Second})
		f := b.Flight(t, flight.Config{Partitions: parts, ClaimTTL: 5 * time.Second}, p.Through())
		lease := acquire(t, stopped, "r.a")
		claim := begin(t, f, "r.k2", flight.BeginOptions{})
		p.Partition()
		_ = growing(t, b.JS)
		l := b.Locker(t, kvlock.LockerConfig{Partitions: parts})
		next := acquire(t, l, "r.a")
		wantErr(t, context.Cause(lease.Context()), kvlock.ErrLost)
		check.That(t, next.Token().Compare(lease.Token()) > 0, "%s after %s", next.Token(), lease.Token())
		g := b.Flight(t, flight.Config{Partitions: parts})
		pass(6 * time.Second)
		mine := begin(t, g, "r.k2", flight.BeginOptions{})
		check.That(t, mine.Token().Compare(claim.Token()) > 0, "%s after %s", mine.Token(), claim.Token())
		p.Heal()
		pass(5 * time.Second)
		wantErr(t, check.Err(claim.Complete(t.Context(), []byte("late"), 0)), kvlock.ErrLost)
		wantErr(t, lease.Release(t.Context()), kvlock.ErrLost)
		guard := b.Guard(t, kvlock.GuardConfig{})
		check.OK(t, guard.Put(t.Context(), "value", next.Token(), []byte("v")))
		wantErr(t, guard.Put(t.Context(), "value", lease.Token(), []byte("late")), kvlock.ErrFenced)
		check.Same(t, "value", complete(t, mine, "v").Key, "r.k2")
		check.Same(t, "value", string(get(t, g, "r.k2").Value), "v")
		release(t, next)
	})
}

// Programs that were told of another number of partitions, or of none, are refused, and do not find half of the keys.
func TestOtherNumberOfPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		l, f := b.Locker(t, kvlock.LockerConfig{}), b.Flight(t, flight.Config{})
		three := b.Flight(t, flight.Config{Partitions: 3})
		release(t, acquire(t, l, "r.a"))
		grow(t, b.JS)
		refused := func(what string, err error) {
			t.Helper()
			wrong, ok := errors.AsType[*kvlock.PartitionsError](err)
			check.That(t, ok && wrong.Partitions == parts && wrong.Bucket == bucket, "%s: %v", what, err)
		}
		_, err := l.Acquire(t.Context(), "r.a", kvlock.AcquireOptions{})
		refused("acquire", err)
		_, err = f.Begin(t.Context(), "r.k1", flight.BeginOptions{})
		refused("begin", err)
		_, err = three.Begin(t.Context(), "r.k1", flight.BeginOptions{})
		refused("begin in three", err)
		for _, n := range []int{1, 3, 5} {
			_, err = kvlock.NewLocker(t.Context(), b.JS, kvlock.LockerConfig{Bucket: bucket, Partitions: n})
			refused("new locker", err)
			_, err = flight.New(t.Context(), b.JS, flight.Config{Bucket: bucket, Partitions: n})
			refused("new flight", err)
		}
		refused("grow", kvlock.Grow(t.Context(), b.JS, bucket, 5, nil))
		grow(t, b.JS)
		_, err = kvlock.NewLocker(t.Context(), b.JS, kvlock.LockerConfig{Bucket: buckets[1], Partitions: parts})
		check.That(t, err != nil, "a partition is bound as if it were a bucket")
	})
}

// Lists have the keys of all partitions, also those left in the first; limits and guarded values stay in the first.
func TestListsHaveAllPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		l, f := b.Locker(t, kvlock.LockerConfig{Partitions: parts}), b.Flight(t, flight.Config{Partitions: parts})
		guard := b.Guard(t, kvlock.GuardConfig{})
		limits := check.Must(kvlock.NewSemaphore(t.Context(), b.JS, kvlock.SemaphoreConfig{Bucket: bucket, Name: "s", Permits: 1}))(t)
		t.Cleanup(limits.Close)
		permit := check.Must(limits.Acquire(t.Context(), "r.a"))(t)
		var want []string
		fill := func(from string) {
			for i := range 6 {
				name := fmt.Sprintf("lock.%s%d", from, i)
				acquire(t, l, name)
				want = append(want, name)
				complete(t, begin(t, f, fmt.Sprintf("result.%s%d", from, i), flight.BeginOptions{}), "v")
			}
		}
		fill("b")
		done := growing(t, b.JS)
		fill("a")
		slices.Sort(want)
		var names, keys []string
		for lock, err := range l.List(t.Context(), "lock") {
			check.OK(t, err)
			names = append(names, lock.Name)
		}
		check.That(t, slices.Equal(names, want), "locks %q, want %q", names, want)
		for entry, err := range f.List(t.Context(), "result") {
			check.OK(t, err)
			keys = append(keys, entry.Key)
		}
		check.Same(t, "results", len(keys), 12)
		many := check.Must(f.GetMany(t.Context(), keys))(t)
		for _, entry := range many {
			check.Same(t, entry.Key, entry.State, flight.Done)
		}
		check.Same(t, "done", check.Must(f.Survey(t.Context(), "result"))(t).Done, 12)
		check.Must(l.Steal(t.Context(), "lock.b1", kvlock.AcquireOptions{}))(t)
		check.OK(t, f.Invalidate(t.Context(), "result.b2"))
		check.Same(t, "invalidated", get(t, f, "result.b2").State, flight.Absent)
		permit.Release()
		check.OK(t, guard.Put(t.Context(), "value", kvlock.Token{Epoch: 1}, []byte("v")))
		l.Close()
		check.OK(t, <-done)
		again := check.Must(limits.Acquire(t.Context(), "r.a"))(t)
		again.Release()
	})
}

// A division that is interrupted goes on when Grow is called again, and kept results are served until they end.
func TestDivisionIsInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{Partitions: parts})
		check.Must(begin(t, f, "r.a", flight.BeginOptions{}).Complete(t.Context(), []byte("kept"), time.Hour))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		wantErr(t, kvlock.Grow(ctx, b.JS, bucket, parts, nil), context.DeadlineExceeded)
		check.Same(t, "value", string(get(t, f, "r.a").Value), "kept")
		check.Same(t, "bucket", in(t, b.JS, "r.a"), bucket)
		grow(t, b.JS)
		check.Same(t, "state", get(t, f, "r.a").State, flight.Absent)
		complete(t, begin(t, f, "r.a", flight.BeginOptions{}), "new")
		check.Same(t, "bucket", in(t, b.JS, "r.a"), buckets[2])
	})
}

// The leaders of the buckets change while they are divided.
func TestDividedWhileLeadersChange(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, cluster.URLs())
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: bucket, Replicas: 3}))
	h := &holds{t: t, holder: map[string]*kvlock.Lease{}, last: map[string]kvlock.Token{}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	settled := make(chan struct{})
	var work sync.WaitGroup
	for p := range 4 {
		_, js := natstest.ConnectURL(t, cluster.URLs())
		l := lockerOn(t, js, kvlock.LockerConfig{Partitions: parts, OpTimeout: 10 * time.Second})
		work.Go(func() {
			for i := p; ; i++ {
				name := fmt.Sprintf("lock.%d", i%6)
				lease, err := l.Acquire(ctx, name, kvlock.AcquireOptions{})
				if err != nil {
					t.Errorf("acquire %s: %v", name, err)
					return
				}
				h.take(lease)
				if i%50 == 0 { // so that it is renewed, or waited for
					<-time.After(20 * time.Millisecond)
				}
				h.give(lease)
				if err := lease.Release(ctx); err != nil && !errors.Is(err, kvlock.ErrLost) { // as a lease that was not confirmed in time
					t.Errorf("release %s: %v", name, err)
				}
				select {
				case <-settled:
					return
				default:
				}
			}
		})
	}
	done := make(chan error, 1)
	go func() { done <- kvlock.Grow(ctx, js, bucket, parts, nil) }()
	for changes := 0; ; changes++ {
		select {
		case err := <-done:
			check.OK(t, err)
			close(settled)
			work.Wait()
			t.Logf("%d locks were taken, and leaders changed %d times", h.taken, changes)
			return
		case <-time.After(300 * time.Millisecond):
			name := "KV_" + buckets[changes%2]
			if _, err := js.Stream(ctx, name); err == nil {
				check.OK(t, cluster.StepDown(ctx, name))
			}
		}
	}
}
