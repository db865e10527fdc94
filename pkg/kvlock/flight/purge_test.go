package flight_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func purge(t testing.TB, f *flight.Flight, prefix string) int {
	t.Helper()
	return check.Must(f.Purge(t.Context(), prefix))(t)
}

func TestPurge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		prefix string
		purged string // of these keys
		left   string
	}{
		{"a", "a.1 a.2.3", "a ab.1 b.a.1"},
		{"a.2", "a.2.3", "a a.1 ab.1 b.a.1"},
		{"none", "", "a a.1 a.2.3 ab.1 b.a.1"},
		{"", "a a.1 a.2.3 ab.1 b.a.1", ""},
	} {
		b := setup(t)
		f, g := b.Flight(t, remembering()), b.Flight(t, remembering())
		for key := range strings.FieldsSeq(tt.purged + " " + tt.left) {
			replace(t, f, key, key)
			wantEntry(t, g, key, flight.Done, key)
		}
		n := purge(t, f, tt.prefix)
		check.That(t, n == len(strings.Fields(tt.purged)), "purge %q: %d removed", tt.prefix, n)
		for key := range strings.FieldsSeq(tt.purged) {
			check.That(t, b.Last(t, key) == nil, "purge %q: %q is still there", tt.prefix, key)
			wantEntry(t, f, key, flight.Absent, "") // at once: it was this process that purged
		}
		for key := range strings.FieldsSeq(tt.left) {
			wantEntry(t, f, key, flight.Done, key)
		}
	}
	wantErr(t, check.Err(setup(t).Flight(t, flight.Config{}).Purge(t.Context(), "a.*")), kvlock.ErrInvalidKey)
}

// An owner loses its claim, and a waiter takes over at once; the memory of another process drops its values.
func TestPurgeReachesEverybody(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f, g := b.Flight(t, remembering()), b.Flight(t, remembering())
		owner := begin(t, f, "a.k", flight.BeginOptions{TTL: time.Hour})
		replace(t, f, "a.done", "old")
		pass(time.Millisecond)
		wantEntry(t, g, "a.done", flight.Done, "old")
		start := time.Now()
		var waiter sync.WaitGroup
		waiter.Go(func() {
			r, err := g.Do(t.Context(), "a.k", func(context.Context) ([]byte, error) { return []byte("theirs"), nil }, flight.DoOptions{})
			check.That(t, err == nil && string(r.Value) == "theirs" && time.Since(start) <= 1100*time.Millisecond,
				"after %s got %+v, %v", time.Since(start), r, err)
		})
		pass(time.Second)
		check.Same(t, "removed", purge(t, f, "a"), 2)
		pass(time.Millisecond)
		wantEntry(t, g, "a.done", flight.Absent, "")
		waiter.Wait()
		wantErr(t, check.Err(owner.Complete(t.Context(), []byte("of the old state of the world"), 0)), kvlock.ErrLost)
		pass(time.Millisecond)
		wantEntry(t, f, "a.k", flight.Done, "theirs")
	})
}

// Values that are written after the purge began stay, however late the server gets to it.
func TestPurgeLeavesWhatIsWrittenAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, remembering(), p.Through()), b.Flight(t, remembering())
		replace(t, g, "a.old", "1")
		tries := 0
		p.Filter(func(f natstest.Frame) natstest.Verdict {
			if f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.STREAM.PURGE.") {
				tries++
				if tries == 1 {
					return natstest.Lose
				}
			}
			return natstest.Relay
		})
		var purged sync.WaitGroup
		purged.Go(func() { purge(t, f, "a") })
		pass(100 * time.Millisecond)
		replace(t, g, "a.new", "2")
		purged.Wait()
		pass(time.Millisecond)
		for _, h := range []*flight.Flight{f, g, b.Flight(t, flight.Config{})} {
			wantEntry(t, h, "a.old", flight.Absent, "")
			wantEntry(t, h, "a.new", flight.Done, "2")
		}
		check.Same(t, "tries", tries, 2)
	})
}

// A process that reads between the mark and the purge gets the old value, and does not keep it beyond the end of the
// purge.
func TestReadDuringAPurgeIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, remembering())
		replace(t, f, "a.k", "old")
		lost := false
		p.Filter(func(f natstest.Frame) natstest.Verdict {
			if f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.STREAM.PURGE.") && !lost {
				lost = true
				return natstest.Lose
			}
			return natstest.Relay
		})
		var purged sync.WaitGroup
		purged.Go(func() { purge(t, f, "a") })
		pass(100 * time.Millisecond)
		for range 2 {
			wantEntry(t, g, "a.k", flight.Done, "old")
		}
		check.Same(t, "hits", g.Stats().Memory.Hits, 1)
		purged.Wait()
		pass(time.Millisecond)
		wantEntry(t, g, "a.k", flight.Absent, "")
	})
}

// A waiter on a bucket that does not republish learns of a purge by its watcher, long before it would look again.
func TestPurgeWithoutRepublishing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := bedOn(t, srv, kvlock.BucketConfig{Bucket: bucket, NoRepublish: true})
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		begin(t, f, "a.k", flight.BeginOptions{TTL: time.Hour})
		for range 10 {
			var waiter sync.WaitGroup
			ended := make(chan time.Time, 1)
			waiter.Go(func() {
				s, err := g.Wait(t.Context(), "a.k")
				check.That(t, err == nil && s.State == flight.Absent, "got %+v, %v", s, err)
				ended <- time.Now()
			})
			pass(10 * time.Millisecond)
			purge(t, f, "a")
			purged := time.Now()
			waiter.Wait()
			late := (<-ended).Sub(purged)
			check.That(t, late <= 50*time.Millisecond, "woken %s after the purge", late)
			begin(t, f, "a.k", flight.BeginOptions{TTL: time.Hour})
		}
	})
}

// A killed server finds again, in its file, overwritten values that its index does not know to be gone. Once the index
// is written, after two minutes, no purged value is found again, and before that none that was the newest when it was
// purged.
func TestPurgedValuesDoNotComeBack(t *testing.T) {
	dir, crashed := "", t.TempDir()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := bedOn(t, srv, kvlock.BucketConfig{Bucket: bucket})
		f := b.Flight(t, flight.Config{})
		before := map[string]func(key string) error{
			"done":        func(string) error { return nil },
			"invalidated": func(key string) error { return f.Invalidate(t.Context(), key) },
			"replaced":    func(key string) error { replace(t, f, key, "last"); return nil },
		}
		for i := range 20 {
			for name, then := range before {
				key := fmt.Sprintf("a.%s.%d", name, i)
				value := map[bool]string{true: "last", false: "first"}[name == "done"]
				check.OK(t, check.Err(begin(t, f, key, flight.BeginOptions{}).Complete(t.Context(), []byte(value), time.Hour)))
				check.OK(t, then(key))
			}
			replace(t, f, fmt.Sprint("b.", i), "v") // keeps the file
		}
		purge(t, f, "a")
		for i, after := range []time.Duration{0, 3 * time.Minute} {
			pass(after)
			found := filepath.Join(crashed, fmt.Sprint(i))
			if err := os.CopyFS(found, os.DirFS(dir)); err != nil { // the files as a SIGKILL leaves them
				t.Fatal(err)
			}
			revived := &bed{Srv: natstest.Server(t, func(c *natsrun.Config) { c.Dir = found })}
			g := revived.Flight(t, flight.Config{})
			for name := range before {
				for i := range 20 {
					s := get(t, g, fmt.Sprintf("a.%s.%d", name, i))
					check.That(t, string(s.Value) != "last" && (after <= 0 || s.State == flight.Absent),
						"%s later %s came back: %s %q", after, s.Key, s.State, s.Value)
				}
			}
		}
	}, func(c *natsrun.Config) { natsrun.ChangeOptions(c, func(o *server.Options) { dir = o.StoreDir }) })
}
