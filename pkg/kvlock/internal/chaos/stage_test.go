package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// stage is the processes of a run, and their events.
type stage struct {
	t        *testing.T
	servers  string // URLs
	settings workerTask
	start    int64
	workers  []*child

	mu      sync.Mutex
	history history
	latest  map[string]int64 // when each task was last done with something
	leases  int              // that TestStoppedHolder has dealt with
}

// child is a worker as its parent sees it.
type child struct {
	*crash.Process

	name  string
	proxy *crash.Network
	life  int           // how often it was started
	heard chan struct{} // closed when all that it said was taken down
}

// newStage makes the buckets and starts the workers.
func newStage(t *testing.T, servers string, replicas int, settings workerTask, workers int) *stage {
	t.Helper()
	s := &stage{t: t, servers: servers, settings: settings, start: now(), latest: map[string]int64{}}
	s.history.start = s.start
	js := connect(s.t, s.servers)
	for _, name := range []string{lockBucket, resultBucket, valueBucket} {
		check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: name, Replicas: replicas}))
	}
	for i := range workers {
		c := &child{name: fmt.Sprintf("w%d", i), proxy: crash.NewNetwork(t, servers)}
		s.workers = append(s.workers, c)
		s.launch(c)
	}
	return s
}

func connect(t *testing.T, servers string) jetstream.JetStream {
	t.Helper()
	nc := check.Must(nats.Connect(servers, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.IgnoreDiscoveredServers()))(t)
	t.Cleanup(nc.Close)
	return check.Must(jetstream.New(nc))(t)
}

// launch starts a worker, again if it was killed.
func (s *stage) launch(c *child) {
	s.t.Helper()
	c.life++
	task := s.settings
	task.Name, task.URLs = fmt.Sprintf("%s-%d", c.name, c.life), c.proxy.URLs
	task.Seed += uint64(slices.Index(s.workers, c)*1000 + c.life)
	p, heard := role.Start(s.t, task), make(chan struct{})
	c.Process, c.heard = p, heard
	go func() {
		defer close(heard)
		s.listen(p)
	}()
	s.t.Cleanup(func() { <-heard }) // the test's context has ended
}

// listen records the events that a worker prints until it is gone. A line that a kill cut short is left out.
func (s *stage) listen(p *crash.Process) {
	for {
		line, err := p.Process.Line(s.t.Context())
		if err != nil {
			return
		}
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Errorf("a worker printed %q: %v", line, err)
			return
		}
		s.mu.Lock()
		s.history.events = append(s.history.events, e)
		if e.Kind == released || e.Kind == got {
			s.latest[e.By] = e.From
		}
		s.mu.Unlock()
	}
}

// kill ends the process as a crash does, also when it is frozen. Its output is read to the end.
func (c *child) kill() {
	c.Kill()
	<-c.heard
}

// tasks are those that must come to an end with something, when nothing is in their way.
func (s *stage) tasks() (names []string) {
	for _, c := range s.workers {
		for i := range s.settings.Tasks {
			for j := range 2 { // locks and computations
				names = append(names, fmt.Sprintf("%s-%d.%d.%d", c.name, c.life, i, j))
			}
		}
	}
	return names
}

// finish waits until every task has got a lock, or a value, after all faults were over, and a result was accepted, stops the
// workers and reads what is there.
func (s *stage) finish() {
	s.t.Helper()
	healed := now()
	patience, cancel := context.WithTimeout(s.t.Context(), 4*s.settings.TTL+20*time.Second)
	defer cancel()
	accepts := func(e event) bool { return e.Kind == completed && e.Answer == accepted }
	for left, some := s.tasks(), false; len(left) > 0 || !some; {
		s.mu.Lock()
		left = slices.DeleteFunc(left, func(by string) bool { return s.latest[by] > healed })
		some = some || slices.ContainsFunc(s.history.events, accepts)
		s.mu.Unlock()
		if patience.Err() != nil {
			s.t.Errorf("left behind %s after the last fault: %v", time.Duration(now()-healed), left)
			break
		}
		sleep(patience, 20*time.Millisecond)
	}
	s.t.Logf("everybody had a turn %s after the last fault", time.Duration(now()-healed).Round(time.Millisecond))
	var stopped sync.WaitGroup
	for _, c := range s.workers {
		stopped.Go(func() {
			c.Stop()
			<-c.heard
		})
	}
	stopped.Wait()
	s.readAll()
	s.report()
	s.history.check(s.t)
}

// readAll reads the guarded values, and the claimed keys.
func (s *stage) readAll() {
	s.t.Helper()
	js := connect(s.t, s.servers)
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	f := check.Must(flight.New(ctx, js, flight.Config{Bucket: resultBucket, OpTimeout: 10 * time.Second}))(s.t)
	defer f.Close()
	for _, e := range s.history.events {
		if e.Kind != completed || e.Answer != accepted {
			continue
		}
		from := now()
		entry := check.Must(f.Get(ctx, e.Name))(s.t)
		s.history.events = append(s.history.events, event{Kind: read, Name: e.Name, Value: string(entry.Value), From: from, To: now()})
	}
	g := check.Must(kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: valueBucket, OpTimeout: 10 * time.Second}))(s.t)
	defer g.Close()
	for _, name := range lockNames {
		from := now()
		last := check.Must(g.Get(ctx, name))(s.t)
		s.history.events = append(s.history.events, event{Kind: read, Name: name, Value: string(last.Value), From: from, To: now()})
	}
}

func (s *stage) report() {
	s.t.Helper()
	count := map[string]int{}
	for _, e := range s.history.events {
		count[string(e.Kind)+string(e.Answer)]++
	}
	s.t.Logf("%d events in %s: %v", len(s.history.events), sinceStart(now(), s.start), count)
}

// faults is a lane of faults, one after the other, until enough was done.
type fault struct {
	name string
	do   func(ctx context.Context, s *stage, r *rand.Rand)
}

// run does each fault in its own order, rounds times.
func (s *stage) run(ctx context.Context, r *rand.Rand, rounds int, faults []fault) {
	for range rounds {
		for _, i := range r.Perm(len(faults)) {
			sleep(ctx, 200*time.Millisecond+rand.N(300*time.Millisecond))
			if ctx.Err() != nil {
				return
			}
			from := now()
			faults[i].do(ctx, s, r)
			s.t.Logf("%s to %s: %s", sinceStart(from, s.start), sinceStart(now(), s.start), faults[i].name)
		}
	}
}

// event is one line that a worker writes down. Times are of the machine's monotonic clock: From before the operation was
// begun, To after it had returned.
type event struct {
	Kind   kind         `json:"kind"`
	By     string       `json:"by"`              // which worker and which of its tasks
	Lease  string       `json:"lease,omitempty"` // which of its leases or claims
	Name   string       `json:"name"`            // of the lock, or the key
	Token  kvlock.Token `json:"token"`
	Value  string       `json:"value,omitempty"`
	Answer answer       `json:"answer,omitempty"`
	Error  string       `json:"error,omitempty"`
	From   int64        `json:"from"`
	To     int64        `json:"to"`
}

type kind string

const (
	acquired  kind = "acquired"  // a lease was got
	alive     kind = "alive"     // the lease's context had not ended at From
	released  kind = "released"  // it was given back
	gaveUp    kind = "gave up"   // the waiter for a lock gave up
	writes    kind = "writes"    // the guarded value is about to be written under a lease
	wrote     kind = "wrote"     // and was, or was not
	completed kind = "completed" // a claim was ended with a result
	got       kind = "got"       // Do returned a value
	read      kind = "read"      // an entry at the end of the run
	failed    kind = "failed"    // an operation that should not fail did
)

type answer string

const (
	accepted answer = "accepted"
	refused  answer = "refused"
	unknown  answer = "unknown"
)

// A process that holds a lock is stopped for longer than its TTL. It looks at its lease's context thousands of times a
// second, and when it goes on, none of these looks shows a live lease, because another process has the lock by then.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	times := 3
	if crash.Long() {
		times = 40
	}
	srv := crash.StartServer(t)
	r := crash.Random(t)(0)
	s := newStage(t, srv.URL, 1, workerTask{TTL: time.Second, Tasks: 1, HoldUntilLost: true}, 2)
	for range times {
		c := s.holder()
		sleep(t.Context(), time.Duration(r.Int64N(int64(100*time.Millisecond))))
		c.Pause()
		sleep(t.Context(), between(r, 1200*time.Millisecond))
		c.Continue()
	}
	for _, c := range s.workers {
		c.kill()
	}
	s.report()
	n := len(s.history.holds()[lockNames[0]])
	check.That(t, n > times, "%d leases in %d stops", n, times)
	for _, all := range s.history.holds() {
		checkOverlap(t, all, s.start)
	}
}

// holder waits until a lease has begun that was not there before, and returns whose it is.
func (s *stage) holder() *child {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		s.mu.Lock()
		var latest event
		leases := 0
		for _, e := range s.history.events {
			if e.Kind == acquired {
				latest = e
				leases++
			}
		}
		s.mu.Unlock()
		for _, c := range s.workers {
			if leases > s.leases && latest.By[:len(c.name)] == c.name {
				s.leases = leases
				return c
			}
		}
		sleep(s.t.Context(), 5*time.Millisecond)
	}
	s.t.Fatal("nobody holds the lock")
	return nil
}
