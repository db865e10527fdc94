package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// keep is for how long a job is unique after it was completed, where that is recorded.
const keep = 10 * time.Minute

// openOurs is pkg/worker. A keyed job is unique by its key, decided by the server in one write, and leaves a record.
func openOurs(keyed bool) func(context.Context, settings) (*client, error) {
	return func(ctx context.Context, s settings) (*client, error) {
		b, err := openBroker(ctx, s)
		if err != nil {
			return nil, err
		}
		inserter, err := worker.NewClient(b.insert, worker.ClientConfig{Stream: b.stream})
		if err != nil {
			return nil, err
		}
		c := &client{
			insert: func(ctx context.Context, id string) error {
				job := worker.NewJob{Args: []byte(payload), ID: id, Subject: b.subject(id)}
				if keyed {
					job.Unique = &worker.Unique{Keep: keep}
				}
				_, err := inserter.Insert(ctx, job)
				return err
			},
			work: func(ctx context.Context, slots int, handle handler) (func() error, error) {
				return b.run(ctx, slots, worker.Policy{}, 1, plainly(handle))
			},
			ordered: func(ctx context.Context, slots int, handle handler) (func() error, error) {
				return b.run(ctx, slots, worker.Policy{Ordered: true}, 1, plainly(handle))
			},
			handlers: func(ctx context.Context, slots int, handle handler) (func() error, error) {
				return b.run(ctx, slots, worker.Policy{}, manyHandlers, plainly(handle))
			},
			recorded: b.recorded,
			steps: func(ctx context.Context, slots int, handle handler) (func() error, error) {
				return b.run(ctx, slots, worker.Policy{}, 1, func(ctx context.Context, job *worker.Job[map[string]int]) error {
					for _, name := range []string{"one", "two", "three", "four", "five"} {
						if err := step.Do(ctx, job, name, func(context.Context) error { return nil }); err != nil {
							return err
						}
					}
					return handle(ctx, job.ID)
				})
			},
			queue: b.queue,
			list: func(ctx context.Context, from uint64, subject string) error {
				_, err := inserter.Jobs(ctx, worker.JobFilter{From: worker.Cursor{Sequence: from}, Subject: subject})
				return err
			},
			close: b.close,
		}
		return c, prepareBucket(ctx, b, s)
	}
}

// prepareBucket makes the worker's bucket, which AutoCreate would make for one server.
func prepareBucket(ctx context.Context, b *broker, s settings) error {
	if s.Old {
		return nil
	}
	_, err := b.insert.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, MaxMsgsPerSubject: 1, Replicas: strings.Count(s.Address, ",") + 1,
		AllowDirect: true, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
	})
	return err
}

func plainly(handle handler) worker.Handler[map[string]int] {
	return func(ctx context.Context, job *worker.Job[map[string]int]) error { return handle(ctx, job.ID) }
}

// run works jobs with so many handlers, all but one of other subjects.
func (b *broker) run(ctx context.Context, slots int, policy worker.Policy, handlers int, h worker.Handler[map[string]int]) (func() error, error) {
	ready := make(chan struct{}, 1)
	w, err := worker.New(b.work, worker.Config{
		AckWait: ackWait, AutoCreate: true, Concurrency: slots, Consumer: "ours", Logger: slog.New(slog.DiscardHandler), Stream: b.stream,
		Hooks: worker.Hooks{
			Ready: func(is bool, _ error) {
				select {
				case ready <- struct{}{}:
				default:
				}
			},
			Settled: func(s worker.Settlement) {
				if s.Outcome == worker.OutcomeCompleted {
					b.done.Add(1)
				}
			},
		},
	})
	if err != nil {
		return nil, err
	}
	for i := range handlers {
		pattern := b.stream + ".noop.>"
		if i > 0 {
			pattern = fmt.Sprintf("%s.other%d.>", b.stream, i)
		}
		if err := worker.Handle(w, pattern, policy, h); err != nil {
			return nil, err
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- w.Run(run) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		return nil, err
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	}
	return func() error { cancel(); return <-done }, nil
}
