package crash_test

import (
	"bytes"
	"context"
	"errors"
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
var workers = crash.Role[duty]{Name: "worker", Run: work}

// errWorked is returned when a job has its effect already.
var errWorked = errors.New("crash: this job has its effect already")

// duty is the input of a worker process.
type duty struct {
	After    int // dies when it comes to Point for this time
	NATS     string
	Point    point
	Recorder string
	Stream   string
}

// process is a worker process.
type process struct {
	duty

	cancel   context.CancelFunc
	dials    atomic.Int64
	passed   atomic.Int64
	recorder jetstream.JetStream
	records  map[string]string // the jobs whose completion is being recorded, by the subject of the answer
}

// work is the life of a worker process.
func work(ctx context.Context, d duty) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recorder, closed, err := connect(d.Recorder)
	if err != nil {
		return err
	}
	defer closed()
	p := &process{duty: d, cancel: cancel, recorder: recorder, records: make(map[string]string)}
	proxy := natstest.NewProxy(owner{}, p)
	proxy.Filter(p.watch)
	js, closed, err := connect(d.NATS, proxy.Through())
	if err != nil {
		return err
	}
	defer closed()
	w, err := worker.New(js, worker.Config{
		AckWait: ackWait, AutoCreate: true, Concurrency: concurrency, Consumer: consumer,
		Hooks:  worker.Hooks{Settled: p.settled, Started: func(worker.Info) { p.come(beforeHandler) }},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), SoftStop: -1, Stream: d.Stream,
	})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, d.Stream+".>", worker.Policy{MaxAttempts: 1000, Ordered: true}, p.handle); err != nil {
		return err
	}
	return w.Run(ctx)
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

// come kills the process when it has come to its point as often as it was told.
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

// watch kills the process when the record of a job's completion is stored, before the worker is told so. It is called by one
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
			_ = p.note(context.Background(), "recorded", id, 0, false) // less is known then
			p.come(afterRecord)
		}
	}
	return natstest.Relay
}

// handle works a job. One with an odd number has steps; see insert for how it is unique too.
func (p *process) handle(ctx context.Context, job *worker.Job[int]) error {
	if err := p.note(ctx, "run", job.ID, job.Deliveries, false); err != nil {
		return err
	}
	p.come(inHandler)
	if p.Point == inShutdown && p.passed.Add(1) >= int64(p.After) { // the other handlers are somewhere
		p.cancel()
		<-ctx.Done()
		testbed.Die()
	}
	if job.Args%2 == 1 {
		tell := func(what string) error { return p.note(ctx, what, job.ID, job.Deliveries, false) }
		if err := walk(ctx, job, tell, func(at point) error { p.come(at); return nil }); err != nil {
			return err
		}
	}
	if err := p.note(ctx, "effect", job.ID, job.Deliveries, true); err != nil && !errors.Is(err, errWorked) {
		return err
	}
	p.come(afterEffect)
	return nil
}

// walk works the steps of a job. It tells the effect of each, and that it is kept, and calls at behind each.
func walk(ctx context.Context, job *worker.Job[int], tell func(what string) error, at func(point) error) error {
	for _, name := range steps {
		err := step.Do(ctx, job, name, func(context.Context) error { return errors.Join(tell(name), at(inStep)) })
		if err == nil {
			err = tell("kept-" + name)
		}
		if err == nil {
			err = at(afterStep)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *process) settled(s worker.Settlement) {
	if s.Outcome == worker.OutcomeCompleted {
		_ = p.note(context.Background(), "done", s.ID, s.Deliveries, false) // the count then says so
	}
	p.come(afterAck)
}

// note tells the recorder. An effect can be left once only.
func (p *process) note(ctx context.Context, what, job string, delivery int, once bool) error {
	return told(ctx, p.recorder, p.Stream, note{Delivery: delivery, Job: job, What: what}, once)
}
