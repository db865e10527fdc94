package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hibiken/asynq"
)

// quietly is a logger of asynq that says nothing.
type quietly struct{}

func (quietly) Debug(...any) {}
func (quietly) Error(...any) {}
func (quietly) Fatal(...any) {}
func (quietly) Info(...any)  {}
func (quietly) Warn(...any)  {}

// openAsynq is asynq as it comes, but for how often it looks at empty queues: a second otherwise.
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
			_ = inspector.DeleteQueue(s.Queue, true) //nolint:errcheck // the server ends soon
			_ = inserter.Close()                     //nolint:errcheck // nothing is written any more
			_ = inspector.Close()                    //nolint:errcheck // nothing is written any more
		},
	}, nil
}
