package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// consumerConfig is what the worker needs the consumer of a class to be.
func (w *Worker) consumerConfig(c *class) jetstream.ConsumerConfig {
	filters := slices.Sorted(slices.Values(c.patterns))

	return jetstream.ConsumerConfig{
		Durable:        c.consumer,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        w.cfg.AckWait,
		FilterSubjects: filters,
		// Retries and snoozes wait in the pending set, so a limit on it would let them
		// block new jobs. The free slots limit what is being worked.
		MaxAckPending: -1,
		// The worker counts attempts. A message that the server gave up on would stay in
		// a work queue for ever.
		MaxDeliver: -1,
	}
}

// prepare checks, or with AutoCreate makes, everything on the server that the worker needs.
// again says that it has had that before.
func (w *Worker) prepare(ctx context.Context, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()

	err := errors.Join(w.prepareConsumers(ctx, again), w.prepareBucket(ctx, w.cfg.Bucket, false))
	if w.cfg.StepBucket != w.cfg.Bucket {
		err = errors.Join(err, w.prepareBucket(ctx, w.cfg.StepBucket, true))
	}

	if w.limited {
		err = errors.Join(err, w.prepareBucket(ctx, w.cfg.LimitBucket, true))
	}

	return errors.Join(err, w.prepareDead(ctx))
}

// prepareConsumers prepares the consumers of all classes. A work queue refuses one while
// another has a subject of it, so what moves from one to another takes a second try.
func (w *Worker) prepareConsumers(ctx context.Context, again bool) error {
	errs := make([]error, 0, len(w.classes))
	for _, c := range w.classes {
		errs = append(errs, w.prepareConsumer(ctx, c, again))
	}

	return errors.Join(errs...)
}

func (w *Worker) prepareConsumer(ctx context.Context, c *class, again bool) error {
	asset := "consumer " + w.cfg.Stream + "/" + c.consumer
	want := w.consumerConfig(c)

	consumer, err := w.js.Consumer(ctx, w.cfg.Stream, c.consumer)

	switch {
	case err == nil:
		have := consumer.CachedInfo().Config

		w.consumerIs(c, consumer.CachedInfo().Created.UnixNano())

		if again && covers(filtersOf(have), want.FilterSubjects) {
			want.FilterSubjects = filtersOf(have) // a newer version of the worker has handlers that this one has not
		}

		diff := drift(have, want)
		if len(diff) == 0 {
			return nil
		}

		if !w.cfg.AutoCreate {
			return &DriftError{Asset: asset, Differences: diff, mends: true}
		}

		consumer, err = w.changeConsumer(ctx, c, have, adapt(have, want))
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &MissingError{Asset: "stream " + w.cfg.Stream, Cause: err}
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: asset, Cause: err, mends: true}
	default:
		consumer, err = w.js.CreateConsumer(ctx, w.cfg.Stream, want)
	}

	switch {
	case isTaken(err):
		return fmt.Errorf("worker: create or update %s: %w: another consumer of the work queue has some of %v "+
			"(delete it if it is of a handler's former priority)", asset, err, want.FilterSubjects)
	case err != nil:
		return fmt.Errorf("worker: create or update %s: %w", asset, err)
	}

	w.consumerIs(c, consumer.CachedInfo().Created.UnixNano())

	return nil
}

// isTaken reports whether the server refused a consumer since another one has its subjects.
func isTaken(err error) bool {
	const notUnique, unfiltered = 10100, 10099

	api, ok := errors.AsType[*jetstream.APIError](err)

	return ok && (api.ErrorCode == notUnique || api.ErrorCode == unfiltered)
}

// consumerIs notes when a consumer was made. Had it been another one until now, what the
// worker holds was delivered by that.
func (w *Worker) consumerIs(c *class, created int64) {
	if before := c.created.Swap(created); before != 0 && before != created {
		w.table.orphan(c.consumer)
	}
}

// adapt returns have with the settings that drift compares taken from want, leaving those
// that the server refuses to change as they are.
func adapt(have, want jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	have.AckWait, have.BackOff, have.HeadersOnly = want.AckWait, nil, false
	have.FilterSubject, have.FilterSubjects = "", want.FilterSubjects
	have.MaxAckPending, have.MaxDeliver = want.MaxAckPending, want.MaxDeliver

	return have
}

// drift names every setting of a consumer that the worker cannot work with.
func drift(have, want jetstream.ConsumerConfig) []string {
	var diff []string

	differ := func(setting string, have, want any) {
		diff = append(diff, fmt.Sprintf("%s is %v, must be %v", setting, have, want))
	}

	if have.AckPolicy != want.AckPolicy {
		differ("ack_policy", have.AckPolicy, want.AckPolicy)
	}

	if have.AckWait != want.AckWait {
		differ("ack_wait", have.AckWait, want.AckWait)
	}

	if len(have.BackOff) > 0 {
		differ("backoff", have.BackOff, "empty")
	}

	if have.HeadersOnly {
		differ("headers_only", true, false)
	}

	if have.DeliverSubject != "" {
		differ("deliver_subject", have.DeliverSubject, "empty (a pull consumer)")
	}

	if filters := filtersOf(have); !slices.Equal(filters, want.FilterSubjects) {
		differ("filter_subjects", filters, fmt.Sprint(want.FilterSubjects, passedOver(filters, want.FilterSubjects)))
	}

	if have.MaxAckPending != -1 {
		differ("max_ack_pending", have.MaxAckPending, -1)
	}

	if have.MaxDeliver != -1 {
		differ("max_deliver", have.MaxDeliver, -1)
	}

	return diff
}

// prepareBucket checks a bucket. One that is for steps alone has to keep them safely too.
func (w *Worker) prepareBucket(ctx context.Context, bucket string, steps bool) error {
	name := "KV_" + bucket
	asset := "bucket " + bucket

	stream, err := w.js.Stream(ctx, name)

	switch {
	case err == nil:
		if diff := bucketDrift(stream.CachedInfo().Config, steps); len(diff) > 0 {
			return &DriftError{Asset: asset, Differences: diff}
		}

		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: asset, Cause: err, mends: true}
	}

	_, err = w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1,
		AllowDirect: true, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		return fmt.Errorf("worker: create %s: %w", asset, err)
	}

	return nil
}

// bucketDrift names every setting of a bucket's stream that is not as it must be.
func bucketDrift(have jetstream.StreamConfig, steps bool) []string {
	var diff []string

	if !have.AllowMsgTTL {
		diff = append(diff, "allow_msg_ttl is false, must be true")
	}

	if !steps {
		return diff
	}

	if have.MaxMsgsPerSubject != 1 {
		diff = append(diff, fmt.Sprintf("max_msgs_per_subject is %d, must be 1 (of a record that has gone, an older one would come back)",
			have.MaxMsgsPerSubject))
	}

	if have.SubjectDeleteMarkerTTL != 0 {
		diff = append(diff, "subject_delete_marker_ttl is on, must be off (a marker can wipe a record that was just written)")
	}

	if have.Discard != jetstream.DiscardNew && (have.MaxBytes > 0 || have.MaxMsgs > 0) {
		diff = append(diff, "discard is old, must be new (a full bucket would evict records)")
	}

	return diff
}

// deadAdvisories are the server's notes of messages that nobody could work. The stream of
// dead letters has them too, unless another one does: of two streams each takes what the
// other does not.
var deadAdvisories = []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"}

// prepareDead makes sure that dead letters have somewhere to go, which would otherwise
// show only when the first job fails.
func (w *Worker) prepareDead(ctx context.Context) error {
	subject := w.cfg.DeadSubject + "." + w.cfg.Stream + ".check"

	_, err := w.js.StreamNameBySubject(ctx, subject)

	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("worker: look up the stream of %s: %w", subject, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: "stream for dead letters on " + w.cfg.DeadSubject + "." + w.cfg.Stream + ".>", Cause: err, mends: true}
	}

	name := strings.ToUpper(strings.ReplaceAll(w.cfg.DeadSubject, ".", "_"))

	subjects := []string{w.cfg.DeadSubject + ".>"}

	for _, advisories := range deadAdvisories {
		owner, err := w.js.StreamNameBySubject(ctx, advisories)

		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && owner == name:
			subjects = append(subjects, advisories)
		case err != nil:
			return fmt.Errorf("worker: look up the stream of %s: %w", advisories, err)
		}
	}

	_, err = w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: subjects, MaxAge: deadKept, Duplicates: deadWindow,
	})
	if err != nil {
		return fmt.Errorf("worker: create stream %s: %w", name, err)
	}

	return nil
}
