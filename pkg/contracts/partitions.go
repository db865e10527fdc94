package contracts

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/jsretry"
)

// MaxNotifyPartitions is the largest number of streams into which the rows of notifications can be divided.
const MaxNotifyPartitions = 64

// NotifyPartition returns the partition, from 0, of the rows of a user when the rows of notifications are divided into n. The result never
// changes. It is the same for all kinds of recipients with that id.
func NotifyPartition(userID string, n int) int { return partition.OfKey(userID, n) }

// NotifyStream returns the name of the stream of partition p, from 0, of the rows of notifications.
func NotifyStream(p int) string { return partition.Name(StreamNotifications, p) }

// NotifyPartitions returns the number of streams into which the rows of notifications are divided, 1 before [DivideNotifications]. One
// round trip; while a cluster is not ready it tries again, for up to [jsretry.Wait].
func NotifyPartitions(ctx context.Context, js jetstream.JetStream) (int, error) {
	var cfg jetstream.StreamConfig
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) (err error) {
		cfg, err = notifications(ctx, js)
		return err
	})
	if err != nil {
		return 0, err
	}
	d, err := partition.Read(cfg)
	if err != nil {
		return 0, fmt.Errorf("contracts: %w", err)
	}
	return d.Partitions, nil
}

func notifications(ctx context.Context, js jetstream.JetStream) (jetstream.StreamConfig, error) {
	stream, err := js.Stream(ctx, StreamNotifications)
	if err != nil {
		return jetstream.StreamConfig{}, fmt.Errorf("contracts: look up stream %s: %w", StreamNotifications, err)
	}
	return stream.CachedInfo().Config, nil
}

// PartitionsError is returned when streams are already divided into another number of partitions: a stream is divided once.
type PartitionsError struct {
	// Stream is the stream of the first partition.
	Stream string

	// Got is the number of partitions that exist, Want the number that was asked for.
	Got, Want int
}

// Error implements error.
func (e *PartitionsError) Error() string {
	return fmt.Sprintf("contracts: stream %s is divided into %d partitions, not %d: a stream is divided once, keep to %d",
		e.Stream, e.Got, e.Want, e.Got)
}

// DivideNotifications divides the rows of notifications into n streams, 2 to 64, while notifiers work. The first stream keeps its rows,
// and all plans. Missing streams and consumers of the other partitions are made as copies of the first, each with an n-th of its size.
// Then the number is written into the metadata of the first. Later plans, of notifiers with that setting, put their rows into the
// partitions of the users. It may be called again after any error, and by several callers at once. The error is a [*PartitionsError] when
// there is another number of partitions.
func DivideNotifications(ctx context.Context, js jetstream.JetStream, n int) error {
	if n < 2 || n > MaxNotifyPartitions {
		return fmt.Errorf("contracts: divide stream %s into %d: use 2 to %d", StreamNotifications, n, MaxNotifyPartitions)
	}
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error { return divide(ctx, js, n) })
	if err != nil {
		return fmt.Errorf("contracts: divide stream %s: %w", StreamNotifications, err)
	}
	return nil
}

func divide(ctx context.Context, js jetstream.JetStream, n int) error {
	cfg, err := notifications(ctx, js)
	if err != nil {
		return err
	}
	if err := isDivided(cfg, n); err != nil && partition.Count(cfg) != 1 {
		return err
	}
	second := func() error { // the server makes only one stream of a name: that decides between two calls
		stream, err := js.Stream(ctx, NotifyStream(1))
		if err != nil {
			return err //nolint:wrapcheck // the caller wraps it
		}
		return isDivided(stream.CachedInfo().Config, n)
	}
	if err := second(); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	rows := cfg
	rows.Subjects = []string{NotifySendsSubjects}
	if _, err := partition.Copy(ctx, js, rows, n); err != nil {
		return err
	}
	if err := second(); err != nil {
		return err
	}
	_, err = js.UpdateStream(ctx, partition.Division{Partitions: n, State: partition.Settled}.In(cfg))
	return err //nolint:wrapcheck // the caller wraps it
}

// isDivided returns a [*PartitionsError] when a stream's configuration has a number of partitions other than n.
func isDivided(cfg jetstream.StreamConfig, n int) error {
	if there := partition.Count(cfg); there != n {
		return &PartitionsError{Stream: StreamNotifications, Got: there, Want: n}
	}
	return nil
}
