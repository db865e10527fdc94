package deploy_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	deploy "github.com/expediter-io/expediter/deploy/nats"
)

var users = []string{
	"NATS_NKEY_ADMIN", "NATS_NKEY_BACKUP_ENRICHER", "NATS_NKEY_BACKUP_IMPORTER", "NATS_NKEY_BACKUP_NOTIFIER", "NATS_NKEY_CONSOLE", "NATS_NKEY_ENRICHER", "NATS_NKEY_IMPORTER",
	"NATS_NKEY_NOTIFIER", "NATS_NKEY_PUBLISHER", "NATS_NKEY_SYS",
}

func TestVariables(t *testing.T) {
	t.Parallel()

	for name, want := range map[string][]string{
		"single.conf":       nil,
		"accounts.conf":     users,
		"cluster/node.conf": {"NATS_CA", "NATS_CERT", "NATS_KEY", "NATS_ROUTES", "NATS_ROUTE_PASSWORD"},
		"cluster/n2.conf":   slices.Concat([]string{"NATS_CA", "NATS_CERT", "NATS_KEY"}, users, []string{"NATS_ROUTES", "NATS_ROUTE_PASSWORD"}),
	} {
		got, err := deploy.Variables(name)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("variables of %s: got %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestTextPutsIncludesInPlace(t *testing.T) {
	t.Parallel()

	whole, err := deploy.Text("cluster/n1.conf")
	if err != nil {
		t.Fatal(err)
	}

	for _, part := range []string{"server_name: n1", "sync_interval: always", "max_payload: 1MB", "system_account: SYS", "verify: true"} {
		if !strings.Contains(whole, part) {
			t.Errorf("n1.conf with its includes lacks %q", part)
		}
	}

	open, err := deploy.Text("cluster/n1.conf", "accounts.conf", "tls.conf")
	if err != nil || strings.Contains(open, "system_account") || strings.Contains(open, "ca_file") {
		t.Errorf("without accounts.conf and tls.conf: got %v, and they are there", err)
	}

	if _, err := deploy.Text("none.conf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: got %v, want fs.ErrNotExist", err)
	}
}

// A secret has no place in a file: each value that is one must come from a variable.
func TestFilesHoldNoSecret(t *testing.T) {
	t.Parallel()

	err := fs.WalkDir(deploy.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".conf") {
			return err
		}

		text, err := deploy.Files.ReadFile(name)
		if err != nil {
			return err
		}

		for line := range strings.Lines(string(text)) {
			setting, _, _ := strings.Cut(line, "#")

			key, value, found := strings.Cut(strings.TrimSpace(setting), ":")
			if !found {
				continue
			}

			secret := slices.Contains([]string{"password", "token", "pass", "seed"}, strings.TrimSpace(key))
			if secret && !strings.HasPrefix(strings.TrimSpace(value), "$") {
				t.Errorf("%s: %q is not a variable", name, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
