package natsrun

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// What a real cluster is in for too short a time to be caught at it.
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
			if tt.want == "" && err != nil {
				t.Errorf("got %v, want none", err)
			}

			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want one that says %q", err, tt.want)
			}
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
			if tt.want == "" && err != nil {
				t.Errorf("got %v, want none", err)
			}

			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want one that says %q", err, tt.want)
			}
		})
	}
}
