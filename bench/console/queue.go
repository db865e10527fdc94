package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	stream    = "QUEUE"
	kinds     = 10     // of jobs
	own       = 100    // the number of jobs of which one has a subject of its own
	letters   = 1_811  // dead ones
	operated  = 10_000 // jobs that are inserted and taken at each length
	producers = 32
	slots     = 100
	reserved  = 1 << 30 // bytes, for the streams of the services
	payload   = `{"place":"place 4711","provider":"wolt","priority":3}`
)

// bench is a server with a queue, and a console over it.
type bench struct {
	most, browsers int

	client   *worker.Client
	console  *rig.Service
	created  time.Time          // of the stream
	first    map[string]float64 // figures of the shortest queue
	held     []worker.StoredJob // by a worker
	instance string             // the instance of the worker that holds jobs
	js       jetstream.JetStream
	nc       *nats.Conn
	on       *rig.Service
	queued   int          // jobs that were ever queued
	stop     func() error // ends that worker
	taken    int          // jobs that were completed
}

// open prepares the shared part of the rows, once.
func (b *bench) open(ctx context.Context, on *rig.Service) (err error) {
	if b.client != nil {
		return nil
	}
	b.on, b.first = on, map[string]float64{}
	if b.nc, b.js, err = rig.Connect(on.Address); err != nil {
		return err
	}
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: reserved})
	if _, err := contracts.Apply(ctx, b.js, assets, contracts.ApplyOptions{}); err != nil {
		return err
	}
	if _, err := b.js.CreateStream(ctx, worker.StreamConfig(stream, "queue.>")); err != nil {
		return fmt.Errorf("create a stream: %w", err)
	}
	for i := range letters {
		letter := worker.DeadLetter{
			Attempts: 3, Consumer: "workers", DeadAt: time.Now(), EnqueuedAt: time.Now(),
			Error: fmt.Sprintf("provider wolt answers %d for place %q", 500+i%3, jobID(i)), ID: fmt.Sprintf("dead-%d", i), MaxAttempts: 3,
			Payload: []byte(payload), Reason: worker.ReasonExhausted, Sequence: uint64(i + 1), //nolint:gosec // positive
			Signature: fmt.Sprintf("provider wolt answers %d for place #", 500+i%3), Stream: stream, Subject: subject(i),
		}
		if _, err := worker.PublishDeadLetter(ctx, b.js, "dead", letter); err != nil {
			return err
		}
	}
	b.client, err = worker.NewClient(b.js, worker.ClientConfig{AllowUntaken: true, Stream: stream})
	return err
}

func (b *bench) close() {
	if b.stop != nil {
		_ = b.stop() //nolint:errcheck // the server ends soon
	}
	if b.console != nil {
		b.console.Stop()
	}
	if b.nc != nil {
		b.nc.Close()
	}
}

// subject returns the subject of a job. One job in a hundred has a subject of its own, like a unique job. The server looks through all
// subjects of a stream when a consumer begins with the oldest message.
func subject(i int) string {
	if i%own == 0 {
		return fmt.Sprintf("queue.kind%d.%s", i/own%kinds, jobID(i))
	}
	return fmt.Sprintf("queue.kind%d.any", i%kinds)
}

func jobID(i int) string { return fmt.Sprintf("job-%d", i) }

// fill queues jobs until the queue has n, without waiting for each answer. They have no ids: the server keeps those for two minutes, and would
// have those of all jobs, and remove them while others are measured.
func (b *bench) fill(ctx context.Context, n int) error {
	from, more := b.queued, max(0, n-(b.queued-b.taken))
	b.queued += more
	return rig.Publish(ctx, b.js, more, func(i int) (*nats.Msg, error) {
		return &nats.Msg{Subject: subject(from + i), Data: []byte(payload), Header: nats.Header{jetstream.ExpectedStreamHeader: {stream}}}, nil
	})
}

// jobs measures jobs while many others are queued.
func (b *bench) jobs(ctx context.Context, who point) (rig.Figures, error) {
	if err := b.fill(ctx, who.jobs); err != nil {
		return nil, err
	}
	f := rig.Figures{}
	before := rig.WorkOf(b.on)
	if err := b.insert(ctx, operated); err != nil {
		return nil, err
	}
	f.Since("insert", b.on, before, operated)
	err := b.take(ctx, f, operated)
	for _, what := range []string{"insert", "take"} {
		f[what+"_cpu_us"] = f[what+"_client_cpu_us"] + f[what+"_server_cpu_us"]
		if b.first[what] == 0 {
			b.first[what] = f[what+"_cpu_us"]
		}
		f[what+"_grew"] = f[what+"_cpu_us"] / b.first[what]
	}
	f["server_mb"] = float64(b.on.ResidentBytes()) / 1e6
	return f, err
}

// insert makes producers insert n jobs, one at a time each.
func (b *bench) insert(ctx context.Context, n int) error {
	from := b.queued
	b.queued += n
	return rig.Each(producers, n, func(i int) error {
		_, err := b.client.Insert(ctx, worker.NewJob{Args: []byte(payload), ID: jobID(from + i), Subject: subject(from + i)})
		return err
	})
}

// take makes a worker complete n of the oldest jobs.
func (b *bench) take(ctx context.Context, f rig.Figures, n int) error {
	open, done := make(chan struct{}), make(chan struct{})
	var begun, ended atomic.Int64
	stop, err := b.work(ctx, func(ctx context.Context) error {
		select {
		case <-open:
		case <-ctx.Done():
		}
		if begun.Add(1) > int64(n) {
			<-ctx.Done()
		}
		return ctx.Err()
	}, func(s worker.Settlement) {
		if s.Outcome == worker.OutcomeCompleted && ended.Add(1) == int64(n) {
			close(done)
		}
	})
	if err != nil {
		return err
	}
	before := rig.WorkOf(b.on)
	close(open)
	select {
	case <-done:
		f.Since("take", b.on, before, n)
		b.taken += n
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return errors.Join(err, stop())
}

// work runs a worker, and returns when its slots are full.
func (b *bench) work(ctx context.Context, do func(context.Context) error, settled func(worker.Settlement)) (stop func() error, err error) {
	w, err := worker.New(b.js, worker.Config{
		AutoCreate: true, Concurrency: slots, Consumer: "workers", Hooks: worker.Hooks{Settled: settled},
		Logger: slog.New(slog.DiscardHandler), Stream: stream,
	})
	if err != nil {
		return nil, err
	}
	var begun atomic.Int64
	full := make(chan struct{})
	err = worker.Handle(w, "queue.>", worker.Policy{}, func(ctx context.Context, _ *worker.Job[json.RawMessage]) error {
		if begun.Add(1) == slots {
			close(full)
		}
		return do(ctx)
	})
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	select {
	case <-full:
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop = func() error { cancel(); return <-ended }
	if err != nil {
		cancel()
		return nil, err
	}
	return stop, nil
}

// raw reads messages from a sequence on by nats.go alone: with n requests, each for one message or for a batch.
func (b *bench) raw(ctx context.Context, from, n, batch int) (size int, err error) {
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, fmt.Errorf("subscribe: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed, then
	for i := range n {
		question := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">","batch":%d}`, from+i, batch)
		if err := b.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, question); err != nil {
			return 0, fmt.Errorf("ask for messages: %w", err)
		}
	}
	for range max(n, batch+1) { // behind a batch its end
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, fmt.Errorf("read messages: %w", err)
		}
		size += m.Size()
	}
	return size, nil
}
