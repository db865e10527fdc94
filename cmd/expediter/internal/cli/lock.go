package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// The exit codes of lock in addition to the command's: the codes of flock(1), and one for a lost lock, because a file
// lock cannot be lost.
const (
	exitLockUsage    = 64 // EX_USAGE
	exitLockNotOpen  = 66 // EX_NOINPUT
	exitLockNotRun   = 69 // EX_UNAVAILABLE
	exitLockLost     = 75 // EX_TEMPFAIL
	lockBucketBytes  = 64 << 20
	metadataCommand  = "command"
	variableFencing  = "EXPEDITER_FENCING_TOKEN"
	variableLockName = "EXPEDITER_LOCK_NAME"
)

// errLockLost is returned when another process may have held the lock before the command had ended.
var errLockLost = errors.New("the lock was lost")

type lockerFlags struct {
	natsFlags

	bucket string
	js     jetstream.JetStream // set by open
}

func (f *lockerFlags) register(flags *pflag.FlagSet) {
	f.natsFlags.register(flags)
	flags.StringVar(&f.bucket, "bucket", contracts.BucketLocks, "bucket that keeps the locks")
}

// open opens the locks. With create it creates a missing bucket.
func (f *lockerFlags) open(ctx context.Context, js jetstream.JetStream, ttl time.Duration, create bool) (locks *kvlock.Locker, err error) {
	config := kvlock.LockerConfig{Bucket: f.bucket, Logger: f.logger, OpTimeout: f.timeout, TTL: ttl}
	locks, err = kvlock.NewLocker(ctx, js, config)
	if create && errors.Is(err, jetstream.ErrStreamNotFound) {
		err = kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: f.bucket, Description: "Leases", MaxBytes: lockBucketBytes})
		if err == nil {
			locks, err = kvlock.NewLocker(ctx, js, config)
		}
	}
	f.js, f.named = js, f.bucket
	return locks, f.explain(err)
}

// explain translates an error of kvlock into an error of this package.
func (f *lockerFlags) explain(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: bucket %q: make it with expediter apply, or expediter lock --create: %w", ErrNotFound, f.bucket, err)
	case errors.Is(err, kvlock.ErrInvalidKey):
		return &UsageError{Err: err}
	case errors.Is(err, kvlock.ErrUnavailable):
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}

type lockFlags struct {
	lockerFlags

	conflict int
	create   bool
	grace    time.Duration
	ttl      time.Duration
	wait     time.Duration
	waits    bool // for ever
}

func newLock(g *globals) *cobra.Command {
	f := &lockFlags{lockerFlags: lockerFlags{natsFlags: natsFlags{globals: g}}}
	cmd := &cobra.Command{
		Use:               "lock NAME [flags] -- COMMAND [ARG...]",
		Args:              func(cmd *cobra.Command, args []string) error { return f.exit(checkLockArgs(cmd, args)) },
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error { return f.exit(g.setup(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			f.waits = !cmd.Flags().Changed("wait")
			return f.exit(f.run(context.WithoutCancel(cmd.Context()), args[0], args[1:])) // the command gets the signals that end other commands
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return f.exit(flagError(cmd, err)) })
	flags := cmd.Flags()
	f.register(flags)
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", ExitFailure, "exit code when the lock was not free in time, 0 to 255")
	flags.BoolVar(&f.create, "create", false, "make the bucket first if it is missing")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "time from SIGTERM to SIGKILL for a command that has lost its lock")
	flags.DurationVar(&f.ttl, "ttl", 30*time.Second, "time until the lock of a killed holder is free, in whole seconds")
	flags.DurationVarP(&f.wait, "wait", "w", 0, "longest time to wait for the lock, 0 for not at all (default for ever)")
	f.want(flags, "conflict-exit-code", "0 to 255", func() bool { return f.conflict >= 0 && f.conflict <= 255 })
	f.want(flags, "grace", "0 or more", func() bool { return f.grace >= 0 })
	f.want(flags, "ttl", "whole seconds", func() bool { return f.ttl >= time.Second && f.ttl%time.Second == 0 })
	f.want(flags, "wait", "0 or more", func() bool { return f.wait >= 0 })
	return cmd
}

func checkLockArgs(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return &UsageError{Err: errors.New("want NAME -- COMMAND: the name of a lock, and a command after --, " +
			"such as nightly-report -- ./report.sh")}
	}
	return nil
}

// exit gives an error its exit code by the help.
func (f *lockFlags) exit(err error) error {
	_, usage := errors.AsType[*UsageError](err)
	_, done := errors.AsType[*codeError](err)
	switch {
	case err == nil, done:
		return err
	case usage:
		return &codeError{exitLockUsage, err}
	case errors.Is(err, kvlock.ErrHeld):
		return &codeError{f.conflict, err}
	case errors.Is(err, terminal.ErrNotStarted):
		return &codeError{exitLockNotRun, err}
	case errors.Is(err, errLockLost):
		return &codeError{exitLockLost, err}
	}
	return &codeError{exitLockNotOpen, err}
}

func (f *lockFlags) run(ctx context.Context, name string, args []string) error {
	if err := f.usage(); err != nil {
		return err
	}
	if _, err := exec.LookPath(args[0]); err != nil { // fails before a long wait
		return fmt.Errorf("%w: %w", terminal.ErrNotStarted, err)
	}
	signals, ignore := catch()
	defer ignore()
	return f.with(ctx, "expediter lock", func(ctx context.Context, js jetstream.JetStream) error {
		return f.hold(ctx, js, signals, name, args)
	}, nats.MaxReconnects(-1))
}

// hold runs the command under the lock. Until it has the lock, a request that the user may not make ends it. A waiter outlasts the loss of
// a node, and so does the command.
func (f *lockFlags) hold(ctx context.Context, js jetstream.JetStream, signals <-chan os.Signal, name string, args []string) error {
	locks, err := f.open(ctx, js, f.ttl, f.create)
	if err != nil {
		return err
	}
	defer locks.Close()
	opening := ctx
	stop := context.AfterFunc(opening, func() {
		if errors.Is(context.Cause(opening), nats.ErrPermissionViolation) {
			js.Conn().Close() // ends the wait for an answer
		}
	})
	defer stop()
	ctx = context.WithoutCancel(ctx)
	lease, err := f.acquire(ctx, locks, signals, name, kvlock.AcquireOptions{
		Metadata: map[string]string{metadataCommand: filepath.Base(args[0])}, Wait: f.wait, // arguments may be secret
	})
	if err != nil {
		return f.explain(err)
	}
	stop()
	return f.exit(f.execute(ctx, lease, signals, name, args))
}

func (f *lockFlags) execute(ctx context.Context, lease *kvlock.Lease, signals <-chan os.Signal, name string, args []string) error {
	f.logger.InfoContext(ctx, "lock.acquired", "name", name, "token", lease.Token().String())
	code, err := terminal.Run(lease.Context(), terminal.Command{
		Args: args, Grace: f.grace, Signals: signals, Stdin: f.config.Stdin, Stdout: f.config.Stdout, Stderr: f.config.Stderr,
		Env: append(os.Environ(), variableFencing+"="+lease.Token().String(), variableLockName+"="+name),
	})
	lost := context.Cause(lease.Context())
	released := lease.Release(ctx)
	switch {
	case lost != nil:
		return fmt.Errorf("%w before the command had ended, with %d: %w", errLockLost, code, lost)
	case errors.Is(released, kvlock.ErrLost):
		return fmt.Errorf("%w before the command had ended, with %d: %w", errLockLost, code, released)
	case released != nil:
		f.logger.WarnContext(ctx, "lock.not_released", "name", name, "free_in", f.ttl, "error", released)
	}
	switch {
	case errors.Is(err, terminal.ErrNotStarted):
		return err
	case err != nil:
		return &codeError{ExitFailure, err}
	case code != ExitOK:
		return &codeError{code: code}
	}
	return nil
}

// acquire waits for the lock. A signal ends the wait, and ends expediter as it would end the command.
func (f *lockFlags) acquire(
	ctx context.Context, locks *kvlock.Locker, signals <-chan os.Signal, name string, opts kvlock.AcquireOptions,
) (*kvlock.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	interrupted := make(chan error, 1)
	go func() {
		defer close(interrupted)
		select {
		case s := <-signals:
			err := &codeError{terminal.SignalCode(s), fmt.Errorf("%s while waiting for the lock", s)}
			interrupted <- err
			cancel(err)
		case <-ctx.Done():
		}
	}()
	take := locks.Acquire
	if opts.Wait == 0 && !f.waits {
		take = locks.TryAcquire
	}
	lease, err := take(ctx, name, opts)
	cancel(nil)
	if caught := <-interrupted; caught != nil && err == nil {
		return nil, errors.Join(caught, lease.Release(context.WithoutCancel(ctx)))
	}
	return lease, err
}

// catch returns the channel of the signals for the command. A signal that this process ignores from its start stays
// ignored.
func catch() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 16)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals, func() { signal.Stop(signals) }
}

func newLocks(g *globals) *cobra.Command {
	f := &lockerFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "locks"}
	f.register(cmd.PersistentFlags())
	cmd.AddCommand(newLocksList(f), newLocksSteal(f))
	return cmd
}

func (f *lockerFlags) use(ctx context.Context, fn func(context.Context, *kvlock.Locker) error) error {
	f.named = f.bucket
	return f.with(ctx, "expediter lock", func(ctx context.Context, js jetstream.JetStream) error {
		locks, err := f.open(ctx, js, 0, false)
		if err != nil {
			return err
		}
		defer locks.Close()
		return f.explain(fn(ctx, locks))
	})
}

type lockRow struct {
	kvlock.Lock

	Token string `json:"token"`
	TTL   string `json:"ttl"`
}

func newLocksList(f *lockerFlags) *cobra.Command {
	return f.listing("list [PREFIX]", func(ctx context.Context, args []string, format string) error {
		return f.use(ctx, func(ctx context.Context, locks *kvlock.Locker) error {
			return f.list(ctx, locks, strings.Join(args, ""), format)
		})
	})
}

func (f *lockerFlags) list(ctx context.Context, locks *kvlock.Locker, prefix, format string) error {
	out := f.rows(format, "No locks: nobody holds one, such as expediter lock does.",
		"NAME", "HOLDER", "TOKEN-", "SINCE", "EXPIRES-", "WAITERS", "COMMAND~")
	var unread []error
	for l, err := range locks.List(ctx, prefix) {
		switch {
		case err == nil:
			row := lockRow{l, l.Token.String(), l.TTL.String()}
			out.Add(row, l.Name, l.Holder, row.Token, l.Since, l.Expires, l.Waiters, l.Metadata[metadataCommand])
		case l.Name == "":
			return err
		default:
			unread = append(unread, fmt.Errorf("lock %q: %w", l.Name, err))
		}
	}
	return out.Close(errors.Join(unread...))
}

func newLocksSteal(f *lockerFlags) *cobra.Command {
	var yes bool
	cmd := action("steal LOCK", func(ctx context.Context, args []string) error {
		return f.use(ctx, func(ctx context.Context, locks *kvlock.Locker) error {
			a, err := operate.StealLock(ctx, locks, args[0], "", "expediter locks steal")
			if err != nil {
				return gone(err)
			}
			return f.perform(ctx, f.js, a, yes)
		})
	})
	yesFlag(cmd, &yes)
	return cmd
}

// mostLimits is the largest number of keys of limits of a bucket that are listed.
const mostLimits = 10_000

func newLimits(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	return f.asking("limits [BUCKET]", f.limits)
}

func (f *natsFlags) limits(ctx context.Context, js jetstream.JetStream, args []string, format string) error {
	bucket := strings.Join(args, "")
	all, total, err := operate.Limits(ctx, js, bucket, mostLimits)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: bucket %s: %w", ErrNotFound, bucket, err)
	}
	if err != nil {
		return err
	}
	out := f.rows(format, "No limits: no key of a limit is in use.", "LIMIT", "KEY", "HELD", "IN LINE", "NEXT", "BUCKET")
	for _, l := range all {
		out.Add(l, l.Name, fmt.Sprintf("%.12s", l.Key), l.Permits(), len(l.Queue), l.Next, l.Bucket)
	}
	if total > len(all) {
		out.Notef("%d of %d keys are listed.", len(all), total)
	}
	return out.Close(nil)
}
