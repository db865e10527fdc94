// Package natsrun runs NATS with JetStream inside a Go program: one server that is ready in milliseconds, or a cluster
// whose nodes can be stopped, killed and paused. The settings are those of deploy/nats, which production uses too.
//
// # A server in a program
//
// Start returns when the server takes connections. It listens only with Config.Listen or Config.Port, and then on
// 127.0.0.1; clients of the same program connect through memory, with Connect or nats.InProcessServer(srv), and
// reconnect after a Restart.
//
// # A server in a test
//
// Package natstest gives each test a separate server, so that tests can be parallel and need no clean-up. Copy this:
//
//	func TestStore(t *testing.T) {
//		t.Parallel()
//
//		srv := natstest.Server(t)         // stopped when the test ends
//		_, js := natstest.Connect(t, srv) // closed before that
//
//		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
//		if err != nil {
//			t.Fatal(err)
//		}
//
//		if err := srv.Restart(t.Context()); err != nil { // kv goes on working
//			t.Fatal(err)
//		}
//	}
//
// natstest.Bubble runs a server under fake time, in which a TTL of a week passes in seconds. natstest.NewUsers turns on
// the users and permissions of production.
//
// # A cluster
//
// StartCluster runs three nodes or more and returns when streams can be created on all of them. Each node is a process
// that runs the same executable, which Kill ends like a crash and Pause stops:
//
//	func TestMain(m *testing.M) {
//		natsrun.NodeMain() // a child runs a node here and exits
//		os.Exit(m.Run())
//	}
//
//	func TestLeaderDies(t *testing.T) {
//		c := natstest.Cluster(t, 3)
//		...
//		leader, err := c.StreamLeader(t.Context(), "KV_b")
//		...
//		err = leader.Kill()
//	}
//
// After the crash of a leader the others elect one in 4 to 9 seconds, the
// server's own timers.
//
// # Restarts
//
// File streams and buckets keep everything over Restart, over Node.Stop and over Node.Kill: the death of a process loses no acknowledged
// message. Memory streams of a single server start empty. For the loss after a power failure, see sync_interval in the configuration
// files.
package natsrun
