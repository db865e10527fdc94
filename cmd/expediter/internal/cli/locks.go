package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

func newLocks(g *globals) *cobra.Command {
	f := &lockerFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "locks"}
	f.register(cmd.PersistentFlags())
	cmd.AddCommand(newLocksList(f), newLocksShow(f), newLocksSteal(f))
	return cmd
}

// use opens the locks for fn.
func (f *lockerFlags) use(ctx context.Context, fn func(context.Context, *kvlock.Locker) error) error {
	return f.with(ctx, "expediter lock", func(ctx context.Context, js jetstream.JetStream) error {
		locks, err := f.open(ctx, js, 0, false)
		if err != nil {
			return err
		}
		defer locks.Close()
		return f.explain(fn(ctx, locks))
	})
}

// held returns a lock that is held, or ErrNotFound for a free lock.
func held(ctx context.Context, locks *kvlock.Locker, name string) (kvlock.Lock, error) {
	lock, err := locks.Inspect(ctx, name)
	if err == nil && !lock.Held {
		err = fmt.Errorf("%w: the lock %q is free", ErrNotFound, name)
	}
	return lock, err
}

// lockRow is a lock in a list.
type lockRow struct {
	Name      string            `json:"name"`
	Holder    string            `json:"holder"`
	Token     string            `json:"token"`
	Since     time.Time         `json:"since"`
	ExpiresAt time.Time         `json:"expiresAt"`
	TTL       string            `json:"ttl"`
	Granted   bool              `json:"granted,omitempty"`
	Stolen    string            `json:"stolenFrom,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Waiters   int               `json:"waiters"`
	Queue     []lockWaiter      `json:"queue,omitempty"`
}

type lockWaiter struct {
	Instance string `json:"instance"`
	Waiters  int    `json:"waiters"`
}

func newLockRow(l kvlock.Lock) lockRow {
	row := lockRow{
		Name: l.Name, Holder: l.Holder, Token: l.Token.String(), Since: l.Since.UTC(), ExpiresAt: l.Written.Add(l.TTL).UTC(),
		TTL: l.TTL.String(), Granted: l.Granted, Stolen: l.Stolen, Metadata: l.Metadata,
	}
	for _, w := range l.Queue {
		row.Waiters += w.Waiters
		row.Queue = append(row.Queue, lockWaiter{w.Instance, w.Waiters})
	}
	return row
}

func newLocksList(f *lockerFlags) *cobra.Command {
	return f.listing("list [PREFIX]", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, locks *kvlock.Locker) error {
			return f.list(ctx, locks, strings.Join(args, ""), format)
		})
	})
}

func (f *lockerFlags) list(ctx context.Context, locks *kvlock.Locker, prefix, format string) error {
	found := map[string]kvlock.Lock{} // a lock that is written meanwhile may be yielded twice
	var unread []error
	for lock, err := range locks.List(ctx, prefix) {
		switch {
		case err == nil:
			found[lock.Name] = lock
		case lock.Name == "":
			return err
		default:
			unread = append(unread, fmt.Errorf("lock %q: %w", lock.Name, err))
		}
	}
	out := f.rows(format, "NAME", "HOLDER", "TOKEN", "SINCE", "EXPIRES", "WAITERS", "COMMAND~")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		row := newLockRow(found[name])
		out.Add(row, row.Name, row.Holder, row.Token, row.Since, row.ExpiresAt, row.Waiters,
			row.Metadata[metadataCommand])
	}
	return errors.Join(append(unread, out.Close())...)
}

func newLocksShow(f *lockerFlags) *cobra.Command {
	return f.listing("show NAME", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, locks *kvlock.Locker) error {
			lock, err := held(ctx, locks, args[0])
			if err != nil {
				return err
			}
			return f.show(newLockRow(lock), format)
		})
	}, textFormats...)
}

func (f *lockerFlags) show(l lockRow, format string) error {
	if format == "json" {
		return f.writeLine(l)
	}
	var text details
	line := text.line
	line("lock", l.Name)
	line("holder", l.Holder)
	line("token", l.Token)
	line("since", stamp(l.Since))
	line("expires", fmt.Sprintf("%s, %s after the last write", stamp(l.ExpiresAt), l.TTL))
	line("stolen", l.Stolen)
	for _, name := range slices.Sorted(maps.Keys(l.Metadata)) {
		line(name, l.Metadata[name])
	}
	line("waiters", strconv.Itoa(l.Waiters))
	for _, w := range l.Queue {
		line("", fmt.Sprintf("%d of %s", w.Waiters, w.Instance))
	}
	return f.say("%s", text.String())
}

func newLocksSteal(f *lockerFlags) *cobra.Command {
	var yes bool
	cmd := action("steal NAME", func(ctx context.Context, args []string) error {
		return f.use(ctx, func(ctx context.Context, locks *kvlock.Locker) error { return f.steal(ctx, locks, args[0], yes) })
	})
	yesFlag(cmd, &yes)
	return cmd
}

func (f *lockerFlags) steal(ctx context.Context, locks *kvlock.Locker, name string, yes bool) error {
	lock, err := held(ctx, locks, name)
	if err != nil {
		return err
	}
	if !yes {
		return f.would("take %s from %s, which holds it since %s.", name, terminal.Printable(lock.Holder), stamp(lock.Since))
	}
	var stolen kvlock.Lock
	err = f.audited(ctx, f.js, "steal", fmt.Sprintf("lock %s of %q", name, lock.Holder), func(ctx context.Context) (int, error) {
		lease, err := locks.Steal(ctx, name, kvlock.AcquireOptions{Metadata: map[string]string{metadataCommand: "expediter locks steal"}})
		if err != nil {
			return 0, err
		}
		stolen, err = locks.Inspect(ctx, name) // the holder may have changed
		return 1, errors.Join(err, lease.Release(ctx))
	})
	if err != nil {
		return err
	}
	return f.say("Took %s from %s.\n", name, terminal.Printable(stolen.Stolen))
}
