package natsrun_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// deployed is where the files are that a server is deployed with.
const deployed = "../../deploy/nats"

//nolint:paralleltest // sets the environment that the server reads
func TestEveryConfigurationIsAccepted(t *testing.T) {
	setClusterEnv(t, natstest.NewUsers(t), "[nats-route://route:123456@n1:6222]")
	t.Setenv("NATS_ROUTE_PASSWORD", `"123456"`) // without the quotes it is a number, with which the server panics

	names, err := fs.Glob(deploy.Files, "*.conf")
	if err != nil {
		t.Fatal(err)
	}

	more, err := fs.Glob(deploy.Files, "*/*.conf")
	if err != nil || len(more) == 0 {
		t.Fatalf("configurations of the cluster: got %d, %v", len(more), err)
	}

	for _, name := range append(names, more...) {
		if err := deploy.CheckVariables(name, os.Getenv); err != nil {
			t.Error(err)
		}

		if _, err := server.ProcessConfigFile(filepath.Join(deployed, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The line that single.conf has commented out works when it is not.
//
//nolint:paralleltest // sets the environment that the server reads
func TestSingleConfigurationTakesTheAccounts(t *testing.T) {
	setClusterEnv(t, natstest.NewUsers(t), "[]")

	dir := t.TempDir()
	if err := os.CopyFS(dir, deploy.Files); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "single.conf")

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	opened := strings.Replace(string(text), "# include", "include", 1)
	if err := os.WriteFile(path, []byte(opened), 0o600); err != nil {
		t.Fatal(err)
	}

	opts, err := server.ProcessConfigFile(path)
	if err != nil || opts.SystemAccount != "SYS" || len(opts.Nkeys) != 6 {
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

	if opts.SyncInterval != time.Second || opts.MaxPayload != 1<<20 || opts.MaxConn != 1024 {
		t.Errorf("settings of the file: got sync %s, payload %d, connections %d",
			opts.SyncInterval, opts.MaxPayload, opts.MaxConn)
	}
}

// The three files as they are, users and permissions included: only places of
// this machine (ports, directories) are put over what they say.
//
//nolint:paralleltest // sets the environment that the server reads
func TestClusterFormsFromTheDeployedFiles(t *testing.T) {
	const nodes = 3

	users := natstest.NewUsers(t)

	// A cluster whose nodes are down keeps their ports free.
	free := natstest.Cluster(t, nodes)

	var ports []int

	for _, n := range free.Nodes {
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}

		var port int
		if _, err := fmt.Sscanf(n.URL, "nats://127.0.0.1:%d", &port); err != nil {
			t.Fatal(err)
		}

		ports = append(ports, port)
	}

	routes := make([]string, nodes)
	for i := range routes {
		routes[i] = fmt.Sprintf(`"nats-route://route:p@127.0.0.1:%d"`, ports[i])
	}

	setClusterEnv(t, users, "["+strings.Join(routes, ", ")+"]")

	servers := make([]*server.Server, nodes)

	for i := range servers {
		opts, err := server.ProcessConfigFile(filepath.Join(deployed, "cluster", fmt.Sprintf("n%d.conf", i+1)))
		if err != nil {
			t.Fatal(err)
		}

		if !opts.SyncAlways {
			t.Errorf("n%d.conf does not sync always", i+1)
		}

		opts.Host, opts.Port = "127.0.0.1", -1
		opts.HTTPPort = 0
		opts.Cluster.Host, opts.Cluster.Port = "127.0.0.1", ports[i]
		opts.NoSigs, opts.StoreDir = true, t.TempDir()

		servers[i], err = server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { servers[i].Shutdown(); servers[i].WaitForShutdown() })
		servers[i].Start()
	}

	for i, s := range servers {
		if !s.ReadyForConnections(2 * time.Minute) {
			t.Fatalf("n%d takes no connections", i+1)
		}
	}

	_, js := natstest.ConnectURL(t, servers[0].ClientURL(), users.As("admin"))

	put(t, bucket(t, js, "b", nodes), "k", "v") // once there is a leader
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

// setClusterEnv sets every variable of the deployed files.
func setClusterEnv(t *testing.T, users *natstest.Users, routes string) {
	t.Helper()

	for _, name := range slices.Sorted(maps.Keys(users.Public)) {
		t.Setenv("NATS_NKEY_"+strings.ToUpper(name), users.Public[name])
	}

	t.Setenv("NATS_ROUTE_PASSWORD", "p")
	t.Setenv("NATS_ROUTES", routes)
}
