package main

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// openWatermill is watermill-nats with the settings of its documentation for exactly-once: message IDs, synchronous
// acknowledgements.
func openWatermill(ctx context.Context, s settings) (*client, error) {
	b, err := openBroker(ctx, s)
	if err != nil {
		return nil, err
	}
	js := wmnats.JetStreamConfig{
		TrackMsgId: true, DurablePrefix: "watermill",
		SubscribeOptions: []nats.SubOpt{nats.BindStream(b.stream), nats.AckExplicit(), nats.AckWait(ackWait), nats.MaxAckPending(1000)},
	}
	topic := b.stream + ".noop.w"
	publisher, err := wmnats.NewPublisherWithNatsConn(b.insertC, wmnats.PublisherPublishConfig{
		Marshaler: &wmnats.NATSMarshaler{}, JetStream: js, SubjectCalculator: wmnats.DefaultSubjectCalculator,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	var inserted, handled int
	var mu sync.Mutex
	return &client{
		insert: func(_ context.Context, id string) error {
			err := publisher.Publish(topic, message.NewMessage(id, []byte(payload)))
			mu.Lock()
			defer mu.Unlock()
			inserted++
			return err
		},
		work: func(ctx context.Context, slots int, handle handler) (func() error, error) {
			subscriber, err := wmnats.NewSubscriberWithNatsConn(b.workC, wmnats.SubscriberSubscriptionConfig{
				Unmarshaler: &wmnats.NATSMarshaler{}, JetStream: js, SubscribersCount: slots, QueueGroupPrefix: "watermill",
				AckWaitTimeout: ackWait, CloseTimeout: 30 * time.Second,
			}, watermill.NopLogger{})
			if err != nil {
				return nil, err
			}
			run, cancel := context.WithCancel(context.WithoutCancel(ctx))
			jobs, err := subscriber.Subscribe(run, topic)
			if err != nil {
				cancel()
				return nil, err
			}
			var all sync.WaitGroup
			for range slots {
				all.Go(func() {
					for msg := range jobs {
						if handle(ctx, msg.UUID) == nil {
							msg.Ack()
							mu.Lock()
							handled++
							mu.Unlock()
						} else {
							msg.Nack()
						}
					}
				})
			}
			return func() error { cancel(); err := subscriber.Close(); all.Wait(); return err }, nil
		},
		// It tells nobody when the server has confirmed: the stream does.
		recorded: func(ctx context.Context) (int, error) {
			mu.Lock()
			n := handled
			mu.Unlock()
			left, err := b.left(ctx)
			return n - left, err
		},
		close: b.close,
	}, nil
}
