package notifier

import (
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
)

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
		"NOTIFIER_SMS_URL": "https://sms.example", "NOTIFIER_TEMPLATES": folder, "NOTIFIER_USER_NETWORKS": "10.1.0.0/16,fd00::/8",
		"NOTIFIER_WEBHOOK_SECRETS": secret + "," + secret, "NOTIFIER_WEBPUSH_KEY": key, "NOTIFIER_WEBPUSH_SUBJECT": "mailto:n@example.com",
	}, io.Discard, &cfg)
	if err != nil || len(cfg.UserNetworks) != 2 || len(cfg.WebhookSecrets) != 2 {
		t.Fatalf("%+v %v", cfg.ChannelConfig, err)
	}
	texts, err := cfg.texts()
	check.OK(t, err)
	channels, closers, err := cfg.open(tools{texts: texts})
	names := make([]string, len(channels))
	for i, c := range channels {
		names[i] = c.Name()
	}
	if got := strings.Join(names, " "); err != nil || got != "webhook email sms webpush" || len(channels[0].Retries) != 9 {
		t.Errorf("%s: %v", got, err)
	}
	check.Same(t, "are to be set up", strings.Join(cfg.names(), " "), "webhook email sms webpush")
	for _, c := range closers {
		c.Close()
	}
	if channels, _, err := (ChannelConfig{}).open(tools{}); err != nil || len(channels) != 0 {
		t.Errorf("nothing is set up: %v %v", channels, err)
	}
}

func TestWaysAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := ChannelConfig{
		EmailServer: "mail", SMSURL: "http://sms.example", Templates: t.TempDir(), WebhookSecrets: []string{"sesame"}, WebPushKey: "sesame",
	}.open(tools{})
	for _, want := range []string{"webhook: Secrets", "email: Address", "email: From", "sms: URL", "webpush: Subject", "PrivateKey"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	for _, folder := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if _, err := (ChannelConfig{EmailServer: "mail:25", Templates: folder}).texts(); err == nil || !strings.Contains(err.Error(), "NOTIFIER_TEMPLATES") {
			t.Errorf("%q: %v", folder, err)
		}
	}
}
