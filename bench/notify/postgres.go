package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// table is what a notification is in Postgres: its unique index is what keeps a row from being stored twice.
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
	return each(ctx, conn.Exec, event, n)
}

func insertTogether(ctx context.Context, conn *pgx.Conn, event string, n int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return each(ctx, tx.Exec, event, n) })
}

func insertMany(ctx context.Context, conn *pgx.Conn, event string, n int) error {
	users := make([]string, n)
	for i := range users {
		users[i] = userID(i)
	}
	_, err := conn.Exec(ctx, allRows, values(row(event, 0, time.Now()), users)...)
	return err
}

func each[T any](
	ctx context.Context, exec func(context.Context, string, ...any) (T, error), event string, n int,
) error {
	now := time.Now()
	for i := range n {
		r := row(event, i, now)
		if _, err := exec(ctx, oneRow, values(r, r.UserID)...); err != nil {
			return err
		}
	}
	return nil
}

// openPostgres is one connection to Postgres as it comes.
func openPostgres(insert inserter) func(context.Context, *bench) (*client, error) {
	return func(ctx context.Context, b *bench) (*client, error) {
		var conn *pgx.Conn
		err := retry(ctx, func(ctx context.Context) (err error) { // it listens before it is ready
			if conn, err = pgx.Connect(ctx, b.service.Address); err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			return nil
		})
		if err != nil {
			return nil, err
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
				_ = empty(ctx)      //nolint:errcheck // the server ends soon
				_ = conn.Close(ctx) //nolint:errcheck // the server ends soon
			},
		}, nil
	}
}
