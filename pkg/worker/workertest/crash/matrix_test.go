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
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestMain(m *testing.M) { crash.Main(m, 4, workers, hands) }

// TestNoEffectIsLostOrDoubled kills worker processes at every point of a job's life, on one
// server, on one that is killed as well, and on three whose leader is killed. Half of the jobs
// have steps and are unique, and are inserted twice; the others share few subjects, and are
// ordered. All report to a recorder that is never killed. Every job must have one effect
// (which the recorder takes once only), no step may run again once it was kept, and no job
// once its completion was recorded or, as long as its server lives, acknowledged, nor before
// the one before it has its effect, or after the next one has started.
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
	recorder := newRecorder(t)
	play := func(t *testing.T, on *crash.Servers, jobs, kills int, at ...point) {
		t.Helper()
		c := &cell{
			at: slices.Repeat(at, kills), jobs: jobs, recorder: recorder, servers: on,
			random: choices(uint64(len(t.Name()))),
			stream: strings.NewReplacer(" ", "_", "/", "-", ",", "").Replace(t.Name()),
		}
		c.play(t)
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

// recorder is where effects are left: on a separate server, in the process of the test.
type recorder struct {
	js  jetstream.JetStream
	url string
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "EFFECTS", Subjects: []string{"told.>"}, Storage: jetstream.MemoryStorage,
	})
	check.OK(t, err)
	return &recorder{js: js, url: srv.URL()}
}

// count is the recorder's account of the jobs of a stream.
type count struct {
	acked   []string // started after they had been acknowledged
	again   []string // steps and jobs that ran although they had been recorded
	effects map[string]int
	late    []string // started after a later one of their subject, or before the former had its effect
	runs    int
}

// each calls take with all notes under a subject, and their positions.
func (r *recorder) each(t *testing.T, subject string, take func(position int, m jetstream.Msg)) {
	t.Helper()
	consumer := check.Must(r.js.OrderedConsumer(t.Context(), "EFFECTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}}))(t)
	info := check.Must(consumer.Info(t.Context()))(t)
	told := check.Must(consumer.Messages())(t)
	defer told.Stop()
	for i := range info.NumPending {
		msg := check.Must(told.Next())(t)
		take(int(i)+1, msg)
	}
}

// never has the event after which another, its key, may not come.
var never = map[string]string{"run": "recorded", steps[0]: "kept-" + steps[0], steps[1]: "kept-" + steps[1]}

func (r *recorder) count(t *testing.T, stream string) count {
	t.Helper()
	c, seen := count{effects: map[string]int{}}, map[string]bool{}
	r.each(t, "told.*."+stream+".*", func(_ int, msg jetstream.Msg) {
		token := strings.Split(msg.Subject(), ".")
		what, job := token[1], token[3]
		seen[what+job] = true
		if before := never[what]; seen[before+job] {
			c.again = append(c.again, fmt.Sprintf("%s of job %s after %s: %s", what, job, before, msg.Data()))
		}
		switch {
		case what == "effect":
			c.effects[job]++
		case what == "run" && seen["done"+job]:
			c.acked = append(c.acked, job)
		case what == "run":
			c.runs++
		}
		n := check.Must(strconv.Atoi(job))(t)
		former, next := strconv.Itoa(n-ordered), strconv.Itoa(n+ordered)
		if what == "run" && n%2 == 0 && (seen["run"+next] || n >= ordered && !seen["effect"+former]) {
			c.late = append(c.late, fmt.Sprintf("%s: %s", job, msg.Data()))
		}
	})
	return c
}

// ordered is how far apart the jobs of one subject are that are not unique.
const ordered = 8

// cell is some jobs on some servers, whose workers are killed at some points.
type cell struct {
	at       []point
	inserted int
	jobs     int
	js       jetstream.JetStream
	random   *rand.Rand
	recorder *recorder
	servers  *crash.Servers
	stream   string
}

func (c *cell) play(t *testing.T) {
	t.Helper()
	_, c.js = natstest.ConnectURL(t, c.servers.URL)
	err := natstest.UntilAnswered(t, func(ctx context.Context) error {
		cfg := worker.StreamConfig(c.stream, c.stream+".>")
		cfg.Replicas = c.servers.Replicas
		_, err := c.js.CreateOrUpdateStream(ctx, cfg)
		return err
	})
	check.OK(t, err)
	// Each worker finds jobs enough to come to its point.
	portion := c.jobs / (len(c.at) + 1)
	for i, at := range c.at {
		c.kill(t, at, portion, c.servers.Restart != nil && (crash.Long() || i%4 == 1))
	}
	last := c.spawn(t, nowhere, 0)
	check.OK(t, c.insert(t.Context(), c.jobs-c.inserted))
	c.drained(t)
	last.Stop()
	c.judge(t)
}

// kill inserts jobs and has a worker die of them, while the servers may be disturbed.
func (c *cell) kill(t *testing.T, at point, jobs int, disturb bool) {
	t.Helper()
	p := c.spawn(t, at, 1+c.random.IntN(max(1, jobs/2))) // half of them come to every point
	inserted := make(chan error, 1)
	go func() { inserted <- c.insert(t.Context(), jobs) }()
	if disturb {
		check.ErrorIs(t, c.servers.Restart(t.Context(), c.stream), nil)
	}
	check.OK(t, <-inserted)
	p.Died()
}

// insert inserts jobs, those with an odd number twice.
func (c *cell) insert(ctx context.Context, jobs int) error {
	ctx, cancel := context.WithTimeout(ctx, crash.Patience)
	defer cancel()
	client, err := worker.NewClient(c.js, worker.ClientConfig{SettleTimeout: crash.Patience, Stream: c.stream})
	if err != nil {
		return err
	}
	for end := c.inserted + jobs; c.inserted < end; c.inserted++ {
		job := worker.NewJob{Args: c.inserted, ID: fmt.Sprint(c.inserted), Subject: fmt.Sprintf("%s.%d", c.stream, c.inserted)}
		if c.inserted%2 == 0 {
			job.Subject = fmt.Sprintf("%s.%d", c.stream, c.inserted%ordered)
			if _, err := client.Insert(ctx, job); err != nil {
				return err
			}
			continue
		}
		job.Unique = &worker.Unique{Keep: time.Hour}
		for _, again := range []bool{false, true} {
			receipt, err := client.Insert(ctx, job)
			if err != nil {
				return err
			}
			if again && !receipt.Duplicate {
				return fmt.Errorf("job %d was inserted twice", c.inserted)
			}
		}
	}
	return nil
}

func (c *cell) spawn(t *testing.T, at point, after int) *crash.Process {
	t.Helper()
	return workers.Start(t, duty{After: after, NATS: c.servers.URL, Point: at, Recorder: c.recorder.url, Stream: c.stream})
}

// drained waits until no job is in the stream, for as long as there are fewer and fewer.
func (c *cell) drained(t *testing.T) {
	t.Helper()
	began, most := time.Now(), uint64(0)
	fewest, since := uint64(math.MaxUint64), began
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		left, err := c.left(t.Context())
		if err == nil && left == 0 {
			t.Logf("%d jobs were left after the last kill, and drained in %s", most, time.Since(began).Round(time.Millisecond))
			return
		}
		if err == nil && left < fewest {
			fewest, since = left, time.Now()
			most = max(most, left)
		}
		check.Require(t, time.Since(since) <= crash.Patience, "%d jobs are left in the stream: %v", fewest, err)
		<-time.After(wait)
	}
}

// left is the number of jobs in the stream, without the records of those that are done.
func (c *cell) left(ctx context.Context) (uint64, error) {
	consumer, err := c.js.Consumer(ctx, c.stream, consumer)
	if err != nil {
		return 0, err
	}
	info := consumer.CachedInfo()
	return info.NumPending + uint64(info.NumAckPending), nil
}

func (c *cell) judge(t *testing.T) {
	t.Helper()
	got := c.recorder.count(t, c.stream)
	for n := range c.jobs {
		effects := got.effects[fmt.Sprint(n)]
		check.That(t, effects == 1, "job %d has %d effects, want 1", n, effects)
	}
	check.That(t, len(got.again) == 0, "ran again: %v", got.again)
	check.That(t, len(got.acked) == 0 || c.servers.Restart != nil, "jobs %v started again after they were acknowledged", got.acked)
	check.That(t, len(got.late) == 0 || c.servers.Restart != nil && c.servers.Replicas <= 1, "jobs %v ran out of order", got.late)
	deaths, repeats := len(c.at), got.runs-c.jobs
	if most := deaths * concurrency; repeats > most && c.servers.Restart == nil {
		t.Errorf("%d repeats, want at most those that were in hand at %d deaths: %d", repeats, deaths, most)
	}
	t.Logf("%d jobs, %d kills: %d effects, %d repeated runs, %d of them after the acknowledgement, %d out of order",
		c.jobs, deaths, len(got.effects), repeats+len(got.acked), len(got.acked), len(got.late))
}
