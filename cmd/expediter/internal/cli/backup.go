package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/backup"
)

// backupFlags are the flags of backup and restore.
type backupFlags struct {
	natsFlags

	format   string
	replicas int
	services []string
}

func newBackup(g *globals) *cobra.Command {
	f := &backupFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:  "backup FOLDER",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), "expediter backup", args[0], backup.Write)
		},
	}
	f.registerBackup(cmd)
	return cmd
}

func newRestore(g *globals) *cobra.Command {
	f := &backupFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:  "restore FOLDER",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("replicas") {
				if err := checkReplicas(f.replicas); err != nil {
					return err
				}
			}
			return f.run(cmd.Context(), "expediter restore", args[0], backup.Restore)
		},
	}
	f.registerBackup(cmd)
	cmd.Flags().IntVar(&f.replicas, "replicas", 0, "servers that keep each stream: 1, 3 or 5 (default as when it was backed up)")
	return cmd
}

func (f *backupFlags) registerBackup(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.register(flags)
	f.registerAccount(flags)
	f.servicesFlag(cmd, &f.services, "services whose streams and buckets are meant")
	f.outputFlag(cmd, &f.format, listFormats...)
}

// run runs a backup or a restore, and writes a row for each stream.
func (f *backupFlags) run(
	ctx context.Context, name, dir string, do func(context.Context, backup.Config, func(backup.Stream)) error,
) error {
	if err := f.usage(); err != nil {
		return err
	}
	return f.administer(ctx, name, func(ctx context.Context, js jetstream.JetStream) error {
		out := f.rows(f.format, "STREAM", "MESSAGES", "CONSUMERS", "BYTES")
		var messages uint64
		failed := do(ctx, backup.Config{
			Account: f.account, Dir: dir, JS: js, Replicas: f.replicas, Services: f.services, Timeout: f.timeout,
		}, func(s backup.Stream) {
			messages += s.Messages
			s.Config, s.State = nil, nil
			out.Add(s, s.Name, s.Messages, s.Consumers, s.Bytes)
		})
		if failed != nil {
			_, file := errors.AsType[*backup.FileError](failed)
			if !file && !errors.Is(failed, backup.ErrExists) && !errors.Is(failed, fs.ErrNotExist) {
				failed = errors.Join(fmt.Errorf("%w: %w", errUnavailable, failed), context.Cause(ctx))
			}
		}
		if err := errors.Join(failed, out.Close()); err != nil {
			return err
		}
		f.notef("%d messages of %d streams.\n", messages, out.Written())
		return nil
	})
}
