package main

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// contestant is one system on one kind of server.
type contestant struct {
	rig.Contestant

	weight float64 // of the operations: one that syncs each job is given fewer
	open   func(ctx context.Context, s settings) (*client, error)

	// lease is how long the system waits for a sign of life of a worker, as it is set here. One without it is not
	// asked to restart a job: it would take an hour.
	lease time.Duration
}

// settings are what a client needs to know, here and in a process of its own.
type settings struct {
	Address string
	Queue   string // of this run alone
	Old     bool   // the queue is there
}

// handler is what a job does.
type handler func(ctx context.Context, id string) error

// client is what a process has of a contestant, with connections of its own. What it does not offer is nil.
type client struct {
	// insert inserts a unique job.
	insert func(ctx context.Context, id string) error

	// work works jobs in so many slots, until stop.
	work func(ctx context.Context, slots int, handle handler) (stop func() error, err error)

	// recorded is how many jobs the system has recorded as completed.
	recorded func(ctx context.Context) (int, error)

	// steps works jobs of five durable steps that do nothing.
	steps func(ctx context.Context, slots int, handle handler) (stop func() error, err error)

	// ordered works jobs of one subject one after the other. Here each has a subject of its own.
	ordered func(ctx context.Context, slots int, handle handler) (stop func() error, err error)

	// handlers works jobs with a thousand handlers, of which one has jobs.
	handlers func(ctx context.Context, slots int, handle handler) (stop func() error, err error)

	// queue puts n jobs from the given on into the queue, which are nobody's to work here.
	queue func(ctx context.Context, from, n int) error

	// list reads a page of jobs from a position in the queue on, those of a subject with wildcards, or all.
	list func(ctx context.Context, from uint64, subject string) error

	// close ends the client and removes the queue.
	close func()
}

const (
	producers = 32
	slots     = 100
	fiveSteps = 5

	manyHandlers = 1000
)
