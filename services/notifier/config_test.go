package notifier

import (
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
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

func TestWaysOutOfTheEnvironment(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(folder, "x"), 0o700))
	for _, part := range []string{"subject", "txt"} {
		check.OK(t, os.WriteFile(filepath.Join(folder, "x", "default."+part), []byte("x"), 0o600))
	}
	key, _, err := webpush.GenerateKey()
	check.OK(t, err)
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	var cfg Config
	err = service.Read(name, map[string]string{
		"NOTIFIER_EMAIL_FROM": "n@example.com", "NOTIFIER_EMAIL_SERVER": "127.0.0.1:25", "NOTIFIER_EMAIL_SECURITY": "plain",
		"NOTIFIER_SMS_URL": "https://sms.example", "NOTIFIER_GATEWAYS": "fcm:https://adapter.example/fcm,slack:https://adapter.example/slack",
		"NOTIFIER_TEMPLATES": folder, "NOTIFIER_USER_NETWORKS": "10.1.0.0/16,fd00::/8",
		"NOTIFIER_WEBHOOK_SECRETS": secret + "," + secret, "NOTIFIER_WEBPUSH_KEY": key, "NOTIFIER_WEBPUSH_SUBJECT": "mailto:n@example.com",
	}, io.Discard, &cfg)
	check.Require(t, err == nil && len(cfg.UserNetworks) == 2 && len(cfg.WebhookSecrets) == 2, "%+v %v", cfg.ChannelConfig, err)
	texts := check.Must(cfg.texts())(t)
	channels, closers, err := cfg.open(tools{texts: texts})
	names := make([]string, len(channels))
	for i, c := range channels {
		names[i] = c.Name()
	}
	got := strings.Join(names, " ")
	check.That(t, err == nil && got == "webhook email sms fcm slack webpush" && len(channels[0].Retries) == 9, "%s: %v", got, err)
	check.Same(t, "are to be set up", strings.Join(cfg.names(), " "), "webhook email sms webpush fcm slack")
	for _, c := range closers {
		c.Close()
	}
	channels, _, err = (ChannelConfig{}).open(tools{})
	check.That(t, err == nil && len(channels) == 0, "nothing is set up: %v %v", channels, err)
}

func TestWaysAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := ChannelConfig{
		EmailServer: "mail", SMSURL: "http://sms.example", Templates: t.TempDir(), WebhookSecrets: []string{"sesame"}, WebPushKey: "sesame",
	}.open(tools{})
	_, _, names := ChannelConfig{Gateways: map[string]string{"sms": "https://x.example", "a.b": "https://x.example", "fcm": "http://x.example"}}.open(tools{})
	check.Contains(t, names, `"sms" is the name of no gateway`, `"a.b" is the name`, "gateway fcm: URL")
	for _, want := range []string{"webhook: Secrets", "email: Address", "email: From", "sms: URL", "webpush: Subject", "PrivateKey"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "sesame"),
			"%v does not say %s", err, want)
	}
	for _, folder := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if _, err := (ChannelConfig{EmailServer: "mail:25", Templates: folder}).texts(); err == nil || !strings.Contains(err.Error(), "NOTIFIER_TEMPLATES") {
			t.Errorf("%q: %v", folder, err)
		}
	}
	_, err = ChannelConfig{EmailServer: "mail:25", Templates: t.TempDir(), TemplatesLanguage: "no-language"}.texts()
	check.Contains(t, err, "NOTIFIER_TEMPLATES_LANGUAGE")
}

// A mistake in a profile costs what the field is for, and not every notification of its user. A row that nobody can send says why.
func TestAMistakeInAProfile(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	p := newPlace(t, srv)
	for user, fields := range map[string]string{"ada": `"locale":"en us","time_zone":5`, "eve": `"opt_out":{"news":"pigeon"}`} {
		data := `{"user_id":"` + user + `","recipient_type":"CUSTOMER",` + fields + `}`
		check.OK(t, check.Err(p.js.Publish(t.Context(), "$KV.directory.CUSTOMER."+user, []byte(data))))
	}
	w := newWeb(t, p.start(&pigeon{}, func(c *Config) {
		c.Listen = "127.0.0.1:0"
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [pigeon]}}}")
	}))
	for _, user := range []string{"ada", "eve"} {
		p.publish(event(user, "X", func(e *contracts.Event) { e.UserID = user }))
	}
	all := p.settled(2)
	check.Same(t, "state", all["ada.pigeon.CUSTOMER.ada"].State, deliveries.Sent)
	row := all["eve.pigeon.CUSTOMER.eve"]
	check.That(t, row.State == deliveries.Failed && row.Reason == deliveries.ReasonRecipient, "%+v", row)
	if _, answer := w.call("GET", "/v1/notifications?event=eve", ""); !strings.Contains(answer, `"detail":"recipients: $KV.directory.CUSTOMER.eve: contracts: invalid Recipient: /opt_out/news must be`) {
		t.Error(answer)
	}
}
