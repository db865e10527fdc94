package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
)

const (
	// defaultImporter is the address of the importer of up.
	defaultImporter = "http://127.0.0.1:8005"

	// defaultOwner is the owner of recipes unless another is named.
	defaultOwner = "me"

	// maxSource is the size limit of a file for an importer, in bytes.
	maxSource = 8 << 20
)

// serviceFlags are the flags of all commands that ask a service over HTTP.
type serviceFlags struct {
	*globals

	api     api.Client // complete after check
	keyFile string
	usual   string // the URL without a flag
}

// register adds the flags for a service, by its name and the address of the one of up.
func (f *serviceFlags) register(flags *pflag.FlagSet, service, usual string) {
	f.api.Service, f.usual = service, usual
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key of the caller (default $EXPEDITER_KEY)")
	flags.StringVar(&f.api.URL, "url", usual, "running "+service+" to ask")
}

// check returns an error for an invalid flag.
func (f *serviceFlags) check() error {
	if u, err := url.Parse(f.api.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--url %q: want a URL such as %s", f.api.URL, f.usual)
	}
	var err error
	f.api.Key, err = f.callerKey(f.keyFile)
	return err
}

// advise adds a remedy to the error of a service that does not answer.
func advise(err error) error {
	if errors.Is(err, api.ErrNoRoute) {
		return fmt.Errorf("%w: the server that answers is another service: %w (say where it is with --url)", api.ErrUnavailable, err)
	}
	if errors.Is(err, api.ErrUnavailable) {
		return fmt.Errorf("%w (start one with \"expediter up\", or say where it is with --url)", err)
	}
	return err
}

// importFlags are the flags of the import command itself.
type importFlags struct {
	followFlags

	encoding string
	key      string
	language string
	name     string
	owner    string
	priority string
	kind     string
}

var (
	priorities  = []string{string(contracts.PriorityHigh), string(contracts.PriorityNormal), string(contracts.PriorityLow)}
	sourceKinds = []string{contracts.SourceYouTube, contracts.SourceCaptions, contracts.SourceWeb, contracts.SourcePhoto}
)

func newImport(g *globals) *cobra.Command {
	shared := &serviceFlags{globals: g}
	f := &importFlags{followFlags: followFlags{serviceFlags: shared}}
	cmd := action("import SOURCE", func(ctx context.Context, args []string) error { return f.run(ctx, args[0]) })
	shared.register(cmd.PersistentFlags(), "importer", defaultImporter)
	flags := cmd.Flags()
	flags.StringVar(&f.encoding, "encoding", "", encodingUsage)
	flags.StringVar(&f.key, "key", "", "idempotency key: the same key of the same owner is the same import")
	flags.StringVar(&f.language, "language", "", "language of the captions to take, or of the file: en, pt-BR (default the spoken language)")
	flags.StringVar(&f.name, "name", "", "name of the file, which is also the title of a recipe without one (default its own name)")
	flags.StringVar(&f.owner, "owner", defaultOwner, "owner of the recipe")
	f.priority = string(contracts.PriorityNormal)
	f.choice(cmd, &f.priority, "priority", "", "how urgent it is: high, normal or low", priorities...)
	f.choice(cmd, &f.kind, "type", "",
		"kind of source: youtube, captions, web or photo (default: the one that it looks like)", sourceKinds...)
	f.register(cmd)
	cmd.AddCommand(newImportAbout(shared, "cancel", (*api.Client).Cancel), newImportAbout(shared, "retry", (*api.Client).Retry),
		newImportAbout(shared, "status", (*api.Client).Job))
	return cmd
}

// check returns every mistake in the flags and in the source that can be found before a file is opened.
func (f *importFlags) check(source string) error {
	errs := []error{
		f.followFlags.check(),
		refuse(f.owner == "", "--owner is empty: want the id of a person"),
		refuse(f.name != "" && isAddress(source), "--name is for files"),
		checkEncoding(f.encoding),
	}
	if _, err := language.Parse(f.language); f.language != "" && err != nil {
		errs = append(errs, fmt.Errorf("--language %q: want a tag such as en or pt-BR", f.language))
	}
	if scheme, _, ok := strings.Cut(source, "://"); ok && !isAddress(source) {
		hint := "want http or https"
		if scheme == "file" {
			hint = "give the path of a file as it is"
		}
		errs = append(errs, fmt.Errorf("source %q: %s", source, hint))
	}
	return f.usage(errs...)
}

// isAddress reports whether the importer fetches a source, rather than this command reading it.
func isAddress(source string) bool {
	lower := strings.ToLower(source)
	return strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
}

// run runs the command, once its flags are read.
func (f *importFlags) run(ctx context.Context, source string) error {
	if err := f.check(source); err != nil {
		return err
	}
	sub := api.Submission{Key: f.key, ImportJob: contracts.ImportJob{
		Encoding: f.encoding, Language: f.language, OwnerID: f.owner, Priority: contracts.ImportPriority(f.priority),
		RequestedAt: time.Now().UTC(), SourceType: f.kind,
	}}
	if isAddress(source) {
		sub.URL = source
	} else {
		var err error
		if sub.Content, err = f.content(ctx, source); err != nil {
			return err
		}
		if sub.Name = filepath.Base(source); f.name != "" {
			sub.Name = f.name
		}
	}
	job, created, err := f.api.Submit(ctx, sub)
	if refused, ok := errors.AsType[*api.RefusedError](err); ok && refused.Problem.Status == http.StatusConflict && f.key != "" {
		return fmt.Errorf("--key %q of --owner %q stands for the import of another source already", f.key, f.owner)
	}
	if err != nil {
		return advise(err)
	}
	switch {
	case f.follow:
		return f.watch(ctx, job.JobID)
	case f.format == jsonLines:
		return f.writeLine(job)
	}
	if created {
		f.notef("Queued. Watch it with: %s\n", f.statusCommand(job.JobID))
	} else {
		f.notef("Known already: it is %s. See: %s\n", job.Status, f.statusCommand(job.JobID))
	}
	return f.say("%s\n", job.JobID)
}

// content reads a file, or the standard input.
func (f *importFlags) content(ctx context.Context, path string) ([]byte, error) {
	content, err := f.read(ctx, path, maxSource)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(path, ".") && strings.Contains(path, "/") && !filepath.IsAbs(path):
		return nil, fmt.Errorf("%w (an address begins with https://)", err)
	case err == nil && len(content) == 0:
		return nil, fmt.Errorf("%s: it is empty", inputName(path))
	}
	return content, err
}

// newImportAbout returns a command about one import, which do changes or reads.
func newImportAbout(
	shared *serviceFlags, name string, do func(*api.Client, context.Context, string) (importer.Job, error),
) *cobra.Command {
	f := &followFlags{serviceFlags: shared}
	cmd := &cobra.Command{
		Use: name + " JOB",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.usage(f.check()); err != nil {
				return err
			}
			if f.follow && name == "status" {
				return f.watch(cmd.Context(), args[0]) // which asks again while the importer is away
			}
			job, err := do(&f.api, cmd.Context(), args[0])
			switch {
			case err != nil:
				return advise(err)
			case f.follow:
				return f.watch(cmd.Context(), job.JobID)
			}
			if err := f.tell(job); err != nil || name != "status" {
				return err
			}
			return f.verdict(job)
		},
	}
	f.register(cmd)
	return cmd
}

// verdict returns an error for an import without a recipe.
func (f *followFlags) verdict(job importer.Job) error {
	switch {
	case job.Status == contracts.ImportFailed:
		return f.failure(job)
	case !job.Status.Final():
		return fmt.Errorf("%w: %s", errStillRunning, doing(job))
	}
	return nil
}

// tell writes the state of an import.
func (f *followFlags) tell(job importer.Job) error {
	if f.format == "json" || f.format == jsonLines {
		return f.writeLine(job)
	}
	var text details
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
		text.line(line[0], line[1])
	}
	return f.say("%s", text.String())
}

// waiting describes the far side for which a job waits, with the time since when and the reason.
func waiting(job importer.Job) string {
	if job.WaitingFor == "" {
		return ""
	}
	return fmt.Sprintf("for %s since %s: %s", job.WaitingFor, stamp(job.WaitingSince), job.Error)
}
