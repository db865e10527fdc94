package natsrun

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// States that a real cluster passes through too quickly to be observed.
func TestCheckStreams(t *testing.T) {
	t.Parallel()
	const leader, follower = "n1", "n2"
	stream := func(lastSeq uint64, lead string) *server.JSInfo {
		return &server.JSInfo{AccountDetails: []*server.AccountDetail{{Streams: []server.StreamDetail{{
			Name: "S", State: server.StreamState{LastSeq: lastSeq},
			Cluster: &server.ClusterInfo{Leader: lead, Replicas: []*server.PeerInfo{{Name: follower}, {Name: "n3"}}},
		}}}}}
	}
	for _, tt := range []struct {
		name  string
		other *server.JSInfo
		lead  string
		want  string
	}{
		{"caught up", stream(5, leader), leader, ""},
		{"ahead, after more writes", stream(6, leader), leader, ""},
		{"behind", stream(4, leader), leader, "behind"},
		{"does not know the stream yet", &server.JSInfo{}, leader, "behind"},
		{"nobody leads", stream(5, ""), "", ErrNoLeader.Error()},
		{"down", nil, leader, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			view := map[string]*server.JSInfo{leader: stream(5, tt.lead)}
			if tt.other != nil {
				view[follower] = tt.other
			}
			err := checkStreams(view, view)
			check.That(t, tt.want != "" || err == nil, "got %v, want none", err)
			check.That(t, tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want), "got %v, want one that says %q", err, tt.want)
		})
	}
}

func TestCheckConsumers(t *testing.T) {
	t.Parallel()
	const leader, follower = "n1", "n2"
	stream := func(lead string, consumers ...string) *server.JSInfo {
		d := server.StreamDetail{Name: "S", Cluster: &server.ClusterInfo{Leader: "n3"}}
		for _, name := range consumers {
			d.Consumer = append(d.Consumer, &server.ConsumerInfo{Name: name, Cluster: &server.ClusterInfo{
				Leader: lead, Replicas: []*server.PeerInfo{{Name: follower}, {Name: "n4"}},
			}})
		}
		return &server.JSInfo{AccountDetails: []*server.AccountDetail{{Streams: []server.StreamDetail{d}}}}
	}
	for name, tt := range map[string]struct {
		lead  string
		other *server.JSInfo
		want  string
	}{
		"there":              {leader, stream(leader, "b", "a"), ""},
		"missing":            {leader, stream(leader, "b"), "consumer a of S on n2 is missing"},
		"the stream as well": {leader, &server.JSInfo{}, "consumer a of S on n2 is missing"},
		"down":               {leader, nil, ""},
		"led by none":        {"", nil, "has no leader"},
		"led by another":     {"n4", stream(leader), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view := map[string]*server.JSInfo{leader: stream(tt.lead, "a")}
			if tt.other != nil {
				view[follower] = tt.other
			}
			err := checkStreams(view, view)
			check.That(t, tt.want != "" || err == nil, "got %v, want none", err)
			check.That(t, tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want), "got %v, want one that says %q", err, tt.want)
		})
	}
}

func TestCheckMeta(t *testing.T) {
	t.Parallel()
	meta := func(leader string, peers ...*server.PeerInfo) *server.JSInfo {
		return &server.JSInfo{Meta: &server.MetaClusterInfo{Leader: leader, Replicas: peers}}
	}
	good := &server.PeerInfo{Name: "n2", Current: true}
	for name, tt := range map[string]struct {
		view map[string]*server.JSInfo
		want string
	}{
		"agreed":          {map[string]*server.JSInfo{"n1": meta("n1", good), "n2": meta("n1")}, ""},
		"no leader":       {map[string]*server.JSInfo{"n1": meta("")}, "no meta leader"},
		"no meta layer":   {map[string]*server.JSInfo{"n1": {}}, "no meta leader"},
		"two leaders":     {map[string]*server.JSInfo{"n1": meta("n1", good), "n2": meta("n2")}, "meta leader is"},
		"leader is down":  {map[string]*server.JSInfo{"n2": meta("n1")}, "does not run"},
		"unknown node":    {map[string]*server.JSInfo{"n1": meta("n1"), "n2": meta("n1")}, "n2 as current"},
		"node is offline": {map[string]*server.JSInfo{"n1": meta("n1", &server.PeerInfo{Name: "n2", Current: true, Offline: true}), "n2": meta("n1")}, "n2 as current"},
		"node is behind":  {map[string]*server.JSInfo{"n1": meta("n1", &server.PeerInfo{Name: "n2"}), "n2": meta("n1")}, "n2 as current"},
		"nobody there":    {map[string]*server.JSInfo{}, "does not run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkMeta(tt.view)
			check.That(t, tt.want != "" || err == nil, "got %v, want none", err)
			check.That(t, tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want), "got %v, want one that says %q", err, tt.want)
		})
	}
}

func TestCheckRoutes(t *testing.T) {
	t.Parallel()
	routes := func(peers map[string]int) *server.Routez {
		all := &server.Routez{}
		for peer, n := range peers {
			for range n {
				all.Routes = append(all.Routes, &server.RouteInfo{RemoteName: peer})
			}
		}
		return all
	}
	const all = routesPerPeer
	for name, tt := range map[string]struct {
		view map[string]*server.Routez
		want string
	}{
		"connected":       {map[string]*server.Routez{"n1": routes(map[string]int{"n2": all}), "n2": routes(map[string]int{"n1": all})}, ""},
		"one node":        {map[string]*server.Routez{"n1": routes(nil)}, ""},
		"third is down":   {map[string]*server.Routez{"n1": routes(map[string]int{"n2": all, "n3": 1}), "n2": routes(map[string]int{"n1": all})}, ""},
		"not connected":   {map[string]*server.Routez{"n1": routes(nil), "n2": routes(nil)}, "has 0 of 4 connections to"},
		"crossed":         {map[string]*server.Routez{"n1": routes(map[string]int{"n2": 1}), "n2": routes(map[string]int{"n1": 1})}, "has 1 of 4 connections to"},
		"on one side":     {map[string]*server.Routez{"n1": routes(map[string]int{"n2": all}), "n2": routes(map[string]int{"n1": 3})}, "n2 has 3 of 4 connections to n1"},
		"with a stranger": {map[string]*server.Routez{"n1": routes(map[string]int{"x": all}), "n2": routes(map[string]int{"n1": all})}, "n1 has 0 of 4 connections to n2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkRoutes(tt.view)
			check.That(t, tt.want != "" || err == nil, "got %v, want none", err)
			check.That(t, tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want), "got %v, want one that says %q", err, tt.want)
		})
	}
}

// A node that is down must find its ports free when it comes back.
func TestReservedPortsAreNobodyElses(t *testing.T) {
	t.Parallel()
	const n = portsPerNode * maxNodes
	seen := make(map[int]bool)
	for range 20 {
		b := check.Must(reservePorts(n))(t)
		t.Cleanup(func() {
			check.Is(t, b.close(), nil)
		})
		for _, port := range b.ports {
			check.That(t, !seen[port], "port %d was reserved twice", port)
			seen[port] = true
		}
	}
	check.Same(t, "ports", len(seen), 20*n)
}

func TestPortsAreGivenBack(t *testing.T) {
	t.Parallel()
	b := check.Must(reservePorts(1))(t)
	guard := b.guard.Addr().String()
	check.Failsf(t, check.Err(listen(guard)), "%s can be had while its block is reserved", guard)
	check.OK(t, b.close())
	check.Is(t, b.close(), net.ErrClosed)
	check.Is(t, (*portBlock)(nil).close(), nil)
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
	check.Says(t, line, "by itself", "node=n3", "signal: killed", "n3/server.log")
	in.Close() // Stop writes as well
}
