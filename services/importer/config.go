package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/extract/openai"
	"github.com/expediter-io/expediter/services/importer/extract/orchestrator"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
	"github.com/expediter-io/expediter/services/importer/store/recipeservice"
)

// name is the service's, in logs, errors, subjects and environment variables.
const name = "importer"

// scope names what the importer's own instruments belong to.
const scope = "github.com/expediter-io/expediter/services/importer"

// Extractor is an extractor and what its results depend on.
type Extractor = imports.Extractor

// Config says how the importer runs. The tags name the environment variables that [FromEnvironment] reads.
type Config struct {
	// AckWait is how soon the job of a killed worker runs again. Defaults to 5 seconds.
	AckWait time.Duration `env:"IMPORTER_ACK_WAIT"`

	// AllowHTTP permits plain http to the Recipe Service and the orchestrator on other machines, such as in the same
	// cluster. Defaults to false.
	AllowHTTP bool `env:"IMPORTER_ALLOW_HTTP"`

	// AllowNetworks are networks that sources may be in although they are private, such as 10.0.0.0/8. Defaults to none.
	AllowNetworks []netip.Prefix `env:"IMPORTER_ALLOW_NETWORKS"`

	// Concurrency is how many jobs are worked at a time. Defaults to 8.
	Concurrency int `env:"IMPORTER_CONCURRENCY"`

	// CreateAssets makes the streams and buckets when they are missing: for embedded servers and development. Elsewhere
	// an administrator does, and the service only checks. Defaults to false.
	CreateAssets bool `env:"IMPORTER_CREATE_ASSETS"`

	// Exports take metrics, which /metrics shows, and traces. Who brings them stops them. Defaults to what the
	// environment says for [Run], see the package export, and to none for [Start].
	Exports *export.Exports `env:"-"`

	// Extractor makes the recipes, instead of what OrchestratorURL names. Defaults to none.
	Extractor Extractor `env:"-"`

	// Fetcher fetches the sources, instead of one made from this configuration. Defaults to none.
	Fetcher source.Fetcher `env:"-"`

	// Listen is the address of the HTTP API, such as ":8005" or "127.0.0.1:0". Defaults to ":8005"; "-" is none.
	Listen string `env:"IMPORTER_LISTEN"`

	// Logger gets the log. Defaults to slog.Default().
	Logger *slog.Logger `env:"-"`

	// MaxBytes is what all that CreateAssets makes may reserve together. Defaults to the declared sizes.
	MaxBytes int64 `env:"IMPORTER_MAX_BYTES"`

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

	// OpenAIKey is sent to OpenAIURL as a bearer token. Defaults to none.
	OpenAIKey string `env:"IMPORTER_OPENAI_KEY" json:"-"`

	// OpenAIModel is the name of the model. Required with OpenAIURL.
	OpenAIModel string `env:"IMPORTER_OPENAI_MODEL"`

	// OpenAIURL is the base URL of an OpenAI-compatible API, such as https://api.openai.com/v1, whose model makes the
	// recipes. Defaults to none: see OrchestratorURL.
	OpenAIURL string `env:"IMPORTER_OPENAI_URL"`

	// OpenAIVision says that the model can see, so that photos are sent to it. Defaults to false.
	OpenAIVision bool `env:"IMPORTER_OPENAI_VISION"`

	// OrchestratorURL is the base URL of the AI Orchestrator, whose POST /extract makes the recipes. Defaults to none: they
	// are made by rules, without a network.
	OrchestratorURL string `env:"IMPORTER_ORCHESTRATOR_URL"`

	// OrchestratorToken is sent to it in the header x-service-token. Defaults to none.
	OrchestratorToken string `env:"IMPORTER_ORCHESTRATOR_TOKEN" json:"-"`

	// RecipeServiceURL is the base URL of the Recipe Service, which keeps recipes and is told where jobs stand. Defaults to
	// none: recipes are kept in a bucket.
	RecipeServiceURL string `env:"IMPORTER_RECIPE_SERVICE_URL"`

	// RecipeServiceToken is sent to it in the header x-service-token. Required with RecipeServiceURL.
	RecipeServiceToken string `env:"IMPORTER_RECIPE_SERVICE_TOKEN" json:"-"`

	// Replicas is how many servers keep what CreateAssets makes. Defaults to 1.
	Replicas int `env:"IMPORTER_REPLICAS"`

	// SourceAttempts is after how many attempts a failure of the source that may pass, such as a limit of its site, is final.
	// Defaults to 5.
	SourceAttempts int `env:"IMPORTER_SOURCE_ATTEMPTS"`

	// StateTTL is how long the state of a job is kept after its last change. Defaults to 30 days.
	StateTTL time.Duration `env:"IMPORTER_STATE_TTL"`

	// Storage is where CreateAssets keeps its streams. Defaults to files.
	Storage jetstream.StorageType `env:"-"`

	// Store keeps the recipes, instead of what RecipeServiceURL names. Defaults to none.
	Store store.Store `env:"-"`

	// TempDir is the folder for temporary files. Defaults to one among those of the system.
	TempDir string `env:"IMPORTER_TEMP_DIR"`

	// TranscriptTTL is how long the transcript of a source, and what was extracted from it, is kept for other jobs, and a
	// file that was handed in for its own. Defaults to 7 days.
	TranscriptTTL time.Duration `env:"IMPORTER_TRANSCRIPT_TTL"`

	// Unique imports a source once for each owner, whatever a submission says. Defaults to false.
	Unique bool `env:"IMPORTER_UNIQUE"`

	// Version is what /version and `nats micro info` tell: a semantic version. Defaults to "0.0.0-dev".
	Version string `env:"-"`

	// YouTube fetches videos of YouTube, which needs the program yt-dlp: without it the importer does not start.
	// Defaults to false.
	YouTube bool `env:"IMPORTER_YOUTUBE"`

	// YouTubeProxy is the proxy that videos are fetched through. Defaults to none.
	YouTubeProxy string `env:"IMPORTER_YOUTUBE_PROXY" json:"-"`

	// YtDlp is the name or path of yt-dlp. Defaults to "yt-dlp".
	YtDlp string `env:"IMPORTER_YT_DLP"`

	// passed is called at each point of a job's life, in tests.
	passed func(point string) `env:"-"`
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
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 8)
	cfg.Listen = cmp.Or(cfg.Listen, ":8005")
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

// validate reports everything that is wrong at once. What the parts check themselves when they are made is left to them.
func (cfg Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("importer: "+format, args...)) }
	if cfg.AckWait < minAckWait {
		bad("AckWait (IMPORTER_ACK_WAIT) is %s: want at least %s", cfg.AckWait, minAckWait)
	}
	if cfg.Concurrency < 1 {
		bad("Concurrency (IMPORTER_CONCURRENCY) is %d: want a positive number", cfg.Concurrency)
	}
	if cfg.MaxBytes < 0 {
		bad("MaxBytes (IMPORTER_MAX_BYTES) is %d: want a positive number", cfg.MaxBytes)
	}
	if cfg.Replicas < 1 || cfg.Replicas > 5 {
		bad("Replicas (IMPORTER_REPLICAS) is %d: want 1 to 5", cfg.Replicas)
	}
	if cfg.RecipeServiceURL != "" {
		if err := cfg.recipeService().Validate(); err != nil {
			bad("IMPORTER_RECIPE_SERVICE_URL, _TOKEN: %w", err)
		}
	} else if cfg.RecipeServiceToken != "" {
		bad("IMPORTER_RECIPE_SERVICE_TOKEN is set without IMPORTER_RECIPE_SERVICE_URL")
	}
	if cfg.OpenAIURL != "" && cfg.OrchestratorURL != "" {
		bad("IMPORTER_OPENAI_URL and IMPORTER_ORCHESTRATOR_URL are both set: one of them makes the recipes")
	}
	if cfg.OpenAIURL == "" && (cfg.OpenAIKey != "" || cfg.OpenAIModel != "") {
		bad("IMPORTER_OPENAI_KEY or _MODEL is set without IMPORTER_OPENAI_URL")
	}
	if cfg.OrchestratorToken != "" && cfg.OrchestratorURL == "" {
		bad("IMPORTER_ORCHESTRATOR_TOKEN is set without IMPORTER_ORCHESTRATOR_URL")
	}
	return errors.Join(append(errs, cfg.settings().Validate())...)
}

func (cfg Config) recipeService() recipeservice.Config {
	return recipeservice.Config{AllowHTTP: cfg.AllowHTTP, BaseURL: cfg.RecipeServiceURL, Token: cfg.RecipeServiceToken}
}

// settings are the part of the configuration that is about jobs.
func (cfg Config) settings() imports.Config {
	return imports.Config{
		ExtractTTL: cfg.TranscriptTTL, Logger: cfg.Logger, Meter: cfg.meter(), Passed: cfg.passed, SourceAttempts: cfg.SourceAttempts,
		StateTTL: cfg.StateTTL, Store: cfg.Store, TranscriptTTL: cfg.TranscriptTTL, Unique: cfg.Unique,
	}
}

// jobs makes what fetches and extracts, unless the program brought its own. Files are those that were handed in.
func (cfg Config) jobs(kept source.Files) (imports.Config, error) {
	settings := cfg.settings()
	settings.Fetcher, settings.Extractor = cfg.Fetcher, cfg.Extractor
	if settings.Fetcher == nil {
		from := source.Config{AllowNetworks: cfg.AllowNetworks, Files: kept, Logger: cfg.Logger, TempDir: cfg.TempDir}
		if cfg.YouTube {
			from.YouTube = &source.YouTube{Program: cfg.YtDlp, Proxy: cfg.YouTubeProxy}
		}
		sources, err := source.New(from)
		if err != nil {
			return settings, fmt.Errorf("importer: %w", err)
		}
		settings.Fetcher = sources
	}
	if settings.Extractor.Extractor != nil {
		return settings, nil
	}
	var err error
	settings.Extractor, err = cfg.extractor()
	return settings, err
}

// fileTTL is how long files are kept that were handed in.
func (cfg Config) fileTTL() time.Duration { return cmp.Or(cfg.TranscriptTTL, 7*24*time.Hour) }

// extractor is the one that the configuration names.
func (cfg Config) extractor() (Extractor, error) {
	switch {
	case cfg.OpenAIURL != "":
		made, err := openai.New(openai.Config{
			AllowHTTP: cfg.AllowHTTP, BaseURL: cfg.OpenAIURL, Key: cfg.OpenAIKey, Model: cfg.OpenAIModel, Vision: cfg.OpenAIVision,
		})
		if err != nil {
			return Extractor{}, fmt.Errorf("importer: IMPORTER_OPENAI_URL, _KEY, _MODEL: %w", err)
		}
		return Extractor{Extractor: made, Name: openai.Name, Version: cfg.OpenAIURL + " " + made.Version()}, nil
	case cfg.OrchestratorURL != "":
		made, err := orchestrator.New(orchestrator.Config{AllowHTTP: cfg.AllowHTTP, BaseURL: cfg.OrchestratorURL, Token: cfg.OrchestratorToken})
		if err != nil {
			return Extractor{}, fmt.Errorf("importer: IMPORTER_ORCHESTRATOR_URL: %w", err)
		}
		return Extractor{Extractor: made, Name: orchestrator.Name, Version: cfg.OrchestratorURL + " " + made.Version()}, nil
	}
	return Extractor{Extractor: rules.New(), Name: rules.Name, Version: rulesVersion}, nil
}

// rulesVersion changes with the rules, so that nothing that older ones made is taken for theirs.
const rulesVersion = "1"

// meter makes the importer's own instruments, nil without exports.
func (cfg Config) meter() metric.Meter {
	if cfg.Exports == nil {
		return nil
	}
	return cfg.Exports.Meters.Meter(scope)
}

// assets are the names of the streams that the importer works with. The one for dead letters is the worker's to check:
// who writes to it need not be permitted to look into it.
func (cfg Config) assets() []string {
	names := []string{
		contracts.StreamImportJobs, "KV_" + contracts.BucketImportJobs, "KV_" + contracts.BucketImportSteps, "KV_" + contracts.BucketJobs,
		"OBJ_" + contracts.ObjectsImportSteps,
	}
	if cfg.RecipeServiceURL == "" && cfg.Store == nil {
		names = append(names, "KV_"+contracts.BucketRecipes)
	}
	return names
}

// store makes what keeps the recipes.
func (cfg Config) store(ctx context.Context, js jetstream.JetStream) (store.Store, error) {
	if cfg.RecipeServiceURL == "" {
		return kvstore.Open(ctx, js)
	}
	return recipeservice.New(cfg.recipeService())
}
