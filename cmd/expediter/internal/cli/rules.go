package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// channelNames are the channels that the configuration of a notifier can set up.
var channelNames = []string{"inapp", "email", "sms", "webhook", "webpush"}

// errMistakes is returned for rules and templates that a notifier would not start with.
var errMistakes = errors.New("a notifier would not take this into force")

// rulesFlags are the flags of the command that checks rules.
type rulesFlags struct {
	*globals

	channels  []string
	gateways  []string
	templates string
}

func newRules(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules",
		Short:   "Check notification rules",
		Example: `  expediter rules check rules.yaml --templates ./templates`,
	}
	cmd.AddCommand(newRulesCheck(g))
	return cmd
}

func newRulesCheck(g *globals) *cobra.Command {
	f := &rulesFlags{globals: g}
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Report every mistake in a file of rules, and in a folder of templates",
		Long: `Check reads rules as a notifier does when it starts, or when they change, and reports every mistake with its file and line.
With --templates it reads the texts, too: a rule with the channel email, sms or webpush needs one. It needs no server.

Exit codes: 0 no mistakes, 1 mistakes, 3 no such file.`,
		Example: `  expediter rules check rules.yaml
  expediter rules check rules.yaml --templates ./templates --channels inapp,email,letters`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.run(args[0]) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.channels, "channels", channelNames, "channels that the notifier has, with commas")
	flags.StringSliceVar(&f.gateways, "gateways", nil, "further channels that NOTIFIER_GATEWAYS sets up, with commas")
	flags.StringVar(&f.templates, "templates", "", "folder of the texts of email, sms and webpush")
	return cmd
}

func (f *rulesFlags) run(path string) error {
	var missing []error
	for _, name := range []string{path, f.templates} {
		if _, err := os.Stat(name); name != "" && err != nil {
			missing = append(missing, err)
		}
	}
	if err := errors.Join(missing...); err != nil {
		return err
	}
	set, others := f.channelConfig()
	err := notifier.CheckRules(path, set, others...)
	n := f.tell(path, err)
	switch {
	case err == nil:
		f.notef("No mistakes.\n")
		return nil
	case n == 0:
		return err
	}
	return fmt.Errorf("%s: %w", counted(n, "mistake"), errMistakes)
}

// channelConfig is the channels as a notifier that has them is configured: with the texts that they need when there is a folder of
// them. The others have no such setting.
func (f *rulesFlags) channelConfig() (set notifier.ChannelConfig, others []string) {
	const something = "-" // settings of channels are not checked
	set.Templates, set.Gateways = f.templates, map[string]string{}
	for _, name := range f.gateways {
		if f.templates == "" {
			others = append(others, name)
		} else {
			set.Gateways[name] = something
		}
	}
	for _, name := range f.channels {
		switch {
		case name == "inapp":
		case f.templates != "" && name == "email":
			set.EmailServer = something
		case f.templates != "" && name == "sms":
			set.SMSURL = something
		case f.templates != "" && name == "webpush":
			set.WebPushKey = something
		case !slices.Contains(others, name):
			others = append(others, name)
		}
	}
	return set, others
}

// tell writes the mistakes, and returns an error that counts them.
func (f *rulesFlags) tell(path string, err error) (n int) {
	at := func(file string, line int, text string) {
		n++
		if line > 0 {
			file = fmt.Sprintf("%s:%d", file, line)
		}
		f.notef("%s: %s\n", table.Printable(file), table.Printable(text))
	}
	if broken, ok := errors.AsType[*rules.Error](err); ok {
		for _, m := range broken.Mistakes {
			line := m.Line
			m.Line = 0
			at(path, line, m.String())
		}
	}
	if broken, ok := errors.AsType[*template.Error](err); ok {
		for _, m := range broken.Mistakes {
			at(filepath.Join(f.templates, m.File), m.Line, m.Text)
		}
	}
	return n
}
