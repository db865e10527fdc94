package natsrun

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/internal/process"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// States that a real cluster passes through too quickly to be observed.
func TestCheckRoutes(t *testing.T) {
	t.Parallel()
	up := &process.Process{}
	one, two, down := &Node{Name: "n1", run: up}, &Node{Name: "n2", run: up}, &Node{Name: "n3"}
	c := &Cluster{Nodes: []*Node{one, two, down}}
	const all = routesPerPeer
	for name, tt := range map[string]struct {
		peers map[string]int
		want  string
	}{
		"connected":       {map[string]int{"n2": all}, ""},
		"third is down":   {map[string]int{"n2": all, "n3": 1}, ""},
		"not connected":   {nil, "0 of 4 connections to n2"},
		"crossed":         {map[string]int{"n2": 1}, "1 of 4 connections to n2"},
		"with a stranger": {map[string]int{"x": all}, "0 of 4 connections to n2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			routes := &server.Routez{}
			for peer, n := range tt.peers {
				for range n {
					routes.Routes = append(routes.Routes, &server.RouteInfo{RemoteName: peer})
				}
			}
			err := c.checkRoutes(one, routes)
			check.That(t, tt.want != "" || err == nil, "got %v, want none", err)
			check.That(t, tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want), "got %v, want one that says %q", err, tt.want)
		})
	}
}

// What a node reports of its health decides, and a node that is down is not asked.
func TestCheckCurrent(t *testing.T) {
	t.Parallel()
	health := `{"status":"unavailable","error":"JetStream is not current with the meta leader"}`
	monitor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			_, _ = w.Write([]byte("{}"))
			return
		}
		_, _ = w.Write([]byte(health))
	}))
	defer monitor.Close()
	n := &Node{Name: "n1", run: &process.Process{}, spec: nodeSpec{MonitorPort: monitor.Listener.Addr().(*net.TCPAddr).Port}} //nolint:forcetypeassert // TCP
	c := &Cluster{Nodes: []*Node{n, {Name: "n2"}}}
	check.ErrorContains(t, c.checkCurrent(t.Context()), "node n1", "not current with the meta leader")
	health = `{"status":"ok"}`
	check.OK(t, c.checkCurrent(t.Context()))
}

// A node that is down must find its ports free when it comes back.
func TestReservedPortsAreNobodyElses(t *testing.T) {
	t.Parallel()
	const n = portsPerNode * maxNodes
	seen := make(map[int]bool)
	for range 20 {
		b := check.Must(reservePorts(n))(t)
		t.Cleanup(func() { check.ErrorIs(t, b.close(), nil) })
		for _, port := range b.ports {
			check.That(t, !seen[port], "port %d was reserved twice", port)
			seen[port] = true
		}
	}
	check.Equal(t, len(seen), 20*n, "ports")
}

// A terminal sends Ctrl-C to the whole process group, in which nodes are except on Linux.
func TestCtrlCIsLeftToTheParent(t *testing.T) {
	t.Parallel()
	c := check.Must(StartCluster(t.Context(), ClusterConfig{}))(t)
	defer c.Stop()
	check.OK(t, c.Nodes[0].run.Interrupt())
	check.OK(t, c.Nodes[0].Stop())
}

// A node that the kernel kills for its memory would otherwise be missed by nobody.
func TestTheEndOfANodeIsLogged(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	defer time.AfterFunc(time.Minute, func() { _ = in.Close() }).Stop()
	c := check.Must(StartCluster(t.Context(), ClusterConfig{Logger: slog.New(slog.NewTextHandler(out, nil))}))(t)
	defer c.Stop()
	check.OK(t, c.Nodes[1].Kill()) // not by itself
	check.OK(t, c.Nodes[2].run.Kill())
	line := check.Must(bufio.NewReader(in).ReadString('\n'))(t)
	check.Contains(t, line, "by itself", "node=n3", "signal: killed", "n3/server.log")
	in.Close() // Stop writes as well
}
