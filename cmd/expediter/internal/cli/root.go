// Package cli is the command line of expediter: flags, exit codes and messages. The work of the commands is in the
// other packages.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

type globals struct {
	config    Config
	logFormat string
	logLevel  string
	logger    *slog.Logger
	mistakes  []error // in the values of flags
}

// Run runs the program with the arguments after its name and returns its exit code. Errors are written to
// Config.Stderr.
func Run(ctx context.Context, cfg Config, args []string) int {
	cfg = cfg.withDefaults()
	root := newRoot(cfg)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if own, ok := errors.AsType[*codeError](err); err != nil && (!ok || own.err != nil) {
		report(cfg, cmd, err)
	}
	return ExitCode(err)
}

// report writes an error for a person: in full, once, and with a pointer to the help when the command line is at fault.
func report(cfg Config, cmd *cobra.Command, err error) {
	fmt.Fprintf(cfg.Stderr, "error: %s\n", harmless(err.Error()))
	if _, ok := errors.AsType[*UsageError](err); ok {
		fmt.Fprintf(cfg.Stderr, "See %s --help.\n", cmd.CommandPath())
	}
	if account := cmd.Flags().Lookup("account"); account != nil && account.Value.String() == "" && isStreamMissing(err) {
		const hint = "With accounts as in deploy/nats, --account or NATS_ACCOUNT names that of the service."
		fmt.Fprintln(cfg.Stderr, hint)
	}
}

// isStreamMissing reports whether an error means that the account does not have a stream or bucket.
func isStreamMissing(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, deadletter.ErrNoStream)
}

func newRoot(cfg Config) *cobra.Command {
	g := &globals{config: cfg, logger: slog.New(slog.DiscardHandler)}
	root := &cobra.Command{
		Use:               "expediter",
		PersistentPreRunE: g.setup,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Version:           version(),
	}
	root.SetIn(cfg.Stdin)
	root.SetOut(cfg.Stdout)
	root.SetErr(cfg.Stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&g.logFormat, "log-format", "text", "form of log lines: text or json")
	flags.StringVar(&g.logLevel, "log-level", "warn", "least level of log lines: debug, info, warn or error")
	completeWith(root, "log-format", "text", "json")
	completeWith(root, "log-level", "debug", "info", "warn", "error")
	root.AddCommand(newApply(g), newAudit(g), newCaptions(g), newConsole(g), newDead(g), newDemo(g),
		newDoctor(g), newEmit(g), newEnrich(g), newExport(g), newForget(g), newImport(g), newInbox(g), newInit(g), newJobs(g), newKeys(g),
		newLimits(g), newLock(g), newLocks(g), newMan(), newMembers(g), newEndpoints(g), newNotifications(g), newNotify(g), newPlaces(g),
		newReady(), newRelay(g), newRestored(g), newRules(g), newSchedules(g), newTemplates(g), newUp(g),
		newUsers(g))
	texts := manual()
	g.complete(root, texts)
	if len(texts) > 0 {
		panic(fmt.Sprintf("cli: no command has the texts of %q", slices.Sorted(maps.Keys(texts))))
	}
	return root
}

// setup makes the logger, once the flags are known, and checks those that go together.
func (g *globals) setup(cmd *cobra.Command, _ []string) error {
	var level slog.Level
	err := refuse(!slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(g.logLevel)) ||
		level.UnmarshalText([]byte(g.logLevel)) != nil, "--log-level %q: want debug, info, warn or error", g.logLevel)
	opts := &slog.HandlerOptions{Level: level}
	switch strings.ToLower(g.logFormat) {
	case "json":
		g.logger = slog.New(slog.NewJSONHandler(g.config.Stderr, opts))
	case "text":
		g.logger = slog.New(slog.NewTextHandler(g.config.Stderr, opts))
	default:
		err = errors.Join(err, fmt.Errorf("--log-format %q: want text or json", g.logFormat))
	}
	if err = errors.Join(err, cmd.ValidateFlagGroups()); err != nil {
		return g.usage(err)
	}
	return nil
}

// notef writes a note for the person to the standard error.
func (g *globals) notef(format string, args ...any) {
	fmt.Fprint(g.config.Stderr, harmless(fmt.Sprintf(format, args...)))
}

func (g *globals) more(n int) {
	if n > 0 {
		g.notef("... and %d more\n", n)
	}
}

// harmless returns a text of several lines in a form that is safe on a terminal, because subjects, names and answers
// come from strangers. It clips each line to a page.
func harmless(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = terminal.Printable(redact.Shorten(line, 2000))
	}
	return strings.Join(lines, "\n")
}

func newReady() *cobra.Command {
	return action("ready URL", func(ctx context.Context, args []string) error {
		if u, err := url.Parse(args[0]); err != nil || u.Host == "" {
			return usage(fmt.Errorf("URL %q: want %s", args[0], arguments["URL"]))
		}
		if err := service.AskReady(ctx, args[0]); err != nil {
			return fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return nil
	})
}

// newMan returns a hidden command, which a release calls.
func newMan() *cobra.Command {
	return &cobra.Command{Use: "man DIR", Hidden: true, RunE: func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // pages of a manual are for all
			return err
		}
		epoch := time.Unix(0, 0) // the same files from the same commit
		return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Date: &epoch, Section: "1", Source: "Expediter"}, args[0])
	}}
}

// version returns the version that the go command stamped into the binary, which has the commit when it is no released one.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return cmp.Or(info.Main.Version, "(devel)") + " " + info.GoVersion
}

// exist returns an error for files that do not exist, before any work begins.
func exist(paths []string) error {
	var errs []error
	for _, path := range paths {
		if path == "" || path == rows.Stdin {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openInput opens a file, or the standard input for "-". Its reads end with the context. The caller closes it.
func (g *globals) openInput(ctx context.Context, path string) (io.ReadCloser, error) {
	if path == rows.Stdin {
		return io.NopCloser(rows.Interruptible(ctx, g.config.Stdin)), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{rows.Interruptible(ctx, file), file}, nil
}

// read reads a file, or the standard input for "-", up to most bytes.
func (g *globals) read(ctx context.Context, path string, most int64) ([]byte, error) {
	source, err := g.openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	data, err := private.Read(source, most)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(path), err)
	}
	return data, nil
}

// inputName returns the name of a file, or of the standard input, in messages.
func inputName(path string) string {
	if path == rows.Stdin {
		return "standard input"
	}
	return path
}

func (g *globals) writeLine(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return g.say("%s\n", line)
}

func (g *globals) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(g.config.Stdout, format, args...); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// The exit codes. They are part of the command's interface and do not change.
const (
	// ExitOK means that everything was done.
	ExitOK = 0

	// ExitFailure means that the command failed, or that a part of the input could not be used.
	ExitFailure = 1

	// ExitUsage means that the command line has a mistake, or names a thing as none can be named.
	ExitUsage = 2

	// ExitNotFound means that a named thing, such as a file, job or stream, does not exist.
	ExitNotFound = 3

	// ExitTimeout means that an outcome, such as the end of an import, was not known in time.
	ExitTimeout = 4

	// ExitUnavailable means that a service did not answer or refused to work, or that the user may not do this.
	ExitUnavailable = 5
)

// ErrNotFound is wrapped by the error of a command about a thing that does not exist; the exit code is then
// ExitNotFound.
var ErrNotFound = api.ErrNotFound

// errUnavailable is wrapped by the error of a command that gets no answer from a server; the exit code is then
// ExitUnavailable.
var errUnavailable = api.ErrUnavailable

// UsageError is returned when the command line has a mistake.
type UsageError struct {
	Err error // the mistake
}

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UsageError) Unwrap() error { return e.Err }

// usage returns a [UsageError] with the mistakes that are not nil, or nil if there are none.
func usage(mistakes ...error) error {
	if err := errors.Join(mistakes...); err != nil {
		return &UsageError{Err: err}
	}
	return nil
}

// refuse returns an error with the formatted text if made is true, and nil otherwise.
func refuse(made bool, format string, args ...any) error {
	if made {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// codeError ends a command with a certain exit code.
type codeError struct {
	code int
	err  error // is reported unless it is nil
}

// Error implements error.
func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error that is reported.
func (e *codeError) Unwrap() error { return e.err }

// ExitCode returns the code that a command ends with when it returns err.
func ExitCode(err error) int {
	var usage *UsageError
	var own *codeError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &usage), errors.Is(err, api.ErrInvalid):
		return ExitUsage
	case errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, deadletter.ErrNotFound),
		errors.Is(err, deadletter.ErrNoStream), errors.Is(err, inapp.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, errUnavailable), errors.Is(err, errDenied), errors.Is(err, jsapi.ErrNotReady), errors.Is(err, kvlock.ErrUnavailable),
		errors.Is(err, kvrecord.ErrUnavailable): // also after their own deadlines
		return ExitUnavailable
	case errors.Is(err, errPending), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errStillRunning),
		errors.Is(err, notify.ErrNotEnded):
		return ExitTimeout
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), jsapi.IsTransient(err):
		return ExitUnavailable
	}
	return ExitFailure
}
