package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	sources "github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
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

func (f *serviceFlags) register(flags *pflag.FlagSet, service, usual string) {
	f.api.Service, f.usual = service, usual
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key of the caller (default $EXPEDITER_KEY)")
	flags.StringVar(&f.api.URL, "url", usual, "running "+service+" to ask")
}

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

type importFlags struct {
	followFlags

	encoding string
	from     string
	key      string
	language string
	name     string
	owner    string
	priority string
	kind     string
}

var (
	priorities  = []string{string(contracts.PriorityHigh), string(contracts.PriorityNormal), string(contracts.PriorityLow)}
	sourceKinds = []string{sources.TypeYouTube, sources.TypeCaptions, sources.TypeWeb, sources.TypePhoto}
)

func newImport(g *globals) *cobra.Command {
	shared := &serviceFlags{globals: g}
	f := &importFlags{followFlags: followFlags{serviceFlags: shared}}
	cmd := action("import [SOURCE]", func(ctx context.Context, args []string) error { return f.run(ctx, strings.Join(args, "")) })
	shared.register(cmd.PersistentFlags(), "importer", defaultImporter)
	flags := cmd.Flags()
	flags.StringVar(&f.encoding, "encoding", "", encodingUsage)
	flags.StringVar(&f.from, "from", "", "file with an address on each line (- for the standard input), instead of SOURCE")
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
		refuse(f.name != "" && (f.from != "" || isAddress(source)), "--name is for files"),
		refuse(source == "" && f.from == "", "SOURCE is missing: %s", arguments["SOURCE"]),
		refuse(source != "" && f.from != "", "--from %q: want it without SOURCE", f.from),
		refuse(f.from != "" && f.format == "schema-org", "--output schema-org is for one import: want table, json or jsonl with --from"),
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

// isAddress reports whether the importer fetches a source, rather than this command reading it. An address without a scheme has a path and
// a known domain, and is no file.
func isAddress(source string) bool {
	lower := strings.ToLower(source)
	if strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://") {
		return true
	}
	host, _, hasPath := strings.Cut(lower, "/")
	_, known := publicsuffix.PublicSuffix(host)
	_, err := os.Stat(source)
	return hasPath && known && sources.Complete(source) != source && errors.Is(err, fs.ErrNotExist)
}

// submission returns what all submissions of the command have in common.
func (f *importFlags) submission() api.Submission {
	return api.Submission{Key: f.key, ImportJob: contracts.ImportJob{
		Encoding: f.encoding, Language: f.language, OwnerID: f.owner, Priority: contracts.ImportPriority(f.priority),
		RequestedAt: time.Now().UTC(), SourceType: f.kind,
	}}
}

func (f *importFlags) run(ctx context.Context, source string) error {
	if err := f.check(source); err != nil {
		return err
	}
	if f.from != "" {
		return f.runFrom(ctx)
	}
	sub := f.submission()
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
	case asJSON(f.format):
		return f.writeLine(job)
	}
	if created {
		f.notef("Queued. Watch it with: %s\n", f.statusCommand(job.JobID))
	} else {
		f.notef("Import %s exists already: it is %s. See: %s\n", job.JobID, job.Status, f.statusCommand(job.JobID))
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

func newImportAbout(
	shared *serviceFlags, name string, do func(*api.Client, context.Context, string) (importer.Job, error),
) *cobra.Command {
	f := &followFlags{serviceFlags: shared}
	cmd := &cobra.Command{
		Use: name + " IMPORT",
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

type followFlags struct {
	*serviceFlags

	follow  bool
	format  string
	timeout time.Duration
}

func (f *followFlags) verdict(job importer.Job) error {
	switch {
	case job.Status == contracts.ImportFailed:
		return f.failure(job)
	case !job.Status.Final():
		return fmt.Errorf("%w: %s", errStillRunning, doing(job))
	}
	return nil
}

func (f *followFlags) tell(job importer.Job) error {
	if asJSON(f.format) {
		return f.writeLine(job)
	}
	var text details
	for _, line := range [][2]string{
		{"job", job.JobID},
		{"status", string(job.Status)},
		{"title", job.Title},
		{"source", sourceLabel(job.URL)},
		{"owner", job.OwnerID},
		{"since", terminal.Time(job.UpdatedAt)},
		{"step", doing(job)},
		{"recipe", job.RecipeID},
	} {
		text.line(line[0], line[1])
	}
	return f.say("%s", text.String())
}

// errStillRunning is returned for an import that has not ended in time.
var errStillRunning = errors.New("the import is still running")

func (f *followFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.outputFlag(cmd, &f.format, append(slices.Clone(listFormats), "schema-org")...)
	flags.BoolVar(&f.follow, "follow", false, "watch the import to its end, and write the recipe")
	flags.DurationVar(&f.timeout, "timeout", 15*time.Minute, "longest time to watch")
}

func (f *followFlags) check() error {
	return errors.Join(refuse(f.timeout <= 0, "--timeout %s: want more than 0", f.timeout), f.serviceFlags.check())
}

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
	return fmt.Errorf("the import failed: %s", text)
}

func (f *serviceFlags) writeRecipe(stored store.Stored, format string) error {
	r := &stored.Recipe
	var data []byte
	var err error
	switch format {
	case "json":
		data, err = json.MarshalIndent(stored, "", "  ")
	case "schema-org":
		data, err = r.JSONLD()
	default:
		return f.say("%s", newRecipeCard(r, sourceLabel(r.Source.Ref)))
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
	return terminal.Printable(operate.ImportWords(job.ImportStatus, job.WaitingFor))
}

// recipeCard is a recipe as a text for a person: its title, yield and times, the ingredients, the steps with their times in the video,
// what the page adds about the dish, and remarks.
type recipeCard struct {
	out    strings.Builder
	unsure bool // a field was marked
}

// line writes a line, unless there is no text.
func (c *recipeCard) line(indent, text string) {
	if text = strings.Join(strings.Fields(terminal.Printable(text)), " "); text != "" {
		c.out.WriteString(indent + text + "\n")
	}
}

// mark returns the mark for fields that the source does not confirm, or "".
func (c *recipeCard) mark(unverified []string, fields ...string) string {
	if !slices.ContainsFunc(fields, func(field string) bool { return slices.Contains(unverified, field) }) {
		return ""
	}
	c.unsure = true
	return " (?)"
}

// newRecipeCard writes a recipe with a source in the reader's words.
func newRecipeCard(r *recipe.Recipe, source string) string {
	c := recipeCard{}
	c.line("", r.Title+c.mark(r.Unverified, "title"))
	c.line("", yieldAndTimes(r))
	c.line("", source)
	c.line("\n", r.Description)
	c.line("\n", "Ingredients")
	section := ""
	for _, i := range r.Ingredients {
		if i.Section != section {
			section = i.Section
			c.line("  ", strings.TrimSuffix(section, ":")+":")
		}
		text := string(i.Qty) + " " + i.Unit + " " + i.Item
		if i.Note != "" {
			text += ", " + i.Note
		}
		c.line("  ", text+c.mark(i.Unverified, "item", "qty", "unit"))
	}
	c.line("\n", "Steps")
	for n, s := range r.Steps {
		text := strconv.Itoa(n+1) + ". "
		if s.Timestamp != nil {
			at := time.Duration(*s.Timestamp) * time.Second
			text += fmt.Sprintf("[%s] ", at)
		}
		c.line("  ", text+s.Text+c.mark(s.Unverified, "text", "timestamp_sec", "times", "temperatures"))
	}
	for i, fact := range r.Details.Facts() {
		c.line([]string{"\n", ""}[min(i, 1)], fact[0]+": "+fact[1])
	}
	c.remarks(r.Warnings)
	return c.out.String()
}

func yieldAndTimes(r *recipe.Recipe) string {
	var facts []string
	switch s := r.Servings; {
	case s == "":
	case strings.ContainsFunc(s, unicode.IsLetter):
		facts = append(facts, "Makes "+s)
	default:
		facts = append(facts, "Serves "+s)
	}
	for _, t := range []struct {
		name    string
		seconds int
	}{{"prep", r.Times.PrepSec}, {"cook", r.Times.CookSec}, {"total", r.Times.TotalSec}} {
		if t.seconds > 0 {
			took := time.Duration(t.seconds) * time.Second
			facts = append(facts, t.name+" "+strings.Replace(took.String(), "m0s", "m", 1))
		}
	}
	return strings.Join(facts, ", ")
}

func (c *recipeCard) remarks(warnings []recipe.Warning) {
	var texts []string
	for _, w := range warnings {
		if w.Code != extract.WarnUnverified { // which the marks show
			texts = append(texts, cmp.Or(w.Text, w.Code))
		}
	}
	if c.unsure {
		texts = append(texts, "What is marked (?) was not found in the source.")
	}
	if len(texts) > 0 {
		c.out.WriteByte('\n')
	}
	for _, text := range texts {
		c.line("! ", text)
	}
}
