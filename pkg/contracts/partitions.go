package contracts

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/jsretry"
)

// MaxNotifyPartitions is into how many streams the rows of notifications can be divided.
const MaxNotifyPartitions = 64

// NotifyPartition returns the partition, from 0, that has the rows of a user when the rows of notifications are divided into n. It
// never changes. All kinds of recipients with one id are in one.
func NotifyPartition(userID string, n int) int { return partition.OfKey(userID, n) }

// NotifyStream returns the name of the stream of a partition of the rows of notifications, the first of which is 0.
func NotifyStream(p int) string { return partition.Name(StreamNotifications, p) }

// NotifyPartitions returns into how many streams the rows of notifications are divided, 1 before [DivideNotifications]. One round
// trip; while a cluster is not ready it tries again, for up to [jsretry.Wait].
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

// PartitionsError is returned for streams that are divided into another number of partitions: a stream is divided once.
type PartitionsError struct {
	// Stream is the first of them.
	Stream string

	// Got is how many partitions there are, Want how many there were to be.
	Got, Want int
}

// Error implements error.
func (e *PartitionsError) Error() string {
	return fmt.Sprintf("contracts: stream %s is divided into %d partitions, not %d: a stream is divided once, keep to %d",
		e.Stream, e.Got, e.Want, e.Got)
}

// DivideNotifications divides the rows of notifications into n streams, 2 to 64, while notifiers work: the first keeps its rows, and
// all plans. It makes the streams and consumers of the other partitions as copies of the first, where they are missing, each with an
// n-th of its size, and then says so in the metadata of the first. The rows of plans that are made from then on, by notifiers with that
// setting, go to the partitions of their users. It may be called again after any error, and by several at once. The error is a
// [*PartitionsError] when there is another number of partitions.
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
	second := func() error { // the server makes a stream of a name once, which decides between two calls
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

// isDivided returns a [*PartitionsError] when the configuration of a stream has another number of partitions than n.
func isDivided(cfg jetstream.StreamConfig, n int) error {
	if there := partition.Count(cfg); there != n {
		return &PartitionsError{Stream: StreamNotifications, Got: there, Want: n}
	}
	return nil
}
