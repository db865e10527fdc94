package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

var (
	// errImportFailed is returned for an import that has failed.
	errImportFailed = errors.New("the import failed")

	// errStillRunning is returned for an import that has not ended in time.
	errStillRunning = errors.New("the import is still running")
)

// jsonLines is the format in which a command that follows something writes a line of JSON for each change.
const jsonLines = "jsonl"

// recipeFormats are the formats of a recipe.
var recipeFormats = []string{"text", "json", "schema-org"}

// followFlags are the flags of all commands that watch an import.
type followFlags struct {
	*serviceFlags

	follow  bool
	format  string
	timeout time.Duration
}

func (f *followFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.outputFlag(cmd, &f.format, append(recipeFormats, jsonLines)...)
	flags.BoolVar(&f.follow, "follow", false, "watch the import to its end, and write the recipe")
	flags.DurationVar(&f.timeout, "timeout", 15*time.Minute, "longest time to watch")
}

func (f *followFlags) check() error {
	return errors.Join(refuse(f.timeout <= 0, "--timeout %s: want more than 0", f.timeout), f.serviceFlags.check())
}

// statusCommand returns a command line that shows the state of an import.
func (f *serviceFlags) statusCommand(id string) string { return f.command("status --follow", id) }

func (f *serviceFlags) command(name, id string) string {
	line := "expediter import " + name
	if f.api.URL != f.usual {
		line += " --url " + f.api.URL
	}
	return line + " " + id
}

// watch follows an import to its end and writes the recipe.
func (f *followFlags) watch(ctx context.Context, id string) error {
	limit, cancel := context.WithTimeoutCause(ctx, f.timeout, errStillRunning)
	defer cancel()
	var last importer.Job
	said := ""
	err := f.api.Follow(limit, id, func(job importer.Job) error {
		last = job
		if f.format == jsonLines && job.Status != contracts.ImportReady { // a READY job is written with its recipe
			return f.writeLine(job)
		}
		if text := doing(job); text != said && !job.Status.Final() {
			said = text
			f.notef("%s\n", text)
		}
		return nil
	})
	switch {
	case errors.Is(err, errStillRunning):
		return fmt.Errorf("%w after %s; go on with: %s", errStillRunning, f.timeout, f.statusCommand(id))
	case ctx.Err() != nil:
		return fmt.Errorf("%w; go on with: %s", errStillRunning, f.statusCommand(id))
	case err != nil:
		return advise(err)
	}
	return f.ended(ctx, last)
}

// ended writes the recipe of an import, or returns the reason why there is none.
func (f *followFlags) ended(ctx context.Context, job importer.Job) error {
	if job.Status != contracts.ImportReady {
		return f.failure(job)
	}
	stored, err := f.api.Recipe(ctx, job.RecipeID)
	if errors.Is(err, api.ErrNoRoute) { // another service has the recipe
		if f.format == jsonLines {
			return f.writeLine(job)
		}
		f.notef("%s is recipe %s, which the Recipe Service keeps.\n", terminal.Printable(job.Title), job.RecipeID)
		return nil
	}
	if err != nil {
		return advise(err)
	}
	if f.format == jsonLines {
		return f.writeLine(struct {
			importer.Job

			Recipe recipe.Recipe `json:"recipe"`
		}{job, stored.Recipe})
	}
	return f.writeRecipe(stored, f.format)
}

// failure returns the error of a failed import, with a remedy.
func (f *followFlags) failure(job importer.Job) error {
	text := fmt.Sprintf("%s (%s)", strings.TrimRight(terminal.Printable(job.Error), "."), job.Code)
	if job.Retryable {
		text += "; try again with: " + f.command("retry --follow", job.JobID)
	}
	return fmt.Errorf("%w: %s", errImportFailed, text)
}

// writeRecipe writes a recipe in one of recipeFormats.
func (f *serviceFlags) writeRecipe(stored kvstore.Stored, format string) error {
	r := &stored.Recipe
	var data []byte
	var err error
	switch format {
	case "json":
		data, err = json.MarshalIndent(stored, "", "  ")
	case "schema-org":
		data, err = r.JSONLD()
	default:
		return f.say("%s", newRecipeCard(r, sourceLabel(r.Source.Ref), f.config.stdout().Color))
	}
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return f.say("%s\n", data)
}

// sourceLabel returns an address for display, for a file its name.
func sourceLabel(address string) string {
	if file, err := contracts.ParseFileURL(address); err == nil {
		return cmp.Or(file.Name, "a file without a name")
	}
	return address
}

// doing describes the present step of an import in words.
func doing(job importer.Job) string {
	text := step(job)
	if job.Status == contracts.ImportRunning && job.Attempt > 1 && job.Error == "" {
		text += fmt.Sprintf(", attempt %d", job.Attempt)
	}
	return text
}

func step(job importer.Job) string {
	switch {
	case job.Status == contracts.ImportQueued:
		return "waiting for a worker"
	case job.Status.Final():
		return string(job.Status)
	case job.WaitingFor != "":
		return "waiting for " + terminal.Printable(job.WaitingFor+": "+job.Error)
	case job.Error != "":
		return "failed, will try again: " + terminal.Printable(job.Error)
	case job.Step == "extract":
		return "making the recipe"
	case job.Step == "create":
		return "keeping the recipe"
	}
	return "reading the source"
}
