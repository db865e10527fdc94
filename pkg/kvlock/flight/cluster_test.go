package flight_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// op is one operation on a claim, for the check of the common history.
type op struct {
	key, kind, claim string
}

// input returns the operation that porcupine hands back.
func input(v any) op {
	o, _ := v.(op)
	return o
}

// answers of an operation.
const (
	acked   = "acked"
	lost    = "lost"
	unknown = "unknown"
)

// claims is the state machine of one key: "" is absent, "p:" and a claim is pending, "d:" and a claim is done.
var claims = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := input(o.Input).key
			byKey[key] = append(byKey[key], o)
		}
		var all [][]porcupine.Operation
		for _, h := range byKey {
			all = append(all, h)
		}
		return all
	},
	Init: func() any { return "" },
	Step: func(state, in, output any) (bool, any) {
		o := input(in)
		pending := "p:" + o.claim
		from := pending
		if o.kind == "begin" {
			from = ""
		}
		to := map[string]string{"begin": pending, "renew": pending, "complete": "d:" + o.claim, "release": ""}[o.kind]
		switch {
		case state == from && (output != lost || o.kind != "renew"):
			return true, to // lost: it was applied, and another client wrote before its outcome was read back
		case output == acked:
			return false, state
		default:
			return state != from || output == unknown, state
		}
	},
	DescribeOperation: func(in, output any) string { return fmt.Sprint(in, " ", output) },
}

// recorder collects the history.
type recorder struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
	count map[string]int
}

// more waits until n more operations were acknowledged.
func (r *recorder) more(ctx context.Context, n int) {
	acks := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.count[acked]
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for target := acks() + n; acks() < target && ctx.Err() == nil; {
		<-look.C
	}
}

// do runs an operation and records it. It returns the outcome.
func (r *recorder) do(client int, o *op, f func() error) (answer string) {
	call := time.Since(r.start)
	err := f()
	end := int64(time.Since(r.start))
	switch {
	case err == nil:
		answer = acked
	case errors.Is(err, flight.ErrTaken):
		return "" // says nothing: the entry in it was only read
	case errors.Is(err, kvlock.ErrLost):
		answer = lost
	default:
		answer, end = unknown, math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[answer]++
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: *o, Call: int64(call), Output: answer, Return: end})
	return answer
}

// The leader of a cluster of three is killed, or frozen and thawed, under workers that take claims from each other.
// Their results fit one order of all operations.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	faults := 1
	if crash.Long() {
		faults = 12
	}
	cluster := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, cluster.URLs())
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: bucket, Replicas: 3}))
	r := &recorder{start: time.Now(), count: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var generation, clients, turns atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		_, js := natstest.ConnectURL(t, cluster.URLs())
		f := flightOn(t, js, flight.Config{ClaimTTL: time.Hour, OpTimeout: 3 * time.Second})
		for range 3 {
			all.Go(func() {
				client := int(clients.Add(1))
				for {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprintf("k%d", generation.Load())
					if turns.Add(1)%1000 == 0 || !contend(ctx, r, &client, &clients, f, key) {
						generation.Add(1) // a fresh key: the old one is done, or its holder is unknown
					}
				}
			})
		}
	}
	for i := range faults {
		r.more(ctx, 500)
		disturbLeader(ctx, t, cluster, i)
	}
	r.more(ctx, 500)
	close(stop)
	all.Wait()
	t.Logf("%d operations on %d keys: %v", len(r.ops), generation.Load(), r.count)
	check.Equal(t, porcupine.CheckOperationsTimeout(claims, r.ops, time.Minute), porcupine.Ok, "the history")
}

// contend is one worker's turn with a key. It reports whether the key is still of use.
func contend(ctx context.Context, r *recorder, client *int, clients *atomic.Int64, f *flight.Flight, key string) bool {
	run := func(o op, do func(*op) error) string {
		answer := r.do(*client, &o, func() error { return do(&o) })
		if answer == unknown {
			*client = int(clients.Add(1)) // it is still under way for all we know
		}
		return answer
	}
	var c *flight.Claim
	begun := run(op{key: key, kind: "begin", claim: fmt.Sprint("?", rand.Uint64())}, func(o *op) (err error) {
		entry, err := f.Get(ctx, key)
		if err != nil || entry.State != flight.Absent {
			return flight.ErrTaken // nothing was tried
		}
		if c, err = f.Begin(ctx, key, flight.BeginOptions{Seen: entry}); err == nil {
			o.claim = c.ID()
		}
		return err
	})
	if begun != acked {
		return begun != unknown
	}
	renewed := run(op{key: key, kind: "renew", claim: c.ID()}, func(*op) error { return c.Renew(ctx, 0) })
	if rand.IntN(20) == 0 {
		run(op{key: key, kind: "complete", claim: c.ID()}, func(*op) error { return check.Err(c.Complete(ctx, []byte("v"), 0)) })
		return false
	}
	released := run(op{key: key, kind: "release", claim: c.ID()}, func(*op) error { return c.Release(ctx) })
	return renewed != unknown && released != unknown
}

// disturbLeader kills or pauses the leader, or makes it step down, and waits until the cluster is ready.
func disturbLeader(ctx context.Context, t *testing.T, cluster *natsrun.Cluster, turn int) {
	t.Helper()
	leader, err := cluster.StreamLeader(ctx, "KV_"+bucket)
	if err != nil {
		t.Error(err)
		return
	}
	switch turn % 3 {
	case 0:
		check.ErrorIs(t, errors.Join(leader.Kill(), leader.Start(ctx)), nil)
	case 1:
		check.ErrorIs(t, leader.Pause(), nil)
		frozen := time.NewTimer(3 * time.Second)
		<-frozen.C
		check.ErrorIs(t, leader.Continue(), nil)
	default:
		check.ErrorIs(t, cluster.StepDown(ctx, "KV_"+bucket), nil)
	}
	check.ErrorIs(t, cluster.WaitReady(ctx), nil)
}

// Waiters on a cluster whose leader is killed get the result that is completed after it.
func TestWaitersSurviveTheLeader(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, cluster.URLs())
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: bucket, Replicas: 3}))
	ctx := within(t)
	owner := flightOn(t, js, flight.Config{OpTimeout: 20 * time.Second})
	c := begin(t, owner, "k", flight.BeginOptions{})
	var all sync.WaitGroup
	for range 3 {
		_, js := natstest.ConnectURL(t, cluster.URLs())
		f := flightOn(t, js, flight.Config{})
		all.Go(func() {
			for {
				s, err := f.Wait(ctx, "k")
				if err == nil && s.State == flight.Absent {
					continue // a replica that lags behind
				}
				check.That(t, err == nil && string(s.Value) == "v", "got %+v, %v", s, err)
				return
			}
		})
	}
	leader := check.Must(cluster.StreamLeader(ctx, "KV_"+bucket))(t)
	check.OK(t, leader.Kill())
	complete(t, c, "v")
	all.Wait()
}
