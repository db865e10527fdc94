package workertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// serviceOf is a service on the worker with this handler.
func serviceOf(policy worker.Policy, concurrency int, h func(ctx context.Context, r Recorder, id string) error) Service {
	return func(ctx context.Context, env Env) error {
		w, err := worker.New(env.JS, worker.Config{
			AckWait: env.AckWait, AutoCreate: true, Concurrency: concurrency, Consumer: "c", Logger: env.Logger, Stream: "JOBS",
		})
		if err != nil {
			return err
		}
		err = worker.Handle(w, "jobs.>", policy, func(ctx context.Context, job *worker.Job[map[string]int]) error {
			return h(ctx, env.Recorder, job.ID)
		})
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}
}

// byHand is a service that works its jobs with nats.go alone, one after the other, as far as
// that goes: without heartbeats, and with the acknowledgement before the effect if early.
func byHand(early bool) Service {
	return func(ctx context.Context, env Env) error {
		consumer, err := env.JS.CreateOrUpdateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{Durable: "c", AckWait: env.AckWait})
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			msg, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
			if errors.Is(err, nats.ErrTimeout) {
				continue
			}
			if err != nil {
				return err
			}
			if early {
				err = msg.DoubleAck(ctx)
			}
			id := msg.Headers().Get(nats.MsgIdHdr)
			if err = errors.Join(err, env.Recorder.RecordOnce(ctx, id)); err == nil && !early {
				_ = msg.DoubleAck(ctx) // it comes again, then
			}
		}
		return nil
	}
}

// TestEachScenarioFindsTheServiceThatItIsThereFor runs the suite with services that are
// broken in one way each.
func TestEachScenarioFindsTheServiceThatItIsThereFor(t *testing.T) {
	once := func(ctx context.Context, r Recorder, id string) error { return r.RecordOnce(ctx, id) }
	again := func(ctx context.Context, r Recorder, id string) error { return r.Record(ctx, id) }
	swallow := func(ctx context.Context, r Recorder, id string) error {
		_ = r.RecordOnce(ctx, id) // that is the fault
		return nil
	}
	deaf := func(ctx context.Context, r Recorder, id string) error {
		return r.RecordOnce(context.WithoutCancel(ctx), id)
	}
	patient := func(ctx context.Context, r Recorder, id string) error {
		for r.RecordOnce(ctx, id) != nil {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	lenient := worker.Policy{Decode: func(nats.Header, []byte, any) error { return nil }}
	for _, c := range []struct {
		broken   string
		service  Service
		scenario string
		want     string
	}{
		{"leaves an effect each time", serviceOf(worker.Policy{}, 9, again), "duplicate delivery", "has 2 effects, want 1"},
		{"leaves an effect each time", serviceOf(worker.Policy{}, 9, again), "redelivery after SIGKILL", "has 2 effects, want 1"},
		{"leaves an effect each time", serviceOf(worker.Policy{}, 9, again), "paused process", "has 2 effects, want 1"},
		{"has no heartbeat", byHand(false), "handler slower than AckWait", "was in 2 handlers at once"},
		{"acknowledges first", byHand(true), "redelivery after SIGKILL", "has 0 effects, want 1"},
		{"swallows errors", serviceOf(worker.Policy{}, 9, swallow), "poison message", "has 0 dead letters, want 1"},
		{"waits with the slot in hand", serviceOf(worker.Policy{MaxAttempts: 1, Timeout: 10 * time.Minute}, 1, patient), "poison message", "held them up"},
		{"takes anything for a job", serviceOf(lenient, 9, once), "undecodable message", "is given up and has 1 effects, want 0"},
		{"ends with its connection", byHand(false), "server restart", "still in the stream"},
		{"swallows errors", serviceOf(worker.Policy{}, 9, swallow), "shutdown in flight", "has 0 effects, want 1"},
		{"does not end with its context", serviceOf(worker.Policy{}, 9, deaf), "shutdown in flight", "did not return"},
		{"gives up at once", serviceOf(worker.Policy{MaxAttempts: 1}, 9, once), "clock jump", "has 0 effects, want 1"},
	} {
		t.Run(c.broken+" "+c.scenario, func(t *testing.T) {
			suite := Suite{
				Job: func(n int) *nats.Msg {
					return &nats.Msg{Subject: fmt.Sprintf("jobs.%d", n), Data: fmt.Appendf(nil, `{"n":%d}`, n)}
				},
				Jobs: 5, Service: c.service,
			}.withDefaults()
			serveIfChild(t, suite)
			for _, sc := range scenarios {
				if sc.name != c.scenario {
					continue
				}
				err := suite.try(t, sc, t.Name())
				check.That(t, err != nil && strings.Contains(err.Error(), c.want), "%s was found to be:\n%v\nwant %q", c.scenario, err, c.want)
			}
		})
	}
}

func TestSuiteReportsAllThatItLacks(t *testing.T) {
	t.Parallel()
	err := Suite{Jobs: 1}.withDefaults().validate()
	check.ErrorContains(t, err, "Suite.Job is nil", "Suite.Service is nil", "Suite.Jobs is 1")
}
