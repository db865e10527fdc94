// Package fastelection makes the servers of a test binary elect a new leader in about a second after a crash. Production takes 4 to 9
// seconds. Import it for effect, in tests only:
//
//	import _ "github.com/expediter-io/expediter/internal/testbed/fastelection"
//
// It writes the server's unexported Raft timers before other code runs, in the test and in the nodes that it starts as processes. A busy
// machine may then miss heartbeats that it would not miss in production: elections are more frequent, by the same rules.
package fastelection

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server" // has the linked variables
)

// The timers of server/raft.go, v2.15.2.
var (
	//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
	minElectionTimeout time.Duration
	//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
	maxElectionTimeout time.Duration
	//go:linkname minCampaignTimeout github.com/nats-io/nats-server/v2/server.minCampaignTimeout
	minCampaignTimeout time.Duration
	//go:linkname maxCampaignTimeout github.com/nats-io/nats-server/v2/server.maxCampaignTimeout
	maxCampaignTimeout time.Duration
	//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
	hbInterval time.Duration
	//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
	lostQuorumInterval time.Duration
	//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
	lostQuorumCheck time.Duration
)

//nolint:gochecknoinits // the timers must change before any server reads them
func init() {
	minElectionTimeout = 750 * time.Millisecond
	maxElectionTimeout = 2500 * time.Millisecond
	minCampaignTimeout = 50 * time.Millisecond
	maxCampaignTimeout = 250 * time.Millisecond
	hbInterval = 200 * time.Millisecond
	lostQuorumInterval = time.Second
	lostQuorumCheck = time.Second
}
