package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/consumer"
	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

const (
	// closingFor is how long servers have to learn that a stream refuses its former subjects, before another takes its jobs.
	closingFor = 2 * time.Second

	// drainAgain is the wait between two looks for what is left in the first partition.
	drainAgain = time.Second
)

// Grow divides the stream into ClientConfig.Partitions, each a stream of its own with a leader and consumers of its own, while clients
// insert and workers work. The jobs of one subject, and so of one key, are in one partition, see [PartitionOf]. Streams and consumers
// that are missing are made as copies of the first. Both clients and workers need the setting before; those that have it follow by
// themselves, and clients without it are refused: the stream takes no job under its former subjects any more.
//
// Inserts wait for the two seconds in which the stream is closed. What lies in it stays there to its end. Until nothing of other
// partitions is left, an insert of a unique job, and the start of an ordered one, costs a read there; then Grow returns. When it is
// interrupted, the next call goes on, and one for a stream that has been divided does nothing. A stream is divided once. While it waits it
// calls left, which may be nil, with the first message of another partition, once for each.
//
// Schedules that repeat stay in the first partition, with their runs. The ID of a job that is not unique is not known across the
// division. A delayed job that was stored before comes due in the first partition, where an ordered handler may run it beside
// another of its subject.
func (c *Client) Grow(ctx context.Context, left func(subject string, sequence uint64)) error {
	if c.parts == nil {
		return errors.New("worker: grow: ClientConfig.Partitions is 1")
	}
	stream, err := c.js.Stream(ctx, c.cfg.Stream)
	if err != nil {
		return fmt.Errorf("worker: grow: look up stream %s: %w", c.cfg.Stream, err)
	}
	cfg := stream.CachedInfo().Config
	d, err := divisionOf(cfg)
	if err == nil && d.Partitions != 1 && d.Partitions != len(c.parts) {
		err = driftOfPartitions(c.cfg.Stream, d, "ClientConfig", len(c.parts))
	}
	if err != nil {
		return err
	}
	if d.Partitions == 1 {
		if cfg.SubjectTransform != nil || cfg.Retention == jetstream.InterestPolicy {
			return fmt.Errorf("worker: grow: stream %s has a subject transform, or retention interest: divide one without", c.cfg.Stream)
		}
		d = division{Partitions: len(c.parts), State: divisionClosing}
		if err := c.repeat(ctx, func(ctx context.Context) error { return c.copyStreams(ctx, cfg) }); err != nil {
			return err
		}
		cfg = partitioned(cfg, 0, d)
		if err := c.update(ctx, cfg); err != nil {
			return err
		}
	}
	if d.State == divisionClosing {
		if !backoff.Sleep(ctx, closingFor) {
			return fmt.Errorf("worker: grow: %w", context.Cause(ctx))
		}
		if d.Barrier, err = c.setBarrier(ctx, cfg); err != nil {
			return err
		}
		d.State = divisionOpen
		if err := c.update(ctx, d.in(cfg)); err != nil {
			return err
		}
	}
	if d.State == divisionSettled {
		return nil
	}
	if err := c.drain(ctx, d, left); err != nil {
		return err
	}
	d.State = divisionSettled
	return c.update(ctx, d.in(cfg))
}

func (c *Client) update(ctx context.Context, cfg jetstream.StreamConfig) error {
	err := c.repeat(ctx, func(ctx context.Context) error {
		once, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
		return errOf(c.js.UpdateStream(once, cfg))
	})
	if err != nil {
		return fmt.Errorf("worker: grow: update stream %s: %w", cfg.Name, err)
	}
	return nil
}

func errOf[T any](_ T, err error) error { return err }

// copyStreams makes the streams of the other partitions, and their consumers.
func (c *Client) copyStreams(ctx context.Context, cfg jetstream.StreamConfig) error {
	var consumers []jetstream.ConsumerConfig
	first, err := c.js.Stream(ctx, cfg.Name)
	if err != nil {
		return fmt.Errorf("worker: grow: look up stream %s: %w", cfg.Name, err)
	}
	list := first.ListConsumers(ctx)
	for info := range list.Info() {
		if info.Config.Durable != "" {
			consumers = append(consumers, info.Config)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("worker: grow: list consumers of stream %s: %w", cfg.Name, err)
	}
	for p := 1; p < len(c.parts); p++ {
		part := partitioned(cfg, p, division{Partitions: len(c.parts), State: divisionSettled})
		if _, err := c.js.CreateStream(ctx, part); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return fmt.Errorf("worker: grow: create stream %s: %w", part.Name, err)
		}
		for _, one := range consumers {
			one.Durable, one.Name = PartitionConsumer(one.Durable, p), ""
			_, err := c.js.CreateConsumer(ctx, part.Name, one)
			if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
				return fmt.Errorf("worker: grow: create consumer %s/%s: %w", part.Name, one.Durable, consumer.Taken(err, consumer.Filters(one)))
			}
		}
	}
	return nil
}

// setBarrier stores a message behind all that was stored under the former subjects, unless that has been done. Its subject is one that
// only a leader takes that refuses those.
func (c *Client) setBarrier(ctx context.Context, cfg jetstream.StreamConfig) (sequence uint64, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		stored, found, err := c.last(ctx, barrierSubject)
		if err != nil || found {
			sequence = stored.Sequence
			return err
		}
		msg := nats.NewMsg(c.parts[0].entry + barrierSubject)
		msg.Header.Set(HeaderState, string(StateFree)) // it is nothing to list
		if cfg.AllowMsgTTL {
			msg.Header.Set(jetstream.MsgTTLHeader, "never")
		}
		once, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
		ack, err := c.js.PublishMsg(once, msg, jetstream.WithExpectStream(c.cfg.Stream))
		if err == nil {
			sequence = ack.Sequence
		}
		return err //nolint:wrapcheck // the caller says of what
	})
	if err != nil {
		err = fmt.Errorf("worker: grow: store the barrier in stream %s: %w", c.cfg.Stream, err)
	}
	return sequence, err
}

// drain waits until nothing of another partition is left in the first. A job that ends, or becomes due, leaves its next message
// behind the former, so a look from the first message to the last misses none; a second one is for replicas that were behind.
func (c *Client) drain(ctx context.Context, d division, told func(subject string, sequence uint64)) error {
	get, err := directget.New(c.nc, c.api.Prefix)
	if err != nil {
		return fmt.Errorf("worker: grow: %w", err)
	}
	defer func() { _ = get.Close() }() //nolint:errcheck // the connection is closed then
	const looks = 2
	for clean, from, noted := 0, uint64(1), uint64(0); clean < looks; {
		messages, more, err := get.From(ctx, c.cfg.Stream, from, maxPage)
		if err != nil {
			return fmt.Errorf("worker: grow: read stream %s from %d: %w", c.cfg.Stream, from, err)
		}
		left, seen := false, from > d.Barrier
		for _, m := range messages {
			from, seen = m.Sequence+1, seen || m.Sequence >= d.Barrier
			if left = c.parts[0].isOfOther(m, d.Partitions); left {
				from = m.Sequence // all before it was the first partition's, or had ended
				if told != nil && noted != from {
					told(m.Subject, from)
				}
				noted = from
				break
			}
		}
		switch {
		case left:
			clean = 0
		case more && len(messages) > 0:
			continue
		case seen:
			clean, from = clean+1, 1
		}
		if !backoff.Sleep(ctx, drainAgain) {
			return fmt.Errorf("worker: grow: jobs of other partitions are left in stream %s: %w", c.cfg.Stream, context.Cause(ctx))
		}
	}
	return nil
}

// isOfOther reports whether a message in the first partition holds the key of a job for another.
func (c *Client) isOfOther(m jsapi.Message, partitions int) bool {
	to, repeats := m.Subject, "."+strings.Split(key.AnyEvery, ".")[1]+"."
	switch state := State(m.Header.Get(HeaderState)); key.KindOf(to) {
	case key.Done:
		if to = key.JobOf(to); state == StateFree || state == StateCancelled {
			return false
		}
	case key.Later:
		to = c.targetOf(m.Header)
	case key.Job:
	}
	if strings.Contains(m.Subject, repeats) || strings.Contains(m.Header.Get(jetstream.SchedulerHeader), repeats) {
		return false // they stay
	}
	return PartitionOf(to, partitions) != 0
}

// partitioned returns the configuration of a partition of a stream that has none yet.
func partitioned(cfg jetstream.StreamConfig, partition int, d division) jetstream.StreamConfig {
	entry := entryOf(cfg.Name, partition)
	subjects := make([]string, 0, 2*len(cfg.Subjects)+1)
	for _, s := range cfg.Subjects {
		subjects = append(subjects, entry+s)
		if first, _, _ := strings.Cut(s, "."); partition == 0 && key.KindOf(s) == key.Done && first != "*" {
			subjects = append(subjects, s) // workers record ends as before
		}
	}
	if partition == 0 {
		subjects = append(subjects, entry+barrierSubject)
	}
	cfg.Name, cfg.Subjects = PartitionStream(cfg.Name, partition), subjects
	cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: entry + ">", Destination: ">"}
	return d.in(cfg)
}

// in returns a configuration with the division.
func (d division) in(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	text, _ := json.Marshal(d) //nolint:errcheck,errchkjson // numbers and a word
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = make(map[string]string)
	}
	cfg.Metadata[metaDivision] = string(text)
	return cfg
}
