package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/subject"
)

type natsFlags struct {
	*globals

	service.NATSConfig

	account string // "" for the user's own account
	named   string // the stream or bucket that the command is about, for the error when it does not exist
	timeout time.Duration
}

func (f *natsFlags) register(flags *pflag.FlagSet) {
	f.registerServer(flags)
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "longest time to wait for one answer of the server")
}

// registerServer adds the flags for the address of the server, for a command whose --timeout has a wider meaning.
func (f *natsFlags) registerServer(flags *pflag.FlagSet) {
	flags.StringVar(&f.NATSCA, "ca", "", "file with the authorities of the server's certificate (default $NATS_CA, or the system's)")
	flags.StringVar(&f.NATSCert, "cert", "", "client certificate file (default $NATS_CERT)")
	flags.StringVar(&f.NATSCreds, "creds", "", "credentials file (default $NATS_CREDS)")
	flags.StringVar(&f.NATSKey, "key", "", "file with the key of --cert (default $NATS_KEY)")
	flags.StringVar(&f.NATSNkey, "nkey", "", "nkey seed file (default $NATS_NKEY)")
	flags.StringVar(&f.NATSURL, "server", "", "NATS server (default $NATS_URL, or "+nats.DefaultURL+")")
}

// registerAccount adds the flag for the account whose streams and buckets a command uses.
func (f *natsFlags) registerAccount(flags *pflag.FlagSet) {
	flags.StringVar(&f.account, "account", f.config.Getenv("NATS_ACCOUNT"),
		"account of the streams, such as ENRICHER, under whose API prefix they are reached (default $NATS_ACCOUNT, or the user's own)")
}

// maxAsset is the longest name, in bytes, of a stream or bucket.
const maxAsset = 250

func (f *natsFlags) checkAccount() error {
	return refuse(f.account != "" && !subject.IsSafeToken(f.account), "--account %q: use A-Z, a-z, 0-9, _ and -", f.account)
}

// connect connects to the server, as a client of the given name. The caller calls stop.
func (f *natsFlags) connect(ctx context.Context, name string, more ...nats.Option) (js jetstream.JetStream, stop func(), err error) {
	if err := f.usage(f.checkAccount()); err != nil {
		return nil, nil, err
	}
	server, opts, err := f.options(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect(server, append(opts, more...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: NATS at %s: %w (set --server or NATS_URL)", errUnavailable, redact.URL(server), redact.Error(err))
	}
	if f.account == "" {
		js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(f.timeout))
	} else {
		js, err = jetstream.NewWithAPIPrefix(nc, "$JS."+f.account+".API", jetstream.WithDefaultTimeout(f.timeout))
	}
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return js, nc.Close, nil
}

// with connects to the server for fn, as a client of the given name. The context of fn ends at the first request that the server denies,
// because the server answers none. An error that has an exit code is not replaced by the denial.
func (f *natsFlags) with(ctx context.Context, name string, fn func(context.Context, jetstream.JetStream) error, more ...nats.Option) error {
	bad := f.named != "" && !subject.IsName(f.named, maxAsset)
	if err := refuse(bad, "%q is no name of a stream or bucket: use A-Z, a-z, 0-9, _ and -", f.named); err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := denied.New(func(err *denied.Error) { cancel(err) })
	ctx, stop := watch.Begin(ctx)
	defer stop()
	js, disconnect, err := f.connect(ctx, name, append(more, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if !watch.Handle(err) && errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	}))...)
	if err != nil {
		return err
	}
	defer disconnect()
	watch.Conn = js.Conn()
	if js, err = denied.JetStream(ctx, js); err == nil {
		err = fn(ctx, js)
	}
	if f.named != "" && isStreamMissing(err) {
		streams, _ := streamNames(ctx, js, nil) // without suggestions when they cannot be listed
		buckets, _ := bucketNames(ctx, js, nil)
		err = fmt.Errorf("%w%s", err, didYouMean(f.named, append(streams, buckets...)...))
	}
	denied.Failed(ctx, err)
	cause := context.Cause(ctx)
	_, unheard := errors.AsType[*denied.Error](cause)
	if _, own := errors.AsType[*codeError](err); err != nil && !own && (unheard || errors.Is(cause, nats.ErrPermissionViolation)) {
		return fmt.Errorf("%w: %w", errDenied, cause)
	}
	return err
}

// variables returns the settings of a client by their environment variables.
func variables(cfg *service.NATSConfig) map[string]*string {
	return map[string]*string{
		"NATS_CA": &cfg.NATSCA, "NATS_CERT": &cfg.NATSCert, "NATS_CREDS": &cfg.NATSCreds, "NATS_KEY": &cfg.NATSKey,
		"NATS_NKEY": &cfg.NATSNkey, "NATS_URL": &cfg.NATSURL,
	}
}

// options returns the address of the server, and the options of a client with the given name.
func (f *natsFlags) options(ctx context.Context, name string) (server string, opts []nats.Option, err error) {
	cfg := f.NATSConfig
	for variable, value := range variables(&cfg) {
		*value = cmp.Or(*value, f.config.Getenv(variable))
	}
	if opts, err = cfg.Options(); err != nil {
		return "", nil, err
	}
	// A request that is not permitted looks like a request that is not answered.
	opts = append(opts, nats.Name(name), nats.Timeout(f.timeout), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			f.logger.ErrorContext(ctx, "denied", "error", err)
		}
	}))
	return cmp.Or(cfg.NATSURL, nats.DefaultURL), opts, nil
}

// Config is the environment of the command line program. The zero value is the program as a person runs it.
type Config struct {
	// Environ returns all variables of the environment, for doctor. Defaults to os.Environ.
	Environ func() []string

	// Getenv reads the environment. Defaults to os.Getenv.
	Getenv func(string) string

	// Stderr takes log lines and error messages. Defaults to os.Stderr.
	Stderr io.Writer

	Stdin io.Reader // read for the file "-"; defaults to os.Stdin

	// Stdout takes results. Defaults to os.Stdout.
	Stdout io.Writer
}

func (c Config) withDefaults() Config {
	if c.Environ == nil {
		c.Environ = os.Environ
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	c.Stderr, c.Stdout = cmp.Or[io.Writer](c.Stderr, os.Stderr), cmp.Or[io.Writer](c.Stdout, os.Stdout)
	c.Stdin = cmp.Or[io.Reader](c.Stdin, os.Stdin)
	return c
}
