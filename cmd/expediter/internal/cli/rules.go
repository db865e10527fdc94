package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// channelNames are the channels that the configuration of a notifier can set up.
var channelNames = []string{"inapp", "email", "sms", "webhook", "webpush"}

// errMistakes is returned for rules and templates that a notifier would not start with.
var errMistakes = errors.New("a notifier would not start with this")

// rulesFlags are the flags of the command that checks rules.
type rulesFlags struct {
	*globals

	channels  []string
	templates string
}

func newRules(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules",
		Short:   "Check who is told about what",
		Example: `  expediter rules check rules.yaml --templates ./templates`,
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRulesCheck(g))
	return cmd
}

func newRulesCheck(g *globals) *cobra.Command {
	f := &rulesFlags{globals: g}
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Tell every mistake in a file of rules, and in a folder of templates",
		Long: `Check reads rules, and templates, as a notifier does that starts, and tells every mistake with its file and line. It
needs no server.

Exit codes: 0 there is none, 1 there are mistakes, 3 there is no such file.`,
		Example: `  expediter rules check rules.yaml
  expediter rules check rules.yaml --templates ./templates --channels inapp,email,letters`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return f.check(args[0]) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.channels, "channels", channelNames, "channels that the notifier has, with commas")
	flags.StringVar(&f.templates, "templates", "", "folder of the texts to check, too")
	return cmd
}

func (f *rulesFlags) check(path string) error {
	loaded, err := rules.Load(path, f.channels)
	var missing []error
	n := 0
	if broken, ok := errors.AsType[*rules.Error](err); ok {
		n += len(broken.Mistakes)
		for _, m := range broken.Mistakes {
			where, line := path, m.Line
			if line > 0 {
				where = fmt.Sprintf("%s:%d", path, line)
			}
			m.Line = 0
			f.notef("%s: %s\n", where, table.Printable(m.String()))
		}
	} else if err != nil {
		missing = append(missing, err)
	}
	if f.templates != "" {
		found, err := f.texts()
		n += found
		missing = append(missing, err)
	}
	if n > 0 {
		missing = append(missing, fmt.Errorf("%s: %w", counted(n, "mistake"), errMistakes))
	}
	if err := errors.Join(missing...); err != nil {
		return err
	}
	f.notef("No mistakes. Version %s of the rules; channels:", loaded.Version())
	for _, name := range loaded.Channels() {
		f.notef(" %s", table.Printable(name))
	}
	f.notef("\n")
	return nil
}

// texts tells the mistakes in the templates, and counts them.
func (f *rulesFlags) texts() (int, error) {
	if _, err := os.Stat(f.templates); err != nil {
		return 0, err //nolint:wrapcheck // it names the folder
	}
	_, err := template.Load(f.templates, template.Config{})
	broken, ok := errors.AsType[*template.Error](err)
	if !ok {
		return 0, err
	}
	for _, m := range broken.Mistakes {
		where := filepath.Join(f.templates, m.File)
		if m.Line > 0 {
			where = fmt.Sprintf("%s:%d", where, m.Line)
		}
		f.notef("%s: %s\n", table.Printable(where), table.Printable(m.Text))
	}
	return len(broken.Mistakes), nil
}
