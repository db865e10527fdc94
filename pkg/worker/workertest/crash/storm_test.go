package crash_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

// kind is how a job is run. Jobs of one kind have their own handler.
type kind struct {
	name    string
	policy  worker.Policy
	unique  bool
	delayed bool
	keys    int // of the subjects, 1 by default
	fails   bool
	snoozes bool
	steps   bool
	takes   time.Duration
}

var two = []worker.Limit{{Name: "two", Concurrency: 2}}

var kinds = []kind{
	{name: "delayed", delayed: true},
	{name: "limited", policy: worker.Policy{Limits: two, Priority: worker.PriorityHigh}},
	{name: "ordered", policy: worker.Policy{Ordered: true}, keys: 3},
	{name: "ordered-failing", policy: worker.Policy{Ordered: true}, keys: 3, fails: true},
	{name: "ordered-limited", policy: worker.Policy{Ordered: true, Limits: []worker.Limit{{Name: "one", Concurrency: 1}}}, keys: 2},
	{name: "plain"},
	{name: "slow", takes: 3 * ackWait / 2},
	{name: "snoozing", snoozes: true},
	{name: "stepping", steps: true, fails: true},
	{name: "unique", steps: true, unique: true},
}

// TestJobsOfTenKindsSurviveAllFaults has three workers at a time run jobs of ten kinds on three servers, while workers are killed, or
// stopped for longer than AckWait, leaders are killed or step down, and consumers are deleted. Every job must have one effect, no
// recorded step may run again, no job start once it was recorded or acknowledged, none before the effect of the one before it in its
// order. Repetitions that README.md does not exclude are told from others by the faults of their worker, and counted.
//
//	go test ./crash -run AllFaults                    some hundred jobs
//	go test ./crash -run AllFaults -args -long        20,000
func TestJobsOfTenKindsSurviveAllFaults(t *testing.T) {
	t.Parallel()
	jobs, faults := 200, 8
	if crash.Long() {
		jobs, faults = 20_000, 200
	}
	s := &storm{
		t: t, random: crash.Random(t)(0), recorder: newRecorder(t), servers: crash.ThreeServers(t), stream: "STORM",
		at: map[int]*crash.Process{},
	}
	_, s.js = natstest.ConnectURL(t, s.servers.URL)
	cfg := worker.StreamConfig(s.stream, s.stream+".>")
	cfg.Replicas, cfg.AllowMsgSchedules = s.servers.Replicas, true
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error { return check.Err(s.js.CreateOrUpdateStream(ctx, cfg)) }))
	for range 3 {
		s.spawn()
	}
	for range faults {
		s.insert(jobs / faults)
		s.strike()
	}
	s.insert(jobs - s.inserted)
	s.drained()
	for _, p := range s.at {
		p.Stop()
	}
	s.judge()
}

// storm is a number of workers and their faults.
type storm struct {
	t        *testing.T
	at       map[int]*crash.Process // the workers that live
	inserted int
	js       jetstream.JetStream
	random   *rand.Rand
	recorder *recorder
	servers  *crash.Servers
	spawned  int
	stream   string
}

func (s *storm) spawn() {
	s.t.Helper()
	s.spawned++
	s.at[s.spawned] = hands.Start(s.t, hand{NATS: s.servers.URL, Number: s.spawned, Recorder: s.recorder.url, Stream: s.stream})
}

// tell has the recorder note a fault of a worker, or of all of them (0).
func (s *storm) tell(fault string, number int) { s.tellAt(time.Now(), fault, number) }

func (s *storm) tellAt(at time.Time, fault string, number int) {
	s.t.Helper()
	check.OK(s.t, told(s.t.Context(), s.recorder.js, s.stream, note{At: at, What: fault, Worker: number}, false))
}

// strike chooses a fault, and tells where it began and where it was over: jobs run in the meantime.
func (s *storm) strike() {
	s.t.Helper()
	number := slices.Sorted(maps.Keys(s.at))[s.random.IntN(len(s.at))]
	p := s.at[number]
	switch s.random.IntN(8) {
	case 0, 1:
		s.tell("killed", number)
		p.Kill()
		delete(s.at, number)
		s.spawn()
	case 2, 3, 4:
		s.tell("stopped", number)
		p.Pause()
		paused := time.Now()
		<-time.After(ackWait + time.Duration(s.random.Int64N(int64(2*ackWait)))) // as long as the fault lasts
		s.tellAt(paused, "continued", number)
		p.Continue()
	case 5:
		s.tell("leader killed", 0)
		check.OK(s.t, s.servers.Restart(s.t.Context(), s.stream))
		s.tell(over, 0)
	case 6:
		s.tell("stepped down", 0)
		check.OK(s.t, check.Err(s.js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+s.stream, nil, crash.Patience)))
		s.tell(over, 0)
	case 7:
		name := worker.ConsumerOf(consumer, []worker.Priority{worker.PriorityNormal, worker.PriorityHigh}[s.random.IntN(2)])
		s.tell("consumer deleted", 0)
		err := natstest.UntilAnswered(s.t, func(ctx context.Context) error { return s.js.DeleteConsumer(ctx, s.stream, name) })
		if !errors.Is(err, jetstream.ErrConsumerNotFound) {
			check.OK(s.t, err)
		}
		s.tell(over, 0)
	}
}

// insert inserts jobs of all kinds, those that are unique twice.
func (s *storm) insert(jobs int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), crash.Patience)
	defer cancel()
	client, err := worker.NewClient(s.js, worker.ClientConfig{
		AllowUntaken: true, SettleTimeout: crash.Patience, Stream: s.stream, // no worker may be there yet
	})
	check.OK(s.t, err)
	for end := s.inserted + jobs; s.inserted < end; s.inserted++ {
		k := kinds[s.inserted%len(kinds)]
		number := s.inserted / len(kinds)
		job := worker.NewJob{
			Args: number, ID: fmt.Sprintf("%s/%d", k.name, number),
			Subject: fmt.Sprintf("%s.%s.%d", s.stream, k.name, number%max(1, k.keys)),
		}
		if k.delayed {
			job.Delay = ackWait / 4
		}
		if k.unique {
			job.Subject += fmt.Sprint(".", number)
			job.Unique = &worker.Unique{Keep: time.Hour}
			check.OK(s.t, check.Err(client.Insert(ctx, job)))
		}
		receipt := check.Must(client.Insert(ctx, job))(s.t)
		check.That(s.t, !k.unique || receipt.Duplicate, "job %s was inserted twice", job.ID)
	}
}

// drained waits until every job has its effect, for as long as there are more and more.
func (s *storm) drained() {
	s.t.Helper()
	stream := check.Must(s.recorder.js.Stream(s.t.Context(), "EFFECTS"))(s.t)
	for most, since := 0, time.Now(); most < s.inserted; {
		info := check.Must(stream.Info(s.t.Context(), jetstream.WithSubjectFilter("told.effect.>")))(s.t)
		if n := len(info.State.Subjects); n > most {
			most, since = n, time.Now()
		} else if time.Since(since) > crash.Patience {
			s.t.Errorf("%d of %d jobs have an effect", most, s.inserted)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// over is told when a fault of the servers has been answered.
const over = "over"

// note is a message to the recorder.
type note struct {
	At       time.Time `json:"at"` // when it happened, or the attempt started that it is of
	Delivery int       `json:"delivery,omitempty"`
	Job      string    `json:"job,omitempty"`
	What     string    `json:"what"`
	Worker   int       `json:"worker"`
}

// told sends a note to the recorder. With once the second of a kind is refused, with errWorked.
func told(ctx context.Context, js jetstream.JetStream, stream string, n note, once bool) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	subject := fmt.Sprintf("told.%s.%s.%s", strings.ReplaceAll(n.What, " ", "_"), stream, cmp.Or(n.Job, "-"))
	var opts []jetstream.PublishOpt
	if once {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(0))
	}
	if _, err = js.Publish(ctx, subject, data, opts...); errors.Is(err, jetstream.ErrKeyExists) {
		return errWorked
	}
	return err
}

// hand is the input of a worker process.
type hand struct {
	NATS     string
	Number   int
	Recorder string
	Stream   string
}

var hands = crash.Role[hand]{Name: "worker of a storm", Run: func(ctx context.Context, h hand) error {
	js, closed, err := connect(h.NATS)
	if err != nil {
		return err
	}
	defer closed()
	recorder, closed, err := connect(h.Recorder)
	if err != nil {
		return err
	}
	defer closed()
	var started sync.Map // times, by the jobs that run
	tell := func(ctx context.Context, what, job string, delivery int, once bool) error {
		at := time.Now()
		if began, ok := started.Load(job); ok { // it ends without an attempt where it has ended elsewhere
			at = began.(time.Time) //nolint:forcetypeassert // nothing else is stored
		}
		return told(ctx, recorder, h.Stream, note{At: at, Delivery: delivery, Job: job, What: what, Worker: h.Number}, once)
	}
	w, err := worker.New(js, worker.Config{
		AckWait: ackWait, AutoCreate: true, Concurrency: concurrency, Consumer: consumer,
		Hooks: worker.Hooks{Started: func(i worker.Info) { started.Store(i.ID, time.Now()) }, Settled: func(s worker.Settlement) {
			if s.Outcome == worker.OutcomeCompleted {
				_ = tell(context.Background(), "done", s.ID, s.Deliveries, false)
			}
		}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), SoftStop: -1, Stream: h.Stream,
	})
	if err != nil {
		return err
	}
	for _, k := range kinds {
		k.policy.MaxAttempts = 1000
		handle := func(ctx context.Context, job *worker.Job[int]) error {
			return k.handle(ctx, job, func(what string, once bool) error { return tell(ctx, what, job.ID, job.Deliveries, once) })
		}
		if err := worker.Handle(w, h.Stream+"."+k.name+".>", k.policy, handle); err != nil {
			return err
		}
	}
	return w.Run(ctx)
}}

// handle works a job.
func (k kind) handle(ctx context.Context, job *worker.Job[int], tell func(what string, once bool) error) error {
	if err := tell("run", false); err != nil {
		return err
	}
	select {
	case <-time.After(k.takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if k.steps {
		err := walk(ctx, job, func(what string) error { return tell(what, false) }, func(at point) error {
			if k.fails && job.Attempt == 1 && at == afterStep {
				return worker.Retry(0, errors.New("the first attempt fails"))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	switch {
	case k.snoozes && job.Deliveries == 1:
		return worker.Snooze(ackWait / 4)
	case k.fails && job.Attempt == 1:
		return worker.Retry(ackWait/4, errors.New("the first attempt fails"))
	}
	if err := tell("effect", true); err != nil && !errors.Is(err, errWorked) {
		return err
	}
	return nil
}
