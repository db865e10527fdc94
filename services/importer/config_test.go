package importer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
)

func TestEnvironmentIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	var cfg Config
	err := service.Read(name, map[string]string{
		"IMPORTER_CONCURRENCY": "many", "IMPORTER_YOUTUBE": "perhaps", "IMPORTER_TYPO": "1", "IMPORTER_ALLOW_NETWORKS": "10.0.0.0", "HOME": "/root",
	}, io.Discard, &cfg)
	check.ErrorContains(t, err, "IMPORTER_CONCURRENCY", "IMPORTER_YOUTUBE", "IMPORTER_TYPO", "IMPORTER_ALLOW_NETWORKS")
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
		RecipeServiceURL: "http://far.test", RecipeServiceToken: secret + "\n", OrchestratorToken: secret, Settings: Settings{StateTTL: 1},
		OpenAIKey: secret, TempDir: "nowhere/below",
	}.withDefaults().validate()
	check.ErrorContains(t, err, "IMPORTER_ACK_WAIT", "IMPORTER_CONCURRENCY", "IMPORTER_MAX_BYTES", "IMPORTER_REPLICAS", "plain http",
		"IMPORTER_ORCHESTRATOR_TOKEN", "StateTTL", "IMPORTER_OPENAI_KEY", "IMPORTER_TEMP_DIR nowhere/below: open nowhere")
	check.That(t, !strings.Contains(err.Error(), secret), "the error holds a token")
	check.ErrorIs(t, (Config{}).withDefaults().validate(), nil)
}

// The result of one extractor is not taken for another's: the version names all that the recipes depend on.
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

// deaf is a source that goes on until it is told, whatever its context.
type deaf struct{ end chan struct{} }

func (deaf) Identify(_ context.Context, r source.Request) (string, error) { return "web:" + r.URL, nil }

func (d deaf) Fetch(context.Context, source.Request, func(float64)) (*source.Material, error) {
	<-d.end
	return nil, context.Canceled
}

// A job that keeps its slot after its time is over is named by the check of readiness, until it has ended.
func TestAJobThatGoesOnIsSeen(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		fetcher := deaf{make(chan struct{})}
		i := check.Must(Start(t.Context(), nc, Config{
			BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), Concurrency: 2}, Fetcher: fetcher,
		}))(t)
		end := sync.OnceFunc(func() { close(fetcher.end) })
		defer end()
		ready := func() string { return fmt.Sprint(i.running.Ready()["worker"]) }
		for _, id := range []string{"a", "b"} {
			_, _, err := i.Submit(t.Context(), Submission{ImportJob: contracts.ImportJob{JobID: id, OwnerID: "ada", URL: "http://a.test/" + id}})
			check.OK(t, err)
		}
		check.Until(t, time.Hour, "both are named", func() bool { return strings.Contains(ready(), "2 of 2 slots") })
		end()
		check.Until(t, time.Hour, "it is ready again", func() bool { return ready() == "<nil>" })
		check.OK(t, i.Stop())
	})
}
