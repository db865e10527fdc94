package service

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

type shop struct {
	BaseConfig

	Secret  string   `env:"SHOP_SECRET"`
	Secrets []string `env:"SHOP_SECRETS"`
}

// file writes a file, and returns its path.
func file(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAFileHasAValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"one\n": `"one" ["one"]`, " a\r\nb\n\n": `" a\nb" [" a" "b"]`, //nolint:gocritic // a list that begins with a space
	} {
		path := file(t, dir, "secret", text)
		var cfg shop
		err := Read("shop", map[string]string{"SHOP_SECRET_FILE": path, "SHOP_SECRETS_FILE": path}, io.Discard, &cfg)
		got := fmt.Sprintf("%q %q", cfg.Secret, cfg.Secrets)
		check.That(t, err == nil && got == want, "%q is %s, %v", text, got, err)
	}
	large := file(t, dir, "large", strings.Repeat("x", maxValue+1))
	var cfg shop
	err := Read("shop", map[string]string{
		"SHOP_SECRET": "x", "SHOP_SECRET_FILE": large, "SHOP_SECRETS_FILE": file(t, dir, "empty", "\n"), "SHOP_LISTEN_FILE": filepath.Join(dir, "none"),
		"SHOP_NOTHING_FILE": large, "SHOP_FILE": large, "NATS_URL_FILE": large,
	}, io.Discard, &cfg)
	for _, want := range []string{
		"SHOP_SECRET_FILE: SHOP_SECRET is set, too", "SHOP_SECRETS_FILE: ", "is empty", "SHOP_LISTEN_FILE: open", "variable SHOP_NOTHING_FILE",
		"variable SHOP_FILE", "NATS_URL_FILE: ", "has more than 65536 bytes",
	} {
		check.That(t, err != nil && strings.Contains(err.Error(), want), "%v does not say: %s", err, want)
	}
}
