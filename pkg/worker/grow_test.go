package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/worker"
)

const grown = 4 // partitions

// growing are the processes of TestStreamGrowsUnderLoad: workers, which report to a recorder, and one that divides the stream.
var growing = crash.Role[growTask]{Name: "growing", Run: growUntilKilled}

type growTask struct {
	Divide   bool
	Recorder string
	URL      string
}

func growUntilKilled(ctx context.Context, is growTask) error {
	js, done, err := connectChild(is.URL)
	if err != nil {
		return err
	}
	defer done()
	if is.Divide {
		c, err := worker.NewClient(js, worker.ClientConfig{Partitions: grown, Stream: stream})
		if err != nil {
			return err
		}
		for err = c.Grow(ctx, nil); err != nil && ctx.Err() == nil; err = c.Grow(ctx, nil) { // an election took too long
			fmt.Fprintln(os.Stderr, err)
		}
		_, err = fmt.Fprintln(os.Stdout, "grown")
		return err
	}
	told, done, err := connectChild(is.Recorder)
	if err != nil {
		return err
	}
	defer done()
	w, err := worker.New(js, worker.Config{
		AckWait: 2 * childAckWait, AutoCreate: true, Concurrency: 8, Consumer: durable, Partitions: grown, Stream: stream,
	})
	if err != nil {
		return err
	}
	work := func(ctx context.Context, job *worker.Job[string]) error {
		where := fmt.Sprintf("%s:%d", job.Stream, job.Sequence)
		if _, err := told.Publish(ctx, "told.start."+job.Args, []byte(where)); err != nil {
			return err
		}
		takes := 60 // so that jobs are left when the stream opens again
		if strings.HasPrefix(job.Args, "one") {
			takes = 5_000
		}
		<-time.After(time.Duration(rand.IntN(takes)) * time.Millisecond)
		_, err := told.Publish(ctx, "told.end."+job.Args, []byte(where))
		return err
	}
	policy := worker.Policy{Backoff: func(int) time.Duration { return 50 * time.Millisecond }, MaxAttempts: 1000}
	err = worker.Handle(w, "jobs.one.>", policy, work)
	policy.Ordered = true
	if err := errors.Join(err, worker.Handle(w, "jobs.line.>", policy, work)); err != nil {
		return err
	}
	return w.Run(ctx)
}

// TestStreamGrowsUnderLoad divides a stream of three servers while clients insert unique and ordered jobs and workers work them, and
// kills workers, the process that divides, and the leader of the stream. No job may be lost, be stored twice, start beside another of
// its key or subject, or before one that was inserted before.
//
//	go test -run Grows                    a few hundred jobs, a few kills
//	go test -run Grows -args -long        a hundred kills
//	go test -run Grows -args -seed N      with the choices of another run
func TestStreamGrowsUnderLoad(t *testing.T) {
	t.Parallel()
	random := crash.Random(t)
	kills := 6
	if crash.Long() {
		kills = 100
	}
	recorder := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, told := natstest.Connect(t, recorder)
	check.OK(t, check.Err(told.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TOLD", Subjects: []string{"told.>"}})))

	servers := crash.ThreeServers(t)
	_, js := natstest.ConnectURL(t, servers.URL)
	cfg := worker.StreamConfig(stream, pattern)
	cfg.Replicas = servers.Replicas
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error { return check.Err(js.CreateOrUpdateStream(ctx, cfg)) }))

	start := func(divide bool) *crash.Process {
		return growing.Start(t, growTask{Divide: divide, Recorder: recorder.URL(), URL: servers.URL})
	}
	workers := []*crash.Process{start(false), start(false), start(false)}
	g := &growth{certain: make(map[string]bool)}
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range uint64(4) {
		group.Go(func() { g.insert(ctx, t, servers.URL, i, random(i)) })
	}
	choose := random(100)
	divider := start(true)
	for range kills {
		<-time.After(time.Duration(200+choose.IntN(1500)) * time.Millisecond)
		switch n := choose.IntN(5); {
		case n == 4:
			check.OK(t, servers.Disturb(t.Context(), stream))
		case n == 3 && !divider.Ended():
			divider.Kill()
			divider = start(true)
		default:
			n %= len(workers)
			workers[n].Kill()
			workers[n] = start(false)
		}
	}
	divider.Await("grown")
	stop()
	group.Wait()
	for end := time.Now().Add(crash.Patience); ; <-time.After(100 * time.Millisecond) {
		left := queued(t, js)
		if left == 0 {
			break
		}
		check.Require(t, time.Now().Before(end), "waited in vain for the end of %d jobs", left)
	}
	for _, w := range workers {
		w.Stop()
	}
	g.judge(t, told)
}

// queued is how many jobs are in the partitions.
func queued(t *testing.T, js jetstream.JetStream) (n uint64) {
	t.Helper()
	for p := range grown {
		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
			s, err := js.Stream(ctx, partition.Name(stream, p))
			if err != nil {
				return err
			}
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(pattern))
			if err == nil {
				n += uint64(len(info.State.Subjects))
			}
			return err
		}))
	}
	return n
}

// growth is the test's record of its jobs.
type growth struct {
	mu      sync.Mutex
	certain map[string]bool // accepted, and not for the second time as far as the inserter knows
}

// insert inserts jobs one after the other: of subjects of its own, which are ordered, and of keys that it shares with the others.
func (g *growth) insert(ctx context.Context, t *testing.T, url string, me uint64, random *rand.Rand) {
	t.Helper()
	_, js := natstest.ConnectURL(t, url)
	c, err := worker.NewClient(js, worker.ClientConfig{AllowUntaken: true, Partitions: grown, Stream: stream})
	if err != nil {
		t.Error(err)
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		line := random.IntN(2)
		name := fmt.Sprintf("line.%d-%d.%d", me, line, n)
		job := worker.NewJob{Subject: fmt.Sprintf("jobs.line.%d-%d", me, line)}
		if random.IntN(2) == 0 {
			key := strconv.Itoa(random.IntN(8))
			name = fmt.Sprintf("one.%s.%d-%d", key, me, n)
			job = worker.NewJob{Subject: "jobs.one", Unique: &worker.Unique{Key: key}}
		}
		job.Args = name
		r, err := c.Insert(t.Context(), job)
		g.mu.Lock()
		if err == nil && !r.Duplicate {
			g.certain[name] = true
		}
		g.mu.Unlock()
		failed, ok := errors.AsType[*worker.InsertError](err)
		check.That(t, err == nil || ok && failed.Unknown, "insert %s: %v", name, err)
		<-time.After(time.Duration(random.IntN(40)) * time.Millisecond)
	}
}

// fate is the starts and ends of a job that workers have reported.
type fate struct {
	ends, starts int
	live         bool // it started after it has ended last
	past         bool // another of its key or subject came behind it
	place        string
}

// judge compares the workers' reports with the inserted jobs.
func (g *growth) judge(t *testing.T, told jetstream.JetStream) {
	t.Helper()
	consumer := check.Must(told.OrderedConsumer(t.Context(), "TOLD", jetstream.OrderedConsumerConfig{}))(t)
	info := check.Must(consumer.Info(t.Context()))(t)
	all := check.Must(consumer.Messages())(t)
	defer all.Stop()
	fates, latest, history, streams := map[string]*fate{}, map[string]string{}, map[string]string{}, map[string]int{}
	for range info.NumPending {
		msg := check.Must(all.Next())(t)
		tokens := strings.SplitN(msg.Subject(), ".", 3)
		event, job, place := tokens[1], tokens[2], string(msg.Data())
		of := job[:strings.LastIndexByte(job, '.')]
		history[of] += fmt.Sprintf("\n%s of %s at %s", event, job, place)
		f, last := fates[job], latest[of]
		if f == nil {
			f = &fate{place: place}
			fates[job] = f
			streams[strings.Split(place, ":")[0]]++
		}
		check.That(t, f.place == place, "job %s is stored at %s and at %s", job, f.place, place)
		if last != "" && last != job {
			wrong := g.follows(fates[last], f, last, job, event == "end")
			check.That(t, wrong == "", "%s of job %s %s job %s:%s", event, job, wrong, last, history[of])
		}
		if f.live = event == "start"; f.live {
			f.starts++
		} else {
			f.ends++
		}
		if last != job && !f.past {
			if last != "" {
				fates[last].past = true
			}
			latest[of] = job
		}
	}
	for job := range g.certain {
		f := fates[job]
		check.That(t, f != nil && f.ends != 0, "job %s is lost", job)
	}
	t.Logf("%d jobs accepted, %d worked: %v", len(g.certain), len(fates), streams)
	check.That(t, len(streams) == grown, "jobs were worked in %v, want %d partitions", streams, grown)
}

// follows returns the fault of a start or an end of a job after another of its key or subject has started, "" for none. A job of a
// key may start once more when its acknowledgement was lost or came late, and then run beside the next one. An ordered one may not.
func (g *growth) follows(before, now *fate, last, job string, end bool) string {
	ordered := strings.HasPrefix(job, "line")
	switch {
	case now.past && !ordered && end && now.starts > 1:
		return ""
	case now.past:
		return "after the start of"
	case before.live && (ordered || before.ends == 0):
		return "beside"
	case ordered && g.certain[job] && g.certain[last] && number(job) < number(last):
		return "although it comes before"
	}
	return ""
}

// number is the one with which a job's name ends.
func number(job string) int {
	n, _ := strconv.Atoi(job[strings.LastIndexByte(job, '.')+1:]) //nolint:errcheck // all have one
	return n
}
