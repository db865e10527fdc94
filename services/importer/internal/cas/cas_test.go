package cas_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/importer/internal/cas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, srv *natsrun.Server) *cas.Bucket {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	if _, err := contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	b, err := cas.Open(t.Context(), js, contracts.BucketImportJobs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Of many who write at one revision, one succeeds.
func TestOneOfManyWritesSucceeds(t *testing.T) {
	t.Parallel()
	b := open(t, natstest.Server(t))
	var revision uint64
	for round := range 5 {
		var won, lost atomic.Int64
		var next atomic.Uint64
		var wg sync.WaitGroup
		for n := range 10 {
			wg.Go(func() {
				got, err := b.Put(t.Context(), "k", fmt.Appendf(nil, "%d-%d", round, n), revision, time.Hour)
				switch {
				case err == nil:
					won.Add(1)
					next.Store(got)
				case errors.Is(err, cas.ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 9 {
			t.Fatalf("round %d: %d succeeded, %d were refused", round, won.Load(), lost.Load())
		}
		revision = next.Load()
		if entry, err := b.Get(t.Context(), "k"); err != nil || entry.Revision != revision {
			t.Errorf("%+v, %v", entry, err)
		}
	}
}

// A write that was applied though nobody said so is one's own.
func TestAWriteIsRecognisedByItsValue(t *testing.T) {
	t.Parallel()
	b := open(t, natstest.Server(t))
	first, err := b.Put(t.Context(), "k", []byte("mine"), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.Put(t.Context(), "k", []byte("mine"), 0, 0); err != nil || again != first {
		t.Errorf("%d, %v, want %d", again, err, first)
	}
}

// A record goes when its time has come. Time is fake.
func TestARecordExpires(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := open(t, srv)
		revision, err := b.Put(t.Context(), "k", []byte("v"), 0, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(t.Context(), "k", []byte("w"), revision, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // inside a bubble
		if entry, err := b.Get(t.Context(), "k"); err != nil || len(entry.Value) != 0 {
			t.Errorf("%+v, %v", entry, err)
		}
	})
}

func TestABucketThatIsAwayIsUnavailable(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := open(t, srv)
		srv.Stop()
		if _, err := b.Get(t.Context(), "k"); !errors.Is(err, cas.ErrUnavailable) {
			t.Errorf("read: %v", err)
		}
		if _, err := b.Put(t.Context(), "k", []byte("v"), 0, 0); !errors.Is(err, cas.ErrUnavailable) {
			t.Errorf("written: %v", err)
		}
	})
}

// A connection that is closed for good says nothing of what was sent over it, so a write is not told to have failed.
func TestClosedConnectionIsNoFailure(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	open(t, srv)
	nc, js := natstest.Connect(t, srv)
	b, err := cas.Open(t.Context(), js, contracts.BucketImportJobs)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if _, err := b.Put(t.Context(), "k", []byte("v"), 0, 0); !errors.Is(err, cas.ErrUnavailable) {
		t.Errorf("Put: %v, want ErrUnavailable", err)
	}
	if _, err := b.Get(t.Context(), "k"); !errors.Is(err, cas.ErrUnavailable) {
		t.Errorf("Get: %v, want ErrUnavailable", err)
	}
}
