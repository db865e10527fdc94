package natsrun_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// deployed is where the files are that a server is deployed with.
const deployed = "../../deploy/nats"

// The line that single.conf has commented out works when it is not.
//
//nolint:paralleltest // sets the environment that the server reads
func TestSingleConfigurationTakesTheAccounts(t *testing.T) {
	for name, key := range natstest.NewUsers(t).Public {
		t.Setenv("NATS_NKEY_"+strings.ToUpper(name), key)
	}

	dir := t.TempDir()
	check.OK(t, os.CopyFS(dir, deploy.Files))

	path := filepath.Join(dir, "single.conf")

	text, err := os.ReadFile(path)
	check.OK(t, err)

	opened := strings.Replace(string(text), "# include", "include", 1)
	check.OK(t, os.WriteFile(path, []byte(opened), 0o600))

	opts, err := server.ProcessConfigFile(path)
	check.OK(t, err)

	if opts.SystemAccount != "SYS" || len(opts.Nkeys) != 6 {
		t.Errorf("single.conf with the accounts: got %v and %d users, want 6", err, len(opts.Nkeys))
	}
}

func TestServerStartsFromTheDeployedFile(t *testing.T) {
	t.Parallel()

	var opts *server.Options

	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.ConfigFile = filepath.Join(deployed, "single.conf")
		natsrun.ChangeOptions(c, func(o *server.Options) { opts = o })
	})
	_, js := natstest.Connect(t, srv)
	put(t, bucket(t, js, "b", 1), "k", "v")

	if opts.SyncInterval != time.Second || opts.MaxPayload != 1<<20 || opts.MaxConn != 4096 {
		t.Errorf("settings of the file: got sync %s, payload %d, connections %d",
			opts.SyncInterval, opts.MaxPayload, opts.MaxConn)
	}
}

func TestUsersMustBeComplete(t *testing.T) {
	t.Parallel()

	users := natstest.NewUsers(t).Public
	delete(users, "sys")
	users["admin"] = ""
	users["stranger"] = "U"

	_, err := natsrun.Start(natsrun.Config{Users: users})
	if !errors.Is(err, deploy.ErrVariable) {
		t.Fatalf("got %v, want deploy.ErrVariable", err)
	}

	for _, name := range []string{"NATS_NKEY_SYS", "NATS_NKEY_ADMIN", "NATS_NKEY_STRANGER"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q does not name %s", err, name)
		}
	}
}
