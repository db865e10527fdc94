package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestSteal(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	one, two := b.Locker(t, kvlock.LockerConfig{Instance: "one"}), b.Locker(t, kvlock.LockerConfig{Instance: "two"})
	first := testbed.Acquire(t, one, "l")
	w := testbed.Queue(t, one, "l", 1, kvlock.AcquireOptions{})
	stolen := check.Must(two.Steal(t.Context(), "l", kvlock.AcquireOptions{}))(t)
	testbed.Await(t, first.Context().Done(), "the end of the first lease")
	check.ErrorIs(t, context.Cause(first.Context()), kvlock.ErrLost)
	check.ErrorIs(t, first.Release(t.Context()), kvlock.ErrLost)
	lock := testbed.Inspect(t, two, "l")
	check.That(t, lock.Holder == "two" && lock.Stolen == "one" && testbed.Places(lock) == 1 && lock.Token == stolen.Token() &&
		stolen.Token().Compare(first.Token()) > 0, "got %+v", lock)
	testbed.Release(t, stolen)
	lease := w.Got(t)
	again, err := one.Steal(t.Context(), "l", kvlock.AcquireOptions{}) // from the same process
	check.OK(t, err)
	testbed.Await(t, lease.Context().Done(), "the end of the lease")
	check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
	testbed.Release(t, again)
	free := check.Must(two.Steal(t.Context(), "l", kvlock.AcquireOptions{}))(t)
	testbed.Release(t, free)
}

func TestDoUnderLock(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	l, other := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
	failure := errors.New("failure")
	err := l.Do(t.Context(), "l", func(ctx context.Context, _ kvlock.Token) error {
		check.ErrorIs(t, check.Err(other.TryAcquire(ctx, "l", kvlock.AcquireOptions{})), kvlock.ErrHeld)
		return failure
	})
	check.ErrorIs(t, err, failure)

	// The function's context ends with the caller's, and with the lease.
	bored := errors.New("bored")
	ctx, cancel := context.WithCancelCause(t.Context())
	err = l.Do(ctx, "l", func(ctx context.Context, _ kvlock.Token) error {
		cancel(bored)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	check.ErrorIs(t, err, bored)
	err = l.Do(t.Context(), "l", func(ctx context.Context, _ kvlock.Token) error {
		stolen := check.Must(other.Steal(t.Context(), "l", kvlock.AcquireOptions{}))(t) // ctx may end before it returns
		testbed.Await(t, ctx.Done(), "the end of the function's context")
		check.ErrorIs(t, context.Cause(ctx), kvlock.ErrLost)
		testbed.Release(t, stolen)
		return nil
	})
	check.ErrorIs(t, err, kvlock.ErrLost)
}

func TestInspectAndList(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	one, two := b.Locker(t, kvlock.LockerConfig{Instance: "one"}), b.Locker(t, kvlock.LockerConfig{Instance: "two, with \"quotes\"\nand lines"})
	lock := testbed.Inspect(t, one, "jobs.a")
	check.That(t, !lock.Held && lock.Name == "jobs.a" && lock.Since.IsZero(), "got %+v", lock)
	lease := check.Must(one.Acquire(t.Context(), "jobs.a", kvlock.AcquireOptions{TTL: time.Minute, Metadata: map[string]string{"why": "import"}}))(t)
	for i := range 3 {
		testbed.Queue(t, []*kvlock.Locker{two, two, one}[i], "jobs.a", i+1, kvlock.AcquireOptions{Wait: time.Minute})
	}
	testbed.Acquire(t, two, "jobs.b")
	testbed.Acquire(t, two, "job")
	testbed.Release(t, testbed.Acquire(t, one, "jobs.free"))
	lock = testbed.Inspect(t, two, "jobs.a")
	check.That(t, lock.Holder == "one" && lock.Metadata["why"] == "import" && lock.TTL == time.Minute && lock.Token == lease.Token() &&
		!lock.Granted && !lock.Since.IsZero() && !lock.Written.IsZero(),
		"got %+v", lock)
	want := []kvlock.Waiting{{Instance: "two, with \"quotes\"\nand lines", Waiters: 2}, {Instance: "one", Waiters: 1}}
	check.That(t, slices.Equal(lock.Queue, want), "queue is %+v", lock.Queue)
	for prefix, want := range map[string][]string{
		"": {"job", "jobs.a", "jobs.b"}, "jobs": {"jobs.a", "jobs.b"}, "jobs.a": nil, "x": nil,
	} {
		var names []string
		for lock, err := range one.List(t.Context(), prefix) {
			check.OK(t, err)
			names = append(names, lock.Name)
		}
		check.That(t, slices.Equal(names, want), "%q: got %q, want %q", prefix, names, want)
	}
	for _, err := range one.List(t.Context(), "") {
		check.ErrorIs(t, err, nil)
		break
	}
	for _, err := range one.List(t.Context(), "jobs.") {
		check.ErrorIs(t, err, kvlock.ErrInvalidKey)
	}

	// Records that cannot be read are listed with an error, and stay. Results are left out.
	testbed.Complete(t, testbed.Begin(t, b.Flight(t, flight.Config{}), "slot", flight.BeginOptions{}), "v")
	for key, data := range map[string]string{"newer": `{"v":99}` + "\n", "corrupt": "?"} {
		check.OK(t, check.Err(b.JS.Publish(t.Context(), "$KV."+testbed.Bucket+"."+key, []byte(data))))
	}
	errs := map[string]error{}
	for lock, err := range one.List(t.Context(), "") {
		errs[lock.Name] = err
	}
	check.That(t, len(errs) == 5 && errs["job"] == nil && errs["corrupt"] != nil && errors.Is(errs["newer"], kvlock.ErrVersion), "got %v", errs)
	check.That(t, b.Last(t, "corrupt") != nil, "looking at it removed it")
}

// Locks that change between two pages of a listing are listed once, as they are then, or not at all if they are free then.
func TestListWhileLocksChange(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	l, p := b.ProxiedLocker(t, kvlock.LockerConfig{Instance: "lister", OpTimeout: time.Minute})
	holder, thief := b.Locker(t, kvlock.LockerConfig{Instance: "holder"}), b.Locker(t, kvlock.LockerConfig{Instance: "thief"})
	testbed.Acquire(t, holder, "a.stolen")
	freed := testbed.Acquire(t, holder, "a.freed")
	large := kvlock.AcquireOptions{Metadata: map[string]string{"x": string(make([]byte, 4000))}} // each byte takes six in JSON
	check.OK(t, check.Err(holder.Acquire(t.Context(), "l.000", large)))
	data := b.Last(t, "l.000").Data
	const n = 400 // of these, a page has no more than 350
	for i := range n {
		check.OK(t, check.Err(b.JS.Publish(t.Context(), fmt.Sprintf("$KV.%s.l.%03d", testbed.Bucket, i), data)))
	}
	pages := 0
	p.Change(func(f natstest.Frame) []byte {
		if !f.FromClient || f.Subject != "$JS.API.DIRECT.GET.KV_"+testbed.Bucket {
			return nil
		}
		pages++
		if pages == 2 {
			err := errors.Join(freed.Release(t.Context()), check.Err(thief.Steal(t.Context(), "a.stolen", kvlock.AcquireOptions{})))
			check.That(t, err == nil, "%v", err)
		}
		return nil
	})
	var got []string
	for lock, err := range l.List(t.Context(), "") {
		check.OK(t, err)
		got = append(got, lock.Name+" "+lock.Holder)
	}
	check.That(t, pages >= 2 && len(got) == n+1 && got[0] == "a.stolen thief" && got[n] == "l.399 holder" && slices.IsSorted(got),
		"%d pages, %d locks, the first %q", pages, len(got), got[:min(3, len(got))])
}

func TestLockArguments(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	l := b.Locker(t, kvlock.LockerConfig{})
	for _, try := range []func(context.Context, string, kvlock.AcquireOptions) (*kvlock.Lease, error){l.Acquire, l.TryAcquire, l.Steal} {
		check.ErrorIs(t, check.Err(try(t.Context(), "a..b", kvlock.AcquireOptions{})), kvlock.ErrInvalidKey)
		_, err := try(t.Context(), "l", kvlock.AcquireOptions{TTL: time.Millisecond})
		check.That(t, err != nil, "a TTL of a millisecond was accepted")
		_, err = try(t.Context(), "l", kvlock.AcquireOptions{Metadata: map[string]string{"x": string(make([]byte, 5000))}})
		check.That(t, err != nil, "metadata of 5,000 bytes were accepted")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		check.ErrorIs(t, check.Err(try(gone, "l", kvlock.AcquireOptions{})), context.Canceled)
	}
	full := map[string]string{"x": string(make([]byte, 4095))} // each takes six bytes in JSON
	lease, err := l.Acquire(t.Context(), "l", kvlock.AcquireOptions{Metadata: full})
	check.Require(t, err == nil && testbed.Inspect(t, l, "l").Metadata["x"] == full["x"], "%v", err)
	testbed.Release(t, lease)
	check.Equal(t, b.Writes(t), 2, "b.Writes(t)")
}

// A Locker that closes gives back its locks, and its waiters end.
func TestLockerCloses(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	closing, other := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
	lease := testbed.Acquire(t, closing, "l")
	mine := testbed.Queue(t, closing, "l", 1, kvlock.AcquireOptions{})
	theirs := testbed.Queue(t, other, "l", 2, kvlock.AcquireOptions{})
	blocked := testbed.Acquire(t, other, "m")
	there := testbed.Queue(t, closing, "m", 1, kvlock.AcquireOptions{})
	closing.Close()
	for _, w := range []*testbed.Waiting{mine, there} {
		testbed.Await(t, w.Done, "a waiter")
		check.ErrorIs(t, w.Err, kvlock.ErrClosed)
	}
	check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrClosed)
	testbed.Release(t, theirs.Got(t))
	check.Equal(t, testbed.Places(testbed.Inspect(t, other, "m")), 0, "places left in the queue")
	testbed.Release(t, blocked)
	check.ErrorIs(t, lease.Release(t.Context()), nil)
	check.ErrorIs(t, check.Err(closing.Acquire(t.Context(), "l", kvlock.AcquireOptions{})), kvlock.ErrClosed)
	closing.Close()
}

// Records that are no locks: garbage is removed and reported once, and a record that another program may read stays.
func TestUnreadableLocks(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	kv := check.Must(b.JS.KeyValue(t.Context(), testbed.Bucket))(t)
	put := func(key, value string) {
		t.Helper()
		check.OK(t, check.Err(kv.PutString(t.Context(), key, value)))
	}
	var log testbed.Logged
	var corrupt []string
	l := b.Locker(t, kvlock.LockerConfig{Logger: log.Logger()})
	head := `{"v":1,"state":"held","claim":"c","owner":"o","ttl":5}` + "\n"
	for key, value := range map[string]string{
		"garbage": "garbage", "nothing": "", "line": head, "no-member": head + "{}\n", "member": head + `{"member":"a b"}` + "\n",
		"queue": head + `{"member":"a"}` + "\nb 0 \"x\"\n", "ttl": `{"v":1,"state":"held","claim":"c","owner":"o"}` + "\n" + `{"member":"a"}` + "\n",
	} {
		put(key, value)
		check.ErrorIs(t, check.Err(l.TryAcquire(t.Context(), key, kvlock.AcquireOptions{})), nil, key)
		corrupt = append(corrupt, key)
	}
	f := b.Flight(t, flight.Config{})
	testbed.Begin(t, f, "slot", flight.BeginOptions{})
	put("newer", `{"v":2}`+"\n")
	for key, want := range map[string]error{"newer": kvlock.ErrVersion, "slot": kvlock.ErrMismatch} {
		before := b.Present(t, key).Sequence
		check.ErrorIs(t, check.Err(l.Acquire(t.Context(), key, kvlock.AcquireOptions{})), want)
		check.ErrorIs(t, check.Err(l.TryAcquire(t.Context(), key, kvlock.AcquireOptions{})), want)
		check.ErrorIs(t, check.Err(l.Inspect(t.Context(), key)), want)
		check.Equal(t, b.Present(t, key).Sequence, before, key)
	}
	check.ErrorIs(t, check.Err(f.Get(t.Context(), "garbage")), kvlock.ErrMismatch) // a lock, now
	check.ErrorIs(t, check.Err(f.Begin(t.Context(), "garbage", flight.BeginOptions{})), kvlock.ErrMismatch)
	check.ErrorIs(t, f.Invalidate(t.Context(), "garbage"), kvlock.ErrMismatch)
	check.That(t, testbed.Inspect(t, l, "garbage").Held, "a Flight removed a lock")

	// A lock that turns into garbage is lost, and free.
	lease := testbed.Acquire(t, l, "turns")
	put("turns", "garbage")
	testbed.Await(t, lease.Context().Done(), "the end of the lease")
	check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
	testbed.Release(t, testbed.Acquire(t, l, "turns"))

	l.Close() // nothing is read any more
	for _, key := range append(corrupt, "turns") {
		check.Equal(t, log.Count("key="+key+" "), 1, key)
	}
}

// Any text is a name, in all that shows it.
func TestAnyName(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	l := b.Locker(t, kvlock.LockerConfig{})
	for _, name := range []string{"db1:5432.init", "2026-11-25T09:00:00Z", "große Datei *", "=x", "_kv", "\x00", "\xff.\xfe", "\xed\xa0\x80"} {
		lease := testbed.Acquire(t, l, name)
		_, err := b.Locker(t, kvlock.LockerConfig{}).TryAcquire(t.Context(), name, kvlock.AcquireOptions{})
		held, ok := errors.AsType[*kvlock.HeldError](err)
		check.That(t, lease.Name() == name && ok && held.Lock.Name == name && testbed.Inspect(t, l, name).Name == name,
			"%q: got %q, %v, %+v", name, lease.Name(), err, testbed.Inspect(t, l, name))
	}
	for lock, err := range l.List(t.Context(), "db1:5432") {
		check.That(t, err == nil && lock.Name == "db1:5432.init", "got %+v, %v", lock, err)
	}
}
