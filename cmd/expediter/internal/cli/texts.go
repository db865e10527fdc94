package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// errMistakes is returned for rules and templates with which a notifier would not start.
var errMistakes = errors.New("a notifier would not take this into force")

type rulesFlags struct {
	*globals

	channels  []string
	gateways  []string
	templates string
}

func newRules(g *globals) *cobra.Command {
	cmd := &cobra.Command{Use: "rules"}
	cmd.AddCommand(newRulesCheck(g))
	return cmd
}

func newRulesCheck(g *globals) *cobra.Command {
	f := &rulesFlags{globals: g}
	cmd := action("check FILE", func(_ context.Context, args []string) error { return f.run(args[0]) })
	flags := cmd.Flags()
	flags.StringSliceVar(&f.channels, "channels", channels.Names(), "channels that the notifier has, with commas")
	flags.StringSliceVar(&f.gateways, "gateways", nil, "further channels that NOTIFIER_GATEWAYS sets up, with commas")
	flags.StringVar(&f.templates, "templates", "", "folder of the texts of email, sms and webpush")
	return cmd
}

func (f *rulesFlags) run(path string) error {
	if err := exist([]string{path, f.templates}); err != nil {
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

// channelConfig returns the configuration of a notifier with the channels, and with a folder of texts if one is given. others has
// the channels without a setting.
func (f *rulesFlags) channelConfig() (set notifier.ChannelConfig, others []string) {
	others = slices.DeleteFunc(slices.Clone(f.channels), func(name string) bool { return name == inapp.Name })
	if f.templates == "" {
		return set, append(others, f.gateways...)
	}
	set.Templates, set.Gateways = f.templates, map[string]string{}
	for _, name := range f.gateways {
		set.Gateways[name] = "-" // CheckRules does not look at the value
	}
	others = notifier.Assume(&set, others...) // before set is copied
	return set, others
}

func (f *rulesFlags) tell(path string, err error) (n int) {
	at := func(file string, line int, text string) {
		n++
		if line > 0 {
			file = fmt.Sprintf("%s:%d", file, line)
		}
		f.notef("%s: %s\n", terminal.Printable(file), terminal.Printable(text))
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

type templatesFlags struct {
	natsFlags

	cfg       template.Config
	data, out string
	gateways  []string
	locales   []string
	test      notifier.TestMessage
}

// testTimeout is longer than a notifier waits for the provider of a test message.
const testTimeout = 15 * time.Second

func newTemplates(g *globals) *cobra.Command {
	f := &templatesFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "templates"}
	cmd.AddCommand(f.newPreview(), f.newSend())
	return cmd
}

func (f *templatesFlags) newPreview() *cobra.Command {
	cmd := action("preview DIR", func(ctx context.Context, args []string) error { return f.preview(ctx, args[0]) })
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "file with a payload for each template")
	flags.StringVar(&f.out, "out", "preview", "folder that the page is written into")
	flags.StringSliceVar(&f.gateways, "gateways", nil, "channels of NOTIFIER_GATEWAYS, with commas")
	flags.StringSliceVar(&f.locales, "locale", nil, "locales of readers, with commas (default those that each template has)")
	flags.StringSliceVar(&f.cfg.LinkHosts, "link-hosts", nil, "hosts that links out of payloads may lead to, as NOTIFIER_LINK_HOSTS")
	flags.StringVar(&f.cfg.Language, "language", "en", "language of the texts in default, as NOTIFIER_TEMPLATES_LANGUAGE")
	return cmd
}

func (f *templatesFlags) newSend() *cobra.Command {
	cmd := action("send TEMPLATE", func(ctx context.Context, args []string) error { return f.send(ctx, args[0]) })
	flags := cmd.Flags()
	f.registerServer(flags)
	flags.DurationVar(&f.timeout, "timeout", testTimeout, "longest time to wait for the answer")
	flags.StringVar(&f.test.Channel, "channel", "email", "channel that sends it")
	flags.StringVar(&f.data, "data", "", "file with a payload for each template")
	flags.StringVar(&f.test.Locale, "locale", "", "locale of the reader")
	flags.StringVar(&f.test.To, "to", "", "address")
	return cmd
}

func (f *templatesFlags) send(ctx context.Context, name string) error {
	if err := usage(refuse(f.test.To == "", "--to is required: the address")); err != nil {
		return err
	}
	data, err := f.payloads(ctx)
	if err != nil {
		return err
	}
	f.test.Template, f.test.Payload = name, data[name]
	return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
		return f.sendTest(ctx, client, "templates.test", f.test)
	})
}

// sendTest has the notifier send a test message, and tells its outcome. It does not try again, because the message could arrive twice.
func (f *natsFlags) sendTest(ctx context.Context, client *notify.Client, operation string, message any) error {
	var sent notifier.TestSent
	err := client.Ask(ctx, operation, message, &sent)
	if err == nil && sent.Problem != "" {
		err = fmt.Errorf("%s: the test message was not sent", terminal.Printable(sent.Problem))
	}
	if err == nil {
		f.notef("%s is sent.\n", sent.ID)
	}
	return err
}

func (f *templatesFlags) payloads(ctx context.Context) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	if f.data == "" {
		return all, nil
	}
	data, err := f.read(ctx, f.data, maxPayload)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("--data %s: want a JSON object of payloads by template: %w", f.data, err)
	}
	return all, nil
}

func (f *templatesFlags) preview(ctx context.Context, folder string) error {
	f.cfg.Channels = template.Channels(f.gateways...)
	set, err := template.Load(folder, f.cfg)
	if broken, ok := errors.AsType[*template.Error](err); ok {
		checked := rulesFlags{globals: f.globals, templates: folder}
		return fmt.Errorf("%s: %w", counted(checked.tell("", broken), "mistake"), errMistakes)
	}
	if err != nil {
		return err
	}
	data, err := f.payloads(ctx)
	if err != nil {
		return err
	}
	path, failed, err := preview{Data: data, Locales: f.locales, Templates: set}.writeTo(f.out)
	if err != nil {
		return err
	}
	for _, one := range failed {
		f.notef("%s %s %s: %s\n", terminal.Printable(one.Template), terminal.Printable(one.Locale), one.Channel, terminal.Printable(one.Problem))
	}
	f.notef("%s shows all texts.\n", path)
	if len(failed) > 0 {
		return fmt.Errorf("%s: cannot be made, or have data and no template", counted(len(failed), "text"))
	}
	return nil
}
