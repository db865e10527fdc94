package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// payload is the payload of every job.
const payload = `{"n":1}`

// broker is the common part of the contestants on NATS: a connection to insert, one to work, and a stream.
type broker struct {
	insert, work jetstream.JetStream
	replicas     int
	stream       string
	done         atomic.Int64 // the number of completed jobs, as confirmed by the server
}

func openBroker(ctx context.Context, s settings) (*broker, error) {
	b := &broker{replicas: strings.Count(s.Address, ",") + 1, stream: s.Queue}
	var err error
	if _, b.insert, err = rig.Connect(s.Address); err == nil {
		_, b.work, err = rig.Connect(s.Address)
	}
	if err != nil || s.Old {
		return b, err
	}
	cfg := worker.StreamConfig(s.Queue, s.Queue+".>") // the same for all
	cfg.Replicas = b.replicas
	return b, jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error { // a cluster that has just started takes a while
		_, err := b.insert.CreateStream(ctx, cfg)
		return err
	})
}

func (b *broker) recorded(context.Context) (int, error) { return int(b.done.Load()), nil }

func (b *broker) subject(id string) string { return b.stream + ".noop." + id }

// queue publishes jobs without waiting for each answer.
func (b *broker) queue(ctx context.Context, from, n int) error {
	for i := range n {
		if _, err := b.insert.PublishAsync(fmt.Sprintf("%s.bulk.%d", b.stream, from+i), []byte(payload), jetstream.WithStallWait(time.Minute)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	select {
	case <-b.insert.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *broker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = b.insert.DeleteStream(ctx, b.stream) // the server ends soon
	b.insert.Conn().Close()
	b.work.Conn().Close()
}

// openRaw opens a client that does the same by nats.go alone. A keyed job is unique by its key and leaves a record, in the same
// writes.
func openRaw(keyed bool) func(context.Context, settings) (*client, error) {
	return func(ctx context.Context, s settings) (*client, error) {
		b, err := openBroker(ctx, s)
		if err != nil {
			return nil, err
		}
		if keyed {
			return &client{insert: b.insertKeyed, work: b.consumeKeyed, recorded: b.recorded, close: b.close}, nil
		}
		return b.raw(), nil
	}
}

// insertKeyed inserts a job unless there is another of its key, or a record of one.
func (b *broker) insertKeyed(ctx context.Context, id string) error {
	_, err := b.insert.Publish(ctx, b.subject(id), []byte(payload), jetstream.WithMsgID(id),
		jetstream.WithExpectLastSequenceForSubject(0, "*.noop."+id))
	return err
}

// consumeKeyed works jobs, and records their completion in place of a job of their key.
func (b *broker) consumeKeyed(ctx context.Context, slots int, handle handler) (func() error, error) {
	return b.consume(ctx, slots, func(ctx context.Context, id string, msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err == nil {
			err = handle(ctx, id)
		}
		if err != nil {
			return err
		}
		sequence := meta.Sequence.Stream
		done := &nats.Msg{Subject: b.stream + "-done.noop." + id, Header: nats.Header{
			worker.HeaderID: {id}, worker.HeaderSequence: {strconv.FormatUint(sequence, 10)}, worker.HeaderState: {string(worker.StateDone)},
			jetstream.MsgRollup: {jetstream.MsgRollupSubject},
		}}
		_, err = b.work.PublishMsg(ctx, done, jetstream.WithMsgTTL(keep), jetstream.WithExpectLastSequenceForSubject(sequence, "*.noop."+id))
		return err
	})
}

// raw returns a client of plain jobs.
func (b *broker) raw() *client {
	return &client{
		insert: func(ctx context.Context, id string) error {
			_, err := b.insert.Publish(ctx, b.subject(id), []byte(payload), jetstream.WithMsgID(id))
			return err
		},
		work: func(ctx context.Context, slots int, handle handler) (func() error, error) {
			return b.consume(ctx, slots, func(ctx context.Context, id string, _ jetstream.Msg) error { return handle(ctx, id) })
		},
		recorded: b.recorded,
		steps: func(ctx context.Context, slots int, handle handler) (func() error, error) {
			steps := "STEPS" + b.stream
			_, err := b.work.CreateStream(ctx, jetstream.StreamConfig{
				Name: steps, Subjects: []string{steps + ".>"}, MaxMsgsPerSubject: 1, Replicas: b.replicas,
			})
			if err != nil {
				return nil, err
			}
			stop, err := b.consume(ctx, slots, func(ctx context.Context, id string, _ jetstream.Msg) error {
				var last uint64
				for range fiveSteps {
					ack, err := b.work.Publish(ctx, steps+"."+id, []byte(payload), jetstream.WithExpectLastSequencePerSubject(last))
					if err != nil {
						return err
					}
					last = ack.Sequence
				}
				return handle(ctx, id)
			})
			return func() error { return errors.Join(stop(), b.work.DeleteStream(context.WithoutCancel(ctx), steps)) }, err
		},
		queue: b.queue,
		close: b.close,
	}
}

func (b *broker) consume(ctx context.Context, slots int, handle func(context.Context, string, jetstream.Msg) error) (func() error, error) {
	consumer, err := b.work.CreateOrUpdateConsumer(ctx, b.stream, jetstream.ConsumerConfig{
		Durable: "raw", AckWait: ackWait, MaxAckPending: -1, FilterSubject: b.stream + ".noop.>",
	})
	if err != nil {
		return nil, err
	}
	jobs := make(chan jetstream.Msg)
	var all sync.WaitGroup
	for range slots {
		all.Go(func() {
			for msg := range jobs {
				id := msg.Subject()[strings.LastIndexByte(msg.Subject(), '.')+1:]
				if handle(ctx, id, msg) == nil && msg.DoubleAck(context.WithoutCancel(ctx)) == nil {
					b.done.Add(1)
				}
			}
		})
	}
	consuming, err := consumer.Consume(func(msg jetstream.Msg) { jobs <- msg }, jetstream.PullMaxMessages(slots))
	if err != nil {
		return nil, err
	}
	return func() error {
		consuming.Stop()
		<-consuming.Closed()
		close(jobs)
		all.Wait()
		return nil
	}, nil
}

// keep is the time for which a completed job stays unique, where that is recorded.
const keep = 10 * time.Minute

// openOurs opens a client of pkg/worker. A keyed job is unique by its key, which the server decides in one write, and leaves a record.
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
				return b.run(ctx, slots, func(ctx context.Context, job *worker.Job[map[string]int]) error { return handle(ctx, job.ID) })
			},
			recorded: b.recorded,
			steps: func(ctx context.Context, slots int, handle handler) (func() error, error) {
				return b.run(ctx, slots, func(ctx context.Context, job *worker.Job[map[string]int]) error {
					for _, name := range []string{"one", "two", "three", "four", "five"} {
						if err := step.Do(ctx, job, name, func(context.Context) error { return nil }); err != nil {
							return err
						}
					}
					return handle(ctx, job.ID)
				})
			},
			queue: b.queue,
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

func (b *broker) run(ctx context.Context, slots int, h worker.Handler[map[string]int]) (func() error, error) {
	ready := make(chan struct{}, 1)
	w, err := worker.New(b.work, worker.Config{
		AckWait: ackWait, AutoCreate: true, Concurrency: slots, Consumer: "ours", Logger: slog.New(slog.DiscardHandler),
		Stream: b.stream,
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
	if err := worker.Handle(w, b.stream+".noop.>", worker.Policy{}, h); err != nil {
		return nil, err
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
