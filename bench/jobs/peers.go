package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// quietly is a logger of asynq that writes nothing.
type quietly struct{}

func (quietly) Debug(...any) {}
func (quietly) Error(...any) {}
func (quietly) Fatal(...any) {}
func (quietly) Info(...any)  {}
func (quietly) Warn(...any)  {}

// openAsynq opens a client of asynq with its defaults, except for the time between two looks at empty queues, which is a second by
// default.
func openAsynq(_ context.Context, s settings) (*client, error) {
	to := asynq.RedisClientOpt{Addr: s.Address, PoolSize: 2 * slots}
	inserter, inspector := asynq.NewClient(to), asynq.NewInspector(to)
	return &client{
		insert: func(ctx context.Context, id string) error {
			_, err := inserter.EnqueueContext(ctx, asynq.NewTask("noop", fmt.Appendf(nil, `{"id":%q}`, id)),
				asynq.Queue(s.Queue), asynq.Unique(10*time.Minute))
			return err
		},
		work: func(ctx context.Context, slots int, handle handler) (func() error, error) {
			server := asynq.NewServer(to, asynq.Config{
				Concurrency: slots, Queues: map[string]int{s.Queue: 1}, Logger: quietly{}, LogLevel: asynq.FatalLevel,
				TaskCheckInterval: 5 * time.Millisecond, ShutdownTimeout: time.Second,
				BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
			})
			err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
				var id string
				if _, err := fmt.Sscanf(string(t.Payload()), `{"id":%q}`, &id); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				return handle(ctx, id)
			}))
			return func() error { server.Shutdown(); return nil }, err
		},
		recorded: func(context.Context) (int, error) {
			info, err := inspector.GetQueueInfo(s.Queue)
			if err != nil {
				return 0, err
			}
			return info.ProcessedTotal - info.FailedTotal, nil
		},
		close: func() {
			_ = inspector.DeleteQueue(s.Queue, true) // the server ends soon
			_ = inserter.Close()                     // nothing is written any more
			_ = inspector.Close()                    // nothing is written any more
		},
	}, nil
}

// noop has the arguments of a job of River.
type noop struct {
	ID    string `json:"id"`
	Queue string `json:"queue"` // the same ID in another queue is another job
}

// Kind implements river.JobArgs.
func (noop) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noop]

	handle func(ctx context.Context, job *river.Job[noop]) error
}

// Work implements river.Worker.
func (w *noopWorker) Work(ctx context.Context, job *river.Job[noop]) error { return w.handle(ctx, job) }

// migrating makes the tables once.
var migrating sync.Mutex

func openRiver(ctx context.Context, s settings) (*client, error) {
	cfg, err := pgxpool.ParseConfig(s.Address)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := &riverClient{pool: pool, queue: s.Queue}
	if err := r.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return &client{insert: r.insert, work: r.work, recorded: r.recorded, steps: r.steps, close: r.close}, nil
}

type riverClient struct {
	done     atomic.Int64
	inserter *river.Client[pgx.Tx]
	pool     *pgxpool.Pool
	queue    string
}

func (r *riverClient) prepare(ctx context.Context) error {
	migrating.Lock()
	defer migrating.Unlock()
	driver := riverpgxv5.New(r.pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	r.inserter, err = river.NewClient(driver, &river.Config{Logger: quiet})
	return err
}

func (r *riverClient) insert(ctx context.Context, id string) error {
	_, err := r.inserter.Insert(ctx, noop{ID: id, Queue: r.queue}, &river.InsertOpts{
		Queue: r.queue, UniqueOpts: river.UniqueOpts{ByArgs: true},
	})
	return err
}

func (r *riverClient) work(ctx context.Context, slots int, handle handler) (func() error, error) {
	return r.run(ctx, slots, func(ctx context.Context, job *river.Job[noop]) error { return handle(ctx, job.Args.ID) })
}

// steps checkpoints each step in a transaction, which makes the step durable.
func (r *riverClient) steps(ctx context.Context, slots int, handle handler) (func() error, error) {
	return r.run(ctx, slots, func(ctx context.Context, job *river.Job[noop]) error {
		for _, name := range []string{"one", "two", "three", "four", "five"} {
			river.ResumableStep(ctx, name, nil, func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
					_, err := river.ResumableSetStepTx[*riverpgxv5.Driver](ctx, tx, job)
					return err
				})
			})
		}
		return handle(ctx, job.Args.ID)
	})
}

func (r *riverClient) run(
	ctx context.Context, slots int, handle func(context.Context, *river.Job[noop]) error,
) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{handle: handle})
	c, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, // as low as sensible: the default is 100 ms
		Logger:        slog.New(slog.DiscardHandler), Queues: map[string]river.QueueConfig{r.queue: {MaxWorkers: slots}}, Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	completed, unsubscribe := c.SubscribeConfig(&river.SubscribeConfig{ChanSize: 100_000, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		unsubscribe()
		return nil, err
	}
	var all sync.WaitGroup
	all.Go(func() {
		for range completed {
			r.done.Add(1)
		}
	})
	return func() error {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err := c.Stop(stop)
		unsubscribe()
		all.Wait()
		return err
	}, nil
}

func (r *riverClient) recorded(context.Context) (int, error) { return int(r.done.Load()), nil }

func (r *riverClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, _ = r.pool.Exec(ctx, "TRUNCATE river_job") // the server ends soon
	r.pool.Close()
}
