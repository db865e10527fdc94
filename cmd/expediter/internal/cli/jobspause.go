package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newJobsPause(f *jobsFlags) *cobra.Command {
	var format string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "pause [PATTERN]",
		Short: "Let workers start no more jobs of a pattern, or list the pauses",
		Long: `Pause lets no worker start jobs whose subjects match PATTERN, such as that of a handler, until --for has passed or expediter
jobs resume. The jobs wait and use no attempt; those that run go on. All workers follow within a third of AckWait. Without
PATTERN it lists the pauses.`,
		Example: `  expediter jobs pause --stream IMPORT_JOBS 'jobs.import.low.>' --for 10m
  expediter jobs pause --stream IMPORT_JOBS`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := checkFormat(format, deadFormats...)
			if limit < 0 {
				err = errors.Join(err, usage(fmt.Errorf("--for %s: want 0 or more", limit)))
			}
			if err != nil {
				return err
			}
			return f.use(cmd.Context(), func(client *worker.Client) error {
				if len(args) == 0 {
					return f.pauses(cmd.Context(), client, format)
				}
				return f.pause(cmd.Context(), client, args[0], limit)
			})
		},
	}
	cmd.Flags().DurationVar(&limit, "for", 0, "end by itself after this time, 0 for never")
	outputFlag(cmd, &format, deadFormats...)
	return cmd
}

func (f *jobsFlags) pause(ctx context.Context, client *worker.Client, pattern string, limit time.Duration) error {
	user, err := f.user(ctx, f.js)
	if err != nil {
		return err
	}
	p, until := worker.Pause{By: user, Pattern: pattern}, "expediter jobs resume"
	if limit > 0 {
		p.Until = time.Now().Add(limit)
		until = stamp(p.Until)
	}
	err = f.audited(ctx, f.js, "pause", f.pattern(pattern), func(ctx context.Context) (int, error) {
		if err := client.Pause(ctx, p); err != nil {
			return 0, err
		}
		return 1, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f.config.Stdout, "Paused %s until %s.\n", table.Printable(pattern), until)
	return wrapWrite(err)
}

// pattern says in a record of the audit what is paused.
func (f *jobsFlags) pattern(pattern string) string {
	return fmt.Sprintf("handler %q of %s", pattern, f.stream)
}

func (f *jobsFlags) pauses(ctx context.Context, client *worker.Client, format string) (err error) {
	all, err := client.Pauses(ctx)
	if err != nil {
		return err
	}
	out := output.NewRows(f.config.Stdout, output.Format(format),
		table.Column{Name: "PATTERN"}, table.Column{Name: "SINCE"}, table.Column{Name: "UNTIL"}, table.Column{Name: "BY"})
	defer func() { err = errors.Join(err, out.Close()) }()
	for _, p := range all {
		row := struct {
			Pattern string    `json:"pattern"`
			Since   time.Time `json:"since"`
			Until   time.Time `json:"until,omitzero"`
			By      string    `json:"by,omitempty"`
		}{p.Pattern, p.Since, p.Until, p.By}
		if err := out.Write(row, p.Pattern, stamp(p.Since), stampOf(p.Until), p.By); err != nil {
			return err
		}
	}
	return nil
}

func newJobsResume(f *jobsFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "resume PATTERN",
		Short:   "End a pause",
		Long:    `Resume ends the pause of a pattern, as expediter jobs pause lists it. It exits with 3 when there is none.`,
		Example: `  expediter jobs resume --stream IMPORT_JOBS 'jobs.import.low.>'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.use(cmd.Context(), func(client *worker.Client) error { return f.resume(cmd.Context(), client, args[0]) })
		},
	}
}

func (f *jobsFlags) resume(ctx context.Context, client *worker.Client, pattern string) error {
	paused := false
	err := f.audited(ctx, f.js, "resume", f.pattern(pattern), func(ctx context.Context) (n int, err error) {
		if paused, err = client.Resume(ctx, pattern); paused {
			n = 1
		}
		return n, err
	})
	switch {
	case err != nil:
		return err
	case !paused:
		return fmt.Errorf("%w: %q is not paused", ErrNotFound, pattern)
	}
	_, err = fmt.Fprintf(f.config.Stdout, "Resumed %s.\n", table.Printable(pattern))
	return wrapWrite(err)
}
