package notifier

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

// streams returns the names of the streams that the notifier needs.
func (n *Notifier) streams() []string {
	streams := []string{
		contracts.StreamDead, contracts.StreamEvents, contracts.StreamNotifications,
		"KV_" + contracts.BucketDeliveries, "KV_" + contracts.BucketDirectory, "KV_" + contracts.BucketInbox, "KV_" + contracts.BucketJobs,
	}
	for part := 1; part < n.cfg.Partitions; part++ {
		streams = append(streams, contracts.NotifyStream(part))
	}
	if n.cfg.CreateAssets { // an administrator makes it in the operators' account
		streams = append(streams, contracts.StreamAudit)
	}
	return streams
}

// checkPartitions returns a [*worker.DriftError] unless the rows are divided into Config.Partitions streams. An instance with another
// number would store rows in a stream that no worker reads.
func (n *Notifier) checkPartitions(ctx context.Context, js jetstream.JetStream) error {
	there, err := contracts.NotifyPartitions(ctx, js)
	if err == nil && there == 1 && n.cfg.Partitions > 1 && n.cfg.CreateAssets {
		there, err = n.cfg.Partitions, contracts.DivideNotifications(ctx, js, n.cfg.Partitions)
	}
	if err == nil && there != n.cfg.Partitions {
		err = &worker.DriftError{Asset: "stream " + contracts.StreamNotifications, Differences: []string{
			fmt.Sprintf("it has %d partitions, Partitions (NOTIFIER_PARTITIONS) is %d", there, n.cfg.Partitions),
		}}
	}
	return err
}

// partitionsKept is the time for which an instance that started before a division keeps the number of partitions in memory. It is
// shorter than the time to start another instance and to plan and expand an event, whose rows a query is expected to find.
const partitionsKept = 10 * time.Second

// partitions returns a function that returns the number of streams into which the rows are divided: Config.Partitions, or more if
// they have been divided since. One round trip now and then for an instance whose rows are not divided.
func (n *Notifier) partitions(js jetstream.JetStream) func(ctx context.Context) (int, error) {
	var (
		asking = make(chan struct{}, 1) // guards known and asked
		known  = n.cfg.Partitions
		asked  = time.Now()
	)
	return func(ctx context.Context) (int, error) {
		select {
		case asking <- struct{}{}:
			defer func() { <-asking }()
		case <-ctx.Done():
			return 0, fmt.Errorf("notifier: ask how the rows are divided: %w", context.Cause(ctx))
		}
		if known > 1 || time.Since(asked) < partitionsKept {
			return known, nil
		}
		now, err := contracts.NotifyPartitions(ctx, js)
		if err != nil {
			return 0, err
		}
		known, asked = now, time.Now()
		return known, nil
	}
}
