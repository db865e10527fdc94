package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/subject"
)

const prepareTimeout = 5 * time.Second

// consumerConfig returns the settings that the worker needs of the consumer of a class.
func (w *Worker) consumerConfig(c *class) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        c.consumer,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        w.cfg.AckWait,
		FilterSubjects: slices.Sorted(slices.Values(c.patterns)),
		// Retries and snoozes wait in the pending set, so a limit on it would let them block new jobs. The free slots limit how
		// many jobs are being worked.
		MaxAckPending: -1,
		// The worker counts attempts. A message that the server gave up on would stay in a work queue for ever.
		MaxDeliver: -1,
	}
}

// prepare checks, or with AutoCreate makes, everything on the server that the worker needs. again is true when the worker
// has had all of it before.
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

// prepareConsumers prepares the consumers of all classes. A work queue refuses a consumer while another has a subject of it, so
// a subject that moves from one to the other takes a second try.
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
		w.noteConsumer(c, consumer)
		if again && covers(filtersOf(have), want.FilterSubjects) {
			want.FilterSubjects = filtersOf(have) // a newer version of the worker has handlers that this one does not have
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
	w.noteConsumer(c, consumer)
	return nil
}

// isTaken reports whether the server refused a consumer since another one has its subjects.
func isTaken(err error) bool {
	const notUnique, unfiltered = 10100, 10099
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == notUnique || api.ErrorCode == unfiltered)
}

// noteConsumer notes when a consumer was made. If the class had another one until now, that one delivered the jobs that the
// worker holds.
func (w *Worker) noteConsumer(c *class, consumer jetstream.Consumer) {
	created := consumer.CachedInfo().Created.UnixNano()
	if before := c.created.Swap(created); before != 0 && before != created {
		w.deliveries.orphan(c.consumer)
	}
}

// changeConsumer gives a consumer other settings. The consumer of a work queue is deleted and made again when it gets a new
// pattern: an update leaves it at its position in the stream, so that it never delivers the messages of the pattern that lie
// before that, and three servers delete messages that a consumer has passed. In other streams a new consumer would deliver all
// jobs that were worked.
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

// covers reports whether a consumer with the filters of have takes all that falls under any of want.
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

// adapt returns have with the settings that drift compares taken from want, leaving those that the server refuses to change as
// they are.
func adapt(have, want jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	have.AckWait, have.BackOff, have.HeadersOnly = want.AckWait, nil, false
	have.FilterSubject, have.FilterSubjects = "", want.FilterSubjects
	have.MaxAckPending, have.MaxDeliver = want.MaxAckPending, want.MaxDeliver
	return have
}

// drift names every setting of a consumer with which the worker cannot work.
func drift(have, want jetstream.ConsumerConfig) []string {
	var diff []string
	differ := func(differs bool, setting string, have, want any) {
		if differs {
			diff = append(diff, fmt.Sprintf("%s is %v, must be %v", setting, have, want))
		}
	}
	filters, advice := filtersOf(have), ""
	if !covers(filters, want.FilterSubjects) {
		advice = " (of a work queue, delete and create it: a consumer that is edited never delivers messages of a new pattern that it has passed)"
	}
	differ(have.AckPolicy != want.AckPolicy, "ack_policy", have.AckPolicy, want.AckPolicy)
	differ(have.AckWait != want.AckWait, "ack_wait", have.AckWait, want.AckWait)
	differ(len(have.BackOff) > 0, "backoff", have.BackOff, "empty")
	differ(have.HeadersOnly, "headers_only", true, false)
	differ(have.DeliverSubject != "", "deliver_subject", have.DeliverSubject, "empty (a pull consumer)")
	differ(!slices.Equal(filters, want.FilterSubjects), "filter_subjects", filters, fmt.Sprint(want.FilterSubjects, advice))
	differ(have.MaxAckPending != -1, "max_ack_pending", have.MaxAckPending, -1)
	differ(have.MaxDeliver != -1, "max_deliver", have.MaxDeliver, -1)
	return diff
}

// prepareBucket checks a bucket. One whose records must not be lost, for steps or limits, needs more settings.
func (w *Worker) prepareBucket(ctx context.Context, bucket string, strict bool) error {
	name := "KV_" + bucket
	asset := "bucket " + bucket
	stream, err := w.js.Stream(ctx, name)
	switch {
	case err == nil:
		if diff := bucketDrift(stream.CachedInfo().Config, strict); len(diff) > 0 {
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
func bucketDrift(have jetstream.StreamConfig, strict bool) []string {
	var diff []string
	if !have.AllowMsgTTL {
		diff = append(diff, "allow_msg_ttl is false, must be true")
	}
	if !strict {
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

// deadAdvisories are the server's notes of messages that no worker could work. The stream of dead letters takes them too, unless
// another stream does: each of two such streams takes the subjects that the other does not.
var deadAdvisories = []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"}

// prepareDead makes sure that a stream takes the dead letters, whose absence would otherwise show only when the first job fails.
func (w *Worker) prepareDead(ctx context.Context) error {
	letters := w.cfg.DeadSubject + "." + w.cfg.Stream
	_, err := w.js.StreamNameBySubject(ctx, letters+".check")
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("worker: look up the stream of %s.check: %w", letters, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: "stream for dead letters on " + letters + ".>", Cause: err, mends: true}
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
