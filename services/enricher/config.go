package enricher

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

// name is the service's name in logs, errors, subjects and environment variables.
const name = "enricher"

// Config is the configuration of the enricher. The tags name the environment variables that [FromEnvironment] reads.
type Config struct {
	// BaseConfig is the part that all services share. Listen defaults to ":8080", Concurrency to 32 places at a time.
	service.BaseConfig

	// AllowHTTP permits plain http to ProviderURL on another machine, such as in the same cluster. Defaults to false.
	AllowHTTP bool `env:"ENRICHER_ALLOW_HTTP"`

	// Catalog is a file of venues that answers instead of ProviderURL: CSV, JSON or JSON Lines. Defaults to none.
	Catalog string `env:"ENRICHER_CATALOG"`

	// ClaimTTL is the time after which a claim that is not renewed expires. Defaults to 60 seconds.
	ClaimTTL time.Duration `env:"ENRICHER_CLAIM_TTL"`

	// MemoryBytes bounds the results that this process keeps in memory, and so answers with without asking the store.
	// Defaults to 32 MiB; -1 keeps none.
	MemoryBytes int64 `env:"ENRICHER_MEMORY_BYTES"`

	// NoDeprecatedField ends the migration: `wolt` is no longer written beside `providers.wolt`. Defaults to false.
	NoDeprecatedField bool `env:"ENRICHER_NO_DEPRECATED_FIELD"`

	// Enabled looks places up. Without it, results are returned unchanged. Defaults to false.
	Enabled bool `env:"ENABLE_WOLT_ENRICHMENT"`

	// FoundTTL is the time for which an answer FOUND is kept. Defaults to 7 days.
	FoundTTL time.Duration `env:"ENRICHER_FOUND_TTL"`

	// NotFoundTTL is the time for which an answer NOT_FOUND is kept. Defaults to 24 hours.
	NotFoundTTL time.Duration `env:"ENRICHER_NOT_FOUND_TTL"`

	// ProviderKey is sent to ProviderURL as a bearer token. Defaults to none.
	ProviderKey string `env:"ENRICHER_PROVIDER_KEY" json:"-"`

	// ProviderName is the name of Catalog or ProviderURL in answers: `providers.<name>`. Defaults to "wolt".
	ProviderName string `env:"ENRICHER_PROVIDER_NAME"`

	// ProviderRate is the number of calls a second that all instances together may make to ProviderURL, 0.1 to 10,000.
	// Defaults to 10.
	ProviderRate float64 `env:"ENRICHER_PROVIDER_RATE"`

	// ProviderTimeout bounds one call to ProviderURL. Defaults to 8 seconds, at most 10.
	ProviderTimeout time.Duration `env:"ENRICHER_PROVIDER_TIMEOUT"`

	// ProviderURL is the address of an HTTP service that finds venues, see docs/provider.md. Defaults to none.
	ProviderURL string `env:"ENRICHER_PROVIDER_URL"`

	// Providers replace the one that Catalog or ProviderURL names. Defaults to none.
	Providers []provider.Provider `env:"-"`

	// RequestTTL is the time for which the events of a request can be subscribed to. Defaults to 1 hour.
	RequestTTL time.Duration `env:"ENRICHER_REQUEST_TTL"`
}

// FromEnvironment reads the configuration from environment variables, and sets its Logger. It reports at once every value
// that cannot be read, and every unknown variable that begins with ENRICHER_. [Run] and [Start] validate the values.
func FromEnvironment() (cfg Config, err error) {
	err = service.FromEnvironment(name, &cfg)
	return cfg, err
}

// Check reads the configuration from an environment as [FromEnvironment] does, and reports every mistake that [Run] finds without
// a server.
func Check(environment map[string]string) (service.BaseConfig, error) {
	var cfg Config
	err := service.Read(name, environment, io.Discard, &cfg)
	_, mistakes := prepare(cfg)
	return cfg.withDefaults().BaseConfig, errors.Join(err, mistakes)
}

func (cfg Config) withDefaults() Config {
	cfg.BaseConfig = cfg.WithDefaults(":8080", 32)
	cfg.ProviderName = cmp.Or(cfg.ProviderName, contracts.ProviderWolt)
	return cfg
}

// validate reports at once every mistake that can be found without making the parts.
func (cfg Config) validate() error {
	errs := []error{cfg.Validate(name), cfg.answering(cfg.Providers).Validate()}
	bad := func(text string) { errs = append(errs, errors.New("enricher: "+text)) }
	if _, err := contracts.EnrichEntryKey(cfg.ProviderName, "any"); err != nil {
		bad("ENRICHER_PROVIDER_NAME must be made of letters, digits, '_' and '-'")
	}
	if cfg.ProviderKey != "" && cfg.ProviderURL == "" {
		bad("ENRICHER_PROVIDER_KEY is set without ENRICHER_PROVIDER_URL")
	}
	switch {
	case len(cfg.Providers) > 0:
	case cfg.ProviderURL != "" && cfg.Catalog != "":
		bad("ENRICHER_CATALOG and ENRICHER_PROVIDER_URL are both set: set one")
	case cfg.ProviderURL == "" && cfg.Catalog == "":
		bad("no provider: set ENRICHER_CATALOG to a file of venues, or ENRICHER_PROVIDER_URL")
	}
	return errors.Join(errs...)
}

// answering returns the configuration of the answers and look-ups.
func (cfg Config) answering(providers []provider.Provider) enrich.Config {
	return enrich.Config{
		ClaimTTL: cfg.ClaimTTL, Deprecated: !cfg.NoDeprecatedField, Enabled: cfg.Enabled, FoundTTL: cfg.FoundTTL,
		Logger: cfg.Logger, MemoryBytes: cfg.MemoryBytes, NotFoundTTL: cfg.NotFoundTTL,
		Providers: providers, RequestTTL: cfg.RequestTTL,
	}
}

// providers returns Providers, or else the one that Catalog or ProviderURL names.
func (cfg Config) providers() ([]provider.Provider, error) {
	if len(cfg.Providers) > 0 {
		return cfg.Providers, nil
	}
	if cfg.ProviderURL != "" {
		p, err := provider.New(provider.Config{
			AllowHTTP: cfg.AllowHTTP, Key: cfg.ProviderKey, Logger: cfg.Logger, Name: cfg.ProviderName, Rate: cfg.ProviderRate,
			Timeout: cfg.ProviderTimeout, Turn: enrich.Turn(cfg.ProviderName), URL: cfg.ProviderURL,
		})
		if err != nil {
			return nil, fmt.Errorf("enricher: ENRICHER_PROVIDER_URL, _KEY, _RATE, _TIMEOUT: %w", err)
		}
		return []provider.Provider{p}, nil
	}
	p, err := catalog.Open(cfg.Catalog, cfg.ProviderName)
	if err != nil {
		return nil, fmt.Errorf("enricher: ENRICHER_CATALOG: %w", err)
	}
	return []provider.Provider{p}, nil
}
