package cli

import (
	"context"
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
	if c.some != nil {
		words = strings.Split(text, ",")
	}
	for i := range words {
		c.mistakes = append(c.mistakes, c.check(&words[i]))
	}
	if c.some == nil {
		*c.one = words[0]
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
	return refuse(!slices.Contains(c.of, *word), "--%s %q: want %s or %s", c.name, *word, strings.Join(c.of[:last], ", "), c.of[last])
}

// kindFlag adds the flag for a kind of recipient.
func (g *globals) kindFlag(cmd *cobra.Command, flags *pflag.FlagSet, into *string, usage string) {
	flags.Var(&choices{globals: g, name: "type", one: into}, "type", usage)
	completeWith(cmd, "type", recipientKinds...)
}

// choice adds a flag for one of some values. Its default is the present value.
func (g *globals) choice(cmd *cobra.Command, into *string, name, short, usage string, values ...string) {
	cmd.Flags().VarP(&choices{globals: g, name: name, of: values, one: into}, name, short, usage)
	completeWith(cmd, name, values...)
}

// servicesFlag adds the flag for some of the services.
func (g *globals) servicesFlag(cmd *cobra.Command, into *[]string, usage string) {
	*into = contracts.Services()
	g.severalOf(cmd, into, "services", usage+", separated by commas", contracts.Services()...)
}

// severalOf adds a flag for some of several values, as choice does.
func (g *globals) severalOf(cmd *cobra.Command, into *[]string, name, usage string, values ...string) {
	cmd.Flags().Var(&choices{globals: g, name: name, of: values, some: into}, name, usage)
	completeWith(cmd, name, values...)
}

// filterFlags adds the flags of a filter.
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

// usage is the function usage, with the mistakes in the values of flags added.
func (g *globals) usage(mistakes ...error) error { return usage(append(g.mistakes, mistakes...)...) }

// listFormats are the formats of a list, and textFormats those of other outputs.
var (
	listFormats = []string{"table", "json", jsonLines}
	textFormats = []string{"text", "json"}
)

// stateColors has the colours of the states of items and notifications.
var stateColors = map[string]string{
	"unread": "\x1b[1m", "archived": "\x1b[2m", "failed": "\x1b[31m", "bounced": "\x1b[31m", "sent": "\x1b[32m", "delivered": "\x1b[32m",
}

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

// listing returns a command that writes a list, or output in one of the given formats, with the flag for the format.
func (g *globals) listing(
	use string, list func(ctx context.Context, args []string, format string) error, formats ...string,
) *cobra.Command {
	if formats == nil {
		formats = listFormats
	}
	var format string
	cmd := action(use, func(ctx context.Context, args []string) error { return list(ctx, args, format) })
	g.outputFlag(cmd, &format, formats...)
	return cmd
}

// asking is listing for a command about the streams and buckets of an account, which it connects to.
func (f *natsFlags) asking(
	use string, list func(ctx context.Context, js jetstream.JetStream, args []string, format string) error,
) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	cmd := f.listing(use, func(ctx context.Context, args []string, format string) error {
		return f.with(ctx, "expediter "+name, func(ctx context.Context, js jetstream.JetStream) error { return list(ctx, js, args, format) })
	})
	f.register(cmd.Flags())
	f.registerAccount(cmd.Flags())
	return cmd
}

// rows returns the writer of a list. Marks may follow the name of a column: its texts are cut to 60 cells for each ~, "?" leaves it out
// while it is empty, and "!" colours states.
func (g *globals) rows(format string, columns ...string) *terminal.Rows {
	all := make([]terminal.Column, len(columns))
	for i, column := range columns {
		name := strings.TrimRight(column, "~?!")
		marks := column[len(name):]
		all[i] = terminal.Column{Name: name, Optional: strings.Contains(marks, "?"), Width: cells * strings.Count(marks, "~")}
		if strings.Contains(marks, "!") && g.config.stdout().Color {
			all[i].Colors = stateColors
		}
	}
	return terminal.NewRows(g.config.Stdout, terminal.Format(format), all...)
}

// completeWith offers fixed values for a flag. It panics on a name that is not a flag, which is a mistake in this
// package.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// yesFlag adds the flag without which a command that changes something only shows what it would do.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do it, rather than show what would be done")
}

// would says what a command would do with --yes.
func (g *globals) would(format string, args ...any) error {
	return g.say("Would "+format+" Nothing was changed: add --yes to do it.\n", args...)
}
