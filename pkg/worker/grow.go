package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// Grow divides the stream into ClientConfig.Partitions, each a stream of its own with a leader and consumers of its own, while clients
// insert and workers work. The jobs of one subject, and so of one key, are in one partition, see README.md. Missing streams and consumers
// are made as copies of the first, with its MaxBytes divided by their number. Both clients and workers need the setting before. Those with
// the setting follow by themselves. Clients without it are refused: the stream takes no job under its former subjects any more.
//
// Inserts wait for the two seconds in which the stream is closed. Its messages stay there to their end. Until no message of other
// partitions is left, an insert of a unique job, and the start of an ordered job, costs a read there; then Grow returns. When Grow is
// interrupted, or the cluster is not ready for a minute, the next call goes on: call it soon, because the stream may be closed. For a
// divided stream Grow does nothing. A stream is divided once. While Grow waits it calls left, which may be nil, once with the first
// message of each other partition.
//
// Schedules that repeat stay in the first partition, with their runs. The ID of a job that is not unique is not known across the division.
// A delayed job that was stored before becomes due in the first partition, where an ordered handler may run it at the same time as another
// job of its subject.
func (c *Client) Grow(ctx context.Context, left func(subject string, sequence uint64)) error {
	if c.parts == nil {
		return errors.New("worker: grow: ClientConfig.Partitions is 1")
	}
	cfg, d, err := c.growing(ctx)
	if err == nil && d.Partitions == 1 {
		cfg, d, err = c.shut(ctx, cfg)
	}
	if err == nil && d.State == partition.Closing {
		err = c.open(ctx, cfg, &d)
	}
	if err == nil && d.State == partition.Open {
		err = c.drain(ctx, cfg, d, left)
	}
	if err != nil {
		return fmt.Errorf("worker: grow: %w", err)
	}
	return nil
}

// growing returns the configuration of the stream, and the state of its division into the client's number of partitions.
func (c *Client) growing(ctx context.Context) (cfg jetstream.StreamConfig, d partition.Division, err error) {
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) (err error) {
		cfg, err = streamConfig(ctx, c.js, c.cfg.Stream)
		return err
	})
	if err != nil {
		return cfg, d, err
	}
	d, err = partition.Read(cfg)
	switch {
	case err != nil:
	case d.Partitions == 1 && (cfg.SubjectTransform != nil || cfg.Retention == jetstream.InterestPolicy):
		err = fmt.Errorf("stream %s has a subject transform, or retention interest: divide one without", cfg.Name)
	case d.Partitions != 1 && d.Partitions != len(c.parts):
		err = driftOfPartitions(cfg.Name, d, "ClientConfig", len(c.parts))
	}
	return cfg, d, err
}

// shut makes the other partitions, and closes the stream to its former subjects, unless another call has done so meanwhile.
func (c *Client) shut(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.StreamConfig, partition.Division, error) {
	filled, failed := partition.Copy(ctx, c.js, cfg, len(c.parts))
	cfg, d, err := c.growing(ctx) // read after the other partitions: jobs come into those once the configuration of the first has the division
	switch {
	case err != nil:
		return cfg, d, errors.Join(err, failed)
	case d.Partitions != 1:
		return cfg, d, nil
	case failed != nil:
		return cfg, d, failed
	case filled != "":
		return cfg, d, fmt.Errorf("stream %s has messages, and stream %s is not divided: if another call has just done that, call Grow "+
			"again; otherwise %s was made anew, or restored as it was before: restore it as it was since, or give up the jobs of %s, and delete "+
			"that", filled, cfg.Name, cfg.Name, filled)
	}
	d = partition.Division{Partitions: len(c.parts), State: partition.Closing}
	cfg = d.Config(cfg, 0, endsOfJobs)
	return cfg, d, c.setDivision(ctx, cfg, d)
}

// endsOfJobs reports whether a subject of a stream is for records of ends, which workers write as before.
func endsOfJobs(subject string) bool {
	first, _, _ := strings.Cut(subject, ".")
	return key.KindOf(subject) == key.Done && first != "*"
}

// setDivision stores the state of a division.
func (c *Client) setDivision(ctx context.Context, cfg jetstream.StreamConfig, d partition.Division) error {
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := c.js.UpdateStream(ctx, d.In(cfg))
		return err //nolint:wrapcheck // see below
	})
	if err != nil {
		return fmt.Errorf("update stream %s: %w", cfg.Name, err)
	}
	return nil
}

// open lets jobs into the other partitions.
func (c *Client) open(ctx context.Context, cfg jetstream.StreamConfig, d *partition.Division) error {
	if !backoff.Sleep(ctx, closingFor) {
		return context.Cause(ctx)
	}
	var err error
	if d.Barrier, err = c.setBarrier(ctx, cfg); err != nil {
		return err
	}
	d.State = partition.Open
	return c.setDivision(ctx, cfg, *d)
}

// setBarrier stores the barrier, unless it exists.
func (c *Client) setBarrier(ctx context.Context, cfg jetstream.StreamConfig) (sequence uint64, err error) {
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) (err error) {
		sequence, err = partition.SetBarrier(ctx, c.js, c.api, cfg, nats.Header{HeaderState: {string(StateFree)}}) // it is nothing to list
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store the barrier in stream %s: %w", c.cfg.Stream, err)
	}
	return sequence, nil
}

// drain waits until no message of another partition is left in the first, then stores that state in the configuration.
func (c *Client) drain(ctx context.Context, cfg jetstream.StreamConfig, d partition.Division, left func(string, uint64)) error {
	if _, err := c.setBarrier(ctx, cfg); err != nil { // the barrier may have been purged: a later one serves as well
		return err
	}
	get, err := directget.New(c.nc, c.api.Prefix)
	if err != nil {
		return err
	}
	defer func() { _ = get.Close() }() //nolint:errcheck // the connection is closed then
	if err := d.Drain(ctx, get, c.cfg.Stream, c.parts[0].heldBy, left); err != nil {
		return err
	}
	cfg, now, err := c.growing(ctx) // days may have passed
	switch {
	case err != nil:
		return err
	case now.Partitions != d.Partitions || now.Barrier != d.Barrier:
		return fmt.Errorf("stream %s was made anew meanwhile, or restored as it was before: call Grow again", c.cfg.Stream)
	}
	d.State = partition.Settled
	return c.setDivision(ctx, cfg, d)
}

// heldBy returns the subject of the job whose key a message holds, "" for none: periodic jobs stay in the first partition.
func (c *Client) heldBy(m jsapi.Message) string {
	const repeats = "." + key.TokenEvery + "."
	if strings.Contains(m.Subject, repeats) || strings.Contains(m.Header.Get(jetstream.SchedulerHeader), repeats) {
		return ""
	}
	switch state := State(m.Header.Get(HeaderState)); key.KindOf(m.Subject) {
	case key.Done:
		if state == StateFree || state == StateCancelled {
			return ""
		}
		return key.JobOf(m.Subject)
	case key.Later:
		return c.targetOf(m.Header)
	case key.Job:
	}
	return m.Subject
}
