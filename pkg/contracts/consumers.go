package contracts

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/consumer"
)

// Consumer is the declaration of a consumer.
type Consumer struct {
	// Stream is the name of its stream.
	Stream string
	// Config are its settings. An AckWait of 0 is that of the server, or 5 seconds for a new consumer.
	Config jetstream.ConsumerConfig
}

// ackWait is that of a new consumer.
const ackWait = 5 * time.Second

// Channels are the names of the channels that a notifier has without code.
func Channels() []string { return []string{"email", "inapp", "sms", "webhook", "webpush"} }

// Consumers returns the declarations of the consumers from which the services pull.
func Consumers(options AssetOptions) []Consumer {
	var all []Consumer
	add := func(service, stream, name string, patterns ...string) {
		if options.wants(service) {
			all = append(all, Consumer{Stream: stream, Config: consumer.Config(name, options.AckWait, patterns)})
		}
	}
	add(ServiceEnricher, StreamEnrichJobs, "enricher", EnrichJobsSubjects)
	// The priority of a job is a token of its subject.
	add(ServiceImporter, StreamImportJobs, "importer", "jobs.import."+string(PriorityNormal)+".>")
	add(ServiceImporter, StreamImportJobs, "importer-high", "jobs.import."+string(PriorityHigh)+".>")
	add(ServiceImporter, StreamImportJobs, "importer-low", "jobs.import."+string(PriorityLow)+".>")
	add(ServiceNotifier, StreamEvents, "notifier", EventsSubjects)
	add(ServiceNotifier, StreamNotifications, "notifier-expand", NotifyPlanRecordsSubjects)
	for _, channel := range append(Channels(), options.Channels...) {
		add(ServiceNotifier, StreamNotifications, "notifier-send-"+channel, "notify.send."+channel+".>")
	}
	return all
}

// ApplyConsumers does with consumers as Apply does with streams, which it expects to be there. It keeps all settings of a
// consumer but those with which its service could not work. Up to four round trips for each consumer.
func ApplyConsumers(ctx context.Context, js jetstream.StreamManager, want []Consumer, options ApplyOptions) ([]Change, error) {
	tries := make([]try, 0, len(want))
	for _, c := range want {
		tries = append(tries, try{
			"consumer " + c.Stream + "/" + c.Config.Durable, func(ctx context.Context) Change { return applyConsumer(ctx, js, c, options) },
		})
	}
	return apply(ctx, tries, options)
}

func applyConsumer(ctx context.Context, js jetstream.StreamManager, want Consumer, options ApplyOptions) Change {
	name := want.Config.Durable
	change := Change{Stream: want.Stream, Consumer: name, Action: ActionNone}
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
		change.Action = ActionCreate
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
	if change.Action == ActionUpdate && !options.DryRun {
		_, err := consumer.Change(ctx, js, want.Stream, have, consumer.Adapt(have, want.Config))
		change.Err = consumer.Taken(err, want.Config.FilterSubjects)
	}
	return change
}
