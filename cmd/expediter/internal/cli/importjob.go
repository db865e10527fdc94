package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
)

func newImportStatus(shared *importerFlags) *cobra.Command {
	f := &followFlags{importerFlags: shared}
	var follow bool
	cmd := &cobra.Command{
		Use:   "status JOB",
		Short: "Show the state of an import",
		Long: `Status shows the state of an import, or with --follow watches it to its end and writes the recipe.

Exit codes: 0 there is a recipe, 1 the import failed, 4 it is still running.`,
		Example: `  expediter import status 2f1c5d1e-2c9d-4c58-9a43-0b7f5d2a9b10
  expediter import status --follow --format cooklang 2f1c5d1e-2c9d-4c58-9a43-0b7f5d2a9b10 > soup.cook`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return &UsageError{Err: err}
			}
			if follow {
				return f.watch(cmd.Context(), args[0])
			}
			return f.status(cmd.Context(), args[0])
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "watch the import to its end, and write the recipe")
	return cmd
}

// status writes where an import stands.
func (f *followFlags) status(ctx context.Context, id string) error {
	job, err := f.client().Job(ctx, id)
	if err != nil {
		return advise(err)
	}
	if f.json {
		err = f.writeLine(job)
	} else {
		err = f.describe(job)
	}
	switch {
	case err != nil:
		return err
	case job.Status == contracts.ImportFailed:
		return f.failure(job)
	case !job.Status.Final():
		text, _ := doing(job)
		return fmt.Errorf("%w: %s", errStillRunning, text)
	}
	return nil
}

// describe writes the state of a job for a person.
func (f *followFlags) describe(job importer.Job) error {
	for _, line := range [][2]string{
		{"job", job.JobID},
		{"status", string(job.Status)},
		{"title", job.Title},
		{"source", sourceLabel(job.URL)},
		{"owner", job.OwnerID},
		{"step", job.Step},
		{"since", stamp(job.UpdatedAt)},
		{"waits", waiting(job)},
		{"recipe", job.RecipeID},
	} {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(f.config.Stdout, "%-8s%s\n", line[0], table.Printable(line[1])); err != nil {
			return wrapWrite(err)
		}
	}
	return nil
}

// waiting says which far side a job waits for, since when and why.
func waiting(job importer.Job) string {
	if job.WaitingFor == "" {
		return ""
	}
	return fmt.Sprintf("for %s since %s: %s", job.WaitingFor, stamp(job.WaitingSince), job.Error)
}

func newImportCancel(shared *importerFlags) *cobra.Command {
	f := &followFlags{importerFlags: shared}
	return &cobra.Command{
		Use:     "cancel JOB",
		Short:   "Cancel an import that has not ended",
		Example: `  expediter import cancel 2f1c5d1e-2c9d-4c58-9a43-0b7f5d2a9b10`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.importerFlags.check(); err != nil {
				return &UsageError{Err: err}
			}
			job, err := f.client().Cancel(cmd.Context(), args[0])
			if err != nil {
				return advise(err)
			}
			return f.describe(job)
		},
	}
}

func newImportRetry(shared *importerFlags) *cobra.Command {
	f := &followFlags{importerFlags: shared}
	var follow bool
	cmd := &cobra.Command{
		Use:     "retry JOB",
		Short:   "Start a failed import again",
		Example: `  expediter import retry --follow 2f1c5d1e-2c9d-4c58-9a43-0b7f5d2a9b10`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return &UsageError{Err: err}
			}
			job, err := f.client().Retry(cmd.Context(), args[0])
			switch {
			case err != nil:
				return advise(err)
			case follow:
				return f.watch(cmd.Context(), job.JobID)
			case f.json:
				return f.writeLine(job)
			}
			return f.describe(job)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "watch the import to its end, and write the recipe")
	return cmd
}
