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
