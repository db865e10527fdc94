package enricher

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
)

// envPrefix starts the names of all variables but those that are kept from before, or shared by everything on NATS.
const envPrefix = "ENRICHER_"

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
func FromEnvironment() (Config, error) { return fromEnvironment(env.ToMap(os.Environ())) }

func fromEnvironment(environment map[string]string) (Config, error) {
	var cfg Config
	options := env.Options{Environment: environment}
	err := env.ParseWithOptions(&cfg, options)
	params, paramsErr := env.GetFieldParamsWithOptions(&cfg, options)
	if err != nil || paramsErr != nil {
		return cfg, errors.Join(err, paramsErr)
	}
	known := map[string]bool{}
	for _, p := range params {
		known[p.Key] = true
	}
	var unknown []error
	for name := range environment {
		if strings.HasPrefix(name, envPrefix) && !known[name] {
			unknown = append(unknown, fmt.Errorf("enricher: unknown environment variable %s: is it misspelt?", name))
		}
	}
	slices.SortFunc(unknown, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return cfg, errors.Join(unknown...)
}

func (cfg Config) withDefaults() Config {
	cfg.AckWait = cmp.Or(cfg.AckWait, 5*time.Second)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 32)
	cfg.Listen = cmp.Or(cfg.Listen, ":8080")
	cfg.NATSURL = cmp.Or(cfg.NATSURL, "nats://127.0.0.1:4222")
	cfg.Replicas = cmp.Or(cfg.Replicas, 1)
	cfg.Version = cmp.Or(cfg.Version, "0.0.0-dev")
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// providers makes what Catalog and WoltURL name, unless the program brought its own.
func (cfg Config) providers() ([]provider.Provider, error) {
	switch {
	case len(cfg.Providers) > 0:
		return cfg.Providers, nil
	case cfg.WoltURL != "" && cfg.Catalog != "":
		return nil, errors.New("enricher: ENRICHER_CATALOG and ENRICHER_WOLT_URL are both set: one of them answers for wolt")
	case cfg.WoltURL != "":
		p, err := wolt.New(wolt.Config{BaseURL: cfg.WoltURL, Logger: cfg.Logger})
		if err != nil {
			return nil, err //nolint:wrapcheck // names the provider
		}
		return []provider.Provider{p}, nil
	case cfg.Catalog != "":
		p, err := catalog.Open(cfg.Catalog, catalog.Config{Name: contracts.ProviderWolt})
		if err != nil {
			return nil, err //nolint:wrapcheck // names the provider
		}
		return []provider.Provider{p}, nil
	default:
		return nil, errors.New("enricher: no provider: set ENRICHER_CATALOG to a file of venues, or ENRICHER_WOLT_URL")
	}
}
