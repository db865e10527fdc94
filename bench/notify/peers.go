package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// table is the table of notifications in Postgres: its unique index keeps a row from being stored twice.
const table = `
CREATE TABLE IF NOT EXISTS notification (
	id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	event_id TEXT NOT NULL,
	user_id TEXT NOT NULL,
	recipient_type TEXT NOT NULL,
	channel TEXT NOT NULL,
	event_type TEXT NOT NULL,
	category TEXT,
	template TEXT,
	payload JSONB,
	status TEXT NOT NULL DEFAULT 'PENDING',
	created_at TIMESTAMPTZ NOT NULL,
	CONSTRAINT uk_notification_idempotency UNIQUE (event_id, user_id, recipient_type, channel)
)`

const (
	columns  = `event_id, user_id, recipient_type, channel, event_type, category, template, payload, created_at`
	conflict = ` ON CONFLICT (event_id, user_id, recipient_type, channel) DO NOTHING`
	oneRow   = `INSERT INTO notification (` + columns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)` + conflict
	allRows  = `INSERT INTO notification (` + columns + `)
		SELECT $1, u, $3, $4, $5, $6, $7, $8, $9 FROM unnest($2::text[]) AS u` + conflict
)

func values(n contracts.Notification, user any) []any {
	return []any{n.EventID, user, n.RecipientType, n.Channel, n.EventType, n.Category, n.Template, n.Payload, n.CreatedAt}
}

type inserter func(ctx context.Context, conn *pgx.Conn, event string, n int) error

func insertEach(ctx context.Context, conn *pgx.Conn, event string, n int) error {
	now := time.Now()
	for i := range n {
		r := row(event, i, now)
		if _, err := conn.Exec(ctx, oneRow, values(r, r.UserID)...); err != nil {
			return err
		}
	}
	return nil
}

func insertMany(ctx context.Context, conn *pgx.Conn, event string, n int) error {
	users := make([]string, n)
	for i := range users {
		users[i] = userID(i)
	}
	_, err := conn.Exec(ctx, allRows, values(row(event, 0, time.Now()), users)...)
	return err
}

// openPostgres opens one connection to Postgres with its defaults.
func openPostgres(insert inserter) func(context.Context, *bench) (*client, error) {
	return func(ctx context.Context, b *bench) (*client, error) {
		conn, err := pgx.Connect(ctx, b.service.Address)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		if _, err := conn.Exec(ctx, table); err != nil {
			return nil, fmt.Errorf("create the table: %w", err)
		}
		empty := func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "TRUNCATE notification")
			return err
		}
		return &client{
			tell: func(ctx context.Context, event string, n int) (timing, error) {
				begun := time.Now()
				err := insert(ctx, conn, event, n)
				return timing{stored: time.Since(begun)}, err
			},
			mark: empty,
			count: func(ctx context.Context) (counts, error) {
				c := counts{sent: -1}
				err := conn.QueryRow(ctx, "SELECT count(*) FROM notification").Scan(&c.stored)
				return c, err
			},
			close: func() {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				_ = empty(ctx)      // the server ends soon
				_ = conn.Close(ctx) // the server ends soon
			},
		}, nil
	}
}

// replicas returns the number of servers in an address.
func replicas(address string) int { return strings.Count(address, ",") + 1 }

// openRaw opens a client of nats.go alone with a stream like that of the notifier's rows.
func openRaw(ctx context.Context, b *bench) (*client, error) {
	nc, js, err := rig.Connect(b.service.Address)
	if err != nil {
		return nil, err
	}
	cfg := declared(b, contracts.StreamNotifications)
	cfg.Name, cfg.Subjects = "RAW", []string{"raw.>"}
	err = jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error { // a cluster that has just started takes a while
		_, err := js.CreateStream(ctx, cfg)
		return err
	})
	if err != nil {
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
			_ = js.DeleteStream(ctx, "RAW") // the server ends soon
			nc.Close()
		},
	}, nil
}

// rawRow returns the message that the notifier makes of a row, on another subject.
func rawRow(n contracts.Notification) (*nats.Msg, error) {
	subject, err := contracts.NotifySendSubject(n.Channel, n.RecipientType, n.UserID, n.EventID)
	if err != nil {
		return nil, err
	}
	data, err := contracts.Encode(n)
	if err != nil {
		return nil, err
	}
	header := nats.Header{"ce-id": {n.EventID + "." + n.Channel + "." + n.UserID}, "ce-source": {"/notifier"}, "ce-type": {"io.expediter.notification.requested.v1"}}
	return &nats.Msg{Subject: "raw." + subject, Header: header, Data: data}, nil
}

// declared returns the declaration of a stream for this server.
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

// messages counts the messages of a stream, and the replaced messages, since the stream was purged.
func messages(ctx context.Context, js jetstream.JetStream, name, filter string, first uint64) (n, replaced int, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, 0, fmt.Errorf("stream %s: %w", name, err)
	}
	state := stream.CachedInfo().State
	replaced = int(state.LastSeq+1-first) - int(state.Msgs)
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{FilterSubject: filter, MemoryStorage: true, Replicas: 1})
	if err != nil {
		return 0, 0, fmt.Errorf("consumer of %s: %w", name, err)
	}
	info := consumer.CachedInfo()
	return int(info.NumPending), replaced, stream.DeleteConsumer(ctx, info.Name)
}
