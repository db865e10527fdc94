//go:build ignore

// Pay writes that a dish was paid, and the event about it, in one transaction.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/outbox"
)

func main() {
	ctx, dish := context.Background(), os.Args[1]
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS paid (dish text PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO paid VALUES ($1)", dish); err != nil {
			return err
		}
		return outbox.Insert(ctx, tx, outbox.Event{Event: contracts.Event{
			EventID: "paid-" + dish, EventType: "DISH_PAID", AggregateType: "DISH", AggregateID: dish, UserID: "carla",
		}})
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paid", dish)
}
