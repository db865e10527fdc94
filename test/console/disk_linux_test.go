package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// The disk of a server has no room left, and later the server hangs. The overview says the one and the other.
func TestOverviewShowsAFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := testbed.Mount(t, disk); err != nil {
		testbed.Refusedf(t, "a disk to fill cannot be mounted: %v (run as root)", err)
	}
	users := natstest.NewUsers(t)
	srv := deployedServer.Start(t, place{filepath.Join(disk, "data"), users.Public})
	url := srv.Line()
	admin, _ := natstest.ConnectURL(t, url, users.As("admin"))
	js := natstest.InAccount(t, admin, "IMPORTER")
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Streams(contracts.AssetOptions{
		MaxBytes: 1 << 30, Services: []string{contracts.ServiceImporter},
	}), provision.Options{})))
	nc, own := natstest.ConnectURL(t, url, users.As("console"), nats.MaxReconnects(-1))
	s := consoletest.Serve(t, nil, nc, own, func(cfg *console.Config) {
		cfg.Accounts = append(cfg.Accounts, console.Account{JetStream: natstest.InAccount(t, nc, "IMPORTER"), Name: "IMPORTER"})
	})
	until(s, "IMPORT_JOBS", "No problems detected")

	ctx, stop := context.WithCancel(t.Context())
	var source sync.WaitGroup
	source.Go(func() { // a server sees that it cannot write when it has something to
		for n := 0; ctx.Err() == nil; n++ {
			try, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = js.Publish(try, fmt.Sprint("jobs.import.normal.", n%8), make([]byte, 32<<10)) // refused, mostly
			cancel()
		}
	})
	filler, begun := testbed.Fill(t, disk), time.Now()
	page := shown(s, func(body string) bool {
		return strings.Contains(body, "error") || strings.Contains(body, "do not answer")
	})
	t.Logf("after %s", time.Since(begun))
	stop()
	source.Wait()
	if !strings.Contains(page, "do not answer") { // it has not locked itself
		check.Contains(t, page, "its disk is full (its health check: JetStream stream", "write error", "no space left on device",
			"runbooks.md#storetakesnowrites")
	}
	check.OK(t, os.Remove(filler))
	srv.Pause()
	logged(s, "the servers do not answer", "runbooks.md#natsunreachable")
}

// The disks of all servers are full. The overview names each server, and no stream that does not answer because of it.
func TestOverviewShowsFullDisks(t *testing.T) {
	t.Parallel()
	dir, users := t.TempDir(), natstest.NewUsers(t)
	disks := []string{filepath.Join(dir, "n1"), filepath.Join(dir, "n2"), filepath.Join(dir, "n3")}
	for _, disk := range disks {
		check.OK(t, os.Mkdir(disk, 0o700))
		if err := testbed.Mount(t, disk); err != nil {
			t.Skipf("a disk to fill cannot be mounted: %v (run as root)", err)
		}
	}
	cluster := natstest.Cluster(t, len(disks), func(c *natsrun.ClusterConfig) {
		c.ClientOptions, c.Dir, c.Users = []nats.Option{users.As("admin")}, dir, users.Public
	})
	admin, _ := natstest.ConnectURL(t, cluster.URLs(), users.As("admin"))
	js := natstest.InAccount(t, admin, "IMPORTER")
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{
		Replicas: len(disks), Services: []string{contracts.ServiceImporter},
	}), provision.Options{})))
	nc, own := natstest.ConnectURL(t, cluster.URLs(), users.As("console"))
	s := consoletest.Serve(t, nil, nc, own, func(cfg *console.Config) {
		cfg.Accounts = append(cfg.Accounts, console.Account{JetStream: natstest.InAccount(t, nc, "IMPORTER"), Name: "IMPORTER"})
	})
	until(s, "IMPORT_JOBS", "No problems detected")
	for _, disk := range disks {
		testbed.Fill(t, disk)
	}
	page := shown(s, func(body string) bool { // which a server sees when it writes
		try, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _ = js.Publish(try, "jobs.import.normal.x", make([]byte, 32<<10)) // refused, in the end
		return strings.Count(body, "it has turned JetStream off") == len(disks)
	})
	check.Contains(t, page, "server n1: its disk is full", "server n2: its disk is full", "server n3: its disk is full",
		"runbooks.md#storetakesnowrites")
	check.That(t, strings.Count(page, `class="note bad"`) == len(disks), "it shows what follows, too: %s", page)
	for _, node := range cluster.Nodes[1:] { // which the disk of the first does not explain
		check.OK(t, node.Kill())
	}
	page = shown(s, func(body string) bool { return strings.Count(body, "its disk is full") == 1 })
	check.Contains(t, page, "server n1: its disk is full", "the servers do not answer")
}
