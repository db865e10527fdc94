// Package natstest gives each test its own NATS server.
//
//	func TestStore(t *testing.T) {
//		t.Parallel()
//
//		srv := natstest.Server(t)
//		_, js := natstest.Connect(t, srv)
//
//		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
//		...
//	}
package natstest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const reconnectWait = 10 * time.Millisecond

// patience bounds each wait, so that a test that hangs fails. It is far longer than any step takes, also with the race
// detector on a busy machine: no test depends on it.
const patience = 2 * time.Minute

// Server runs a server for this test alone, without a TCP listener and with its
// store in a temporary directory, in RAM where there is room, and stops it when the test ends. It fails the test when the server does not
// start. Mutations are applied in order, before the start. A start takes a few milliseconds, so parallel tests need not share a server.
// From the first server of a test on, the process collects garbage when its heap is five times as large, unless GOGC is set.
func Server(t testing.TB, mutate ...func(*natsrun.Config)) *natsrun.Server {
	t.Helper()
	collectSeldom(t)
	cfg := natsrun.Config{ReadyTimeout: patience, ServerName: "test"}
	for _, m := range mutate {
		m(&cfg)
	}
	cfg.Memory = cfg.Dir == ""
	s, err := natsrun.Start(cfg)
	check.Require(t, err == nil, "start a NATS server for the test: %v", err)
	t.Cleanup(s.Stop)
	return s
}

// Connect returns an in-process client of s, and its JetStream context. The
// client survives a Restart of s and is closed when the test ends, before a
// server that Server started. A JetStream request whose context has no deadline may take two minutes, so that no test fails on a busy
// machine.
func Connect(t testing.TB, s *natsrun.Server, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := s.Connect(append([]nats.Option{logErrors(t)}, opts...)...)
	return client(t, nc, err)
}

// ConnectURL is Connect over TCP, for a server with Config.Listen or the nodes of
// a cluster. It reconnects for ever, after 10 ms, to any of the servers in url (separated by commas) and does not learn others from them.
// A cluster loses requests during an election: see UntilAnswered.
func ConnectURL(t testing.TB, url string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url, append(append(urlOptions(), logErrors(t)), opts...)...)
	return client(t, nc, err)
}

func client(t testing.TB, nc *nats.Conn, err error) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	check.Require(t, err == nil, "connect to the test's NATS server: %v", err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	check.Require(t, err == nil, "JetStream context: %v", err)
	return nc, js
}

// logErrors writes the errors of a connection to the log of the test. nats.go would write them to the standard error.
func logErrors(t testing.TB) nats.Option {
	t.Helper()
	var mu sync.Mutex
	log := t.Output()
	t.Cleanup(func() { // a connection may report an error after it was closed
		mu.Lock()
		defer mu.Unlock()
		log = io.Discard
	})
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(log, "NATS: %v\n", err)
	})
}

func urlOptions() []nats.Option {
	return []nats.Option{
		nats.IgnoreDiscoveredServers(),
		nats.MaxReconnects(-1),
		nats.ReconnectJitter(0, 0),
		nats.ReconnectWait(reconnectWait),
		nats.Timeout(patience),
	}
}

// UntilAnswered calls ask until the cluster answers, and returns the answer: nil or a refusal. While the nodes elect a
// leader, which can happen at any time on a busy machine, requests are lost or refused (jsapi.IsTransient). ask must be
// safe to repeat: a request without an answer may have been carried out. The test fails after two minutes.
func UntilAnswered(t testing.TB, ask func(ctx context.Context) error) error {
	t.Helper()
	err := jsapi.Retry(t.Context(), patience, ask)
	check.Require(t, !jsapi.IsTransient(err), "no answer within %s: %v", patience, err)
	return err
}

// Main runs the tests of a package, perCore at a time on each core (see [Parallel]), and exits. A goroutine that outlives the tests fails
// them, unless options allow it. A child process that was started as the node of a cluster runs that node instead:
//
//	func TestMain(m *testing.M) { natstest.Main(m, 4) }
func Main(m *testing.M, perCore int, options ...goleak.Option) {
	natsrun.NodeMain()
	goleak.VerifyTestMain(Parallel(m, perCore), options...)
}

// LeakChecked runs the tests of a package. Its Run returns the exit code, for testscript.Main. A goroutine that outlives the tests fails
// them.
type LeakChecked struct{ *testing.M }

// Run runs the tests.
func (c LeakChecked) Run() (code int) {
	goleak.VerifyTestMain(c.M, goleak.Cleanup(func(got int) { code = got }))
	return code
}

// Parallel makes n parallel tests of a package run at the same time on each core instead of one, unless -parallel is
// set. It is for packages whose tests wait for most of their time.
func Parallel(m *testing.M, n int) *testing.M {
	const name = "test.parallel"
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == name }) // if flags have been read
	if asked {
		return m
	}
	if err := flag.Set(name, strconv.Itoa(n*runtime.GOMAXPROCS(0))); err != nil {
		panic(err) // this program has no tests
	}
	return m
}

// Cluster runs n nodes for this test alone, ready to create streams with n
// replicas (5 at most), and stops them when the test ends. Stores are in a
// temporary directory, in RAM where there is room. Each node is a process of the test binary, which has to call
// natsrun.NodeMain first in TestMain, as Main does. A fail-over takes about five seconds, so the test is skipped with -short.
func Cluster(t testing.TB, n int, mutate ...func(*natsrun.ClusterConfig)) *natsrun.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster: not with -short")
	}
	cfg := natsrun.ClusterConfig{Nodes: n, ReadyTimeout: patience}
	for _, m := range mutate {
		m(&cfg)
	}
	cfg.Memory = cfg.Dir == ""
	c, err := natsrun.StartCluster(t.Context(), cfg)
	check.Require(t, err == nil, "start a NATS cluster of %d nodes for the test: %v", cfg.Nodes, err)
	t.Cleanup(c.Stop)
	return c
}

// Forget stops a node of c and restarts the others one by one, so that none of them knows of it. The cluster goes on, and refuses requests
// that need that node until the node is started, such as a stream with as many replicas as nodes.
func Forget(t testing.TB, c *natsrun.Cluster) *natsrun.Node {
	t.Helper()
	last := len(c.Nodes) - 1
	forgotten := c.Nodes[last]
	err := forgotten.Stop()
	check.Require(t, err == nil, "stop a node: %v", err)
	for _, n := range c.Nodes[:last] {
		err := n.Restart(t.Context())
		check.Require(t, err == nil, "restart a node: %v", err)
		err = c.WaitReady(t.Context())
		check.Require(t, err == nil, "a cluster that goes on without a node: %v", err)
	}
	return forgotten
}

// heapGrowth is the growth of the heap between two garbage collections, in percent.
const heapGrowth = 400

// collectSeldom makes garbage collections in this process rarer, unless GOGC is set: the heap of a test is small, and its collections take
// a fifth of a server's time. It does nothing in a benchmark, which measures the usual setting.
func collectSeldom(t testing.TB) {
	t.Helper()
	if _, ok := t.(*testing.B); !ok {
		setHeapGrowth()
	}
}

var setHeapGrowth = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
})
