package main

import (
	"context"
	"time"
)

// contestant is one library on one kind of server.
type contestant struct {
	name     string // in tables, in JSON and for --only
	service  string // what it runs on
	note     string // how durable, and how it is set
	settings settings
	prepare  func(ctx context.Context, s settings) error // once, before the first client
	open     func(ctx context.Context, s settings) (*client, error)
	polls    bool          // waiters ask again and again
	settle   time.Duration // how long a waiter needs until it waits
}

// settings are what a client needs to know, here and in a process of its own.
type settings struct {
	Address string
	Bucket  string
	TTL     time.Duration // of locks and claims
}

// client is what one process has of a contestant, with connections of its own. What it does not offer is nil.
type client struct {
	// lock waits for the lock. unlock gives it back.
	lock func(ctx context.Context, name string) (unlock func(context.Context) error, err error)

	// do returns the value of key: cached, computed, or awaited from the client that computes it.
	do func(ctx context.Context, key string, compute func(context.Context) ([]byte, error)) ([]byte, error)

	// wait waits for the value of a key that somebody computes, where that is not what do does.
	wait func(ctx context.Context, key string) error

	// store makes value what the reads find.
	store func(ctx context.Context, key string, value []byte) error

	// read asks the server; hit finds the key in this process, after the first time.
	read, hit func(ctx context.Context, key string) ([]byte, error)

	// readMany asks for all keys at once, as well as it can, and returns how many were found.
	readMany func(ctx context.Context, keys []string) (int, error)

	// subscriptions is how many the server keeps for this client.
	subscriptions func() int

	trips *trips // over all its connections
	close func()
}

// lockTTL is what all locks and claims are taken for, but in the rows that wait for its end.
const lockTTL = 10 * time.Second

// crashTTL is the TTL where a holder dies: the shortest that all contestants take.
const crashTTL = 2 * time.Second
