package workertest

import (
	"context"
	"log/slog"
	"maps"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	runConsumer = "one"
	runStream   = "WORKERTEST"
)

// Options change the attempt of [Run]. The zero value is a first attempt on a separate server.
type Options struct {
	// Attempt is the number of this attempt: the job has failed Attempt-1 times before. At the policy's MaxAttempts an error
	// is final. Defaults to 1.
	Attempt int

	// Header has the job's headers. Defaults to only the message ID.
	Header nats.Header

	// ID is the job's ID. Defaults to the name of the test.
	ID string

	// Payload replaces the encoded arguments: for a handler with a Policy.Decode, or to test an undecodable payload.
	// Defaults to nil.
	Payload []byte

	// Server is the server on which the job runs: for a handler that needs data on the server, and in a natstest.Bubble.
	// Defaults to a server that ends with the test.
	Server *natsrun.Server

	// Subject is the job's subject. Defaults to "jobs.test".
	Subject string

	// Worker may change the worker's configuration, except its stream, consumer and concurrency. Defaults to nil.
	Worker func(*worker.Config)
}

// Result is the outcome of one attempt, with the worker's Settlement (Attempt, Delay, Err, Outcome and more).
type Result struct {
	worker.Settlement

	// Dead is the job's dead letter, nil unless Outcome is [worker.OutcomeDead].
	Dead *worker.DeadLetter
}

// Run runs one attempt at one job through handler and returns its outcome. The job goes the way of any job: it is published
// to a stream, pulled, decoded and worked by a [worker.Worker], and settled with the server. Run returns when the server has
// confirmed the outcome, a few milliseconds after the handler. It does not wait for a retry or a snooze; Result.Delay is the
// delay of the next delivery.
//
// It can be called in parallel tests, and inside a bubble of natstest.Bubble with the bubble's server. The test fails when
// the attempt has no outcome.
func Run[T any](
	t testing.TB, policy worker.Policy, handler worker.Handler[T], args T, mutate ...func(*Options),
) Result {
	t.Helper()
	o := Options{Attempt: 1, ID: t.Name(), Subject: "jobs.test"}
	for _, m := range mutate {
		m(&o)
	}
	payload := o.Payload
	if payload == nil {
		var err error
		if payload, err = jobmsg.Encode(args); err != nil {
			t.Fatalf("workertest: encode the arguments: %v", err)
		}
	}
	if o.Server == nil {
		o.Server = natstest.Server(t)
	}
	_, js := natstest.Connect(t, o.Server)
	enqueue(t, js, o, payload)
	var (
		result      Result
		settled     bool
		ctx, cancel = context.WithCancel(t.Context())
	)
	defer cancel()
	w, err := worker.New(js, o.config(func(s worker.Settlement) {
		result.Settlement, settled = s, true
		cancel() // before the slot is free again, so that there is no other pull to wait for
	}))
	if err == nil {
		err = worker.Handle(w, o.Subject, policy, handler)
	}
	check.Require(t, err == nil, "workertest: %v", err)
	err = w.Run(ctx)
	check.Require(t, err == nil && settled, "workertest: the job did not come to an outcome: %v", err)
	result.Dead = lastDeadLetter(t, js, result.Settlement)
	if err := js.DeleteStream(t.Context(), runStream); err != nil {
		t.Fatalf("workertest: clear away the stream: %v", err)
	}
	return result
}

// config returns the worker's configuration.
func (o Options) config(settled func(worker.Settlement)) worker.Config {
	cfg := worker.Config{AutoCreate: true, Logger: slog.New(slog.DiscardHandler)}
	if o.Worker != nil {
		o.Worker(&cfg)
	}
	then := cfg.Hooks.Settled
	cfg.Hooks.Settled = func(s worker.Settlement) {
		defer settled(s) // although then may panic
		if then != nil {
			then(s)
		}
	}
	cfg.Concurrency, cfg.Consumer, cfg.Stream = 1, runConsumer, runStream
	return cfg
}

// enqueue puts the job into a new stream, and lets it fail until it has the attempt of o.
func enqueue(t testing.TB, js jetstream.JetStream, o Options, payload []byte) {
	t.Helper()
	ctx := t.Context()
	stream, err := js.CreateStream(ctx, worker.StreamConfig(runStream, o.Subject))
	check.Require(t, err == nil, "workertest: make the stream: %v", err)
	msg := &nats.Msg{Subject: o.Subject, Header: nats.Header{}, Data: payload}
	maps.Copy(msg.Header, o.Header)
	if _, err := js.PublishMsg(ctx, msg, jetstream.WithMsgID(o.ID)); err != nil {
		t.Fatalf("workertest: publish the job: %v", err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: runConsumer, FilterSubjects: []string{o.Subject}, MaxAckPending: -1, MaxDeliver: -1,
	})
	check.Require(t, err == nil, "workertest: make the consumer: %v", err)
	for range o.Attempt - 1 {
		msg, err := consumer.Next()
		if err == nil {
			err = msg.Nak()
		}
		check.Require(t, err == nil, "workertest: let an attempt fail: %v", err)
	}
}

// lastDeadLetter reads the dead letter of a job that has one.
func lastDeadLetter(t testing.TB, js jetstream.JetStream, s worker.Settlement) *worker.DeadLetter {
	t.Helper()
	if s.Outcome != worker.OutcomeDead {
		return nil
	}
	letters, err := letters(t.Context(), js, s.Stream)
	check.Require(t, err == nil, "workertest: %v", err)
	for i := len(letters) - 1; i >= 0; i-- {
		if letters[i].Sequence == s.Sequence {
			return &letters[i]
		}
	}
	t.Fatalf("workertest: job %s is dead and has no dead letter", s.ID)
	return nil
}
