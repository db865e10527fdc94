package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/consumer"
	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/jsretry"
)

const (
	drainAgain = time.Second // the time between two scans of the first partition
	pageSize   = 1_000       // the number of messages that a scan reads at a time
)

// Copy makes the missing streams and consumers of the other partitions of a stream, as copies of the first. It leaves out consumers that
// take none of the subjects of cfg. It fails for an existing stream that is not one of n partitions: the server gives a name once, which
// decides between two calls. Copy returns the name of a partition that has messages, "" for none.
func Copy(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig, n int) (filled string, err error) {
	var consumers []jetstream.ConsumerConfig
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) (err error) {
		consumers, err = consumersOf(ctx, js, cfg)
		return err
	})
	if err != nil {
		return "", err
	}
	for p := 1; p < n; p++ {
		part := Division{Partitions: n, State: Settled}.Config(cfg, p, nil)
		if cfg.MaxBytes > 0 {
			part.MaxBytes = max(cfg.MaxBytes/int64(n), 1)
		}
		var made *jetstream.StreamInfo
		err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) (err error) {
			made, err = create(ctx, js, part)
			return err
		})
		if err != nil {
			return filled, err
		}
		if filled == "" && made.State.Msgs > 0 {
			filled = part.Name
		}
		for _, one := range consumers {
			one.Durable, one.Name = Name(one.Durable, p), ""
			err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
				_, err := js.CreateConsumer(ctx, part.Name, one)
				return err //nolint:wrapcheck // below
			})
			if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
				return filled, fmt.Errorf("create consumer %s/%s: %w", part.Name, one.Durable, consumer.Taken(err, consumer.Filters(one)))
			}
		}
	}
	return filled, nil
}

// consumersOf returns the consumers of a stream that take subjects of cfg.
func consumersOf(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (all []jetstream.ConsumerConfig, err error) {
	first, err := js.Stream(ctx, cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", cfg.Name, err)
	}
	list := first.ListConsumers(ctx)
	for info := range list.Info() {
		takes := func(filter string) bool {
			return slices.ContainsFunc(cfg.Subjects, func(s string) bool { return subject.Overlap(s, filter) })
		}
		if filters := consumer.Filters(info.Config); info.Config.Durable != "" && (len(filters) == 0 || slices.ContainsFunc(filters, takes)) {
			all = append(all, info.Config)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of stream %s: %w", cfg.Name, err)
	}
	return all, nil
}

// create makes the stream of a partition, unless it is there.
func create(ctx context.Context, js jetstream.JetStream, part jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	made, err := js.CreateStream(ctx, part)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		made, err = js.Stream(ctx, part.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("create stream %s: %w", part.Name, err)
	}
	info := made.CachedInfo()
	there, want := Count(info.Config), Count(part)
	if there == want && slices.Equal(info.Config.Subjects, part.Subjects) &&
		(part.SubjectTransform == nil || info.Config.SubjectTransform != nil && *info.Config.SubjectTransform == *part.SubjectTransform) {
		return info, nil
	}
	return nil, fmt.Errorf("stream %s is there, with %d partitions and the subjects %q; wanted is one of %d partitions with the subjects %q: "+
		"if it is left from a division that did not come about, divide into that many, or delete it while it is empty; if it is something "+
		"else, it needs another name", part.Name, there, info.Config.Subjects, want, part.Subjects)
}

// SetBarrier stores a message, with headers, behind all messages under the former subjects, unless that has been done, and returns its
// sequence. Only a leader that refuses the former subjects takes the subject of the barrier.
func SetBarrier(
	ctx context.Context, js jetstream.JetStream, api jsapi.Client, cfg jetstream.StreamConfig, header nats.Header,
) (sequence uint64, err error) {
	stored, found, err := api.Get(ctx, cfg.Name, jsapi.Query{LastBySubject: Barrier})
	if err != nil || found {
		return stored.Sequence, err
	}
	msg := &nats.Msg{Subject: Entry(cfg.Name, 0) + Barrier, Header: header}
	if cfg.AllowMsgTTL {
		msg.Header.Set(jetstream.MsgTTLHeader, "never")
	}
	ctx, cancel := context.WithTimeout(ctx, api.Within)
	defer cancel()
	ack, err := js.PublishMsg(ctx, msg, jetstream.WithExpectStream(cfg.Name))
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller wraps it
	}
	return ack.Sequence, nil
}

// Drain waits until the first partition, stream, has no message of another partition. A job that ends, or becomes due, leaves its next
// message behind the former, so a scan from the first message to the last misses none. A second scan is for replicas that were behind.
// jobOf returns the subject of the job whose key a message holds, and "" for a message without one. Drain calls left, which may be nil,
// once with the first message of each other partition.
func (d Division) Drain(
	ctx context.Context, get *directget.Getter, stream string, jobOf func(jsapi.Message) string, left func(subject string, sequence uint64),
) error {
	const looks = 2
	for clean, from, noted := 0, uint64(1), uint64(0); clean < looks; {
		messages, more, err := get.From(ctx, stream, from, pageSize)
		if err != nil {
			return fmt.Errorf("read stream %s from %d: %w", stream, from, err)
		}
		found, seen := false, from > d.Barrier
		for _, m := range messages {
			from, seen = m.Sequence+1, seen || m.Sequence >= d.Barrier
			to := jobOf(m)
			if found = to != "" && Of(to, d.Partitions) != 0; found {
				from = m.Sequence // all earlier messages were the first partition's, or had ended
				if left != nil && noted != from {
					left(m.Subject, from)
				}
				noted = from
				break
			}
		}
		switch {
		case found:
			clean = 0
		case more && len(messages) > 0:
			continue
		case seen:
			clean, from = clean+1, 1
		}
		if !backoff.Sleep(ctx, drainAgain) {
			return fmt.Errorf("jobs of other partitions are left in stream %s: %w", stream, context.Cause(ctx))
		}
	}
	return nil
}
