package natsrun_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// A killed parent cannot stop its nodes, and a frozen node cannot notice.
func TestNodesDieWithTheirParent(t *testing.T) {
	parents := crash.Role[string]{Name: "parent of a cluster", Run: func(ctx context.Context, dir string) error {
		c, err := natsrun.StartCluster(ctx, natsrun.ClusterConfig{Dir: dir})
		if err != nil {
			return err
		}
		if err := c.Nodes[0].Pause(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, c.URLs()); err != nil {
			return err
		}
		select {}
	}}
	parents.Main()
	t.Parallel()
	parent := parents.Start(t, t.TempDir(), "-test.run=^TestNodesDieWithTheirParent$")
	urls := parent.Line()
	parent.Kill()
	var dialer net.Dialer
	for url := range strings.SplitSeq(urls, ",") {
		addr := strings.TrimPrefix(url, "nats://")
		// A frozen process still accepts: its kernel does.
		for conn, err := dialer.DialContext(t.Context(), "tcp", addr); err == nil; {
			_ = conn.Close()
			conn, err = dialer.DialContext(t.Context(), "tcp", addr)
		}
	}
	check.ErrorIs(t, t.Context().Err(), nil)
}
