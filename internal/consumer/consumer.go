// Package consumer has the settings of the consumers from which workers pull, and counts their jobs. It changes a consumer so that
// it still delivers every message. It counts the jobs of a stream without reading them, and finds the time since when the oldest job
// waits: the cost does not depend on the number of jobs.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/subject"
)

// Config returns the settings that a worker needs of a consumer.
func Config(name string, ackWait time.Duration, patterns []string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        name,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        ackWait,
		FilterSubjects: slices.Sorted(slices.Values(patterns)),
		// Retries and snoozes wait in the pending set, so a limit on it would let them block new jobs. The free slots limit how
		// many jobs are being worked.
		MaxAckPending: -1,
		// The worker counts attempts. A message that the server no longer delivers would stay in a work queue for ever.
		MaxDeliver: -1,
	}
}

// Difference is a setting of a consumer with which a worker cannot work.
type Difference struct {
	Field     string // as the JetStream API names it
	Got, Want string
	Advice    string // "" for none
}

// String returns the difference in one line, for a person.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s, must be %s%s", d.Field, d.Got, d.Want, d.Advice)
}

// Compare returns the settings of a consumer with which a worker cannot work, or nil.
func Compare(have, want jetstream.ConsumerConfig) []Difference {
	var all []Difference
	differ := func(differs bool, field string, have, want any) {
		if differs {
			all = append(all, Difference{Field: field, Got: fmt.Sprint(have), Want: fmt.Sprint(want)})
		}
	}
	filters := Filters(have)
	differ(have.AckPolicy != want.AckPolicy, "ack_policy", have.AckPolicy, want.AckPolicy)
	differ(have.AckWait != want.AckWait, "ack_wait", have.AckWait, want.AckWait)
	differ(len(have.BackOff) > 0, "backoff", have.BackOff, "empty")
	differ(have.HeadersOnly, "headers_only", true, false)
	differ(have.DeliverSubject != "", "deliver_subject", have.DeliverSubject, "empty (a pull consumer)")
	if !slices.Equal(filters, want.FilterSubjects) {
		d := Difference{Field: "filter_subjects", Got: fmt.Sprint(filters), Want: fmt.Sprint(want.FilterSubjects)}
		if !Covers(filters, want.FilterSubjects) {
			d.Advice = " (of a work queue, delete and create it: " +
				"a consumer that is edited never delivers messages of a new pattern that it has passed)"
		}
		all = append(all, d)
	}
	differ(have.MaxAckPending != want.MaxAckPending, "max_ack_pending", have.MaxAckPending, want.MaxAckPending)
	differ(have.MaxDeliver != want.MaxDeliver, "max_deliver", have.MaxDeliver, want.MaxDeliver)
	return all
}

// Adapt returns have with those settings of want that Compare compares, except settings that the server refuses to change.
func Adapt(have, want jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	have.AckWait, have.BackOff, have.HeadersOnly = want.AckWait, nil, false
	have.FilterSubject, have.FilterSubjects = "", want.FilterSubjects
	have.MaxAckPending, have.MaxDeliver = want.MaxAckPending, want.MaxDeliver
	return have
}

// Change gives a consumer other settings. It deletes the consumer of a work queue, and makes it again, for a new pattern. An update would
// leave the consumer at its position in the stream: it would never deliver earlier messages of the pattern, and a cluster of three would
// delete messages that the consumer has passed. In other streams a new consumer would deliver all worked jobs again. Two round trips, or
// three.
func Change(
	ctx context.Context, js jetstream.StreamManager, stream string, have, want jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", stream, err)
	}
	if Covers(Filters(have), want.FilterSubjects) || s.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy {
		return s.UpdateConsumer(ctx, want)
	}
	err = s.DeleteConsumer(ctx, want.Durable)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("delete the one without %v: %w", want.FilterSubjects, err)
	}
	return s.CreateConsumer(ctx, want)
}

// Covers reports whether a consumer with the filters of have takes all subjects that match any of want.
func Covers(have, want []string) bool {
	return len(have) == 0 || !slices.ContainsFunc(want, func(pattern string) bool {
		return !slices.ContainsFunc(have, func(filter string) bool { return subject.Covers(filter, pattern) })
	})
}

// Filters returns the sorted filters of a consumer, nil when it takes everything.
func Filters(cfg jetstream.ConsumerConfig) []string {
	filters := slices.Clone(cfg.FilterSubjects)
	if cfg.FilterSubject != "" {
		filters = append(filters, cfg.FilterSubject)
	}
	slices.Sort(filters)
	return filters
}

// Taken explains the server's refusal of a consumer whose subjects another consumer of the work queue has. It returns other errors as they
// are.
func Taken(err error, want []string) error {
	if !jsapi.HasCode(err, jsapi.CodeNotUnique, jsapi.CodeUnfiltered) {
		return err
	}
	return fmt.Errorf("%w: another consumer of the work queue has some of %v (delete it if it is of a handler's former priority)", err, want)
}
