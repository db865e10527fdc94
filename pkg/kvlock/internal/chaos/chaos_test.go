// Package chaos_test takes locks, changes guarded values and computes keys in separate processes, while the processes are killed and
// frozen, cut off in one direction, and their servers frozen, killed and deposed. Their common history is then judged by models of a
// lock, of a fenced register and of a claim, for results that were accepted, and for waiters that were left behind.
//
// Every process writes down what it does with the machine's one clock, so that "at once" means the same to all of them. The choices of a
// run come from its seed, which it prints; the machine's scheduling does not.
package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { crash.Main(m, 4, workers) }

// A single server is frozen, for a moment and for longer than the TTL, and killed.
func TestSingleServer(t *testing.T) {
	t.Parallel()
	test(t, crash.MortalServer(t))
}

// The leader of three servers is killed, frozen and deposed.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	test(t, crash.ThreeServers(t))
}

func TestProof(t *testing.T) { crash.Proof(t, "locks", round) }

func test(t *testing.T, on *crash.Servers) {
	t.Helper()
	result := round(t, on, crash.Random(t)(0), time.Now().Add(30*time.Minute))
	check.ErrorIs(t, result.Err(), nil)
}

// round injects each fault once, with -long 20 times, or until a time, and judges what the processes did.
func round(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
	t.Helper()
	rounds := 1
	if crash.Long() {
		rounds = 20
	}
	s := start(t, on, r, 3, task{})
	streams := []string{"KV_" + lockBucket, "KV_" + resultBucket}
	servers := on.Faults(s.effects, 3*ttl/2, streams...)
	if on.Replicas == 1 {
		servers = append(servers, on.Faults(s.effects, 60*time.Millisecond, streams...)...)
	}
	ctx, cancel := context.WithDeadline(t.Context(), until)
	defer cancel()
	var lanes sync.WaitGroup
	for _, faults := range [][]crash.Fault{s.group.Faults(ttl), servers} {
		choices := rand.New(rand.NewPCG(r.Uint64(), 0))
		lanes.Go(func() { check.ErrorIs(t, inject(ctx, choices, rounds, faults), nil) })
	}
	lanes.Wait()
	s.everybodyTurns(now())
	s.group.Stop()
	h := readHistory(t, s.history)
	h = append(h, s.readAll(h)...)
	result := check.Must(s.effects.Judge(slices.Values([]string(nil)), nil))(t)
	h.judge(t, &result)
	t.Logf("%d events, %d effects, faults %v, take-overs after %v", len(h), result.Wanted, result.Faults, result.TakeOvers)
	return result
}

// inject injects each fault a number of times, or until ctx ends.
func inject(ctx context.Context, r *rand.Rand, times int, faults []crash.Fault) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	for i, f := range faults {
		faults[i].Do = func(ctx context.Context, r *rand.Rand) error {
			n++
			if n == times*len(faults) {
				cancel() // Inject ends this fault first
			}
			return f.Do(ctx, r)
		}
	}
	return crash.Inject(ctx, r, 200*time.Millisecond, faults...)
}

// run is the processes of a test, and their logs.
type run struct {
	t       *testing.T
	servers string
	effects *crash.Log // which locks each process has, the turns that it had, and the faults
	history *crash.Log // of events
	group   *crash.Group
	names   []string // of all processes that there were
}

// start makes the buckets and starts n processes.
func start(t *testing.T, on *crash.Servers, r *rand.Rand, n int, of task) *run {
	t.Helper()
	s := &run{t: t, servers: on.URL, effects: crash.NewLog(t), history: crash.NewLog(t)}
	js := connect(t, on.URL)
	for _, name := range []string{lockBucket, resultBucket, valueBucket} {
		check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: name, Replicas: on.Replicas}))
	}
	seeds := rand.New(rand.NewPCG(r.Uint64(), 0))
	s.group = crash.NewGroup(t, s.effects, on.URL, n, func(name, servers string) *crash.Process {
		of.Effects, of.History, of.Name, of.URLs, of.Seed = s.effects.Path(), s.history.Path(), name, servers, seeds.Uint64()
		s.names = append(s.names, name)
		return workers.Start(t, of)
	})
	return s
}

func connect(t *testing.T, servers string) jetstream.JetStream {
	t.Helper()
	_, js := natstest.ConnectURL(t, servers, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.IgnoreDiscoveredServers())
	return js
}

// everybodyTurns waits until every goroutine of a process that waits for locks or values has got one after all faults were over.
func (s *run) everybodyTurns(healed int64) {
	s.t.Helper()
	var left []string
	check.Until(s.t, 4*ttl+20*time.Second, "nobody is left behind", func() bool {
		latest := map[string]int64{}
		dead := map[string]bool{}
		check.OK(s.t, s.effects.Entries(func(e crash.Entry) {
			switch {
			case e.Kind == turned:
				latest[e.ID] = e.At.UnixNano()
			case e.Kind == crash.Injected && e.ID == "process killed":
				dead[e.Process] = true
			}
		}))
		left = nil
		for _, name := range s.names {
			for i := 1; i <= 4 && !dead[name]; i++ { // two take locks and two compute
				if by := fmt.Sprintf("%s.%d", name, i); latest[by] <= healed {
					left = append(left, by)
				}
			}
		}
		return len(left) == 0
	})
}

// readAll reads the guarded values, and the results that were accepted.
func (s *run) readAll(h history) (reads history) {
	s.t.Helper()
	js := connect(s.t, s.servers)
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	f := check.Must(flight.New(ctx, js, flight.Config{Bucket: resultBucket, OpTimeout: 10 * time.Second}))(s.t)
	defer f.Close()
	for _, e := range h {
		if e.Kind == completed && e.Answer == accepted {
			from := now()
			entry := check.Must(f.Get(ctx, e.Name))(s.t)
			reads = append(reads, event{Kind: read, Name: e.Name, Value: string(entry.Value), From: from, To: now()})
		}
	}
	g := check.Must(kvlock.NewGuard(ctx, js, kvlock.GuardConfig{Bucket: valueBucket, OpTimeout: 10 * time.Second}))(s.t)
	defer g.Close()
	for _, name := range lockNames {
		from := now()
		last := check.Must(g.Get(ctx, name))(s.t)
		reads = append(reads, event{Kind: read, Name: name, Value: string(last.Value), Answer: accepted, From: from, To: now()})
	}
	return reads
}

// A process that holds a lock is frozen for longer than its TTL. It looks at its lease's context thousands of times a
// second, and when it goes on, none of these looks shows a live lease, because another process has the lock by then.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	times := 3
	if crash.Long() {
		times = 40
	}
	r := crash.Random(t)(0)
	s := start(t, crash.OneServer(t), r, 2, task{UntilLost: true})
	leases := 0
	for range times {
		var holder string
		check.Until(t, crash.Patience, "another lease has begun", func() bool {
			n := 0
			check.OK(t, s.effects.Entries(func(e crash.Entry) {
				if e.Kind == crash.Started {
					holder = e.Process
					n++
				}
			}))
			more := n > leases
			leases = n
			return more
		})
		p := s.group.Processes()[slices.Index(s.names, holder)]
		sleep(t.Context(), time.Duration(r.Int64N(int64(100*time.Millisecond))))
		p.Pause()
		sleep(t.Context(), ttl+time.Duration(r.Int64N(int64(ttl))))
		p.Continue()
	}
	s.group.Stop()
	for _, all := range readHistory(t, s.history).holds() {
		check.That(t, len(all) > times, "%d leases in %d freezes", len(all), times)
		check.Equal(t, overlaps(all), nil)
	}
}
