package outbox_test

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// The reservation and the event about it are committed together, or neither is.
func ExampleInsert() { //nolint:testableexamples // needs a database
	reserve := func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO reservation (id, restaurant, guests) VALUES ('r-1', 5, 4)"); err != nil {
				return err
			}
			return outbox.Insert(ctx, tx, outbox.Event{Event: contracts.Event{
				EventID: "evt-001", EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: "5",
				Payload: json.RawMessage(`{"reservation":"r-1","guests":4}`),
			}})
		})
	}
	_ = reserve
}

// A relay runs until its context ends, in the process of the application or in a separate one.
func ExampleRelay() { //nolint:testableexamples // needs a database
	relay := func(ctx context.Context, pool *pgxpool.Pool) error {
		if err := outbox.Migrate(ctx, pool); err != nil {
			return err
		}
		r, err := outbox.New(ctx, outbox.Config{NATSURL: "nats://127.0.0.1:4222", Pool: pool})
		if err != nil {
			return err
		}
		r.Run(ctx)
		return nil
	}
	_ = relay
}

// The order and its job are committed together, or neither is. The job is an event in a stream of jobs, which has other subjects.
func ExampleConfig_jobs() { //nolint:testableexamples // needs a database
	order := func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id, dish) VALUES ('o-7', 'soup')"); err != nil {
				return err
			}
			return outbox.Insert(ctx, tx, outbox.Event{Event: contracts.Event{
				EventID: "o-7", EventType: "ORDERED", AggregateType: "ORDER", AggregateID: "o-7", Payload: json.RawMessage(`{"dish":"soup"}`),
			}})
		})
	}
	relay := func(ctx context.Context, pool *pgxpool.Pool) (*outbox.Relay, error) {
		return outbox.New(ctx, outbox.Config{
			Pool: pool, Stream: "JOBS", Subject: func(contracts.Event) (string, error) { return "jobs.order", nil },
		})
	}
	_, _ = order, relay
}
