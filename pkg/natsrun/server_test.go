package natsrun_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) {
	// A server that is stopped while it makes a replicated stream leaves a store of it open (createRaftGroup, when
	// startRaftNode fails), and with it the goroutine that keeps the time for all stores of the process.
	// One that is stopped while a stream waits for its source or for what it mirrors, such as an intruder's stream, goes on to wait for 30
	// seconds.
	const in = "github.com/nats-io/nats-server/v2/server"
	natstest.Main(m, 4, goleak.IgnoreAnyFunction(in+"/ats.Register.func1"),
		goleak.IgnoreAnyFunction(in+".(*stream).trySetupSourceConsumer.func3"),
		goleak.IgnoreAnyFunction(in+".(*stream).setupMirrorConsumer.func3"))
}

func TestServerListensOnLoopbackOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	check.Equal(t, natstest.Server(t).URL(), "", "URL of a server that does not listen")
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	check.That(t, strings.HasPrefix(srv.URL(), "nats://127.0.0.1:"), "URL: got %q, want a port of 127.0.0.1", srv.URL())
	nc, _ := natstest.ConnectURL(t, srv.URL())
	check.ErrorIs(t, check.Err(nc.RTT()), nil)
}

func TestRestartKeepsFileStreamsAndClients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		mutate func(*natsrun.Config)
	}{
		{"directory", func(*natsrun.Config) {}},
		{"memory", func(c *natsrun.Config) { c.Memory = true }},
		{"listening", func(c *natsrun.Config) { c.Listen = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Server(t, tt.mutate)
			reconnected := make(chan struct{}, 1)
			_, js := natstest.Connect(t, srv, nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))
			url := srv.URL()
			kv := bucket(t, js, "b", 1)
			rev := put(t, kv, "k", "before")
			check.OK(t, srv.Restart(t.Context()))
			await(t, reconnected, "the in-process client to reconnect by itself")
			entry, err := kv.Get(t.Context(), "k")
			check.That(t, err == nil && string(entry.Value()) == "before" && entry.Revision() == rev,
				"after the restart: got %v, %v, want revision %d of %q", entry, err, rev, "before")
			check.Equal(t, srv.URL(), url, "URL changed over the restart")
			if url != "" { // and the server is there
				natstest.ConnectURL(t, url)
			}
		})
	}
}

func TestStopIsCompleteAndIdempotent(t *testing.T) {
	t.Parallel()
	srv := check.Must(natsrun.Start(natsrun.Config{Memory: true}))(t)
	nc := check.Must(srv.Connect())(t)
	nc.Close()
	srv.Stop()
	srv.Stop()
	check.ErrorIs(t, srv.Restart(t.Context()), natsrun.ErrStopped)
	check.ErrorIs(t, check.Err(srv.InProcessConn()), natsrun.ErrStopped)
}

func TestStopRemovesOnlyATemporaryDirectory(t *testing.T) {
	t.Parallel()
	var temp string
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Memory = true
		natsrun.ChangeOptions(c, func(o *server.Options) { temp = o.StoreDir })
	})
	srv.Stop()
	check.ErrorIs(t, check.Err(os.Stat(temp)), os.ErrNotExist, temp)
	own := t.TempDir()
	srv = natstest.Server(t, func(c *natsrun.Config) { c.Dir = own })
	_, js := natstest.Connect(t, srv)
	put(t, bucket(t, js, "b", 1), "k", "v")
	srv.Stop()
	check.ErrorIs(t, check.Err(os.Stat(filepath.Join(own, "jetstream"))), nil)
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(file, []byte("not a directory"), 0o600))
	// The server finds this out by itself, and says so in its log only.
	blocked := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(blocked, "jetstream"), nil, 0o600))
	badConf := filepath.Join(t.TempDir(), "bad.conf")
	check.OK(t, os.WriteFile(badConf, []byte("no_such_setting: 1\n"), 0o600))
	busy := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = busy.Close() })
	_, port, err := net.SplitHostPort(busy.Addr().String())
	check.OK(t, err)
	busyPort := check.Must(strconv.Atoi(port))(t)
	locked := t.TempDir()
	natstest.Server(t, func(c *natsrun.Config) { c.Dir = locked })
	for _, tt := range []struct {
		name string
		cfg  natsrun.Config
		want error
		says []string
	}{
		{"directory is a file", natsrun.Config{Dir: file}, natsrun.ErrDirUnusable, []string{file, "give a Dir"}},
		{"directory under a file", natsrun.Config{Dir: filepath.Join(file, "x")}, natsrun.ErrDirUnusable, []string{file}},
		{"directory in use", natsrun.Config{Dir: locked}, natsrun.ErrDirInUse, []string{locked, "stop the server"}},
		{"store is a file", natsrun.Config{Dir: blocked}, natsrun.ErrNotReady, []string{blocked, "start JetStream"}},
		{"port in use", natsrun.Config{Port: busyPort}, natsrun.ErrPortInUse, []string{port, "Port 0"}},
		{"port out of range", natsrun.Config{Port: 70000, ReadyTimeout: -1}, nil, []string{"70000", "ReadyTimeout"}},
		{"memory and directory", natsrun.Config{Dir: file, Memory: true}, nil, []string{"exclude each other"}},
		{"configuration file", natsrun.Config{ConfigFile: badConf}, nil, []string{badConf, "no_such_setting"}},
		{"no configuration file", natsrun.Config{ConfigFile: file + ".conf"}, os.ErrNotExist, []string{file + ".conf"}},
		{"not ready in time", natsrun.Config{ReadyTimeout: 1}, natsrun.ErrNotReady, []string{"ReadyTimeout"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv, err := natsrun.Start(tt.cfg)
			if err == nil {
				srv.Stop()
				t.Fatal("started, want an error")
			}
			check.That(t, tt.want == nil || errors.Is(err, tt.want), "got %v, want %v", err, tt.want)
			check.ErrorContains(t, err, tt.says...)
		})
	}
}

// In any order of the calls the server is down in the end and no call waits for ever.
func TestRestartAndStopAtTheSameTime(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := srv.Restart(t.Context())
			check.That(t, err == nil || errors.Is(err, natsrun.ErrStopped), "restart: %v", err)
			_ = srv.URL()
		})
		wg.Go(srv.Stop)
	}
	wg.Wait()
	check.ErrorIs(t, check.Err(srv.InProcessConn()), natsrun.ErrStopped)
}

func bucket(t testing.TB, js jetstream.JetStream, name string, replicas int) jetstream.KeyValue {
	t.Helper()
	var kv jetstream.KeyValue
	if err := natstest.UntilAnswered(t, func(ctx context.Context) (err error) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, MaxBytes: 1 << 20, Replicas: replicas})
		return err
	}); err != nil {
		t.Fatalf("create bucket %s with %d replicas: %v", name, replicas, err)
	}
	return kv
}

func put(t testing.TB, kv jetstream.KeyValue, key, value string) (revision uint64) {
	t.Helper()
	if err := natstest.UntilAnswered(t, func(ctx context.Context) (err error) {
		revision, err = kv.PutString(ctx, key, value)
		return err
	}); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return revision
}

func await(t testing.TB, signal <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-signal:
	case <-t.Context().Done():
		t.Fatalf("gave up waiting for %s", what)
	}
}

// A leader that steps down, is stopped, killed or frozen is replaced, and catches up when it is back.
func TestALeaderIsReplacedAndCatchesUp(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin func(*natsrun.Node) error
		end   func(context.Context, *natsrun.Node) error
	}{
		"stopped": {(*natsrun.Node).Stop, func(ctx context.Context, n *natsrun.Node) error { return n.Start(ctx) }},
		"killed":  {(*natsrun.Node).Kill, func(ctx context.Context, n *natsrun.Node) error { return n.Start(ctx) }},
		"frozen":  {(*natsrun.Node).Pause, func(_ context.Context, n *natsrun.Node) error { return n.Continue() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := natstest.Cluster(t, 3, func(c *natsrun.ClusterConfig) { c.Dir = dir })
			_, js := natstest.ConnectURL(t, c.URLs())
			put(t, bucket(t, js, "b", 3), "k", "before")
			first := leader(t, c)
			check.OK(t, c.StepDown(t.Context(), "KV_b"))
			gone := leader(t, c)
			check.That(t, gone != first, "leader after StepDown: still %s", gone.Name)
			check.OK(t, fault.begin(gone))
			check.Equal(t, gone.Running(), name == "frozen", "it runs")
			log := string(check.Must(os.ReadFile(filepath.Join(dir, gone.Name, "server.log")))(t))
			check.Equal(t, strings.Contains(log, "Initiating Shutdown"), name == "stopped", "its log has a farewell")
			if name == "frozen" {
				// The system stops a process a moment after the signal, and it may answer until then.
				check.Until(t, time.Minute, "the frozen node is named", func() bool {
					err := c.WaitReady(soon(t))
					return errors.Is(err, natsrun.ErrNotReady) && strings.Contains(err.Error(), "node "+gone.Name+":")
				})
			}
			var others []string // a client of a frozen node would wait for it as well
			for _, n := range c.Nodes {
				if n != gone {
					others = append(others, n.URL)
				}
			}
			_, js = natstest.ConnectURL(t, strings.Join(others, ","))
			var kv jetstream.KeyValue
			check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) (err error) {
				kv, err = js.KeyValue(ctx, "b")
				return err
			}))
			put(t, kv, "k", "after")
			check.OK(t, fault.end(t.Context(), gone))
			check.OK(t, c.WaitReady(t.Context()))
			mustHold(t, c, gone, "after")
		})
	}
}

// No node can have it from another here: each must have kept its own.
func TestClusterKeepsEverythingWhenAllNodesAreKilled(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	put(t, bucket(t, js, "b", 3), "k", "kept")
	for _, n := range c.Nodes {
		check.OK(t, n.Kill())
	}
	check.ErrorIs(t, check.Err(c.StreamLeader(soon(t), "KV_b")), natsrun.ErrNoLeader)
	for _, n := range c.Nodes {
		check.OK(t, n.Start(t.Context()))
	}
	check.OK(t, c.WaitReady(t.Context()))
	mustHold(t, c, c.Nodes[0], "kept")
}

func TestClusterSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := natstest.Cluster(t, 3, func(c *natsrun.ClusterConfig) { c.Dir = dir })
	check.ErrorIs(t, check.Err(natsrun.StartCluster(t.Context(), natsrun.ClusterConfig{Dir: dir})), natsrun.ErrDirInUse)
	_, err := natsrun.StartCluster(t.Context(), natsrun.ClusterConfig{Nodes: 10, ReadyTimeout: -1})
	check.ErrorContains(t, err, "Nodes 10", "ReadyTimeout")
	check.ErrorIs(t, check.Err(c.StreamLeader(soon(t), "NONE")), natsrun.ErrNoLeader)
	_, js := natstest.ConnectURL(t, c.URLs())
	bucket(t, js, "one", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	check.That(t, c.StepDown(ctx, "KV_one") != nil, "the only replica of a stream has handed over")
	c.Stop()
	c.Stop()
	check.ErrorIs(t, c.Nodes[0].Pause(), natsrun.ErrStopped)
}

func leader(t testing.TB, c *natsrun.Cluster) *natsrun.Node {
	t.Helper()
	return check.Must(c.StreamLeader(t.Context(), "KV_b"))(t)
}

// soon returns a context that ends a wait soon, for a condition that does not come.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// mustHold makes the node lead, so that the answer is its own, and reads there.
func mustHold(t testing.TB, c *natsrun.Cluster, n *natsrun.Node, want string) {
	t.Helper()
	nc, _ := natstest.ConnectURL(t, n.URL)
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	// Only the leader answers this; a node that leads before and after the request is the one that answered.
	for led := false; !led; led = leader(t, c) == n {
		makeLead(t, c, n)
		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
			got.Error = nil
			msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_b", []byte(`{"last_by_subj":"$KV.b.k"}`))
			if err != nil {
				return err
			}
			if err := json.Unmarshal(msg.Data, &got); err != nil || got.Error == nil {
				return err
			}
			return got.Error
		}))
	}
	check.That(t, string(got.Message.Data) == want, "on %s: got %q, want %q", n.Name, got.Message.Data, want)
}

func makeLead(t testing.TB, c *natsrun.Cluster, n *natsrun.Node) {
	t.Helper()
	for leader(t, c) != n {
		check.OK(t, c.StepDown(t.Context(), "KV_b"))
	}
}

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
	check.OK(t, c.WaitReady(t.Context())) // a server that is shut down while it makes a replica leaves a goroutine behind
	// A service's streams are all that it has room for, so that no account takes the space of another.
	for account, names := range declared {
		if account == "OPERATOR" {
			continue
		}
		js := accountOf(t, nc, account)
		check.That(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MORE", MaxBytes: 1 << 20})) != nil,
			"%s has room for more than its %d streams", account, len(names))
		dead := check.Must(js.Stream(t.Context(), "DEAD"))(t)
		larger := dead.CachedInfo().Config
		larger.MaxBytes = 32 << 30
		check.That(t, check.Err(js.UpdateStream(t.Context(), larger)) != nil, "%s has room for a stream of %d bytes", account, larger.MaxBytes)
	}
	// A node that answers monitoring sends the answer to the others like any message. In the account of the servers
	// this would delete all streams of the notifier.
	for _, n := range c.Nodes {
		sys, _ := natstest.ConnectURL(t, n.URL, users.As("sys"))
		check.OK(t, errors.Join(sys.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", "$JS.API.ACCOUNT.PURGE.NOTIFIER", nil), sys.Flush()))
		check.ErrorIs(t, check.Err(sys.Request("$SYS.REQ.SERVER.PING.JSZ", nil, time.Minute)), nil)
	}
	check.OK(t, c.WaitReady(t.Context()))
	check.ErrorIs(t, check.Err(accountOf(t, nc, "NOTIFIER").Stream(t.Context(), "EVENTS")), nil)
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
	text := check.Must(deploy.Text("accounts.conf"))(t)
	read := regexp.MustCompile(`\{ account: NOTIFIER, subject: "\$JS\.API\.DIRECT\.GET\.EVENTS" \}`)
	lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), read.MatchString)
	check.ErrorContains(t, reach(t, natstest.NewUsers(t), t.TempDir(), lines, func(s *site) {
		s.fill()
		_, js := s.as("publisher")
		p := check.Must(contracts.NewPublisher(js, contracts.PublisherConfig{}))(s.T)
		e := contracts.Event{EventID: "e", EventType: "HELLO", AggregateType: "GUEST"}
		check.OK(s, check.Err(p.Publish(s.Context(), e)))
		_, err := p.Publish(s.Context(), e)
		failed, ok := errors.AsType[*contracts.PublishError](err)
		check.That(s, ok && failed.Attempts == 1 && failed.Unsure, "again: %+v", err)
		check.ErrorContains(s, err, "this account may not read")
	}), "API.DIRECT.GET.EVENTS")
}

// deployed is where the files are that a server is deployed with.
const deployed = "../../deploy/nats"

// The line that single.conf has commented out works when it is not.
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
	check.ErrorContains(t, err, "NATS_NKEY_SYS", "NATS_NKEY_ADMIN", "NATS_NKEY_STRANGER")
}
