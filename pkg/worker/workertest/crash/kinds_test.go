package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/rpc"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

// kind is how a job is run. Jobs of one kind have their own handler.
type kind struct {
	name    string
	share   int // of 100 jobs of the proof, at most 1 for ordered jobs
	policy  worker.Policy
	unique  bool
	delayed bool
	keys    int // of the subjects, 1 by default
	fails   bool
	snoozes bool
	steps   int
	takes   time.Duration
}

var kinds = []kind{
	{name: "delayed", share: 1, delayed: true},
	{name: "limited", share: 1, policy: worker.Policy{Limits: []worker.Limit{{Name: "two", Concurrency: 2}}, Priority: worker.PriorityHigh}},
	{name: "ordered", share: 1, policy: worker.Policy{Ordered: true}, keys: 3},
	{name: "ordered-failing", share: 1, policy: worker.Policy{Ordered: true}, keys: 3, fails: true},
	{name: "ordered-limited", share: 1, policy: worker.Policy{Ordered: true, Limits: []worker.Limit{{Name: "one", Concurrency: 1}}}, keys: 2},
	{name: "plain", share: 60},
	{name: "slow", share: 1, takes: 3 * ackWait / 2},
	{name: "snoozing", share: 1, snoozes: true},
	{name: "stepping", share: 3, steps: 2, fails: true},
	{name: "unique", share: 30, steps: 9, unique: true},
}

// numbers are the names of steps.
var numbers = strings.Split("123456789", "")

// former returns the job that goes before another in its order, "" for none.
func former(id string) string {
	name, text, _ := strings.Cut(id, "/")
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
	if n, err := strconv.Atoi(text); err == nil && k.policy.Ordered && n >= k.keys {
		return fmt.Sprintf("%s/%d", name, n-k.keys)
	}
	return ""
}

// TestJobsOfTenKindsSurviveAllFaults has three workers at a time run jobs of ten kinds on three servers. In the meantime workers are killed,
// and frozen or cut off for longer than AckWait, servers are killed, leaders are killed, frozen or deposed, and consumers are deleted. Every
// job must have its effect. No effect may be repeated once its step, or the completion of its unique job, was recorded, and no job may start
// before the effect of the one before it in its order.
//
//	go test ./crash -run TenKinds                each fault once
//	go test ./crash -run TenKinds -args -long    twenty times
func TestJobsOfTenKindsSurviveAllFaults(t *testing.T) {
	t.Parallel()
	times, r := 1, crash.Random(t)(0)
	if crash.Long() {
		times = 20
	}
	got := survive(t, crash.ThreeServers(t), kinds, 5, func(faults []crash.Fault) {
		for range times {
			for _, i := range r.Perm(len(faults)) {
				check.ErrorIs(t, faults[i].Do(t.Context(), r), nil, faults[i].Name)
			}
		}
	})
	check.ErrorIs(t, got.Err(), nil)
	t.Logf("%d effects, %d of them repeated before their record; %v", got.Wanted, got.Unrecorded, got.Faults)
}

// TestProof is the part of the public proof that is about jobs: mostly plain ones, and unique ones of nine steps.
func TestProof(t *testing.T) {
	crash.Proof(t, "jobs", func(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
		t.Helper()
		var mix []kind
		for _, k := range kinds {
			mix = append(mix, slices.Repeat([]kind{k}, k.share)...)
		}
		return survive(t, on, mix, 30, func(faults []crash.Fault) {
			ctx, cancel := context.WithDeadline(t.Context(), until)
			defer cancel()
			check.OK(t, crash.Inject(ctx, r, 3*time.Second, faults...))
		})
	})
}

// survive has three workers run jobs until inject returns, and judges their effects. Of each element of mix, depth jobs wait at a time.
func survive(t *testing.T, on *crash.Servers, mix []kind, depth int, inject func(faults []crash.Fault)) crash.Result {
	t.Helper()
	const stream, long = "KINDS", 5 * ackWait / 4
	log, js := crash.NewLog(t), newStream(t, on, stream)
	receiver := newReceiver(t, log)
	group := crash.NewGroup(t, log, on.URL, 3, func(name, servers string) *crash.Process {
		return manyKinds.Start(t, kindsTask{Log: log.Path(), Name: name, NATS: servers, Receiver: receiver.path, Stream: stream})
	})
	client := check.Must(worker.NewClient(js, worker.ClientConfig{
		AllowUntaken: true, SettleTimeout: crash.Patience, Stream: stream, // no worker may be there yet
	}))(t)
	var wanted []string // guarded by receiver.mu
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var inserting sync.WaitGroup
	for i, k := range mix {
		isAlike := func(other kind) bool { return other.name == k.name }
		first, alike := slices.IndexFunc(mix, isAlike), len(mix)-len(slices.DeleteFunc(slices.Clone(mix), isAlike))
		inserting.Go(func() {
			waiting := make(chan struct{}, depth)
			for n := i - first; ; n += alike {
				select {
				case waiting <- struct{}{}:
				case <-ctx.Done():
					return
				}
				job := k.job(stream, n)
				receiver.expect(job.ID, waiting)
				if err := insert(context.WithoutCancel(ctx), client, job); err != nil {
					t.Errorf("insert %s: %v", job.ID, err)
					return
				}
				receiver.mu.Lock()
				wanted = append(wanted, job.ID)
				for _, name := range numbers[:k.steps] {
					wanted = append(wanted, job.ID+"/"+name)
				}
				receiver.mu.Unlock()
			}
		})
	}
	ofConsumers := []crash.Fault{
		consumerFault(t, log, js, stream, "consumer deleted", "DELETE"), consumerFault(t, log, js, stream, "consumer deposed", "LEADER.STEPDOWN"),
	}
	inject(slices.Concat(group.Faults(long), on.Faults(log, long, stream, "KV_jobs"), ofConsumers))
	stop()
	inserting.Wait()
	receiver.await(t)
	drained(t, js, stream, consumer, worker.ConsumerOf(consumer, worker.PriorityHigh))
	group.Stop()
	return check.Must(log.Judge(slices.Values(wanted), former))(t)
}

// job returns a new job.
func (k kind) job(stream string, n int) worker.NewJob {
	job := worker.NewJob{Args: n, ID: fmt.Sprintf("%s/%d", k.name, n), Subject: fmt.Sprintf("%s.%s.%d", stream, k.name, n%max(1, k.keys))}
	if k.delayed {
		job.Delay = ackWait / 4
	}
	if k.unique {
		job.Subject += fmt.Sprint(".", n)
		job.Unique = &worker.Unique{Keep: time.Hour}
	}
	return job
}

// consumerFault is the fault that an operator asks the server to do something to a consumer.
func consumerFault(t *testing.T, log *crash.Log, js jetstream.JetStream, stream, name, request string) crash.Fault {
	t.Helper()
	return crash.Fault{Name: name, Do: func(_ context.Context, r *rand.Rand) error {
		err := log.Inject(name, "")
		of := worker.ConsumerOf(consumer, []worker.Priority{worker.PriorityNormal, worker.PriorityHigh}[r.IntN(2)])
		return errors.Join(err, natstest.UntilAnswered(t, func(ctx context.Context) error {
			msg, err := js.Conn().RequestWithContext(ctx, "$JS.API.CONSUMER."+request+"."+stream+"."+of, nil)
			if err != nil {
				return err
			}
			var answer struct {
				Error *jetstream.APIError `json:"error"`
			}
			err = json.Unmarshal(msg.Data, &answer)
			if answer.Error != nil && answer.Error.ErrorCode != jetstream.JSErrCodeConsumerNotFound { // which needs no fault
				err = answer.Error
			}
			return err
		}))
	}}
}

// Receiver takes the effects of the workers, like a service that they call, and writes them into the log. A worker that was frozen goes on
// where it was, and no check in it can notice that. So the receiver refuses an effect of a delivery once it has had the effect of a later
// one.
type Receiver struct {
	log     *crash.Log
	path    string // of its socket
	serving sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]int        // the delivery of each effect
	logs     map[string]*crash.Log // by processes
	waiting  map[string]chan struct{}
}

// Call is an effect.
type Call struct {
	Delivery    int
	ID, Process string
}

func newReceiver(t *testing.T, log *crash.Log) *Receiver {
	t.Helper()
	r := &Receiver{
		log: log, path: filepath.Join(crash.SocketDir(t), "receiver"),
		accepted: map[string]int{}, logs: map[string]*crash.Log{}, waiting: map[string]chan struct{}{},
	}
	server := rpc.NewServer()
	check.OK(t, server.Register(r))
	l := check.Must(net.Listen("unix", r.path))(t)
	t.Cleanup(func() {
		_ = l.Close() // nothing calls any more
		r.serving.Wait()
		for _, log := range r.logs {
			check.ErrorIs(t, log.Close(), nil)
		}
	})
	r.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.serving.Go(func() { server.ServeConn(c) })
		}
	})
	return r
}

// Take takes an effect.
func (r *Receiver) Take(c Call, _ *struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Delivery < r.accepted[c.ID] {
		return errors.New("a later delivery has had its effect")
	}
	r.accepted[c.ID] = c.Delivery
	if waiting := r.waiting[c.ID]; waiting != nil {
		delete(r.waiting, c.ID)
		<-waiting
	}
	if r.logs[c.Process] == nil {
		log, err := crash.OpenLog(r.log.Path(), c.Process)
		if err != nil {
			return err
		}
		r.logs[c.Process] = log
	}
	return r.logs[c.Process].Write(crash.Effect, c.ID)
}

// expect takes an element from waiting when the job has its effect.
func (r *Receiver) expect(job string, waiting chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[job] = waiting
}

// await waits until all jobs have their effects, for as long as there are fewer and fewer.
func (r *Receiver) await(t *testing.T) {
	t.Helper()
	left := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.waiting)
	}
	for most, since := left(), time.Now(); most > 0; <-time.After(50 * time.Millisecond) {
		if n := left(); n < most {
			most, since = n, time.Now()
		}
		if time.Since(since) > crash.Patience {
			t.Errorf("%d jobs have no effect", most)
			return
		}
	}
}

// manyKinds are worker processes with a handler for each kind of jobs.
var manyKinds = crash.Role[kindsTask]{Name: "worker of many kinds", Run: workKinds}

type kindsTask struct{ Log, Name, NATS, Receiver, Stream string }

func workKinds(ctx context.Context, is kindsTask) error {
	log, err := crash.OpenLog(is.Log, is.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	receiver, err := rpc.Dial("unix", is.Receiver)
	if err != nil {
		return err
	}
	defer receiver.Close()
	asked := &questions{log: log, which: regexp.MustCompile(`"last_by_subj":"` + is.Stream + `-done\.unique\.0\.([0-9]+)"`)}
	js, closed, err := connect(is.NATS, nats.SetCustomDialer(asked))
	if err != nil {
		return err
	}
	defer closed()
	cfg := config(is.Stream, worker.Hooks{Settled: func(s worker.Settlement) {
		asked.of.Delete(s.ID)
		if s.Outcome == worker.OutcomeCompleted && strings.HasPrefix(s.ID, "unique/") {
			_ = log.Write(crash.Recorded, s.ID) // without the entry the judge demands less
		}
	}})
	cfg.Concurrency = 100
	w, err := worker.New(js, cfg)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		k.policy.MaxAttempts = 1000
		handle := func(ctx context.Context, job *worker.Job[int]) error {
			if _, noted := asked.of.Load(job.ID); !noted {
				if err := log.Write(crash.Started, job.ID); err != nil {
					return err
				}
			}
			return k.handle(ctx, job, log, func(id string) error {
				return receiver.Call("Receiver.Take", Call{Delivery: job.Deliveries, ID: id, Process: is.Name}, new(struct{}))
			})
		}
		if err := worker.Handle(w, is.Stream+"."+k.name+".>", k.policy, handle); err != nil {
			return err
		}
	}
	return w.Run(ctx)
}

// questions are the connections of a worker. They log that it starts a unique job when it asks whether the job has ended: no attempt can
// know of an end that is recorded after its question.
type questions struct {
	log   *crash.Log
	of    sync.Map // the jobs of the attempts that asked
	which *regexp.Regexp
}

func (q *questions) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	return asking{conn, q}, err
}

type asking struct {
	net.Conn
	*questions
}

func (a asking) Write(b []byte) (int, error) {
	for _, m := range a.which.FindAllSubmatch(b, -1) {
		id := "unique/" + string(m[1])
		if _, again := a.of.LoadOrStore(id, true); again {
			continue // it is running, and may have been cancelled
		}
		if err := a.log.Write(crash.Started, id); err != nil {
			return 0, err
		}
	}
	return a.Conn.Write(b)
}

// handle works a job, whose effects take causes.
func (k kind) handle(ctx context.Context, job *worker.Job[int], log *crash.Log, take func(id string) error) error {
	if k.takes > 0 {
		select {
		case <-time.After(k.takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fail := func(after time.Duration) error {
		if k.fails && job.Attempt == 1 {
			return worker.Retry(after, errors.New("the first attempt fails"))
		}
		return nil
	}
	if err := walk(ctx, job, log, numbers[:k.steps], take, func() error { return fail(0) }); err != nil {
		return err
	}
	if k.snoozes && job.Deliveries == 1 {
		return worker.Snooze(ackWait / 4)
	}
	if err := fail(ackWait / 4); err != nil {
		return err
	}
	return take(job.ID)
}
