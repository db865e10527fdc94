package enricher

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	var cfg Config
	err := service.Read(name, map[string]string{
		"ENABLE_WOLT_ENRICHMENT": "true", "ENRICHER_ACK_WAIT": "7s", "ENRICHER_CONCURRENCY": "3", "ENRICHER_ORIGINS": "https://a.example.com,http://localhost:3000",
		"ENRICHER_CATALOG": "venues.csv", "NATS_URL": "nats://nats:4222", "ENRICHER_LISTEN": "-", "PATH": "/bin", "NATS_OTHER": "x",
	}, io.Discard, &cfg)
	check.OK(t, err)
	cfg.Logger = nil
	want := Config{
		BaseConfig: service.BaseConfig{
			AckWait: 7 * time.Second, Concurrency: 3, Listen: "-", NATSConfig: service.NATSConfig{NATSURL: "nats://nats:4222"},
			Origins: []string{"https://a.example.com", "http://localhost:3000"},
		},
		Catalog: "venues.csv", Enabled: true,
	}
	check.Equal(t, want, cfg, cmpopts.IgnoreUnexported(service.BaseConfig{}))
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	check.That(t, cfg.Logger != nil && !cfg.Enabled && !cfg.CreateAssets && !cfg.NoDeprecatedField, "defaults are %+v", cfg)
	cfg.Logger = nil
	want := Config{BaseConfig: service.BaseConfig{
		AckWait: 5 * time.Second, Concurrency: 32, Listen: ":8080", NATSConfig: service.NATSConfig{NATSURL: "nats://127.0.0.1:4222"}, Replicas: 1, Version: "0.0.0-dev",
	}}
	check.Equal(t, want, cfg, cmpopts.IgnoreUnexported(service.BaseConfig{}))
}

func TestValidateReportsEverything(t *testing.T) {
	t.Parallel()
	cfg := Config{
		BaseConfig: service.BaseConfig{AckWait: time.Millisecond, Concurrency: -1, MaxBytes: -1, Origins: []string{"[", "example.com"}, Replicas: 9},
		Catalog:    "a", ClaimTTL: time.Millisecond, FoundTTL: -time.Second, NotFoundTTL: 1500 * time.Millisecond,
		WoltURL: "https://x",
	}
	err := cfg.withDefaults().validate()
	check.Require(t, err != nil, "nothing is reported")
	for _, want := range []string{
		"AckWait", "ClaimTTL", "Concurrency", "FoundTTL", "MaxBytes", "NotFoundTTL", `"["`, `"example.com"`, "Replicas", "both set",
	} {
		check.That(t, strings.Contains(err.Error(), want), "the error does not name %s:\n%v", want, err)
	}
	check.Contains(t, (Config{}).withDefaults().validate(), "ENRICHER_CATALOG")
	check.Failsf(t, (Config{Providers: []provider.Provider{named("a b")}}).withDefaults().validate(),
		"a provider's name that is no token was taken")
	check.Failsf(t, (Config{Providers: []provider.Provider{named("a"), named("a")}}).withDefaults().validate(),
		"two providers of one name were taken")
}

// TestProviders opens what is configured, and says what cannot be.
func TestProviders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Catalog: "nowhere.csv"}, "nowhere.csv"},
		{Config{WoltURL: "ftp://x"}, "ENRICHER_WOLT_URL"},
	} {
		_, err := c.cfg.providers()
		check.That(t, err != nil && strings.Contains(err.Error(), c.want), "%+v: %v, want an error that names %s", c.cfg, err, c.want)
	}
	list, err := Config{WoltURL: "https://gateway.test"}.withDefaults().providers()
	check.That(t, err == nil && len(list) == 1 && list[0].Name() == "wolt", "providers are %v, %v", list, err)
}
