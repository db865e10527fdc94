package natstest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// quietInterval is an interval longer than the fake time of any test.
const quietInterval = 365 * 24 * time.Hour

// statszInterval is the time between two reports of a server's usage of the machine to the system account. In a day of fake time they took
// longer than all other work.
//
//go:linkname statszInterval github.com/nats-io/nats-server/v2/server.statsHBInterval
var statszInterval time.Duration

// Pass lets fake time pass, inside a Bubble or another function of testing/synctest. It costs no real time there.
func Pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time in a bubble

// Bubble runs f under fake time (testing/synctest) with a separate server:
// a TTL of a week, an AckWait or a backoff passes in milliseconds, and at the
// exact instant. The clock moves when every goroutine of the bubble waits.
//
//	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
//		_, js := natstest.Connect(t, srv)
//		...            // kv.Create(ctx, "k", nil, jetstream.KeyTTL(time.Minute))
//		natstest.Pass(time.Minute + time.Second)
//		...            // the key has expired
//	})
//
// Inside, connect with Connect or srv.Connect only: a real socket is not part of
// the bubble, so there is neither TCP nor a cluster. srv.Restart works. Every
// goroutine that f starts must have ended when f and its cleanups return;
// otherwise the test fails, which makes the bubble a leak check as well. Time is
// fake but scheduling is not seeded: a failure need not repeat exactly. The fake clock starts at midnight UTC 2000-01-01, or at the time
// of At.
//
// A message is removed up to 250 ms after its TTL. Each other message with a TTL that is stored before then delays the removal by another
// 250 ms, until the server's access clock advances, every 100 ms of real time.
//
// The server also counts the ages of messages by that access clock, which begins with the bubble and goes on in real time. So the MaxAge
// of a stream removes no message in a bubble.
//
// Neither the test nor its parents may call t.Parallel: the test fails if one does. Go runs tests that are not parallel first, one at a
// time, while the parallel tests wait. A bubble has to be alone because nats.go keeps one pool of timers per process, and a timer of one
// bubble must not be set in another or outside.
func Bubble(t *testing.T, f func(t *testing.T, srv *natsrun.Server), mutate ...func(*natsrun.Config)) {
	t.Helper()
	refuseParallel(t)
	forgetTimers()
	defer forgetTimers()
	defer startAccessClock()()
	interval := statszInterval
	statszInterval = quietInterval
	defer func() { statszInterval = interval }()
	synctest.Test(t, func(t *testing.T) { f(t, Server(t, slices.Concat([]func(*natsrun.Config){quiet}, mutate)...)) })
}

// accessTime and accessUsers are the server's access clock, and the number of stores that use it.
//
//go:linkname accessTime github.com/nats-io/nats-server/v2/server/ats.utime
var accessTime atomic.Int64

//go:linkname accessUsers github.com/nats-io/nats-server/v2/server/ats.refs
var accessUsers atomic.Int64

// startAccessClock runs the access clock from the beginning of fake time, until stop is called. Otherwise the ticker of the server's first
// store would run it. In a bubble these ticks would be the only events that ever happen. Outside they would set the real year, in which
// each message is older than its MaxAge as soon as the configuration of its stream is changed.
func startAccessClock() (stop func()) {
	accessUsers.Add(1) // the first store finds a running clock
	accessTime.Store(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	ticker := time.NewTicker(ats.TickInterval)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				accessTime.Add(int64(ats.TickInterval))
			case <-end:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(end)
		<-ended
		accessUsers.Add(-1)
	}
}

// RunBubble runs Bubble as a subtest.
func RunBubble(t *testing.T, name string, f func(t *testing.T, srv *natsrun.Server), mutate ...func(*natsrun.Config)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Bubble(t, f, mutate...) })
}

// At returns a mutation for Bubble: the server starts when the fake clock has reached t. Before the server starts, months of fake time
// take no real time.
func At(t time.Time) func(*natsrun.Config) {
	return func(*natsrun.Config) { time.Sleep(time.Until(t)) } //nolint:forbidigo // fake time
}

// refuseParallel fails a test that runs in parallel with others. The testing package shows that only by the panic of t.Setenv.
func refuseParallel(t *testing.T) {
	t.Helper()
	defer func() {
		check.Require(t, recover() == nil,
			"natstest.Bubble: this test, or one that contains it, calls t.Parallel: remove the call, a bubble has to be alone")
	}()
	t.Setenv("EXPEDITER_BUBBLE", "") // never read
}

// timers is the pool of free timers of nats.go, for Conn.Request, Flush, Drain and reconnects.
//
//go:linkname timers github.com/nats-io/nats%2ego.globalTimerPool
var timers struct{ pool sync.Pool }

// forgetTimers empties the pool. No other goroutine uses it in the meantime: a bubble runs alone. Two garbage collections
// would empty it as well, and take longer than a short test.
func forgetTimers() { timers.pool = sync.Pool{} }

// quiet makes the server's periodic work rare: in a day of fake time, a sync to disk each second would take as long as in a day of real
// time.
func quiet(c *natsrun.Config) {
	natsrun.ChangeOptions(c, func(o *server.Options) { o.PingInterval, o.SyncInterval = quietInterval, quietInterval })
}

// Background runs f until stop is called, at the latest when the test ends. stop ends the context of f and waits for f. An error of f
// fails the test.
func Background(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		err := <-done
		check.That(t, err == nil, "in the background: %v", err)
	})
	t.Cleanup(stop)
	return stop
}
