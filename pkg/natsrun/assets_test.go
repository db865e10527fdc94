package natsrun_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// declared are the declarations of each account's streams, beside the configurations.
var declared = map[string][]string{
	"ENRICHER": {"streams/DEAD", "streams/ENRICH_JOBS", "buckets/enrich", "buckets/jobs", "buckets/requests"},
	"IMPORTER": {
		"streams/DEAD", "streams/IMPORT_JOBS", "buckets/import-jobs", "buckets/import-steps", "buckets/jobs", "buckets/recipes",
		"objects/import-steps",
	},
	"NOTIFIER": {
		"streams/DEAD", "streams/EVENTS", "streams/NOTIFICATIONS", "buckets/deliveries", "buckets/directory", "buckets/inbox",
		"buckets/jobs",
	},
	"OPERATOR": {"streams/AUDIT", "streams/AUDIT_USERS", "buckets/locks"},
}

// All declared assets fit into the limits of the cluster, and the user admin may make them, as in production. They fit into those of one
// server, or newSite fails.
func TestDeclaredAssetsFitTheLimits(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	c := natstest.Cluster(t, 3, func(c *natsrun.ClusterConfig) {
		c.Users = users.Public
		c.ClientOptions = append(c.ClientOptions, users.As("admin"))
	})
	nc, _ := natstest.ConnectURL(t, c.URLs(), users.As("admin"))
	createAssets(t, nc, 3)
	settle(t, c)
	// A service's streams are all that it has room for, so that no account takes the space of another.
	for account, names := range declared {
		if account == "OPERATOR" {
			continue
		}
		js := accountOf(t, nc, account)
		check.Failsf(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MORE", MaxBytes: 1 << 20})),
			"%s has room for more than its %d streams", account, len(names))
		dead := check.Must(js.Stream(t.Context(), "DEAD"))(t)
		larger := dead.CachedInfo().Config
		larger.MaxBytes = 32 << 30
		check.Failsf(t, check.Err(js.UpdateStream(t.Context(), larger)), "%s has room for a stream of %d bytes", account, larger.MaxBytes)
	}
	// A node that answers monitoring sends the answer to the others like any message. In the account of the servers
	// this would delete all streams of the notifier.
	for _, n := range c.Nodes {
		sys, _ := natstest.ConnectURL(t, n.URL, users.As("sys"))
		check.OK(t, errors.Join(sys.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", "$JS.API.ACCOUNT.PURGE.NOTIFIER", nil), sys.Flush()))
		check.Is(t, check.Err(sys.Request("$SYS.REQ.SERVER.PING.JSZ", nil, time.Minute)), nil)
	}
	settle(t, c)
	check.Is(t, check.Err(accountOf(t, nc, "NOTIFIER").Stream(t.Context(), "EVENTS")), nil)
}

func TestEveryDeclarationIsOfAnAccount(t *testing.T) {
	t.Parallel()
	all := slices.Concat(slices.Collect(maps.Values(declared))...)
	files, err := filepath.Glob(filepath.Join(deployed, "*", "*.json"))
	check.Require(t, err == nil && len(files) != 0, "declarations: got %d, %v", len(files), err)
	for _, file := range files {
		kind, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
		check.That(t, slices.Contains(all, kind+"/"+name[:len(name)-len(".json")]), "%s is in no account", file)
	}
}

// accountOf is the JetStream context of the admin for an account.
func accountOf(t *testing.T, nc *nats.Conn, account string) jetstream.JetStream {
	t.Helper()
	if account != "OPERATOR" {
		return natstest.InAccount(t, nc, account)
	}
	return check.Must(jetstream.New(nc))(t)
}

// createAssets makes the streams of every account, as the admin.
func createAssets(t *testing.T, nc *nats.Conn, replicas int) {
	t.Helper()
	for account, names := range declared {
		js := accountOf(t, nc, account)
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(deployed, name+".json"))
			check.OK(t, err)
			var sc jetstream.StreamConfig
			err = json.Unmarshal(text, &sc)
			check.Require(t, err == nil, "%s: %v", name, err)
			sc.Replicas = replicas
			if err := natstest.UntilAnswered(t, func(ctx context.Context) error {
				_, err := js.CreateStream(ctx, sc)
				return err
			}); err != nil {
				t.Errorf("%s of %s: %v", name, account, err)
			}
		}
	}
}

// A source system whose account imports no more than events publishes them. It is told at once that it cannot compare a duplicate.
func TestASourceThatMayNotReadPublishes(t *testing.T) {
	t.Parallel()
	text := check.Must(deploy.Text("accounts.conf"))(t)
	read := regexp.MustCompile(`\{ account: NOTIFIER, subject: "\$JS\.API\.(INFO|STREAM\.INFO\.EVENTS|DIRECT\.GET\.EVENTS|STREAM\.MSG\.GET\.EVENTS)" \} \}`)
	lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), read.MatchString)
	v := vain{dir: t.TempDir(), users: natstest.NewUsers(t), wait: long}
	published := func(s *site) {
		defer func() { s.wait = brief }()
		createAssets(t, s.admin, 1)
		_, js := s.as("publisher")
		p, err := contracts.NewPublisher(js, contracts.PublisherConfig{})
		check.OK(t, err)
		e := contracts.Event{EventID: "e", EventType: "HELLO", AggregateType: "GUEST"}
		check.OK(t, check.Err(p.Publish(t.Context(), e)))
		_, err = p.Publish(t.Context(), e)
		failed, ok := errors.AsType[*contracts.PublishError](err)
		check.That(t, ok && failed.Attempts == 1 && failed.Unsure, "again: %+v", err)
		check.Contains(t, err, "this account may not read")
	}
	check.Failsf(t, v.try(t, lines, published), "the source reads events")
}

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
	text := check.Must(os.ReadFile(path))(t)
	opened := strings.Replace(string(text), "# include", "include", 1)
	check.OK(t, os.WriteFile(path, []byte(opened), 0o600))
	opts, err := server.ProcessConfigFile(path)
	check.OK(t, err)
	check.That(t, opts.SystemAccount == "SYS" && len(opts.Nkeys) == 10,
		"single.conf with the accounts: got %v and %d users, want 10", err, len(opts.Nkeys))
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
	check.That(t, opts.SyncInterval == time.Second && opts.MaxPayload == 1<<20 && opts.MaxConn == 4096,
		"settings of the file: got sync %s, payload %d, connections %d", opts.SyncInterval, opts.MaxPayload, opts.MaxConn)
}

func TestUsersMustBeComplete(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t).Public
	delete(users, "sys")
	users["admin"] = ""
	users["stranger"] = "U"
	_, err := natsrun.Start(natsrun.Config{Users: users})
	check.Contains(t, err, "NATS_NKEY_SYS", "NATS_NKEY_ADMIN", "NATS_NKEY_STRANGER")
}
