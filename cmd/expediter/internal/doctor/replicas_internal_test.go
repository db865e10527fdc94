package doctor

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A node that is frozen or cut off said nothing: the server calls it offline much later.
func TestReplicasThatAreAway(t *testing.T) {
	t.Parallel()
	e := &examination{}
	e.checkState(target{}, "stream JOBS", jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 6}, Cluster: &jetstream.ClusterInfo{Leader: "n1", Replicas: []*jetstream.PeerInfo{
		{Name: "n2", Active: time.Second, Current: true}, {Name: "n3", Active: 11500 * time.Millisecond}, {Name: "n4", Offline: true}, {Name: "n5", Lag: 7},
	}}})
	var found []string
	for _, f := range e.findings {
		found = append(found, f.ID+": "+f.Problem)
	}
	check.Equal(t, found, []string{
		"replica.behind: 1 of its 6 replicas did not join it",
		"replica.offline: its replica on n3 was silent for more than 10s", "replica.offline: its replica on n4 is offline",
		"replica.behind: its replica on n5 is behind",
	})
}
