package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// openRaw opens a client of nats.go alone, with the fewest writes and reads that a lock and a cache need. Its lock knows the last write of
// a name, and no caller can wait for it.
func openRaw(_ context.Context, s settings) (*client, error) {
	t := &trips{}
	nc, js, err := rig.Connect(s.Address, nats.SetCustomDialer(t))
	if err != nil {
		return nil, err
	}
	subject := func(key string) string { return "$KV." + s.Bucket + "." + key }
	stream := "KV_" + s.Bucket
	last := map[string]uint64{}
	write := func(ctx context.Context, key string, value []byte, header nats.Header) error {
		ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject(key), Data: value, Header: header},
			jetstream.WithExpectLastSequencePerSubject(last[key]))
		if err == nil {
			last[key] = ack.Sequence
		}
		return err
	}
	return &client{
		trips: t,
		lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
			unlock := func(ctx context.Context) error { return write(ctx, name, nil, nats.Header{"KV-Operation": {"DEL"}}) }
			return unlock, write(ctx, name, []byte("held"), nats.Header{jetstream.MsgTTLHeader: {s.TTL.String()}})
		},
		store: func(ctx context.Context, key string, value []byte) error {
			return write(ctx, key, value, nats.Header{})
		},
		read: func(ctx context.Context, key string) ([]byte, error) {
			msg, err := nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream+"."+subject(key), nil)
			if err != nil {
				return nil, err
			}
			return msg.Data, nil
		},
		readMany: func(ctx context.Context, keys []string) (int, error) { return readRaw(ctx, nc, stream, subject, keys) },
		close:    nc.Close,
	}, nil
}

// readRaw asks for the last message of all keys in one request, and returns the number of messages before the end of the batch.
func readRaw(ctx context.Context, nc *nats.Conn, stream string, subject func(string) string, keys []string) (int, error) {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = subject(key)
	}
	request, err := json.Marshal(map[string]any{"multi_last": subjects})
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	for found := 0; ; found++ {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, fmt.Errorf("read: %w", err)
		}
		if status := msg.Header.Get("Status"); status != "" {
			if status != strconv.Itoa(endOfBatch) {
				err = errors.New(msg.Header.Get("Description"))
			}
			return found, err
		}
	}
}

// endOfBatch is the status of the message behind the last of a batch.
const endOfBatch = 204
