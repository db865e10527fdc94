package enricher

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
)

// name is the service's, in logs, errors, subjects and environment variables.
const name = "enricher"

// Config says how the enricher runs. The tags name the environment variables that [FromEnvironment] reads.
type Config struct {
	// AckWait is how soon the job of a killed worker runs again. Defaults to 5 seconds.
	AckWait time.Duration `env:"ENRICHER_ACK_WAIT"`

	// Catalog is a file of venues for the provider "wolt", for when there is no WoltURL: CSV, JSON or JSON Lines.
	// Defaults to none.
	Catalog string `env:"ENRICHER_CATALOG"`

	// ClaimTTL is how long a place counts as being looked up when nobody renews the claim. Defaults to 60 seconds.
	ClaimTTL time.Duration `env:"ENRICHER_CLAIM_TTL"`

	// Concurrency is how many places are looked up at a time. Defaults to 32.
	Concurrency int `env:"ENRICHER_CONCURRENCY"`

	// CreateAssets makes the streams and buckets when they are missing: for embedded servers and development. Elsewhere
	// an administrator does, and the service only checks. Defaults to false.
	CreateAssets bool `env:"ENRICHER_CREATE_ASSETS"`

	// NoDeprecatedField ends the migration: `wolt` is no longer written beside `providers.wolt`. Defaults to false.
	NoDeprecatedField bool `env:"ENRICHER_NO_DEPRECATED_FIELD"`

	// Enabled looks places up; when it is off requests are answered as they came. Defaults to false.
	Enabled bool `env:"ENABLE_WOLT_ENRICHMENT"`

	// Exports take metrics, which /metrics shows, and traces. Who brings them stops them. Defaults to what the
	// environment says for [Run], see the package export, and to none for [Start].
	Exports *export.Exports `env:"-"`

	// FoundTTL is how long an answer FOUND is kept. Defaults to 7 days.
	FoundTTL time.Duration `env:"ENRICHER_FOUND_TTL"`

	// Listen is the address of the HTTP API, such as ":8080" or "127.0.0.1:0". Defaults to ":8080"; "-" is none.
	Listen string `env:"ENRICHER_LISTEN"`

	// Logger gets the log. Defaults to slog.Default().
	Logger *slog.Logger `env:"-"`

	// MaxBytes is what all that CreateAssets makes may reserve together. Defaults to the declared sizes.
	MaxBytes int64 `env:"ENRICHER_MAX_BYTES"`

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

	// NotFoundTTL is how long an answer NOT_FOUND is kept. Defaults to 24 hours.
	NotFoundTTL time.Duration `env:"ENRICHER_NOT_FOUND_TTL"`

	// Origins are the hosts whose pages may open a WebSocket, beside the service's own. Defaults to none.
	Origins []string `env:"ENRICHER_ORIGINS"`

	// Providers are asked instead of those that Catalog and WoltURL name. Defaults to none.
	Providers []provider.Provider `env:"-"`

	// Replicas is how many servers keep what CreateAssets makes. Defaults to 1.
	Replicas int `env:"ENRICHER_REPLICAS"`

	// RequestTTL is how long after a request its events can be subscribed to. Defaults to 1 hour.
	RequestTTL time.Duration `env:"ENRICHER_REQUEST_TTL"`

	// Storage is where CreateAssets keeps its streams. Defaults to files.
	Storage jetstream.StorageType `env:"-"`

	// Version is what /version and `nats micro info` tell: a semantic version. Defaults to "0.0.0-dev".
	Version string `env:"-"`

	// WoltURL is the base URL of Wolt's search. Wolt's terms forbid systematic automated retrieval: set only what you
	// may use. Defaults to none.
	WoltURL string `env:"ENRICHER_WOLT_URL"`
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
	cfg.Listen = cmp.Or(cfg.Listen, ":8080")
	cfg.NATSURL = cmp.Or(cfg.NATSURL, service.DefaultURL)
	cfg.Replicas = cmp.Or(cfg.Replicas, 1)
	cfg.Version = cmp.Or(cfg.Version, "0.0.0-dev")
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// minAckWait is what the server needs to tell a worker that died from one that is slow.
const minAckWait = 100 * time.Millisecond

// validate reports everything that is wrong at once. What the parts check themselves is left to them.
func (cfg Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("enricher: "+format, args...)) }
	if cfg.AckWait < minAckWait {
		bad("AckWait (ENRICHER_ACK_WAIT) is %s: want at least %s", cfg.AckWait, minAckWait)
	}
	if cfg.Concurrency < 1 {
		bad("Concurrency (ENRICHER_CONCURRENCY) is %d: want a positive number", cfg.Concurrency)
	}
	if cfg.MaxBytes < 0 {
		bad("MaxBytes (ENRICHER_MAX_BYTES) is %d: want a positive number", cfg.MaxBytes)
	}
	if cfg.Replicas < 1 || cfg.Replicas > 5 {
		bad("Replicas (ENRICHER_REPLICAS) is %d: want 1 to 5", cfg.Replicas)
	}
	for _, origin := range cfg.Origins {
		if _, err := path.Match(origin, ""); err != nil || origin == "" || strings.Contains(origin, "/") {
			bad("Origins (ENRICHER_ORIGINS) has %q: want hosts such as app.example.com or *.example.com", origin)
		}
	}
	switch {
	case len(cfg.Providers) > 0:
	case cfg.WoltURL != "" && cfg.Catalog != "":
		bad("ENRICHER_CATALOG and ENRICHER_WOLT_URL are both set: one of them answers for wolt")
	case cfg.WoltURL == "" && cfg.Catalog == "":
		bad("no provider: set ENRICHER_CATALOG to a file of venues, or ENRICHER_WOLT_URL")
	}
	return errors.Join(append(errs, cfg.answering(cfg.Providers).Validate())...)
}

// answering is the part of the configuration that is about answering and looking up.
func (cfg Config) answering(providers []provider.Provider) enrich.Config {
	return enrich.Config{
		ClaimTTL: cfg.ClaimTTL, Deprecated: !cfg.NoDeprecatedField, Enabled: cfg.Enabled, FoundTTL: cfg.FoundTTL,
		Logger: cfg.Logger, NotFoundTTL: cfg.NotFoundTTL, Providers: providers,
		RequestTTL: cfg.RequestTTL,
	}
}

// providers makes what Catalog and WoltURL name, unless the program brought its own.
func (cfg Config) providers() ([]provider.Provider, error) {
	switch {
	case len(cfg.Providers) > 0:
		return cfg.Providers, nil
	case cfg.WoltURL != "":
		p, err := wolt.New(wolt.Config{BaseURL: cfg.WoltURL, Logger: cfg.Logger})
		if err != nil {
			return nil, fmt.Errorf("enricher: ENRICHER_WOLT_URL: %w", err)
		}
		return []provider.Provider{p}, nil
	default:
		p, err := catalog.Open(cfg.Catalog, catalog.Config{Name: contracts.ProviderWolt})
		if err != nil {
			return nil, fmt.Errorf("enricher: ENRICHER_CATALOG: %w", err)
		}
		return []provider.Provider{p}, nil
	}
}
