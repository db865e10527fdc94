package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// consumerConfig is what the worker needs its consumer to be.
func (w *Worker) consumerConfig() jetstream.ConsumerConfig {
	filters := make([]string, 0, len(w.routes))
	for _, r := range w.routes {
		filters = append(filters, r.pattern)
	}

	slices.Sort(filters)

	return jetstream.ConsumerConfig{
		Durable:        w.cfg.Consumer,
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
func (w *Worker) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()

	return errors.Join(w.prepareConsumer(ctx), w.prepareBucket(ctx), w.prepareDead(ctx))
}

func (w *Worker) prepareConsumer(ctx context.Context) error {
	asset := "consumer " + w.cfg.Stream + "/" + w.cfg.Consumer
	want := w.consumerConfig()

	consumer, err := w.js.Consumer(ctx, w.cfg.Stream, w.cfg.Consumer)

	switch {
	case err == nil:
		have := consumer.CachedInfo().Config

		diff := drift(have, want)
		if len(diff) == 0 {
			return nil
		}

		if !w.cfg.AutoCreate {
			return &DriftError{Asset: asset, Differences: diff}
		}

		want = adapt(have, want)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &MissingError{Asset: "stream " + w.cfg.Stream, Cause: err}
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: asset, Cause: err}
	}

	if _, err = w.js.CreateOrUpdateConsumer(ctx, w.cfg.Stream, want); err != nil {
		return fmt.Errorf("worker: create or update %s: %w", asset, err)
	}

	return nil
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
		differ("filter_subjects", filters, want.FilterSubjects)
	}

	if have.MaxAckPending != -1 {
		differ("max_ack_pending", have.MaxAckPending, -1)
	}

	if have.MaxDeliver != -1 {
		differ("max_deliver", have.MaxDeliver, -1)
	}

	return diff
}

func filtersOf(cfg jetstream.ConsumerConfig) []string {
	filters := slices.Clone(cfg.FilterSubjects)
	if cfg.FilterSubject != "" {
		filters = append(filters, cfg.FilterSubject)
	}

	slices.Sort(filters)

	return filters
}

func (w *Worker) prepareBucket(ctx context.Context) error {
	name := "KV_" + w.cfg.Bucket
	asset := "bucket " + w.cfg.Bucket

	stream, err := w.js.Stream(ctx, name)

	switch {
	case err == nil:
		if !stream.CachedInfo().Config.AllowMsgTTL {
			return &DriftError{Asset: asset, Differences: []string{"allow_msg_ttl is false, must be true"}}
		}

		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: asset, Cause: err}
	}

	_, err = w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"$KV." + w.cfg.Bucket + ".>"}, MaxMsgsPerSubject: 1,
		AllowDirect: true, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		return fmt.Errorf("worker: create %s: %w", asset, err)
	}

	return nil
}

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
		return &MissingError{Asset: "stream for dead letters on " + w.cfg.DeadSubject + "." + w.cfg.Stream + ".>", Cause: err}
	}

	name := strings.ToUpper(strings.ReplaceAll(w.cfg.DeadSubject, ".", "_"))

	_, err = w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{w.cfg.DeadSubject + ".>"}, MaxAge: deadKept, Duplicates: deadWindow,
	})
	if err != nil {
		return fmt.Errorf("worker: create stream %s: %w", name, err)
	}

	return nil
}
