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
		const size = 1024
		room := New(size, 1000)
		var held atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				share := room.Share()
				defer share.Leave()
				ctx, own := With(t.Context(), share), int64(0)
				for range 20 {
					held.Add(-own) // it may be given back in the meantime
					own = min(rand.Int64N(2*size), size/4*3)
					check.ErrorIs(t, Hold(ctx, own), nil)
					now := held.Add(own)
					check.That(t, now <= size, "%d bytes are held", now)
					<-time.After(time.Duration(rand.IntN(10)))
				}
				held.Add(-own)
			})
		}
		all.Wait()
		for i, all := range []int64{size / 16, size / 16 * 3, size / 4 * 3} {
			check.That(t, room.parts[i].TryAcquire(all), "something is held for ever")
		}
	})
}

func TestShareOfTwoUsers(t *testing.T) {
	t.Parallel()
	room := New(16, 1)
	share, errOver := room.Share(), errors.New("over")
	share.Enter()
	check.ErrorIs(t, errors.Join(Hold(t.Context(), 1000), Hold(With(t.Context(), share), 1000)), nil)
	share.Leave()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOver)
	other := room.Share()
	check.ErrorIs(t, other.Hold(ctx, 1000), errOver)
	share.Leave()
	check.ErrorIs(t, other.Hold(t.Context(), 12), nil)
	other.Leave()
}
