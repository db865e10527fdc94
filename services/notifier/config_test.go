package notifier

import (
	"io"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
)

func TestFromEnvironmentReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	var cfg Config
	err := service.Read(name, map[string]string{
		"NOTIFIER_RULES": "rules.yaml", "NOTIFIER_ACK_WAIT": "7s", "NATS_URL": "nats://x:4222", "NOTIFIER_CONCURRENCY": "3", "OTHER": "x",
		"NOTIFIER_SMS_URL": "https://sms.test",
	}, io.Discard, &cfg)
	if err != nil || cfg.Rules != "rules.yaml" || cfg.AckWait != 7*time.Second || cfg.NATSURL != "nats://x:4222" || cfg.Concurrency != 3 ||
		cfg.SMSURL != "https://sms.test" {
		t.Errorf("%+v: %v", cfg, err)
	}
	err = service.Read(name, map[string]string{
		"NOTIFIER_RULE": "x", "NOTIFIER_ACK_WAIT": "soon", "NOTIFIER_CONCURRENCY": "many",
	}, io.Discard, &Config{})
	check.Contains(t, err, "unknown environment variable NOTIFIER_RULE", `NOTIFIER_ACK_WAIT is "soon"`, `NOTIFIER_CONCURRENCY is "many"`)
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	cfg := Config{
		BaseConfig: service.BaseConfig{AckWait: time.Millisecond, Concurrency: -1, MaxBytes: -1, Replicas: 7},
		InboxKeep:  time.Millisecond, MaxRecipients: -1, ResolverURL: "not a URL", UnsubscribeListen: ":1",
		Channels: []Channel{{Channel: &pigeon{name: "inapp"}}},
		Rules:    writeRules(t, "version: 1\nevents: {X: {ADMIN: {channels: [owl]}}}"),
	}
	_, err := cfg.withDefaults().validate()
	for _, want := range []string{
		"NOTIFIER_ACK_WAIT", "NOTIFIER_CONCURRENCY", "NOTIFIER_INBOX_KEEP", "NOTIFIER_MAX_BYTES", "NOTIFIER_MAX_RECIPIENTS", "NOTIFIER_REPLICAS",
		"NOTIFIER_RESOLVER_URL", "NOTIFIER_UNSUBSCRIBE_LISTEN", `two channels are named "inapp"`, `line 2: events.X.ADMIN.channels has "owl"`,
	} {
		check.Contains(t, err, want)
	}
	check.Contains(t, check.Err((Config{}).withDefaults().validate()), "NOTIFIER_RULES")
}
