package natsrun_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

const orphanEnv = "NATSRUN_TEST_PARENT"

// orphanParentMain makes this process one that starts a cluster, freezes a node
// and waits to be killed.
func orphanParentMain() {
	if os.Getenv(orphanEnv) == "" {
		return
	}

	c, err := natsrun.StartCluster(context.Background(), natsrun.ClusterConfig{Dir: os.Getenv(orphanEnv), Processes: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	if err := c.Nodes[0].Pause(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	fmt.Println(c.URLs()) //nolint:forbidigo // to the test that started this process
	select {}
}

// A killed parent cannot stop its nodes, and a frozen node cannot notice.
func TestNodesDieWithTheirParent(t *testing.T) {
	t.Parallel()

	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	parent.Stderr = t.Output()

	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}

	urls, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the parent did not start its cluster: %v", err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = parent.Wait()

	var dialer net.Dialer

	for url := range strings.SplitSeq(strings.TrimSpace(urls), ",") {
		addr := strings.TrimPrefix(url, "nats://")

		// A frozen process still accepts: its kernel does.
		for conn, err := dialer.DialContext(t.Context(), "tcp", addr); err == nil; {
			_ = conn.Close()
			conn, err = dialer.DialContext(t.Context(), "tcp", addr)
		}
	}

	if err := t.Context().Err(); err != nil {
		t.Errorf("nodes outlive their parent: %v", err)
	}
}
