package memory

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Shares that grow and shrink never have more than the room together, never wait for each other for ever, and leave nothing.
func TestShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		room := New(size)
		var held atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				share := room.Share()
				defer share.Leave()
				ctx, own := With(t.Context(), share), int64(0)
				for range 20 {
					held.Add(-own) // it may be given back meanwhile
					own = min(rand.Int64N(2*size), size)
					check.Is(t, Hold(ctx, own), nil)
					now := held.Add(own)
					check.That(t, now <= size, "%d bytes are held", now)
					<-time.After(time.Duration(rand.IntN(10)))
				}
				held.Add(-own)
			})
		}
		all.Wait()
		check.That(t, room.free.TryAcquire(size), "something is held for ever")
	})
}

func TestShareOfTwoUsers(t *testing.T) {
	t.Parallel()
	room := New(10)
	share, errOver := room.Share(), errors.New("over")
	share.Enter()
	check.Is(t, errors.Join(Hold(t.Context(), 1000), Hold(With(t.Context(), share), 1000)), nil)
	share.Leave()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOver)
	other := room.Share()
	check.Is(t, other.Hold(ctx, 1), errOver)
	share.Leave()
	check.Is(t, other.Hold(t.Context(), 10), nil)
	other.Leave()
}
