// Package crash_test kills workers and servers at every point of a job's life and counts effects.
package crash_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestMain(m *testing.M) { crash.Main(m, 4, workers, manyKinds) }

// TestNoEffectIsLostOrDoubled kills worker processes at every point of a job's life, on one server, on one that is killed as well, and on
// three whose leader is killed. Half of the jobs have steps and are unique, and are inserted twice; the others share few subjects, and are
// ordered. Every job must have its effect. No effect may be repeated once its step was recorded, the completion of its unique job was
// recorded, the next job of its order has started or, as long as its server lives, its job was acknowledged. No job may start before the
// effect of the one before it.
//
//	go test ./crash                      some hundred jobs
//	go test ./crash -args -long          30,000
//	go test ./crash -args -seed N        with the choices of another run
func TestNoEffectIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	choices := crash.Random(t)
	jobs, kills := 160, 2
	if crash.Long() {
		jobs, kills = 10_000, 10
	}
	play := func(t *testing.T, on *crash.Servers, jobs, kills int, at ...point) {
		t.Helper()
		r := &run{
			at: slices.Repeat(at, kills), jobs: jobs, log: crash.NewLog(t), random: choices(uint64(len(t.Name()))), servers: on,
			stream: strings.NewReplacer(" ", "_", "/", "-", ",", "").Replace(t.Name()),
		}
		r.play(t)
	}
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		on := crash.OneServer(t)
		for _, at := range points {
			t.Run(string(at), func(t *testing.T) {
				t.Parallel()
				play(t, on, jobs/len(points), kills, at)
			})
		}
	})
	t.Run("one server, killed", func(t *testing.T) {
		t.Parallel()
		play(t, crash.MortalServer(t), jobs, kills, points...)
	})
	t.Run("three servers, the leader killed", func(t *testing.T) {
		t.Parallel()
		play(t, crash.ThreeServers(t), jobs, max(1, kills/2), points...)
	})
}

// ordered is how far apart the jobs of one subject are that are not unique.
const ordered = 8

// before returns the job that goes before another in its order, "" for none.
func before(id string) string {
	if n, err := strconv.Atoi(id); err == nil && n%2 == 0 && n >= ordered {
		return strconv.Itoa(n - ordered)
	}
	return ""
}

// run is some jobs on some servers, whose workers are killed at some points.
type run struct {
	at       []point
	inserted int
	jobs     int
	js       jetstream.JetStream
	log      *crash.Log
	random   *rand.Rand
	servers  *crash.Servers
	spawned  int
	stream   string
}

func (r *run) play(t *testing.T) {
	t.Helper()
	r.js = newStream(t, r.servers, r.stream)
	// Each worker finds jobs enough to come to its point.
	portion := r.jobs / (len(r.at) + 1)
	for i, at := range r.at {
		r.kill(t, at, portion, r.servers.Restart != nil && (crash.Long() || i%4 == 1))
	}
	last := r.spawn(t, nowhere, 0)
	check.OK(t, r.insert(t.Context(), r.jobs-r.inserted))
	drained(t, r.js, r.stream, consumer)
	last.Stop()
	r.judge(t)
}

// newStream creates the stream of the jobs of a test, and the bucket.
func newStream(t *testing.T, on *crash.Servers, name string) jetstream.JetStream {
	t.Helper()
	_, js := natstest.ConnectURL(t, on.URL)
	for _, cfg := range []jetstream.StreamConfig{worker.StreamConfig(name, name+".>"), {
		Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, AllowMsgTTL: true, AllowRollup: true,
		Discard: jetstream.DiscardNew,
	}} {
		cfg.Replicas = on.Replicas
		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error { return check.Err(js.CreateOrUpdateStream(ctx, cfg)) }))
	}
	return js
}

// kill inserts jobs and has a worker die of them, while the server or the leader may be killed.
func (r *run) kill(t *testing.T, at point, jobs int, restart bool) {
	t.Helper()
	p := r.spawn(t, at, 1+r.random.IntN(max(1, jobs/2))) // half of them come to every point
	inserted := make(chan error, 1)
	go func() { inserted <- r.insert(t.Context(), jobs) }()
	if restart {
		check.ErrorIs(t, r.servers.Restart(t.Context(), r.stream), nil)
	}
	check.OK(t, <-inserted)
	p.Died()
}

// insert inserts jobs, those with an odd number twice.
func (r *run) insert(ctx context.Context, jobs int) error {
	ctx, cancel := context.WithTimeout(ctx, crash.Patience)
	defer cancel()
	client, err := worker.NewClient(r.js, worker.ClientConfig{SettleTimeout: crash.Patience, Stream: r.stream})
	if err != nil {
		return err
	}
	for end := r.inserted + jobs; r.inserted < end; r.inserted++ {
		job := worker.NewJob{Args: r.inserted, ID: fmt.Sprint(r.inserted), Subject: fmt.Sprintf("%s.%d", r.stream, r.inserted)}
		if r.inserted%2 == 0 {
			job.Subject = fmt.Sprintf("%s.%d", r.stream, r.inserted%ordered)
		} else {
			job.Unique = &worker.Unique{Keep: time.Hour}
		}
		if err := insert(ctx, client, job); err != nil {
			return err
		}
	}
	return nil
}

// insert inserts a job, a unique one twice.
func insert(ctx context.Context, client *worker.Client, job worker.NewJob) error {
	_, err := client.Insert(ctx, job)
	if err == nil && job.Unique != nil {
		var receipt worker.Receipt
		if receipt, err = client.Insert(ctx, job); err == nil && !receipt.Duplicate {
			err = fmt.Errorf("job %s was inserted twice", job.ID)
		}
	}
	return err
}

// mortal reports whether a server without replicas is killed, which may forget acknowledgements.
func (r *run) mortal() bool { return r.servers.Restart != nil && r.servers.Replicas <= 1 }

func (r *run) spawn(t *testing.T, at point, after int) *crash.Process {
	t.Helper()
	r.spawned++
	return workers.Start(t, task{
		AcksLast: r.servers.Restart == nil, After: after, Log: r.log.Path(), Name: fmt.Sprint("p", r.spawned), NATS: r.servers.URL,
		Ordered: !r.mortal(), Point: at, Stream: r.stream,
	})
}

// drained waits until consumers have no job left, for as long as there are fewer and fewer.
func drained(t *testing.T, js jetstream.JetStream, stream string, consumers ...string) {
	t.Helper()
	fewest, since := uint64(math.MaxUint64), time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		var left uint64
		var err error
		for _, name := range consumers {
			found, failed := js.Consumer(t.Context(), stream, name)
			if err = failed; err != nil {
				break
			}
			left += found.CachedInfo().NumPending + uint64(found.CachedInfo().NumAckPending)
		}
		if err == nil && left == 0 {
			return
		}
		if err == nil && left < fewest {
			fewest, since = left, time.Now()
		}
		check.Require(t, time.Since(since) <= crash.Patience, "%d jobs are left in the stream: %v", fewest, err)
		<-time.After(wait)
	}
}

func (r *run) judge(t *testing.T) {
	t.Helper()
	inOrder := before
	if r.mortal() {
		inOrder = nil
	}
	got := check.Must(r.log.Judge(func(yield func(string) bool) {
		for n := range r.jobs {
			ids := []string{fmt.Sprint(n)}
			if n%2 == 1 {
				ids = append(ids, ids[0]+"/"+steps[0], ids[0]+"/"+steps[1])
			}
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	}, inOrder))(t)
	check.ErrorIs(t, got.Err(), nil)
	most := len(r.at) * concurrency
	check.That(t, got.Unrecorded <= most || r.servers.Restart != nil, "%d repetitions, want at most the jobs in hand at %d deaths: %d",
		got.Unrecorded, len(r.at), most)
	t.Logf("%d jobs, %d kills: %d effects, %d of them repeated before their record", r.jobs, len(r.at), got.Wanted, got.Unrecorded)
}
