package test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// behind is a JetStream context whose stream has a leader that is behind its consumer's, as
// it happens on three servers: it has not stored the job that the consumer has delivered.
// So it refuses the first write that speaks of the job, and knows nothing of its key.
type behind struct {
	jetstream.JetStream

	code    jetstream.ErrorCode
	is      atomic.Bool
	refused atomic.Bool
}

const elsewhere = "behind"

func startBehind(t *testing.T, js jetstream.JetStream, code jetstream.ErrorCode) *behind {
	t.Helper()

	b := &behind{JetStream: js, code: code}

	_, err := js.Conn().Subscribe(elsewhere+".STREAM.MSG.GET."+stream, func(msg *nats.Msg) {
		check.Is(t, msg.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)), nil)
	})
	check.OK(t, err)
	return b
}

// PublishMsg implements jetstream.Publisher.
func (b *behind) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	b.is.Store(b.refused.CompareAndSwap(false, true))

	if b.is.Load() {
		return nil, &jetstream.APIError{Code: 400, ErrorCode: b.code, Description: "wrong last sequence"}
	}
	return b.JetStream.PublishMsg(ctx, msg, opts...)
}

// Options implements jetstream.JetStream. What is read goes to one who has nothing.
func (b *behind) Options() jetstream.JetStreamOptions {
	opts := b.JetStream.Options()
	if b.is.Load() {
		opts.APIPrefix = elsewhere
	}
	return opts
}

// TestLeaderBehindTheJobFreesNoKey: that nothing is found of a job's key does not mean that
// its record need not be written.
func TestLeaderBehindTheJobFreesNoKey(t *testing.T) {
	for name, code := range behindCodes {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)
			js := startBehind(t, b.js, code)
			settled := make(chan worker.Settlement, 2)
			cfg := b.config(t, func(c *worker.Config) { c.Hooks.Settled = func(s worker.Settlement) { settled <- s } })
			run(t, js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error { return nil })

			job := worker.NewJob{Args: order{N: 1}, Subject: "jobs.a", Unique: &worker.Unique{Keep: time.Hour}}
			insert(t, c, job)

			if s := receive(t, settled, "the job to end"); s.Outcome != worker.OutcomeCompleted || !js.refused.Load() {
				t.Fatalf("the job %s, its record refused %t", s.Outcome, js.refused.Load())
			}

			if again := insert(t, c, job); !again.Duplicate || again.State != worker.StateDone {
				t.Errorf("the key of a job that is done and kept: %+v", again)
			}
		})
	}
}

// TestLeaderBehindTheJobReplacesNone: nor does it mean that another has taken its place.
func TestLeaderBehindTheJobReplacesNone(t *testing.T) {
	for name, code := range behindCodes {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			js := startBehind(t, b.js, code)
			settled := make(chan worker.Settlement, 2)
			cfg := b.config(t, func(c *worker.Config) { c.Hooks.Settled = func(s worker.Settlement) { settled <- s } })

			var ran atomic.Int32

			run(t, js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error {
				ran.Add(1)
				return nil
			})

			job := worker.NewJob{Args: order{N: 1}, Subject: "jobs.a", Unique: &worker.Unique{}}
			check.OK(t, check.Err(client(t, b.js).Replace(t.Context(), job)))

			s := receive(t, settled, "the job to end")
			if s.Outcome != worker.OutcomeCompleted || ran.Load() != 1 || !js.refused.Load() {
				t.Errorf("the job %s and ran %d times, its mark refused %t", s.Outcome, ran.Load(), js.refused.Load())
			}
		})
	}
}

// behindCodes are what a leader says: one that has the job under way, and one that is new.
var behindCodes = map[string]jetstream.ErrorCode{"under way": 10164, "new": 10071}
