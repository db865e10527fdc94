package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/subject"
)

// changeConsumer gives a consumer other settings. That of a work queue is deleted and made
// again when it gets a new pattern: an update leaves it where it is in the stream, so that it
// never delivers the messages of the pattern that lie before that, and three servers delete
// what a consumer has passed. In other streams it would then deliver all that was worked.
func (w *Worker) changeConsumer(ctx context.Context, c *class, have, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	stream, err := w.js.Stream(ctx, w.cfg.Stream)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says of what
	}

	if covers(filtersOf(have), want.FilterSubjects) || stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy {
		return stream.UpdateConsumer(ctx, want) //nolint:wrapcheck // the caller says of what
	}

	err = stream.DeleteConsumer(ctx, c.consumer)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err //nolint:wrapcheck // the caller says of what
	}

	return stream.CreateConsumer(ctx, want) //nolint:wrapcheck // the caller says of what
}

// passedOver is what to do about a pattern that a consumer has not had.
func passedOver(have, want []string) string {
	if covers(have, want) {
		return ""
	}

	return " (of a work queue, delete and create it: a consumer that is edited never delivers what it has passed of a new pattern)"
}

// covers reports whether a consumer with the filters of have takes what falls under any of
// want.
func covers(have, want []string) bool {
	return len(have) == 0 || !slices.ContainsFunc(want, func(pattern string) bool {
		return !slices.ContainsFunc(have, func(filter string) bool { return subject.Covers(filter, pattern) })
	})
}

func filtersOf(cfg jetstream.ConsumerConfig) []string {
	filters := slices.Clone(cfg.FilterSubjects)
	if cfg.FilterSubject != "" {
		filters = append(filters, cfg.FilterSubject)
	}

	slices.Sort(filters)

	return filters
}
