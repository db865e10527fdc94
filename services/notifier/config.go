package notifier

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// name is the service's, in logs, errors, subjects and environment variables.
const name = "notifier"

// Config says how the notifier runs. The tags name the environment variables that [FromEnvironment] reads.
type Config struct {
	// Ways are the channels that are set up by what is said of them. Defaults to none.
	Ways

	// AckWait is how soon the work of a killed process is taken up by another. Defaults to 5 seconds.
	AckWait time.Duration `env:"NOTIFIER_ACK_WAIT"`

	// Channels are those that there are beside the inbox. Defaults to none.
	Channels []Channel `env:"-"`

	// Concurrency is how many events are planned, and how many rows of each channel are sent, at a time.
	// Defaults to 32.
	Concurrency int `env:"NOTIFIER_CONCURRENCY"`

	// CreateAssets makes the streams, buckets and consumers when they are missing: for embedded servers and development.
	// Elsewhere an administrator does, and the service only checks. Defaults to false.
	CreateAssets bool `env:"NOTIFIER_CREATE_ASSETS"`

	// DisableAfter is for how long a webhook or a Web Push subscription has to have failed, without a success, to be called no
	// more. Defaults to 5 days.
	DisableAfter time.Duration `env:"NOTIFIER_DISABLE_AFTER"`

	// Exports take metrics, which /metrics shows, and traces. Who brings them stops them. Defaults to what the
	// environment says for [Run], see the package export, and to none for [Start].
	Exports *export.Exports `env:"-"`

	// InboxKeep is how long items stay in inboxes, in whole seconds. Defaults to 90 days.
	InboxKeep time.Duration `env:"NOTIFIER_INBOX_KEEP"`

	// Listen is the address of the HTTP API, such as ":8006" or "127.0.0.1:0". Defaults to ":8006"; "-" is none.
	Listen string `env:"NOTIFIER_LISTEN"`

	// Logger gets the log. Defaults to slog.Default().
	Logger *slog.Logger `env:"-"`

	// MaxBytes is what all that CreateAssets makes may reserve together. Defaults to the declared sizes.
	MaxBytes int64 `env:"NOTIFIER_MAX_BYTES"`

	// MaxRecipients is how many recipients one event may have. Defaults to 1,000,000.
	MaxRecipients int `env:"NOTIFIER_MAX_RECIPIENTS"`

	// NATSURL is where the server is. Not used when the program that embeds the service brings a connection.
	// Defaults to nats://127.0.0.1:4222.
	NATSURL string `env:"NATS_URL"`

	// NATSCreds is a file with credentials. Defaults to none.
	NATSCreds string `env:"NATS_CREDS"`

	// NATSNkey is a file with an nkey seed. Defaults to none.
	NATSNkey string `env:"NATS_NKEY"`

	// NATSCA is a file with the certificates of the authorities that the server's is checked against.
	// Defaults to those of the system.
	NATSCA string `env:"NATS_CA"`

	// Origins are the hosts, with wildcards as path.Match has them, whose pages may open a WebSocket, beside the
	// service's own. Defaults to none.
	Origins []string `env:"NOTIFIER_ORIGINS"`

	// Replicas is how many servers keep what CreateAssets makes. Defaults to 1.
	Replicas int `env:"NOTIFIER_REPLICAS"`

	// Resolver finds recipients, instead of ResolverURL and the directory. Defaults to none.
	Resolver recipient.Resolver `env:"-"`

	// ResolverToken is sent to ResolverURL as a bearer token. Defaults to none.
	ResolverToken string `env:"NOTIFIER_RESOLVER_TOKEN"`

	// ResolverURL is where recipients are asked for, see recipient.HTTP. Defaults to none: the directory is asked.
	ResolverURL string `env:"NOTIFIER_RESOLVER_URL"`

	// Rules is the file that says who is told about what, see the package rules. Required.
	Rules string `env:"NOTIFIER_RULES"`

	// RulesEvery is how often the files of rules and templates are looked at. What they hold comes into force when it has
	// changed and has no mistakes. Defaults to 2 seconds.
	RulesEvery time.Duration `env:"NOTIFIER_RULES_EVERY"`

	// Storage is where CreateAssets keeps its streams. Defaults to files.
	Storage jetstream.StorageType `env:"-"`

	// Version is what /version and `nats micro info` tell: a semantic version. Defaults to "0.0.0-dev".
	Version string `env:"-"`

	// hooks are called beside those of the telemetry, but for Ready, in tests.
	hooks worker.Hooks

	// pageBytes is how large the pages of plans become, in tests. Defaults to what the planner says.
	pageBytes int

	// passed is called at each point, in tests.
	passed func(point string)
}

// Channel is a way to tell users, and how it is used.
type Channel struct {
	channel.Channel

	// AtMostOnce gives a message up when it is not known whether the far side has taken it. Defaults to false: it is
	// sent again, under the same message id.
	AtMostOnce bool

	// Endpoints says that addresses are endpoints of users' own: one that does not answer is left alone for a while, and for
	// good after Config.DisableAfter. Defaults to false.
	Endpoints bool

	// Retries are the waits after the first, second, ... failure of a message, ±20 %. It has one try more than there are
	// waits, and a try whose process died is one, but no failure. Defaults to 5 s, 1 min, 5 min, 30 min, 2 h.
	Retries []time.Duration

	// Silent says that the channel disturbs nobody: quiet hours do not concern it. Defaults to false.
	Silent bool

	// Timeout bounds one call of the channel. Defaults to 15 seconds.
	Timeout time.Duration
}

// FromEnvironment reads the configuration from environment variables. Every value that cannot be read, and every
// variable that begins like one of ours and is not, is reported at once.
//
// [Run] and [Start] check what the values mean.
func FromEnvironment() (Config, error) { return fromEnvironment(service.Environment()) }

func fromEnvironment(environment map[string]string) (cfg Config, err error) {
	err = service.Read(name, environment, &cfg)
	return cfg, err
}

func (cfg Config) withDefaults() Config {
	cfg.AckWait = cmp.Or(cfg.AckWait, 5*time.Second)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 32)
	cfg.DisableAfter = cmp.Or(cfg.DisableAfter, 5*24*time.Hour)
	cfg.NATSURL = cmp.Or(cfg.NATSURL, service.DefaultURL)
	cfg.Listen = cmp.Or(cfg.Listen, ":8006")
	cfg.Replicas = cmp.Or(cfg.Replicas, 1)
	cfg.RulesEvery = cmp.Or(cfg.RulesEvery, 2*time.Second)
	cfg.Version = cmp.Or(cfg.Version, "0.0.0-dev")
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// minRulesEvery keeps the files from being read all the time.
const minRulesEvery = 100 * time.Millisecond

// minAckWait is what the server needs to tell a worker that died from one that is slow.
const minAckWait = 100 * time.Millisecond

// validate reports everything that is wrong at once, the mistakes of rules and templates included, and returns these.
func (cfg Config) validate() (*book, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("notifier: "+format, args...)) }
	if cfg.AckWait < minAckWait {
		bad("AckWait (NOTIFIER_ACK_WAIT) is %s: want at least %s", cfg.AckWait, minAckWait)
	}
	if cfg.Concurrency < 1 {
		bad("Concurrency (NOTIFIER_CONCURRENCY) is %d: want a positive number", cfg.Concurrency)
	}
	if cfg.DisableAfter < 0 {
		bad("DisableAfter (NOTIFIER_DISABLE_AFTER) is %s: want a positive duration", cfg.DisableAfter)
	}
	if cfg.InboxKeep < 0 || cfg.InboxKeep%time.Second != 0 {
		bad("InboxKeep (NOTIFIER_INBOX_KEEP) is %s: want whole seconds", cfg.InboxKeep)
	}
	if cfg.MaxBytes < 0 {
		bad("MaxBytes (NOTIFIER_MAX_BYTES) is %d: want a positive number", cfg.MaxBytes)
	}
	if cfg.MaxRecipients < 0 {
		bad("MaxRecipients (NOTIFIER_MAX_RECIPIENTS) is %d: want a positive number", cfg.MaxRecipients)
	}
	if cfg.Replicas < 1 || cfg.Replicas > 5 {
		bad("Replicas (NOTIFIER_REPLICAS) is %d: want 1 to 5", cfg.Replicas)
	}
	for _, origin := range cfg.Origins {
		if _, err := path.Match(origin, ""); err != nil || origin == "" || strings.Contains(origin, "/") {
			bad("Origins (NOTIFIER_ORIGINS) has %q: want hosts such as app.example.com or *.example.com", origin)
		}
	}
	if cfg.ResolverURL != "" && cfg.Resolver == nil {
		if _, err := recipient.NewHTTP(recipient.HTTPConfig{URL: cfg.ResolverURL}); err != nil {
			bad("ResolverURL (NOTIFIER_RESOLVER_URL): %w", err)
		}
	}
	if cfg.RulesEvery < minRulesEvery {
		bad("RulesEvery (NOTIFIER_RULES_EVERY) is %s: want at least %s", cfg.RulesEvery, minRulesEvery)
	}
	names := append([]string{inapp.Name}, cfg.names()...)
	for _, c := range cfg.Channels {
		if slices.Contains(names, c.Name()) {
			bad("two channels are named %q: names must differ", c.Name())
		}
		names = append(names, c.Name())
	}
	b, err := openBook(cfg, names)
	return b, errors.Join(append(errs, err)...)
}
