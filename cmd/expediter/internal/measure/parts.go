package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// Parts are the parts that can be measured.
func Parts() []string { return []string{"locks", "results", "jobs", "enrich", "notify"} }

// Config configures a measurement. All fields are required.
type Config struct {
	// Callers is the number of operations that are under way at a time.
	Callers int

	// Connect connects to the servers.
	Connect func(...nats.Option) (*nats.Conn, error)

	// Each gets the rows, one after the other.
	Each func(Row) error

	// Lasts is the time for which each operation is repeated.
	Lasts time.Duration

	// Logger gets the log of workers and services.
	Logger *slog.Logger

	// Parts are the parts to measure, see [Parts].
	Parts []string

	// Provider answers for the places.
	Provider provider.Provider

	// Replicas is the number of servers that keep each stream.
	Replicas int
}

// ErrInUse is returned for an account that already has streams with the names of a measurement.
var ErrInUse = errors.New("the account has streams that a measurement would use and delete: give it an account of its own")

// name is the name of the stream of jobs, and of the bucket of locks and results.
const name = "EXPEDITER_BENCH"

const (
	// maxBytes bounds each of the two, in bytes.
	maxBytes = 256 << 20

	// reserved is the storage that the streams of all services reserve together, in bytes.
	reserved = 4 << 30
)

// cleanUp bounds the deletion of the streams.
const cleanUp = 30 * time.Second

// Run makes the streams of all services and some of its own, measures, and deletes them all, even after a failure. It refuses an
// account that already has one of them.
func Run(ctx context.Context, cfg Config) (err error) {
	nc, err := cfg.Connect(nats.Name("expediter bench"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	m := &measurement{Config: cfg, js: js, nc: nc}
	streams := m.streams()
	for _, s := range streams {
		switch _, err := js.Stream(ctx, s.Name); {
		case err == nil:
			return fmt.Errorf("%w: %s", ErrInUse, s.Name)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("look for stream %s: %w", s.Name, err)
		}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		for _, s := range streams {
			if gone := js.DeleteStream(ctx, s.Name); gone != nil && !errors.Is(gone, jetstream.ErrStreamNotFound) {
				err = errors.Join(err, fmt.Errorf("stream %s stays: %w", s.Name, gone))
			}
		}
	}()
	if _, err := contracts.Apply(ctx, js, streams, contracts.ApplyOptions{CreateOnly: true}); err != nil {
		return err
	}
	parts := map[string]func(context.Context) error{
		"locks": m.locks, "results": m.results, "jobs": m.jobs, "enrich": m.enrich, "notify": m.notify,
	}
	for _, part := range cfg.Parts {
		if err := parts[part](ctx); err != nil {
			return err
		}
	}
	return nil
}

type measurement struct {
	Config

	js jetstream.JetStream
	nc *nats.Conn
}

// streams declares the streams for the measurement.
func (m *measurement) streams() []jetstream.StreamConfig {
	jobs := worker.StreamConfig(name, "expediter-bench.>")
	jobs.MaxBytes, jobs.Replicas = maxBytes, m.Replicas
	bucket := kvlock.StreamConfig(kvlock.BucketConfig{Bucket: name, MaxBytes: maxBytes, Replicas: m.Replicas})
	return append(contracts.Assets(contracts.AssetOptions{MaxBytes: reserved, Replicas: m.Replicas}), jobs, bucket)
}

// each measures operations of a part one after the other.
func (m *measurement) each(ctx context.Context, part string, operations ...operation) error {
	for _, o := range operations {
		row, err := o.run(ctx, part, m.Lasts)
		if err != nil {
			return err
		}
		if err := m.Each(row); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) locks(ctx context.Context) error {
	locker, err := kvlock.NewLocker(ctx, m.js, kvlock.LockerConfig{Bucket: name, Logger: m.Logger})
	if err != nil {
		return err
	}
	defer locker.Close()
	hold := func(key func(int64) string) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			lease, err := locker.Acquire(ctx, key(n), kvlock.AcquireOptions{})
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	own := hold(func(n int64) string { return "lock." + strconv.FormatInt(n%4096, 10) })
	return m.each(ctx, "locks",
		operation{"lock and unlock, one caller", 1, own},
		operation{"lock and unlock", m.Callers, own},
		operation{"lock and unlock, all one lock", m.Callers, hold(func(int64) string { return "lock.one" })},
	)
}

func (m *measurement) results(ctx context.Context) error {
	f, err := flight.New(ctx, m.js, flight.Config{Bucket: name, Logger: m.Logger})
	if err != nil {
		return err
	}
	defer f.Close()
	do := func(key func(int64) string) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			_, err := f.Do(ctx, key(n), func(context.Context) ([]byte, error) { return make([]byte, 256), nil }, flight.DoOptions{TTL: time.Minute})
			return err
		}
	}
	return m.each(ctx, "results",
		operation{"compute a value of 256 bytes", m.Callers, do(func(n int64) string { return "new." + strconv.FormatInt(n, 10) })},
		operation{"read it", m.Callers, do(func(n int64) string { return "new." + strconv.FormatInt(1+n%100, 10) })},
	)
}

func (m *measurement) jobs(ctx context.Context) error {
	client, err := worker.NewClient(m.js, worker.ClientConfig{Stream: name})
	if err != nil {
		return err
	}
	w, err := worker.New(m.js, worker.Config{AutoCreate: true, Consumer: "bench", Logger: m.Logger, Stream: name})
	if err != nil {
		return err
	}
	var waiting sync.Map // of channels, by number
	err = worker.Handle(w, "expediter-bench.>", worker.Policy{}, func(_ context.Context, job *worker.Job[int64]) error {
		if done, ok := waiting.LoadAndDelete(job.Args); ok {
			close(done.(chan struct{})) //nolint:forcetypeassert // nothing else is stored
		}
		return nil
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	insert := func(unique bool) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			done := make(chan struct{})
			waiting.Store(n, done)
			job := worker.NewJob{Args: n, Subject: "expediter-bench.plain"}
			if unique {
				job.Subject, job.Unique = "expediter-bench.unique", &worker.Unique{Key: strconv.FormatInt(n, 10), Keep: time.Minute}
			}
			if _, err := client.Insert(ctx, job); err != nil {
				return err
			}
			return await(ctx, done)
		}
	}
	err = m.each(ctx, "jobs",
		operation{"insert a job, and begin it", m.Callers, insert(false)},
		operation{"the same, unique with a record", m.Callers, insert(true)},
	)
	stop()
	return errors.Join(err, <-ended)
}

// await waits until done is closed.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start starts one instance of services.
func (m *measurement) start(ctx context.Context, cfg pipeline.Config) (*pipeline.Pipeline, error) {
	cfg.Connect, cfg.Logger, cfg.Provider, cfg.Replicas = m.Connect, m.Logger, m.Provider, m.Replicas
	return pipeline.Start(ctx, cfg)
}

func (m *measurement) enrich(ctx context.Context) (err error) {
	p, err := m.start(ctx, pipeline.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	s, err := sample.Load()
	if err != nil {
		return err
	}
	req := contracts.EnrichRequest{CityText: s.Requests[0].CityText, WaitMS: int(contracts.MaxWait / time.Millisecond)}
	for n := range 10 {
		place := s.Places[n%len(s.Places)]
		place.PlaceID = fmt.Sprint("bench-", n)
		req.Results = append(req.Results, place)
	}
	ask := func(ctx context.Context, _ int64) error { _, err := p.Enrichers[0].Enrich(ctx, req); return err }
	if err := ask(ctx, 0); err != nil { // the first request looks the places up
		return err
	}
	return m.each(ctx, "enrich", operation{"answer for 10 known places", m.Callers, ask})
}

func (m *measurement) notify(ctx context.Context) (err error) {
	p, err := m.start(ctx, pipeline.Config{Enrichers: []string{}, Notifiers: []string{"-"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	var waiting sync.Map // of channels, by the last token of the items' keys
	told, err := m.nc.Subscribe("rp.inbox.>", func(msg *nats.Msg) {
		if done, ok := waiting.LoadAndDelete(lastToken(msg.Subject)); ok {
			close(done.(chan struct{})) //nolint:forcetypeassert // nothing else is stored
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to inboxes: %w", err)
	}
	defer told.Unsubscribe() //nolint:errcheck // the connection is closed next
	tell := func(ctx context.Context, n int64) error {
		done, id := make(chan struct{}), fmt.Sprint("bench-", n)
		key, err := contracts.InboxKey(contracts.RecipientCustomer, "carla", id)
		if err != nil {
			return err
		}
		waiting.Store(lastToken(key), done)
		_, err = p.Notifiers[0].Publish(ctx, contracts.Event{
			EventID: id, EventType: "BENCH", AggregateType: "RESTAURANT", UserID: "carla", Payload: json.RawMessage(`{}`),
		})
		if err != nil {
			return err
		}
		return await(ctx, done)
	}
	return m.each(ctx, "notify", operation{"publish an event, until it is in an inbox", m.Callers, tell})
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
