package natstest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// quietInterval is longer than any test's time.
const quietInterval = 365 * 24 * time.Hour

// Bubble runs f under fake time (testing/synctest) with a server of its own:
// a TTL of a week, an AckWait or a backoff passes in milliseconds, and at the
// exact instant. The clock moves when every goroutine of the bubble waits.
//
//	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
//		_, js := natstest.Connect(t, srv)
//		...            // kv.Create(ctx, "k", nil, jetstream.KeyTTL(time.Minute))
//		time.Sleep(time.Minute + time.Second)
//		...            // the key has expired
//	})
//
// Inside, connect with Connect or srv.Connect only: a real socket is not part of
// the bubble, so there is neither TCP nor a cluster. srv.Restart works. Every
// goroutine that f starts must have ended when f and its cleanups return;
// otherwise the test fails, which makes the bubble a leak check as well. Time is
// fake but scheduling is not seeded: a failure need not repeat exactly. The
// fake clock starts at midnight UTC 2000-01-01.
//
// t.Parallel may be called before Bubble, not inside.
func Bubble(t *testing.T, f func(t *testing.T, srv *natsrun.Server), mutate ...func(*natsrun.Config)) {
	t.Helper()

	// The server's access clock is one ticker per process, started by the first
	// store. In a bubble its ticks would be the only events that ever happen, so
	// it starts outside.
	ats.Register()
	defer ats.Unregister()

	dir := t.TempDir() // its removal is a matter of real time too

	synctest.Test(t, func(t *testing.T) {
		f(t, Server(t, slices.Concat(mutate, []func(*natsrun.Config){func(c *natsrun.Config) { c.Dir = dir }, quiet})...))
	})
}

// quiet stretches the server's periodic work, which real time hides but a day
// that passes in a second does not: syncing to disk each second would take as
// long as it does outside.
func quiet(c *natsrun.Config) {
	mutate := c.Mutate

	c.Mutate = func(o *server.Options) {
		o.PingInterval = quietInterval
		o.SyncInterval = quietInterval

		if mutate != nil {
			mutate(o)
		}
	}
}
