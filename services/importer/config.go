package importer

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/net/http/httpguts"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/extract/openai"
	"github.com/expediter-io/expediter/services/importer/extract/orchestrator"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// name is the service's name in logs, errors, subjects and environment variables.
const name = "importer"

// scope names this package to OpenTelemetry.
const scope = "github.com/expediter-io/expediter/services/importer"

// Extractor is an extractor and the version of its results.
type Extractor = imports.Extractor

// RetryPolicy is the number of repetitions of a call within one attempt at a job, and their pauses. As text, "3,500ms" is 3
// repetitions, the first after half a second.
type RetryPolicy = imports.RetryPolicy

// Settings are the settings of the jobs.
type Settings = imports.Settings

// Config is the configuration of the importer. The tags name the environment variables that [FromEnvironment] reads.
type Config struct {
	// BaseConfig is the part that all services share. Listen defaults to ":8005", Concurrency to 8 jobs.
	service.BaseConfig

	// Settings are those of the jobs.
	Settings

	// AllowHTTP permits plain http to the Recipe Service and the orchestrator on other machines, such as in the same
	// cluster. Defaults to false.
	AllowHTTP bool `env:"IMPORTER_ALLOW_HTTP"`

	// AllowNetworks are networks that sources may be in although they are private, such as 10.0.0.0/8. Defaults to none.
	AllowNetworks []netip.Prefix `env:"IMPORTER_ALLOW_NETWORKS"`

	// Extractor makes the recipes instead of OpenAIURL and OrchestratorURL. Defaults to none.
	Extractor Extractor `env:"-"`

	// Fetcher fetches the sources instead of one made from this configuration. Defaults to none.
	Fetcher source.Fetcher `env:"-"`

	// OpenAIKey is sent to OpenAIURL as a bearer token. Defaults to none.
	OpenAIKey string `env:"IMPORTER_OPENAI_KEY" json:"-"`

	// OpenAIModel is the name of the model. Required with OpenAIURL.
	OpenAIModel string `env:"IMPORTER_OPENAI_MODEL"`

	// OpenAIURL is the base URL of an OpenAI-compatible API, such as https://api.openai.com/v1, whose model makes the
	// recipes. Defaults to none: see OrchestratorURL.
	OpenAIURL string `env:"IMPORTER_OPENAI_URL"`

	// OpenAIVision sends photos to the model, which must be able to read them. Defaults to false.
	OpenAIVision bool `env:"IMPORTER_OPENAI_VISION"`

	// OrchestratorURL is the base URL of the AI Orchestrator, whose POST /extract makes the recipes. Defaults to none:
	// rules make them, without a network.
	OrchestratorURL string `env:"IMPORTER_ORCHESTRATOR_URL"`

	// OrchestratorToken is sent to OrchestratorURL in the header x-service-token. Defaults to none.
	OrchestratorToken string `env:"IMPORTER_ORCHESTRATOR_TOKEN" json:"-"`

	// OCRLanguages are the languages in which photos are read, as tesseract names them, such as eng+deu. With them, the importer
	// does not start without tesseract and the data of the languages. Defaults to eng, where tesseract is installed.
	OCRLanguages string `env:"IMPORTER_OCR_LANGUAGES"`

	// RecipeServiceURL is the base URL of the Recipe Service, which keeps recipes and gets the states of jobs. Defaults to
	// none: a bucket keeps the recipes.
	RecipeServiceURL string `env:"IMPORTER_RECIPE_SERVICE_URL"`

	// RecipeServiceToken is sent to RecipeServiceURL in the header x-service-token. Required with RecipeServiceURL.
	RecipeServiceToken string `env:"IMPORTER_RECIPE_SERVICE_TOKEN" json:"-"`

	// Store keeps the recipes instead of RecipeServiceURL. Defaults to none.
	Store store.Store `env:"-"`

	// TempDir is the folder for temporary files: each source gets a private folder in it. One that is missing is made in its parent. Defaults
	// to the system's.
	TempDir string `env:"IMPORTER_TEMP_DIR"`

	// UserAgent is the header with which files and pages are fetched, for sites that refuse agents that they do not know. Defaults to
	// "Mozilla/5.0 (compatible; expediter-importer/1)".
	UserAgent string `env:"IMPORTER_USER_AGENT"`

	// YouTube fetches videos of YouTube with the program yt-dlp: without it the importer does not start.
	// Defaults to false.
	YouTube bool `env:"IMPORTER_YOUTUBE"`

	// YouTubeProxy is the proxy through which videos are fetched. Defaults to none.
	YouTubeProxy string `env:"IMPORTER_YOUTUBE_PROXY" json:"-"`

	// YtDlp is the name or path of yt-dlp. Defaults to "yt-dlp".
	YtDlp string `env:"IMPORTER_YT_DLP"`

	// passed is called at each point of a job's life, in tests.
	passed func(point string) `env:"-"`
}

// FromEnvironment reads the configuration from environment variables, and sets its Logger. It reports at once every value
// that cannot be read, and every unknown variable that begins with IMPORTER_. [Run] and [Start] validate the values.
func FromEnvironment() (cfg Config, err error) {
	err = service.FromEnvironment(name, &cfg)
	return cfg, err
}

// Check reads the configuration from an environment as [FromEnvironment] does, and reports every mistake that [Run] finds without
// a server and other programs.
func Check(environment map[string]string) (service.BaseConfig, error) {
	var cfg Config
	err := service.Read(name, environment, io.Discard, &cfg)
	_, mistakes := prepare(cfg)
	_, extractor := cfg.extractor()
	return cfg.withDefaults().BaseConfig, errors.Join(err, mistakes, extractor)
}

func (cfg Config) withDefaults() Config {
	cfg.BaseConfig, cfg.Settings = cfg.BaseConfig.WithDefaults(":8005", 8), cfg.Settings.WithDefaults()
	return cfg
}

// validate reports at once every mistake that can be found without making the parts.
func (cfg Config) validate() error {
	errs := []error{cfg.BaseConfig.Validate(name), cfg.Settings.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("importer: "+format, args...)) }
	if cfg.RecipeServiceURL != "" {
		if _, err := store.NewRecipeService(cfg.remote(cfg.RecipeServiceURL, cfg.RecipeServiceToken)); err != nil {
			bad("IMPORTER_RECIPE_SERVICE_URL, _TOKEN: %w", err)
		}
	} else if cfg.RecipeServiceToken != "" {
		bad("IMPORTER_RECIPE_SERVICE_TOKEN is set without IMPORTER_RECIPE_SERVICE_URL")
	}
	if cfg.OpenAIURL != "" && cfg.OrchestratorURL != "" {
		bad("IMPORTER_OPENAI_URL and IMPORTER_ORCHESTRATOR_URL are both set: only one of them can make the recipes")
	}
	if cfg.OpenAIURL == "" && (cfg.OpenAIKey != "" || cfg.OpenAIModel != "") {
		bad("IMPORTER_OPENAI_KEY or _MODEL is set without IMPORTER_OPENAI_URL")
	}
	if cfg.OrchestratorToken != "" && cfg.OrchestratorURL == "" {
		bad("IMPORTER_ORCHESTRATOR_TOKEN is set without IMPORTER_ORCHESTRATOR_URL")
	}
	if !httpguts.ValidHeaderFieldValue(cfg.UserAgent) {
		bad("IMPORTER_USER_AGENT is %.64q: want text without control characters", cfg.UserAgent)
	}
	if cfg.TempDir != "" {
		if _, err := os.ReadDir(filepath.Dir(filepath.Clean(cfg.TempDir))); err != nil {
			bad("IMPORTER_TEMP_DIR %s: %w: make that folder", cfg.TempDir, err)
		}
	}
	return errors.Join(errs...)
}

// remote is how a service is called.
func (cfg Config) remote(address, token string) remote.Config {
	return remote.Config{AllowHTTP: cfg.AllowHTTP, BaseURL: address, Token: token}
}

// jobs returns the configuration of the jobs, with a fetcher and an extractor, which it makes unless they are configured. kept has
// the uploaded files.
func (cfg Config) jobs(kept source.Files) (imports.Config, error) {
	settings := imports.Config{
		Settings: cfg.Settings, Concurrency: cfg.Concurrency, Extractor: cfg.Extractor, Fetcher: cfg.Fetcher, Logger: cfg.Logger,
		Passed: cfg.passed, Store: cfg.Store,
	}
	if settings.Fetcher == nil {
		from := source.Config{
			AllowNetworks: cfg.AllowNetworks, Files: kept, Logger: cfg.Logger, Photo: source.Photo{Languages: cfg.OCRLanguages},
			TempDir: cfg.TempDir, UserAgent: cfg.UserAgent,
			PageText: cfg.OpenAIURL != "" || cfg.OrchestratorURL != "" || cfg.Extractor.Extractor != nil,
		}
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

// extractor returns the extractor that the configuration names.
func (cfg Config) extractor() (Extractor, error) {
	switch {
	case cfg.OpenAIURL != "":
		made, err := openai.New(openai.Config{
			Config: cfg.remote(cfg.OpenAIURL, cfg.OpenAIKey), Model: cfg.OpenAIModel, Vision: cfg.OpenAIVision,
		})
		if err != nil {
			return Extractor{}, fmt.Errorf("importer: IMPORTER_OPENAI_URL, _KEY, _MODEL: %w", err)
		}
		return Extractor{Extractor: made, Name: openai.Name, Version: cfg.OpenAIURL + " " + made.Version()}, nil
	case cfg.OrchestratorURL != "":
		made, err := orchestrator.New(cfg.remote(cfg.OrchestratorURL, cfg.OrchestratorToken))
		if err != nil {
			return Extractor{}, fmt.Errorf("importer: IMPORTER_ORCHESTRATOR_URL: %w", err)
		}
		return Extractor{Extractor: made, Name: orchestrator.Name, Version: cfg.OrchestratorURL + " " + orchestrator.Version}, nil
	}
	return Extractor{Extractor: rules.Extractor{}, Name: rules.Name, Version: rulesVersion}, nil
}

// rulesVersion changes with the rules, so that a result of older rules is not taken for one of the new rules.
const rulesVersion = "4"

// streams returns the streams that the importer needs. The worker checks the stream of dead letters: the permissions of
// this service need not include it.
func (cfg Config) streams() []string {
	names := []string{
		contracts.StreamDead, contracts.StreamImportJobs,
		"KV_" + contracts.BucketImportJobs, "KV_" + contracts.BucketImportSteps, "KV_" + contracts.BucketJobs,
		"OBJ_" + contracts.ObjectsImportSteps,
	}
	if cfg.RecipeServiceURL == "" && cfg.Store == nil {
		names = append(names, "KV_"+contracts.BucketRecipes)
	}
	return names
}

// store returns the store that the configuration names.
func (cfg Config) store(js jetstream.JetStream) (store.Store, error) {
	if cfg.RecipeServiceURL == "" {
		return store.New(js, cfg.Logger)
	}
	return store.NewRecipeService(cfg.remote(cfg.RecipeServiceURL, cfg.RecipeServiceToken))
}
