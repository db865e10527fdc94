package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// errDenied is returned by a command that ended at the first request that the server denied.
var errDenied = errors.New("the user may not do this: it needs an administrator's permissions, " +
	"and --account (or NATS_ACCOUNT) the account of a service")

type applyFlags struct {
	natsFlags

	assets  contracts.AssetOptions
	options provision.Options
	format  string
}

func newApply(g *globals) *cobra.Command {
	f := &applyFlags{natsFlags: natsFlags{globals: g}}
	cmd := action("apply", func(ctx context.Context, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return f.with(ctx, "expediter apply", f.apply)
	})
	flags := cmd.Flags()
	f.register(flags)
	f.registerAccount(flags)
	flags.BoolVar(&f.options.AllowShrink, "allow-shrink", false, "also lower replicas, limits and retention, which may drop messages")
	flags.BoolVar(&f.options.DryRun, "dry-run", false, "only report what would be done")
	flags.DurationVar(&f.assets.AckWait, "ack-wait", 0, "<SERVICE>_ACK_WAIT of the services (default as it is, 5s for new consumers)")
	flags.Int64Var(&f.assets.MaxBytes, "max-bytes", 0, "space that all of them may reserve together (default as declared)")
	flags.IntVar(&f.assets.Replicas, "replicas", 1, "servers that keep each of them: 1, 3 or 5")
	flags.StringSliceVar(&f.assets.Channels, "channels", nil, "channels of the notifier that were added with code, separated by commas")
	f.servicesFlag(cmd, &f.assets.Services, "services whose streams, buckets and consumers are made")
	f.outputFlag(cmd, &f.format, listFormats...)
	return cmd
}

func (f *applyFlags) check() error {
	var channels error
	for _, c := range f.assets.Channels {
		channels = errors.Join(channels, refuse(!subject.IsName(c, subject.MaxName), "--channels %s: use A-Z, a-z, 0-9, _ and -", c))
	}
	return f.usage(
		checkReplicas(f.assets.Replicas),
		refuse(f.assets.MaxBytes < 0, "--max-bytes %d: use a positive number", f.assets.MaxBytes),
		refuse(f.assets.AckWait < 0, "--ack-wait %s: use a positive duration", f.assets.AckWait),
		channels,
	)
}

func checkReplicas(n int) error {
	if n != 1 && n != 3 && n != 5 {
		return &UsageError{Err: fmt.Errorf("--replicas %d: use 1, 3 or 5", n)}
	}
	return nil
}

func (f *applyFlags) apply(ctx context.Context, js jetstream.JetStream) error {
	if err := f.reach(ctx, js); err != nil {
		return err
	}
	changes, failed := provision.Apply(ctx, js, contracts.Assets(f.assets), f.options)
	if ctx.Err() == nil {
		consumers, err := provision.ApplyConsumers(ctx, js, provision.Consumers(f.assets), f.options)
		changes, failed = append(changes, consumers...), errors.Join(failed, err)
	}
	if failed != nil {
		failed = fmt.Errorf("%w: %w", errUnavailable, failed)
	}
	return errors.Join(f.report(changes), failed)
}

// reach returns an error when a request about a stream has no responders for the time of an answer. Then the account is wrong: a
// cluster that is not ready would not answer at all.
func (f *applyFlags) reach(ctx context.Context, js jetstream.JetStream) error {
	name := contracts.Assets(f.assets)[0].Name
	err := jsapi.Retry(ctx, f.timeout, func(ctx context.Context) error {
		_, err := js.Stream(ctx, name)
		return err
	})
	if !errors.Is(err, nats.ErrNoResponders) {
		return nil // Apply reports it
	}
	return err
}

// report writes the changes, a row for each stream and consumer and for each of their settings, and then the settings
// that were left unchanged.
func (f *applyFlags) report(changes []provision.Change) error {
	out := f.rows(f.format, "", "STREAM", "CONSUMER", "ACTION", "SETTING", "IS~", "DECLARED~", "DROPS~")
	refused, changed, larger := false, 0, 0
	for _, c := range changes {
		if c.Action == provision.Create || c.Action == provision.Update {
			changed++
		}
		for _, d := range c.Differences {
			refused = refused || !d.Fixed && !d.Shrinks
			if !d.Fixed && d.Shrinks {
				larger++
			}
		}
		f.write(out, c)
	}
	if f.options.DryRun && changed > 0 {
		out.Notef("Nothing was changed: %d of %d would be, without --dry-run.", changed, len(changes))
	}
	if larger > 0 {
		out.Notef("%d settings are larger than declared and stay as they are, without --allow-shrink.", larger)
	}
	if err := out.Close(nil); err != nil || !refused {
		return err
	}
	return errors.New("some streams and consumers differ in settings that cannot be changed in place: " +
		"move the messages of a stream to a new one, delete a consumer")
}

func (f *applyFlags) write(out *terminal.Rows, c provision.Change) {
	row := struct {
		provision.Change

		Error string `json:"error,omitempty"`
	}{Change: c}
	action := string(c.Action)
	if c.Err != nil {
		action, row.Error = "failed", c.Err.Error()
	}
	if asJSON(f.format) || len(c.Differences) == 0 || c.Differences[0].Missing {
		out.Add(row, c.Stream, c.Consumer, action)
		return
	}
	for _, d := range c.Differences {
		did := action
		switch {
		case !d.Fixed && d.Shrinks:
			did = string(provision.Keep)
		case !d.Fixed:
			did = string(provision.Refuse)
		}
		out.Add(row, c.Stream, c.Consumer, did, d.Field, d.Got, d.Want, d.Drops)
	}
}

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
	err := jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) (err error) {
		buckets, err = bucketNames(ctx, js, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: list the buckets: %w", errUnavailable, err)
	}
	if len(buckets) == 0 {
		return fmt.Errorf("%w: the account has no bucket: restore it first, and name another account with --account", ErrNotFound)
	}
	slices.Sort(buckets)
	for _, bucket := range buckets {
		// A cluster may still elect the leader of a stream that was just restored.
		err := jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error { return kvlock.MarkRestored(ctx, js, bucket) })
		if err != nil {
			return fmt.Errorf("%w: %w (call it again: a bucket may be marked twice)", errUnavailable, err)
		}
	}
	f.notef("%d buckets are marked as restored.\n", len(buckets))
	return nil
}
