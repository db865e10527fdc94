package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

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
		"variable SHOP_FILE", "NATS_URL_FILE: ", "over the limit",
	} {
		check.That(t, err != nil && strings.Contains(err.Error(), want), "%v does not say: %s", err, want)
	}
}

// A service begins again with the values that a file has later, once it has stopped. With values that cannot be read it goes on, and
// after values that it does not start with it begins again with the former, and says so.
func TestAServiceTakesOtherValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := file(t, dir, "secret", "one")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var runs []string
		running := ""
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- reloading(ctx, func() (cfg shop, err error) {
				err = Read("shop", map[string]string{"SHOP_SECRET_FILE": path}, &log, &cfg)
				return cfg, err
			}, func(ctx context.Context, cfg shop) error {
				if runs = append(runs, cfg.Secret); cfg.Secret == "bad" {
					return errors.New("too short")
				}
				check.That(t, running == "", "%s runs beside %s", cfg.Secret, running)
				cfg.started()
				running = cfg.Secret
				<-ctx.Done()
				running = ""
				return nil
			})
		}()
		for _, step := range []struct{ holds, runs, says string }{
			{"one", "one", ""}, {"two\n", "two", ""}, {"", "two", "is empty"}, {"two", "two", ""}, {"bad", "two", "too short"}, {"three", "three", ""},
		} {
			synctest.Wait() // nobody reads the file
			log.Reset()
			file(t, dir, "secret", step.holds)
			elapse(10 * valuesEvery)
			synctest.Wait()
			check.That(t, running == step.runs && strings.Contains(log.String(), step.says) && (step.says == "") == (log.Len() == 0),
				"with %q %q runs, and says %q", step.holds, running, &log)
		}
		cancel()
		if err := <-ended; err != nil || !slices.Equal(runs, []string{"one", "two", "two", "bad", "two", "three"}) {
			t.Errorf("%q have run: %v", runs, err)
		}
	})
}

// A service that fails by itself is not run again.
func TestAServiceThatFailsEnds(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	err := reloading(t.Context(), func() (cfg shop, err error) { return cfg, nil }, func(_ context.Context, cfg shop) error {
		cfg.started()
		return gone
	})
	check.Is(t, err, gone)
}
