package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// noop is the arguments of a job of River.
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
	for r.pool.Ping(ctx) != nil { // it listens before it is ready
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
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

// steps checkpoints each step in a transaction, which is what makes it durable.
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
		FetchCooldown: 2 * time.Millisecond, // as low as sensible: 100 ms otherwise
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
	_, _ = r.pool.Exec(ctx, "TRUNCATE river_job") //nolint:errcheck // the server ends soon
	r.pool.Close()
}
