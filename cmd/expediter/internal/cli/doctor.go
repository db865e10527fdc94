package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// examineTime bounds doctor for the console, whose page waits a little longer.
const examineTime = 25 * time.Second

type doctorFlags struct {
	natsFlags

	as       string
	assets   contracts.AssetOptions
	format   string
	monitors []string
	readOnly bool
}

func newDoctor(g *globals) *cobra.Command {
	f := &doctorFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use: "doctor",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.Flags())
		},
	}
	flags := cmd.Flags()
	f.registerServer(flags)
	f.registerAccount(flags)
	f.choice(cmd, &f.as, "as", "", "user of deploy/nats whose permissions are checked: "+strings.Join(doctor.Users(), ", "), doctor.Users()...)
	f.outputFlag(cmd, &f.format, listFormats...)
	flags.Int64Var(&f.assets.MaxBytes, "max-bytes", 0, "--max-bytes of expediter apply (default as declared)")
	flags.IntVar(&f.assets.Replicas, "replicas", 0, "servers that keep each stream: 1, 3 or 5 (default 3 in a cluster, else 1)")
	flags.StringSliceVar(&f.assets.Channels, "channels", nil, "channels of the notifier that were added with code, separated by commas")
	f.servicesFlag(cmd, &f.assets.Services, "services that are looked at")
	flags.StringSliceVar(&f.monitors, "monitor", nil, "addresses of servers' HTTP monitoring, separated by commas")
	flags.BoolVar(&f.readOnly, "read-only", false, "do not see whether a record of a minute can be written to each bucket")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest time for all of it")
	return cmd
}

func (f *doctorFlags) check() error {
	var replicas error
	if f.assets.Replicas != 0 {
		replicas = checkReplicas(f.assets.Replicas)
	}
	return f.usage(replicas, f.checkAccount(),
		refuse(f.assets.MaxBytes < 0, "--max-bytes %d: use a positive number", f.assets.MaxBytes),
		refuse(f.timeout < 3*time.Second, "--timeout %s: use 3s or more", f.timeout))
}

func (f *doctorFlags) run(ctx context.Context, flags *pflag.FlagSet) error {
	report := doctor.Run(ctx, doctor.Config{
		Account: f.account, As: f.as, Assets: f.assets, Environment: f.environment(), Flags: given(flags), Monitors: f.monitors,
		ReadOnly: f.readOnly, Server: f.serverURL(), Timeout: f.timeout, Connect: f.dialer(ctx, "expediter doctor"),
	})
	if err := f.show(report); err != nil {
		return err
	}
	if report.Failed() {
		return &codeError{code: ExitFailure}
	}
	return nil
}

func (f *natsFlags) serverURL() string {
	return cmp.Or(f.NATSURL, f.config.Getenv("NATS_URL"), nats.DefaultURL)
}

// dialer returns a function that connects to the server under a name.
func (f *natsFlags) dialer(ctx context.Context, name string) func(...nats.Option) (*nats.Conn, error) {
	return func(more ...nats.Option) (*nats.Conn, error) {
		server, opts, err := f.options(ctx, name)
		if err != nil {
			return nil, err
		}
		return nats.Connect(server, append(opts, more...)...)
	}
}

// examiner returns doctor for the console. It is read-only, so that reading a page changes nothing.
func examiner(cfg doctor.Config) func(context.Context) ([]console.Finding, error) {
	cfg.ReadOnly, cfg.Timeout = true, examineTime
	return func(ctx context.Context) ([]console.Finding, error) {
		report := doctor.Run(ctx, cfg)
		for _, skipped := range report.Skipped {
			report.Findings = append(report.Findings, console.Finding{Problem: skipped, Severity: console.Skipped})
		}
		return report.Findings, ctx.Err()
	}
}

// environment returns the environment of the services, with the flags in place of the variables that they replace.
func (f *natsFlags) environment() map[string]string {
	all := make(map[string]string)
	for _, line := range f.config.Environ() {
		name, value, _ := strings.Cut(line, "=")
		all[name] = value
	}
	for name, value := range variables(&f.NATSConfig) {
		if *value != "" {
			all[name] = *value
		}
	}
	return all
}

// given returns the given flags about the server, for the command of a cure.
func given(flags *pflag.FlagSet) string {
	var words []string
	for _, name := range []string{"ca", "cert", "creds", "key", "nkey", "server"} {
		if flag := flags.Lookup(name); flag.Changed {
			value := flag.Value.String()
			if name == "server" {
				value = redact.URL(value)
			}
			words = append(words, "--"+name+" "+operate.Quote(value))
		}
	}
	return strings.Join(words, " ")
}

func (f *doctorFlags) show(report doctor.Report) error {
	if asJSON(f.format) {
		return f.writeLine(report)
	}
	var text strings.Builder
	for _, finding := range report.Findings {
		fmt.Fprintf(&text, "%s: %s: %s [%s]\n  %s\n", finding.Severity, terminal.Printable(finding.Of),
			terminal.Printable(finding.Problem), finding.ID, terminal.Printable(finding.Cure))
	}
	if len(report.Findings) == 0 {
		text.WriteString("Healthy.\n")
	}
	for _, skipped := range report.Skipped {
		f.notef("Not looked at: %s.\n", terminal.Printable(skipped))
	}
	return f.say("%s", text.String())
}
