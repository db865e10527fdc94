package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/internal/subject"
)

type consoleFlags struct {
	natsFlags

	accounts []string
	oidc     access.OIDCConfig
	tlsCert  string
	tlsKey   string
	address  string
	hosts    []string
	keys     string
	prefix   string
	readOnly bool
}

func newConsole(g *globals) *cobra.Command {
	f := &consoleFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use: "console",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.defaults()
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), given(cmd.Flags()))
		},
	}
	flags := cmd.Flags()
	f.register(flags)
	flags.StringSliceVar(&f.accounts, "accounts", nil,
		"accounts of further streams, such as ENRICHER, separated by commas, under whose API prefixes they are reached")
	flags.StringVar(&f.address, "address", "127.0.0.1:8010", "address to listen on")
	flags.StringSliceVar(&f.hosts, "hosts", nil, "further host names of the pages, separated by commas, such as console.example.com")
	flags.StringVar(&f.keys, "keys", "", "file with the keys of its users, see expediter keys (default $CONSOLE_KEYS)")
	flags.StringVar(&f.oidc.Issuer, "oidc-issuer", "", "issuer of OpenID Connect whose tokens are taken (default $CONSOLE_OIDC_ISSUER)")
	flags.StringVar(&f.oidc.Audience, "oidc-audience", "", "audience of the tokens (default $CONSOLE_OIDC_AUDIENCE)")
	flags.StringVar(&f.oidc.ScopeClaim, "oidc-scope-claim", "", "claim with the scopes (default $CONSOLE_OIDC_SCOPE_CLAIM, or scope)")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "certificate of the pages, as PEM (default $CONSOLE_TLS_CERT, or none: HTTP without TLS)")
	flags.StringVar(&f.tlsKey, "tls-key", "", "its key (default $CONSOLE_TLS_KEY)")
	flags.StringVar(&f.prefix, "prefix", "", "path under which the pages are, such as /console (default none)")
	flags.BoolVar(&f.readOnly, "read-only", false, "take all actions away")
	return cmd
}

// defaults sets fields without a flag from the variables of the services in the environment.
func (f *consoleFlags) defaults() {
	for name, value := range map[string]*string{
		"KEYS": &f.keys, "OIDC_AUDIENCE": &f.oidc.Audience, "OIDC_ISSUER": &f.oidc.Issuer, "OIDC_SCOPE_CLAIM": &f.oidc.ScopeClaim,
		"TLS_CERT": &f.tlsCert, "TLS_KEY": &f.tlsKey,
	} {
		*value = cmp.Or(*value, f.config.Getenv("CONSOLE_"+name))
	}
}

func (f *consoleFlags) check() error {
	errs := make([]error, 0, len(f.accounts)+2)
	for _, account := range f.accounts {
		errs = append(errs, refuse(!subject.IsSafeToken(account), "--accounts %q: use A-Z, a-z, 0-9, _ and -", account))
	}
	host, _, err := net.SplitHostPort(f.address)
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	errs = append(errs, refuse(err != nil, "--address %q: want an address such as 127.0.0.1:8010", f.address),
		refuse(err == nil && !local && f.keys+f.oidc.Issuer == "",
			"--address %s: without --keys and --oidc-issuer everybody there could do everything; give one, or 127.0.0.1", f.address),
		refuse(f.oidc.Issuer != "" && !access.IsIssuer(f.oidc.Issuer), "--oidc-issuer %q: want its https address, as the claim iss has it",
			f.oidc.Issuer),
		refuse((f.oidc.Issuer == "") != (f.oidc.Audience == ""), "--oidc-issuer goes with --oidc-audience"),
		refuse((f.tlsCert == "") != (f.tlsKey == ""), "--tls-cert goes with --tls-key"))
	return usage(errs...)
}

func (f *consoleFlags) run(ctx context.Context, flags string) error {
	js, stop, err := f.connect(ctx, "expediter console", nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer stop()
	cfg := console.Config{Conn: js.Conn(), Hosts: f.hosts, Logger: f.logger, Prefix: f.prefix, ReadOnly: f.readOnly, Version: version()}
	asUser := ""
	if len(f.accounts) > 0 {
		asUser = "console" // admin may do the same
	}
	cfg.Doctor = examiner(doctor.Config{
		As: asUser, Connect: f.dialer(ctx, "expediter console"), Environment: f.environment(), Flags: flags, Server: f.serverURL(),
	})
	for _, account := range f.accounts {
		other, err := jetstream.NewWithAPIPrefix(js.Conn(), "$JS."+account+".API", jetstream.WithDefaultTimeout(f.timeout))
		if err != nil {
			return fmt.Errorf("use JetStream of %s: %w", account, err)
		}
		cfg.Accounts = append(cfg.Accounts, console.Account{JetStream: other, Name: account})
	}
	cfg.Accounts = append(cfg.Accounts, console.Account{JetStream: js}) // the account with the audit, and the locks of operators
	return f.serve(ctx, js, cfg)
}

// admit lets in callers with a key or a token. background has the functions that keep keys and tokens up to date.
func (f *consoleFlags) admit(cfg *console.Config) (background []func(context.Context) error, err error) {
	var keys *access.Keys
	if f.keys != "" {
		if keys, err = access.Open("console", f.keys, f.logger); err != nil {
			return nil, &UsageError{Err: err}
		}
		background = append(background, keys.Run)
	}
	var tokens *access.OIDC
	if f.oidc.Issuer != "" {
		f.oidc.Logger, f.oidc.Name = f.logger, "console"
		if tokens, err = access.NewOIDC(f.oidc); err != nil {
			return nil, &UsageError{Err: err}
		}
		background = append(background, tokens.Run)
	}
	if len(background) > 0 {
		cfg.Access = access.NewGuard(keys, tokens)
	}
	return background, nil
}

func withProbes(pages http.Handler, cfg console.Config, exports *export.Exports) http.Handler {
	probes := service.NewRouter(service.RouterConfig{
		Access: cfg.Access, Exports: exports, Hosts: cfg.Hosts, Logger: cfg.Logger, Name: "console", Version: cfg.Version,
		Ready: func() map[string]error {
			if cfg.Conn.IsConnected() {
				return map[string]error{"nats": nil}
			}
			return map[string]error{"nats": fmt.Errorf("connection is %s", cfg.Conn.Status())}
		},
	})
	all := http.NewServeMux()
	all.Handle("/", pages)
	all.Handle("GET /livez", probes)
	all.Handle("GET /readyz", probes)
	all.Handle("GET /metrics", probes)
	return all
}

// serve serves a console until ctx ends. The first line that it writes is the URL.
func (f *consoleFlags) serve(ctx context.Context, js jetstream.JetStream, cfg console.Config) error {
	background, err := f.admit(&cfg)
	if err != nil {
		return err
	}
	cfg.Audit = audit.New(audit.Config{JetStream: js, Logger: f.logger, Source: "console"})
	exports, err := export.Start(ctx, export.Config{Service: "console", Version: cfg.Version})
	if err != nil {
		return &UsageError{Err: err}
	}
	cfg.Meters = exports.Meters
	c, err := console.New(cfg)
	if err != nil {
		return &UsageError{Err: err}
	}
	server, err := service.Listen(ctx, "console", f.address)
	if err == nil {
		err = server.UseTLS(f.tlsCert, f.tlsKey, f.logger)
	}
	if err != nil {
		return err
	}
	group := service.NewGroup(ctx)
	server.Serve(group, service.ServerConfig{Handler: withProbes(c, cfg, exports), Logger: f.logger, Name: "console"})
	for _, run := range append(background, c.Run) {
		group.Go(run)
	}
	f.notef("Console: %s\n", server.URL()+strings.TrimSuffix(f.prefix, "/")+"/")
	<-ctx.Done()
	return errors.Join(server.Stop(), group.Stop(), service.StopExports(context.WithoutCancel(ctx), exports))
}
