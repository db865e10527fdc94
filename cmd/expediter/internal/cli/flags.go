package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// choices is the value of a flag for one of some words in any case, for several words with commas, or for a kind of recipient. Its
// mistakes are reported together with all others of the command line.
type choices struct {
	*globals

	given bool
	name  string
	of    []string // nil for a kind of recipient
	join  bool     // one has several words
	one   *string
	some  *[]string // nil for one
}

// String returns the value as the help shows a default.
func (c *choices) String() string {
	switch {
	case c.some == nil:
		return *c.one
	case len(*c.some) == 0:
		return ""
	}
	return "[" + strings.Join(*c.some, ",") + "]"
}

// Type names the kind of the value for the help.
func (c *choices) Type() string {
	if c.some == nil {
		return "string"
	}
	return "stringSlice"
}

// Set sets the value. The words of a flag that is given again are appended.
func (c *choices) Set(text string) error {
	words := []string{text}
	if c.some != nil || c.join {
		words = strings.Split(text, ",")
	}
	for i := range words {
		c.mistakes = append(c.mistakes, c.check(&words[i]))
	}
	if c.some == nil {
		if c.join && *c.one != "" {
			words = append([]string{*c.one}, words...)
		}
		*c.one = strings.Join(words, ",")
		return nil
	}
	if !c.given {
		*c.some, c.given = nil, true
	}
	*c.some = append(*c.some, words...)
	return nil
}

func (c *choices) check(word *string) error {
	last := len(c.of) - 1
	if last < 0 {
		token, err := contracts.EncodeToken(*word)
		return refuse(*word != "" && (err != nil || token != *word || len(token) > contracts.MaxName),
			"--%s %.80q: want a kind of recipient such as %s", c.name, *word, strings.Join(recipientKinds, ", "))
	}
	*word = strings.ToLower(*word)
	return refuse(!slices.Contains(c.of, *word), "--%s %q: want %s or %s%s", c.name, *word, strings.Join(c.of[:last], ", "), c.of[last],
		didYouMean(*word, c.of...))
}

func (g *globals) kindFlag(cmd *cobra.Command, flags *pflag.FlagSet, into *string, usage string) {
	flags.Var(&choices{globals: g, name: "type", one: into}, "type", usage)
	completeWith(cmd, "type", recipientKinds...)
}

// choice adds a flag for one of some values. Its default is the present value.
func (g *globals) choice(cmd *cobra.Command, into *string, name, short, usage string, values ...string) {
	cmd.Flags().VarP(&choices{globals: g, name: name, of: values, one: into}, name, short, usage)
	completeWith(cmd, name, values...)
}

func (g *globals) servicesFlag(cmd *cobra.Command, into *[]string, usage string) {
	*into = contracts.Services()
	g.severalOf(cmd, into, "services", usage+", separated by commas", contracts.Services()...)
}

func (g *globals) severalOf(cmd *cobra.Command, into *[]string, name, usage string, values ...string) {
	cmd.Flags().Var(&choices{globals: g, name: name, of: values, some: into}, name, usage)
	completeWith(cmd, name, values...)
}

func (g *globals) filterFlags(cmd *cobra.Command, filter operate.Filter) {
	for _, f := range filter.Fields() {
		switch {
		case f.Usage == "": // the command has it with others
		case f.Of != nil:
			g.choice(cmd, f.Value, f.Name, "", f.Usage, f.Of...)
		default:
			cmd.Flags().StringVar(f.Value, f.Name, "", f.Usage)
		}
	}
}

// want has a flag refused, with all other mistakes of the command line, while its value does not hold.
func (g *globals) want(flags *pflag.FlagSet, name, wanted string, holds func() bool) {
	flag := flags.Lookup(name)
	flag.Value = &wanting{flag.Value, g, name, wanted, holds}
}

// wanting is the value of a flag that is wanted in a range.
type wanting struct {
	pflag.Value

	*globals

	name, wanted string
	holds        func() bool
}

// Set sets the value.
func (w *wanting) Set(text string) error {
	if err := w.Value.Set(text); err != nil {
		w.mistakes = append(w.mistakes, fmt.Errorf("--%s %s: want %s: %w", w.name, text, w.wanted, err))
	} else {
		w.mistakes = append(w.mistakes, refuse(!w.holds(), "--%s %s: want %s", w.name, text, w.wanted))
	}
	return nil
}

// usage is the function usage, with the mistakes in the values of flags added.
func (g *globals) usage(mistakes ...error) error { return usage(append(g.mistakes, mistakes...)...) }

// jsonLines is the format with a line of JSON for each thing, or for each change of a thing that is followed.
const jsonLines = "jsonl"

// listFormats are the formats of every command that prints data; the first is for people. One thing is a line in both other formats.
var listFormats = []string{"table", "json", jsonLines}

// exportFormats are those of commands that write a file for another program.
var exportFormats = []string{jsonLines, "json", "table"}

func asJSON(format string) bool { return format == "json" || format == jsonLines }

// cells is the largest width of a long text, in terminal cells.
const cells = 60

// outputFlag adds the flag for the format of the output. The first format is the default.
func (g *globals) outputFlag(cmd *cobra.Command, format *string, formats ...string) {
	*format = formats[0]
	g.choice(cmd, format, "output", "o", "form of the output: "+strings.Join(formats, ", "), formats...)
}

// action returns a command that runs a function. Its usage line has its name and arguments.
func action(use string, run func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) }}
}

func (g *globals) listing(use string, list func(ctx context.Context, args []string, format string) error) *cobra.Command {
	var format string
	cmd := action(use, func(ctx context.Context, args []string) error { return list(ctx, args, format) })
	g.outputFlag(cmd, &format, listFormats...)
	return cmd
}

// asking is listing for a command about the streams and buckets of an account, which it connects to.
func (f *natsFlags) asking(
	use string, list func(ctx context.Context, js jetstream.JetStream, args []string, format string) error,
) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	cmd := f.listing(use, func(ctx context.Context, args []string, format string) error {
		f.named = strings.Join(args, "")
		return f.with(ctx, "expediter "+name, func(ctx context.Context, js jetstream.JetStream) error { return list(ctx, js, args, format) })
	})
	f.register(cmd.Flags())
	f.registerAccount(cmd.Flags())
	return cmd
}

// rows returns the writer of a list. empty is the sentence for a table without rows. Marks may follow the name of a column: its texts are
// cut to 60 cells for each ~, "?" leaves it out while it is empty, and "-" while the lines are too wide.
func (g *globals) rows(format, empty string, columns ...string) *terminal.Rows {
	all := make([]terminal.Column, len(columns))
	for i, column := range columns {
		name := strings.TrimRight(column, "~?-")
		marks := column[len(name):]
		all[i] = terminal.Column{
			Name: name, Optional: strings.Contains(marks, "?"), Spare: strings.Contains(marks, "-"), Width: cells * strings.Count(marks, "~"),
		}
	}
	return terminal.NewRows(g.config.Stdout, terminal.Format(format), func(note string) { g.notef("%s\n", note) }, empty, all...)
}

// completeWith offers fixed values for a flag. It panics on a name that is not a flag, which is a mistake in this
// package.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// object writes one thing: as a line of JSON, or its fields for a person.
func (g *globals) object(format string, value any) error {
	line, err := json.Marshal(value)
	if err != nil || asJSON(format) {
		return errors.Join(err, g.writeLine(value))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err == nil {
			err = g.say("%-16s %s\n", name, terminal.Printable(strings.Trim(string(fields[name]), `"`)))
		}
	}
	return err
}

// yesFlag adds the flag without which a command that changes something only shows what it would do.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do it, rather than show what would be done")
}

// would says what a command would do with --yes.
func (g *globals) would(format string, args ...any) error {
	return g.say("Would "+format+" Nothing was changed: add --yes to do it.\n", args...)
}
