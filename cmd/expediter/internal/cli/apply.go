package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// errRefused is returned when a stream differs in a setting that no update can change.
var errRefused = errors.New("some streams differ in settings that cannot be changed in place: move their messages to new ones")

// applyFlags are the flags of apply.
type applyFlags struct {
	natsFlags

	assets contracts.AssetOptions
	dryRun bool
	format string
}

func newApply(g *globals) *cobra.Command {
	f := &applyFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make the streams and buckets that the services need",
		Long: `Apply creates missing streams and buckets on a server and updates those that differ from their declarations. Placement and
metadata that an operator has added to one stay, and so does every other stream. A setting that no update can change is
reported, and left.

It needs an administrator's permissions. The services do not need them: they only check.`,
		Example: `  expediter apply --dry-run
  expediter apply --replicas 3 --server nats://nats.internal:4222 --creds admin.creds`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkFormat(f.format, deadFormats...), f.check()); err != nil {
				return err
			}
			return f.apply(cmd.Context())
		},
	}
	flags := cmd.Flags()
	f.register(flags)
	flags.BoolVar(&f.dryRun, "dry-run", false, "only report what would be done")
	flags.Int64Var(&f.assets.MaxBytes, "max-bytes", 0, "space that all of them may reserve together (default as declared, 8.4 GiB)")
	flags.IntVar(&f.assets.Replicas, "replicas", 1, "servers that keep each of them: 1, 3 or 5")
	outputFlag(cmd, &f.format, deadFormats...)
	return cmd
}

func (f *applyFlags) check() error {
	var errs []error
	if r := f.assets.Replicas; r != 1 && r != 3 && r != 5 {
		errs = append(errs, fmt.Errorf("--replicas %d: use 1, 3 or 5", r))
	}
	if f.assets.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("--max-bytes %d: use a positive number", f.assets.MaxBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return &UsageError{Err: err}
	}
	return nil
}

func (f *applyFlags) apply(ctx context.Context) error {
	js, stop, err := f.connect(ctx, "expediter apply")
	if err != nil {
		return err
	}
	defer stop()
	changes, failed := contracts.Apply(ctx, js, contracts.Assets(f.assets), contracts.ApplyOptions{DryRun: f.dryRun})
	if failed != nil {
		failed = fmt.Errorf("%w: %w", errUnavailable, failed)
	}
	return errors.Join(f.tell(changes), failed)
}

// tell writes the changes, a row for each stream and for each of its settings, and notes the remaining differences.
func (f *applyFlags) tell(changes []contracts.Change) (err error) {
	out := newRows(f.config.Stdout, f.format, table.Column{Name: "STREAM"}, table.Column{Name: "ACTION"},
		table.Column{Name: "SETTING"}, table.Column{Name: "IS", Width: cells}, table.Column{Name: "DECLARED", Width: cells})
	refused, changed := false, 0
	for _, c := range changes {
		if c.Action != contracts.ActionNone {
			changed++
		}
		refused = refused || c.Action == contracts.ActionRefuse
		if err := writeChange(out, c); err != nil {
			return err
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	if f.dryRun && changed > 0 {
		f.notef("Nothing was changed: %d of %d would be, without --dry-run.\n", changed, len(changes))
	}
	if refused {
		return errRefused
	}
	return nil
}

func writeChange(out *rows, c contracts.Change) error {
	action := string(c.Action)
	if c.Err != nil {
		action = "failed"
	}
	if out.table == nil || len(c.Differences) == 0 || c.Differences[0].Missing {
		return out.write(c, c.Stream, action)
	}
	for _, d := range c.Differences {
		did := action
		if !d.Fixed {
			did = string(contracts.ActionRefuse)
		}
		if err := out.write(c, c.Stream, did, d.Field, d.Got, d.Want); err != nil {
			return err
		}
	}
	return nil
}
