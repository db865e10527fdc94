package cli

import (
	_ "embed" // the help
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

//go:embed help.md
var helpText string

type text struct{ short, long, example string }

// manual returns the texts of all commands, by their paths.
func manual() map[string]text {
	texts := map[string]text{}
	for _, section := range strings.Split(helpText, "\n## ")[1:] {
		path, rest, _ := strings.Cut(section, "\n\n")
		rest, example, _ := strings.Cut(rest, "\n```sh")
		example, _, _ = strings.Cut(example, "\n```")
		short, long, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
		texts[path] = text{short, long, strings.TrimPrefix(strings.ReplaceAll(example, "\n", "\n  "), "\n")}
	}
	return texts
}

// complete completes a command and its subcommands: it takes their texts from the manual, a mistake in the arguments becomes a UsageError,
// a command takes the arguments of its usage line, and a command without a function shows its help. It panics for a command without texts,
// and for an argument without an explanation.
func (g *globals) complete(cmd *cobra.Command, texts map[string]text) {
	path := cmd.CommandPath()
	of, ok := texts[path]
	if !ok {
		panic("cli: help.md has no section " + path)
	}
	delete(texts, path)
	cmd.Short, cmd.Long, cmd.Example = of.short, of.long, of.example
	check := cmd.Args
	if check == nil {
		check = checkArgs
		for _, word := range strings.Fields(cmd.Use)[1:] {
			if arguments[argument(word)] == "" {
				panic("cli: no argument of a command is explained as " + word)
			}
		}
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err != nil {
			err = g.usage(err, cmd.ValidateFlagGroups())
		}
		return err
	}
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	g.completeNames(cmd)
	for _, below := range cmd.Commands() {
		g.complete(below, texts)
	}
}

// arguments explains the words of usage lines.
var arguments = map[string]string{
	"ADDRESS":    "the id of one of the user's addresses, such as main",
	"BUCKET":     "the name of a bucket, such as jobs",
	"CHANNEL":    "a channel of the user, such as email",
	"DIR":        "a folder, such as ./templates",
	"EVENT":      "the id of an event, such as evt-001",
	"FILE":       "the path of a file, such as ./input.json",
	"IMPORT":     "the id of an import, such as 2f1c5d1e-2c9d-4c58-9a43-0b7f5d2a9b10",
	"JOB":        "the sequence or subject of a job, such as 88121",
	"JOB-STREAM": "the name of a stream of jobs, such as ENRICH_JOBS",
	"JSON":       `the fields of a user, such as '{"locale":"he-IL"}', or - for the standard input`,
	"LOCK":       "the name of a lock, such as backup.db1",
	"NAME":       "the name of a key, such as gateway",
	"NUMBER":     "the number of a dead letter, such as 17",
	"PATTERN":    "a pattern of the subjects of jobs, such as 'jobs.mail.>'",
	"PLACE":      "the id of a place, such as ChIJH3w7GaZMHRURkD-WwKJy-8E",
	"PREFIX":     "the beginning of the names of locks, such as backup",
	"SOURCE":     "an address or the path of a file, such as https://example.com/cake or soup.srt",
	"STREAM":     "the name of a stream, such as IMPORT_JOBS",
	"SUBJECT":    "the subject of a schedule, such as jobs.report.daily",
	"TEMPLATE":   "the name of a template, such as RESERVATION_REQUESTED",
	"TYPE:ID":    "a membership, such as RESTAURANT:5",
	"URL":        "the address of a health check, such as https://127.0.0.1:8010/readyz",
	"USER":       "the id of a user, such as carla",
	"WORKER":     "the id or instance of a worker, such as vm-3-812-4Kx0",
}

// argument returns the name of an argument in a usage line: JOB of "[JOB...]".
func argument(word string) string { return strings.Trim(word, "[].") }

// jobName is a sequence, or a subject of at least two tokens.
var jobName = lazyregexp.New(`^([1-9][0-9]*|[^.*>\s]+(\.[^.*>\s]+)+)$`)

// checkArgs returns an error for the arguments that are missing, empty, malformed or too many by the usage line of a command, such as
// "show USER [JOB...]". Those in brackets may be left out, and "..." allows any number.
func checkArgs(cmd *cobra.Command, args []string) error {
	words := strings.Fields(cmd.Use)[1:]
	most := len(words)
	var errs []error
	for i := range max(most, len(args)) {
		if i >= most && (most == 0 || !strings.Contains(words[most-1], "...")) {
			return errors.Join(append(errs, tooMany(cmd, args, most))...)
		}
		word := words[min(i, most-1)]
		switch name := argument(word); {
		case i >= len(args):
			errs = append(errs, refuse(word[0] != '[', "%s is missing: %s", name, arguments[name]))
		case args[i] == "":
			errs = append(errs, fmt.Errorf("%s is empty: %s", name, arguments[name]))
		case name == "JOB":
			errs = append(errs, refuse(!jobName.MatchString(args[i]), "JOB %q: want %s", args[i], arguments[name]))
		case name == "USER", name == "EVENT":
			errs = append(errs, checkID(name, args[i]))
		}
	}
	return errors.Join(errs...)
}

// tooMany returns the error for more arguments than a command takes, of which the first may be a subcommand with a typing error.
func tooMany(cmd *cobra.Command, args []string, most int) error {
	names := make([]string, 0, len(cmd.Commands()))
	for _, below := range cmd.Commands() {
		names = append(names, below.Name())
	}
	if near := didYouMean(args[0], names...); near != "" || most == 0 && len(names) > 0 {
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), near)
	}
	return fmt.Errorf("%q is one argument too many: want %s", args[most], cmd.UseLine())
}

func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		err = fmt.Errorf("%w%s", err, didYouMean("--"+unknown.GetSpecifiedName(), names...))
	}
	return &UsageError{Err: err}
}

// didYouMean returns a question for the names that a word with a typing error may mean, or "". It has the measure of cobra for commands,
// of names that begin with the same letter: every other name of three letters would be near.
func didYouMean(word string, names ...string) string {
	all, bare := cobra.Command{SuggestionsMinimumDistance: 2}, strings.TrimLeft(word, "-")
	for _, name := range names {
		begins := bare != "" && strings.HasPrefix(strings.ToLower(strings.TrimLeft(name, "-")), strings.ToLower(bare[:1]))
		if begins && !strings.ContainsAny(name, " \t") { // cobra would take the first word
			all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
		}
	}
	near := all.SuggestionsFor(word)
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(near[:min(len(near), 3)], " or "))
}
