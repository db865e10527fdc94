package kvlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// An observer sees each holder once, whether the pushes arrive or not, with its metadata; it sees no renewals and no queue.
func TestObserve(t *testing.T) {
	for _, lost := range []bool{false, true} {
		runInBubble(t, map[bool]string{false: "pushed", true: "pushes are lost"}[lost], func(t *testing.T, b *bed) {
			p := natstest.NewProxy(t, b.Srv)
			observer := b.Locker(t, kvlock.LockerConfig{}, p.Through())
			if lost {
				p.Filter(testbed.LosePushes)
			}
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			seen, end := []string{}, make(chan error, 1)
			go func() {
				var last error
				for l, err := range observer.Observe(ctx, "leader:a") {
					last = err
					if err == nil && !l.Granted {
						seen = append(seen, l.Holder+l.Metadata["at"])
					}
				}
				end <- last
			}()
			died, gone := testbed.Died(t, b, kvlock.LockerConfig{Instance: "one", TTL: 20 * time.Second})
			two, three := b.Locker(t, kvlock.LockerConfig{Instance: "two"}), b.Locker(t, kvlock.LockerConfig{Instance: "three"})
			pass(5 * time.Second)
			acquire(t, died, "leader:a")
			second := acquiring(t, two, "leader:a", kvlock.AcquireOptions{Metadata: map[string]string{"at": ":80"}})
			pass(5 * time.Second)
			third := acquiring(t, three, "leader:a", kvlock.AcquireOptions{})
			pass(time.Minute)
			gone()
			lease := patiently(t, second)
			pass(5 * time.Second)
			release(t, lease)
			lease = patiently(t, third)
			pass(5 * time.Second)
			release(t, lease)
			pass(5 * time.Second)
			cancel(enough)
			wantErr(t, <-end, enough)
			if want := []string{"", "one", "two:80", "three", ""}; !slices.Equal(seen, want) {
				t.Errorf("saw %q, want %q", seen, want)
			}
			for l, err := range observer.Observe(t.Context(), "a..b") {
				wantErr(t, err, kvlock.ErrInvalidKey)
				if l.Held {
					t.Error(l)
				}
			}
			go observer.Close()
			for _, err := range observer.Observe(t.Context(), "leader:b") {
				if err != nil {
					wantErr(t, err, kvlock.ErrClosed)
				}
			}
		})
	}
}
