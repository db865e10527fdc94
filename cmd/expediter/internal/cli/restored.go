package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

func newRestored(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	cmd := action("restored", func(ctx context.Context, _ []string) error {
		return f.with(ctx, "expediter restored", f.markRestored)
	})
	f.register(cmd.Flags())
	f.registerAccount(cmd.Flags())
	return cmd
}

// markRestored marks every bucket of the account. Those of other programs are marked too: they may hold locks of pkg/kvlock, and the mark
// is metadata that nothing else reads.
func (f *natsFlags) markRestored(ctx context.Context, js jetstream.JetStream) error {
	var buckets []string
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		list := js.KeyValueStoreNames(ctx)
		buckets = slices.Sorted(func(yield func(string) bool) {
			for name := range list.Name() {
				if !yield(name) {
					return
				}
			}
		})
		return list.Error()
	})
	if err != nil {
		return fmt.Errorf("%w: list the buckets: %w", errUnavailable, err)
	}
	if len(buckets) == 0 {
		return fmt.Errorf("%w: the account has no bucket: restore it first, and name another account with --account", ErrNotFound)
	}
	for _, bucket := range buckets {
		// A cluster may still elect the leader of a stream that was just restored.
		err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error { return kvlock.MarkRestored(ctx, js, bucket) })
		if err != nil {
			return fmt.Errorf("%w: %w (call it again: a bucket may be marked twice)", errUnavailable, err)
		}
	}
	f.notef("%d buckets are marked as restored.\n", len(buckets))
	return nil
}
