// Package provision makes the streams, buckets and consumers of a server match their declarations in package contracts.
package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// Action names a change that Apply makes to a stream or a consumer.
type Action string

// The actions.
const (
	// None leaves a stream or consumer that is as declared.
	None Action = "none"
	// Create makes a missing stream or consumer.
	Create Action = "create"
	// Keep leaves a stream or consumer, because the options do not allow its differences to be removed.
	Keep Action = "keep"
	// Update changes a stream or consumer in place. If a limit gets smaller, the server drops the messages above it at once.
	Update Action = "update"
	// Refuse leaves a stream or consumer that differs only in settings that no update can change. An operator has to move a stream's
	// messages to a new stream, or to delete the consumer.
	Refuse Action = "refuse"
)

// Change is a change that Apply or ApplyConsumers made, or would make, to one stream or consumer.
type Change struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Consumer is the name of the consumer, "" for the stream itself.
	Consumer string `json:"consumer,omitempty"`
	// Action is the kind of the change.
	Action Action `json:"action"`
	// Differences are the differences found. Fixed is set on each that the action removes.
	Differences []Difference `json:"differences,omitempty"`
	// Err is the error of the action, nil when it succeeded.
	Err error `json:"-"`
}

// Options are the options of Apply and ApplyConsumers.
type Options struct {
	// AllowShrink also lowers replicas, limits and retention to the declared values. That may drop messages at once, see [Difference.Drops].
	// Defaults to false: settings larger than declared stay as they are.
	AllowShrink bool

	// CreateOnly makes missing streams and consumers and changes no others. Defaults to false.
	CreateOnly bool

	// DryRun only reports. Defaults to false.
	DryRun bool

	// Wait bounds the retries while the servers' cluster is not ready. Defaults to jsapi.RetryWait, a minute.
	Wait time.Duration
}

// Apply creates missing streams and updates the settings that differ and can be updated. Placement and metadata that operators added to a
// stream stay. Settings larger than declared stay too, unless [Options.AllowShrink] is set. Up to two round trips for each stream.
//
// It reports one Change for each declaration, in the same order, and goes on after a failure; the error joins
// all failures. The error for a stream that does not fit names the limit. When ctx ends Apply stops, and reports the declarations up to
// there. Streams that are not declared are left alone.
//
// A cluster that elects a leader, or in which a node has restarted, refuses streams for a while. Apply then tries
// again, for up to Wait. After that it returns jsapi.ErrNotReady for the stream, and asks once for each of the
// others.
func Apply(
	ctx context.Context, js jetstream.StreamManager, want []jetstream.StreamConfig, options Options,
) ([]Change, error) {
	tries := make([]try, 0, len(want))
	for _, config := range want {
		tries = append(tries, try{"stream " + config.Name, func(ctx context.Context) Change { return applyStream(ctx, js, config, options) }})
	}
	return apply(ctx, tries, options)
}

// try brings one stream or consumer to its declaration.
type try struct {
	asset string
	once  func(context.Context) Change
}

func apply(ctx context.Context, tries []try, options Options) ([]Change, error) {
	changes := make([]Change, 0, len(tries))
	var errs []error
	wait := cmp.Or(options.Wait, jsapi.RetryWait)
	for _, t := range tries {
		change := t.ready(ctx, wait)
		if change.Err != nil {
			if errors.Is(change.Err, jsapi.ErrNotReady) {
				wait = 0
			}
			change.Err = fmt.Errorf("%s: %w", t.asset, change.Err)
			errs = append(errs, change.Err)
		}
		changes = append(changes, change)
		if ctx.Err() != nil {
			break
		}
	}
	return changes, errors.Join(errs...)
}

// ready calls once until the cluster is ready.
func (t try) ready(ctx context.Context, wait time.Duration) (change Change) {
	err := jsapi.Retry(ctx, wait, func(ctx context.Context) error {
		before := change
		change = t.once(ctx)
		if change.Action == None && before.Action != "" { // a try without an answer has done it, or the stream is not known
			change.Action, change.Differences = before.Action, before.Differences
		}
		return change.Err
	})
	change.Err = err
	return change
}

func applyStream(
	ctx context.Context, js jetstream.StreamManager, want jetstream.StreamConfig, options Options,
) Change {
	change := Change{Stream: want.Name, Action: None}
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		change.Action = Create
		change.Differences = []Difference{{Stream: want.Name, Missing: true, Fixed: true}}
		if !options.DryRun {
			create := want
			if strings.HasPrefix(want.Name, "KV_") {
				create.FirstSeq = kvlock.FirstSequence()
			}
			_, err = js.CreateStream(ctx, create)
			change.Err = explain(ctx, js, want, err)
		}
		if !errors.Is(change.Err, jetstream.ErrStreamNameAlreadyInUse) {
			return change
		}
		// A try without an answer, or another Apply, has made it in the meantime, with its own FirstSeq.
		change = Change{Stream: want.Name, Action: None}
		stream, err = js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) { // of a node that leads since then, and has not heard of it
			err = fmt.Errorf("%w: %w", jetstream.ErrNoStreamResponse, err)
		}
	}
	if err != nil {
		change.Err = err
		return change
	}
	info := stream.CachedInfo()
	if change.Differences, change.Err = Compare(*info, want); change.Err != nil {
		return change
	}
	change.decide(options)
	if change.Action != Update {
		return change
	}
	update, err := merge(info.Config, want, change.Differences)
	switch {
	case err != nil:
		change.Err = err
	case !options.DryRun:
		_, err = js.UpdateStream(ctx, update)
		change.Err = explain(ctx, js, update, err)
	}
	return change
}

// decide sets the action for the differences, and marks those that it removes.
func (c *Change) decide(options Options) {
	kept := false
	for i := range c.Differences {
		d := &c.Differences[i]
		if d.Fixed && (options.CreateOnly || d.Shrinks && !options.AllowShrink) {
			d.Fixed, kept = false, true
		}
		if d.Fixed {
			c.Action = Update
		}
	}
	switch {
	case c.Action == Update, len(c.Differences) == 0:
	case kept:
		c.Action = Keep
	default:
		c.Action = Refuse
	}
}

// merge returns the server's configuration, with the declared value of every difference that is to be removed.
func merge(got, want jetstream.StreamConfig, differences []Difference) (update jetstream.StreamConfig, err error) {
	merged, err := toMap(got)
	if err != nil {
		return update, err
	}
	declared, err := toMap(want)
	if err != nil {
		return update, err
	}
	for _, difference := range differences {
		if !difference.Fixed {
			continue
		}
		if value, ok := declared[difference.Field]; ok {
			merged[difference.Field] = value
		} else {
			delete(merged, difference.Field)
		}
	}
	raw, err := json.Marshal(merged)
	if err != nil {
		return update, fmt.Errorf("encode: %w", err)
	}
	if err := json.Unmarshal(raw, &update); err != nil {
		return update, fmt.Errorf("decode: %w", err)
	}
	update.Metadata = map[string]string{}
	maps.Copy(update.Metadata, got.Metadata)
	maps.Copy(update.Metadata, want.Metadata)
	return update, nil
}

// Consumer is the declaration of a consumer.
type Consumer struct {
	// Stream is the name of the consumer's stream.
	Stream string
	// Config are its settings. An AckWait of 0 keeps the server's, and gives a new consumer 5 seconds.
	Config jetstream.ConsumerConfig
}

// ackWait is the AckWait of a new consumer.
const ackWait = 5 * time.Second

// Consumers returns the declarations of the consumers from which the services pull.
func Consumers(options contracts.AssetOptions) []Consumer {
	var all []Consumer
	add := func(service, stream, name string, patterns ...string) {
		if options.Has(service) {
			all = append(all, Consumer{Stream: stream, Config: consumer.Config(name, options.AckWait, patterns)})
		}
	}
	add(contracts.ServiceEnricher, contracts.StreamEnrichJobs, "enricher", contracts.EnrichJobsSubjects)
	// The priority of a job is a token of its subject.
	add(contracts.ServiceImporter, contracts.StreamImportJobs, "importer", "jobs.import."+string(contracts.PriorityNormal)+".>")
	add(contracts.ServiceImporter, contracts.StreamImportJobs, "importer-high", "jobs.import."+string(contracts.PriorityHigh)+".>")
	add(contracts.ServiceImporter, contracts.StreamImportJobs, "importer-low", "jobs.import."+string(contracts.PriorityLow)+".>")
	add(contracts.ServiceNotifier, contracts.StreamEvents, "notifier", contracts.EventsSubjects)
	add(contracts.ServiceNotifier, contracts.StreamNotifications, "notifier-expand", "notify.plan.*")
	for _, channel := range append(channels.Names(), options.Channels...) {
		add(contracts.ServiceNotifier, contracts.StreamNotifications, "notifier-send-"+channel, "notify.send."+channel+".>")
	}
	return all
}

// ApplyConsumers does for consumers what Apply does for streams. Their streams must exist. It changes only those settings of a consumer
// with which its service could not work. Up to four round trips for each consumer.
func ApplyConsumers(ctx context.Context, js jetstream.StreamManager, want []Consumer, options Options) ([]Change, error) {
	tries := make([]try, 0, len(want))
	for _, c := range want {
		tries = append(tries, try{
			"consumer " + c.Stream + "/" + c.Config.Durable, func(ctx context.Context) Change { return applyConsumer(ctx, js, c, options) },
		})
	}
	return apply(ctx, tries, options)
}

func applyConsumer(ctx context.Context, js jetstream.StreamManager, want Consumer, options Options) Change {
	name := want.Config.Durable
	change := Change{Stream: want.Stream, Consumer: name, Action: None}
	stream, err := js.Stream(ctx, want.Stream)
	if err != nil && !(options.DryRun && errors.Is(err, jetstream.ErrStreamNotFound)) {
		change.Err = err
		return change
	}
	var found jetstream.Consumer
	if err == nil {
		found, err = stream.Consumer(ctx, name)
	}
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		change.Action = Create
		change.Differences = []Difference{{Stream: want.Stream, Consumer: name, Missing: true, Fixed: true}}
		if !options.DryRun {
			want.Config.AckWait = cmp.Or(want.Config.AckWait, ackWait)
			_, err = stream.CreateConsumer(ctx, want.Config)
			change.Err = consumer.Taken(err, want.Config.FilterSubjects)
		}
		return change
	case err != nil:
		change.Err = err
		return change
	}
	have := found.CachedInfo().Config
	want.Config.AckWait = cmp.Or(want.Config.AckWait, have.AckWait)
	for _, d := range consumer.Compare(have, want.Config) {
		change.Differences = append(change.Differences, Difference{
			Stream: want.Stream, Consumer: name, Field: d.Field, Got: d.Got, Want: d.Want,
			Fixed: d.Field != "ack_policy" && d.Field != "deliver_subject",
		})
	}
	change.decide(options)
	if change.Action == Update && !options.DryRun {
		_, err := consumer.Change(ctx, js, want.Stream, have, consumer.Adapt(have, want.Config))
		change.Err = consumer.Taken(err, want.Config.FilterSubjects)
	}
	return change
}
