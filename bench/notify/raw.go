package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// replicas is how many servers an address has.
func replicas(address string) int { return strings.Count(address, ",") + 1 }

// connect opens a connection of its own.
func connect(address string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(address, nats.MaxReconnects(-1))
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return nc, js, nil
}

// retry repeats what a server that has just started cannot do yet.
func retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := do(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// openRaw is nats.go alone with a stream like that of the notifier's rows.
func openRaw(ctx context.Context, b *bench) (*client, error) {
	nc, js, err := connect(b.service.Address)
	if err != nil {
		return nil, err
	}
	cfg := declared(b, contracts.StreamNotifications)
	cfg.Name, cfg.Subjects = "RAW", []string{"raw.>"}
	if err := retry(ctx, func(ctx context.Context) error { _, err := js.CreateStream(ctx, cfg); return err }); err != nil {
		nc.Close()
		return nil, err
	}
	var first uint64
	return &client{
		tell: func(ctx context.Context, event string, n int) (timing, error) {
			begun := time.Now()
			for i := range n {
				msg, err := rawRow(row(event, i, begun))
				if err != nil {
					return timing{}, err
				}
				if _, err := js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
					return timing{}, fmt.Errorf("publish: %w", err)
				}
			}
			return timing{stored: time.Since(begun)}, nil
		},
		mark: func(ctx context.Context) (err error) {
			first, err = purge(ctx, js, "RAW")
			return err
		},
		count: func(ctx context.Context) (counts, error) {
			stored, double, err := messages(ctx, js, "RAW", "raw.>", first)
			return counts{stored: stored, sent: -1, double: double}, err
		},
		close: func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			_ = js.DeleteStream(ctx, "RAW") //nolint:errcheck // the server ends soon
			nc.Close()
		},
	}, nil
}

// rawRow is the message that the notifier makes of a row, on another subject.
func rawRow(n contracts.Notification) (*nats.Msg, error) {
	subject, err := contracts.NotifySendSubject(n.Channel, n.RecipientType, n.UserID, n.EventID)
	if err != nil {
		return nil, err
	}
	key, err := contracts.DeliveryKey(n.EventID, n.Channel, n.RecipientType, n.UserID)
	if err != nil {
		return nil, err
	}
	data, err := contracts.Encode(n)
	if err != nil {
		return nil, err
	}
	header := nats.Header{"ce-id": {key}, "ce-source": {"/notifier"}, "ce-type": {contracts.CloudEventNotificationRequested}}
	return &nats.Msg{Subject: "raw." + subject, Header: header, Data: data}, nil
}

// declared is how a stream is declared, on this server.
func declared(b *bench, name string) jetstream.StreamConfig {
	for _, cfg := range contracts.Assets(assetOptions(b.contestant.storage, b.service.Address)) {
		if cfg.Name == name {
			return cfg
		}
	}
	return jetstream.StreamConfig{Name: name}
}

func assetOptions(storage jetstream.StorageType, address string) contracts.AssetOptions {
	const most = 4 << 30
	return contracts.AssetOptions{MaxBytes: most, Replicas: replicas(address), Storage: storage}
}

// purge empties a stream and returns the sequence of the next message.
func purge(ctx context.Context, js jetstream.JetStream, name string) (next uint64, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	if err := stream.Purge(ctx); err != nil {
		return 0, fmt.Errorf("purge %s: %w", name, err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	return info.State.LastSeq + 1, nil
}

// messages counts the messages of a stream, and those that were replaced, since it was purged.
func messages(ctx context.Context, js jetstream.JetStream, name, filter string, first uint64) (n, replaced int, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, 0, fmt.Errorf("stream %s: %w", name, err)
	}
	state := stream.CachedInfo().State
	replaced = int(state.LastSeq+1-first) - int(state.Msgs) //nolint:gosec // small
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{FilterSubject: filter, MemoryStorage: true, Replicas: 1})
	if err != nil {
		return 0, 0, fmt.Errorf("consumer of %s: %w", name, err)
	}
	info := consumer.CachedInfo()
	return int(info.NumPending), replaced, stream.DeleteConsumer(ctx, info.Name) //nolint:gosec // small
}
