package importer

import (
	"io"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
)

func TestEnvironmentIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	var cfg Config
	err := service.Read(name, map[string]string{
		"IMPORTER_CONCURRENCY": "many", "IMPORTER_YOUTUBE": "perhaps", "IMPORTER_TYPO": "1", "IMPORTER_ALLOW_NETWORKS": "10.0.0.0", "HOME": "/root",
	}, io.Discard, &cfg)
	check.Contains(t, err, "IMPORTER_CONCURRENCY", "IMPORTER_YOUTUBE", "IMPORTER_TYPO", "IMPORTER_ALLOW_NETWORKS")
	cfg = Config{}
	err = service.Read(name, map[string]string{
		"IMPORTER_CONCURRENCY": "3", "IMPORTER_ALLOW_NETWORKS": "10.0.0.0/8,fd00::/8", "NATS_URL": "nats://n1",
	}, io.Discard, &cfg)
	check.That(t, err == nil && cfg.Concurrency == 3 && len(cfg.AllowNetworks) == 2 && cfg.NATSURL == "nats://n1", "%+v, %v", cfg, err)
}

func TestConfigurationIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	err := Config{
		BaseConfig:       service.BaseConfig{AckWait: 1, Concurrency: -1, MaxBytes: -1, Replicas: 9},
		RecipeServiceURL: "http://far.test", RecipeServiceToken: secret + "\n", OrchestratorToken: secret, StateTTL: 1,
		OpenAIKey: secret, TempDir: "nowhere",
	}.withDefaults().validate()
	for _, want := range []string{
		"IMPORTER_ACK_WAIT", "IMPORTER_CONCURRENCY", "IMPORTER_MAX_BYTES", "IMPORTER_REPLICAS", "plain http", "IMPORTER_ORCHESTRATOR_TOKEN", "StateTTL", "IMPORTER_OPENAI_KEY",
		"IMPORTER_TEMP_DIR: open nowhere",
	} {
		check.Contains(t, err, want)
	}
	check.That(t, !strings.Contains(err.Error(), secret), "the error holds a token")
	check.Is(t, (Config{}).withDefaults().validate(), nil)
}

// What was extracted by one extractor is not taken for another's: the version says all that the recipes depend on.
func TestExtractorsAreToldApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, cfg := range []Config{
		{},
		{OpenAIURL: "https://ai.test/v1", OpenAIModel: "a"},
		{OpenAIURL: "https://ai.test/v1", OpenAIModel: "b"},
		{OpenAIURL: "https://ai.test/v1", OpenAIModel: "b", OpenAIVision: true},
		{OpenAIURL: "https://other.test/v1", OpenAIModel: "b"},
		{OrchestratorURL: "https://ai.test"},
		{OrchestratorURL: "https://other.test"},
	} {
		made := check.Must(cfg.extractor())(t)
		is := made.Name + " " + made.Version
		check.That(t, !seen[is], "%s is the version of two", is)
		seen[is] = true
	}
}
