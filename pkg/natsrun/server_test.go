package natsrun_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
)

func TestMain(m *testing.M) {
	// A server that is stopped while it makes a replicated stream leaves a store of it open (createRaftGroup, when
	// startRaftNode fails), and with it the goroutine that keeps the time for all stores of the process.
	// One that is stopped while a stream waits for its source, such as an intruder's stream, goes on to wait for 30 seconds.
	const in = "github.com/nats-io/nats-server/v2/server"
	natstest.Main(m, 4, goleak.IgnoreAnyFunction(in+"/ats.Register.func1"),
		goleak.IgnoreAnyFunction(in+".(*stream).trySetupSourceConsumer.func3"))
}

func TestServerListensOnLoopbackOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	check.Same(t, "URL of a server that does not listen", natstest.Server(t).URL(), "")
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	check.That(t, strings.HasPrefix(srv.URL(), "nats://127.0.0.1:"), "URL: got %q, want a port of 127.0.0.1", srv.URL())
	nc, _ := natstest.ConnectURL(t, srv.URL())
	check.Is(t, check.Err(nc.RTT()), nil)
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
			check.Same(t, "URL changed over the restart", srv.URL(), url)
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
	check.Is(t, srv.Restart(t.Context()), natsrun.ErrStopped)
	check.Is(t, check.Err(srv.InProcessConn()), natsrun.ErrStopped)
}

func TestStopRemovesOnlyATemporaryDirectory(t *testing.T) {
	t.Parallel()
	var temp string
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Memory = true
		natsrun.ChangeOptions(c, func(o *server.Options) { temp = o.StoreDir })
	})
	srv.Stop()
	check.Is(t, check.Err(os.Stat(temp)), os.ErrNotExist, temp)
	own := t.TempDir()
	srv = natstest.Server(t, func(c *natsrun.Config) { c.Dir = own })
	_, js := natstest.Connect(t, srv)
	put(t, bucket(t, js, "b", 1), "k", "v")
	srv.Stop()
	check.Is(t, check.Err(os.Stat(filepath.Join(own, "jetstream"))), nil)
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
			check.Contains(t, err, tt.says...)
		})
	}
}

func TestLoggerHearsTheServer(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
	srv.Stop()
	for _, line := range []string{"Server is ready", "Server Exiting"} {
		check.Says(t, said.String(), line)
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
	check.Is(t, check.Err(srv.InProcessConn()), natsrun.ErrStopped)
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
