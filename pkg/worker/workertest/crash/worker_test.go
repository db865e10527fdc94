package crash_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// point is a point of a job's life at which its worker's process is killed.
type point string

const (
	nowhere       point = ""
	beforeHandler point = "before the handler"
	inHandler     point = "in the handler"
	inStep        point = "in a step, before its record"
	afterStep     point = "after the record of a step"
	afterEffect   point = "after the effect"
	afterRecord   point = "after the record of completion, before the acknowledgement"
	afterAck      point = "after the acknowledgement"
	inShutdown    point = "in a shutdown"
)

var points = []point{beforeHandler, inHandler, inStep, afterStep, afterEffect, afterRecord, afterAck, inShutdown}

var steps = []string{"first", "second"}

const (
	ackWait     = time.Second
	concurrency = 8
	consumer    = "crash"
)

// workers are the processes that are killed.
var workers = crash.Role[task]{Name: "worker", Run: work}

// task is the input of a worker process.
type task struct {
	AcksLast bool // the server forgets no acknowledgement: it is not killed
	After    int  // the process dies when it comes to Point for this time
	Log      string
	Name     string
	NATS     string
	Ordered  bool // the order of the jobs can be relied on
	Point    point
	Stream   string
}

// process is a worker process.
type process struct {
	task

	cancel  context.CancelFunc
	dials   atomic.Int64
	log     *crash.Log
	passed  atomic.Int64
	records map[string]string // the jobs whose completion is being recorded, by the subject of the answer
}

// work is the life of a worker process.
func work(ctx context.Context, is task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log, err := crash.OpenLog(is.Log, is.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{task: is, cancel: cancel, log: log, records: make(map[string]string)}
	proxy := natstest.NewProxy(owner{}, p)
	proxy.Filter(p.watch)
	js, closed, err := connect(is.NATS, proxy.Through())
	if err != nil {
		return err
	}
	defer closed()
	w, err := worker.New(js, config(is.Stream, worker.Hooks{
		Settled: p.settled, Started: func(worker.Info) { p.come(beforeHandler) },
	}))
	if err != nil {
		return err
	}
	if err := worker.Handle(w, is.Stream+".>", worker.Policy{MaxAttempts: 1000, Ordered: true}, p.handle); err != nil {
		return err
	}
	return w.Run(ctx)
}

// config is the configuration of the workers of this package.
func config(stream string, hooks worker.Hooks) worker.Config {
	return worker.Config{
		AckWait: ackWait, AutoCreate: true, Concurrency: concurrency, Consumer: consumer, Hooks: hooks,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), SoftStop: -1, Stream: stream,
	}
}

func connect(url string, opts ...nats.Option) (js jetstream.JetStream, closed func(), err error) {
	nc, err := nats.Connect(url, append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.RetryOnFailedConnect(true), nats.IgnoreDiscoveredServers())...)
	if err != nil {
		return nil, nil, err
	}
	js, err = jetstream.New(nc)
	return js, nc.Close, err
}

// come kills the process when it has come to its point often enough.
func (p *process) come(at point) {
	if p.Point == at && p.passed.Add(1) == int64(p.After) {
		testbed.Die()
	}
}

// owner is the test of a proxy in a process without one.
type owner struct{ testing.TB }

func (owner) Helper()        {}
func (owner) Cleanup(func()) {} // the process ends

// InProcessConn connects the proxy to one of the servers after the other.
func (p *process) InProcessConn() (net.Conn, error) {
	all := strings.Split(p.NATS, ",")
	return net.Dial("tcp", strings.TrimPrefix(all[p.dials.Add(1)%int64(len(all))], "nats://"))
}

// watch kills the process when the record of a job's completion is stored, before the worker gets the answer. It is called by one
// goroutine at a time.
func (p *process) watch(f natstest.Frame) natstest.Verdict {
	if f.FromClient && strings.HasPrefix(f.Subject, p.Stream+"-done.") {
		if h, err := nats.DecodeHeadersMsg(f.Payload()); err == nil && h.Get(worker.HeaderState) == string(worker.StateDone) {
			p.records[f.Reply] = h.Get(worker.HeaderID)
		}
	}
	if id, found := p.records[f.Subject]; found && !f.FromClient {
		delete(p.records, f.Subject)
		if !bytes.Contains(f.Raw, []byte(`"error"`)) {
			_ = p.log.Write(crash.Recorded, id) // without the entry the judge demands less
			p.come(afterRecord)
		}
	}
	return natstest.Relay
}

// handle works a job. One with an odd number has steps; see insert for how it is unique too.
func (p *process) handle(ctx context.Context, job *worker.Job[int]) error {
	if former := before(job.ID); former != "" && p.Ordered {
		// The one before it has ended for good, or this one would not start.
		if err := p.log.Write(crash.Recorded, former); err != nil {
			return err
		}
	}
	if err := p.log.Write(crash.Started, job.ID); err != nil {
		return err
	}
	p.come(inHandler)
	if p.Point == inShutdown && p.passed.Add(1) >= int64(p.After) { // the other handlers are somewhere
		p.cancel()
		<-ctx.Done()
		testbed.Die()
	}
	if job.Args%2 == 1 {
		take := func(id string) error {
			defer p.come(inStep)
			return p.log.Write(crash.Effect, id)
		}
		if err := walk(ctx, job, p.log, steps, take, func() error { p.come(afterStep); return nil }); err != nil {
			return err
		}
	}
	if err := p.log.Write(crash.Effect, job.ID); err != nil {
		return err
	}
	p.come(afterEffect)
	return nil
}

// walk works the steps of a job. Each has its own effect, which take causes, and is followed by a call of then.
func walk(
	ctx context.Context, job *worker.Job[int], log *crash.Log, names []string, take func(id string) error, then func() error,
) error {
	for _, name := range names {
		id := job.ID + "/" + name
		err := step.Do(ctx, job, name, func(context.Context) error {
			// From here on no check can keep back the effect: a deleted consumer may have another attempt do the step and record it first.
			if err := log.Write(crash.Started, id); err != nil {
				return err
			}
			return take(id)
		})
		if err == nil {
			err = log.Write(crash.Recorded, id)
		}
		if err == nil {
			err = then()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *process) settled(s worker.Settlement) {
	if s.Outcome == worker.OutcomeCompleted && p.AcksLast {
		_ = p.log.Write(crash.Recorded, s.ID) // without the entry the judge demands less
	}
	p.come(afterAck)
}
