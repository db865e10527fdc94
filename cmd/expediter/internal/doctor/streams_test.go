package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// change returns a mistake in the settings of a stream.
func change(stream string, edit func(*jetstream.StreamConfig)) func(*site) {
	return func(s *site) {
		found := check.Must(s.js.Stream(s.Context(), stream))(s.T)
		config := found.CachedInfo().Config
		edit(&config)
		check.OK(s.T, check.Err(s.js.UpdateStream(s.Context(), config)))
	}
}

// remake returns a mistake in the settings of a stream that no update can change. Its consumers are as declared.
func remake(stream string, edit func(*jetstream.StreamConfig)) func(*site) {
	return func(s *site) {
		found := check.Must(s.js.Stream(s.Context(), stream))(s.T)
		config := found.CachedInfo().Config
		edit(&config)
		drop(stream)(s)
		check.OK(s.T, check.Err(s.js.CreateStream(s.Context(), config)))
		check.OK(s.T, check.Err(provision.ApplyConsumers(s.Context(), s.js, slices.DeleteFunc(provision.Consumers(contracts.AssetOptions{}),
			func(c provision.Consumer) bool { return c.Stream != stream }), provision.Options{})))
	}
}

func drop(stream string) func(*site) {
	return func(s *site) {
		check.OK(s.T, s.js.DeleteStream(s.Context(), stream))
	}
}

// again recreates a stream as declared.
func again(stream string) func(*site) {
	return func(s *site) {
		drop(stream)(s)
		s.run(0, "apply")
	}
}

// retune returns a mistake in the settings of a consumer.
func retune(stream, name string, edit func(*jetstream.ConsumerConfig)) func(*site) {
	return func(s *site) {
		found := check.Must(s.js.Consumer(s.Context(), stream, name))(s.T)
		config := found.CachedInfo().Config
		edit(&config)
		check.OK(s.T, check.Err(s.js.UpdateConsumer(s.Context(), stream, config)))
	}
}

var streamMistakes = []mistake{
	{name: "a stream is missing", id: "stream.missing", make: drop("AUDIT")},
	{name: "a bucket is missing", id: "stream.missing", make: drop("KV_locks")},
	{
		name: "too few replicas", id: "stream.num_replicas", make: func(s *site) { s.args = append(s.args, "--replicas", "3", "--services", "lock") },
		undo: func(s *site) { s.args = nil },
	},
	{name: "messages end too soon", id: "stream.max_age", make: change("EVENTS", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })},
	{
		name: "too little space", id: "stream.max_bytes", warns: true,
		make: change("EVENTS", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }),
	},
	{
		name: "a full stream drops jobs", id: "stream.discard",
		make: change("IMPORT_JOBS", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }),
	},
	{
		name: "in memory", id: "stream.storage", make: remake("KV_locks", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
		undo: again("KV_locks"),
	},
	{
		name: "no queue", id: "stream.retention", make: remake("IMPORT_JOBS", func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }),
		undo: again("IMPORT_JOBS"),
	},
	{name: "no leases", id: "stream.allow_msg_ttl", make: remake("KV_locks", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false })},
	{name: "a consumer is missing", id: "consumer.missing", make: func(s *site) {
		check.OK(s.T, s.js.DeleteConsumer(s.Context(), "EVENTS", "notifier"))
	}},
	{name: "a channel's consumer is missing", id: "consumer.missing", make: func(s *site) {
		for _, channel := range []string{"sms", "webpush"} { // of which one is set up
			check.OK(s.T, s.js.DeleteConsumer(s.Context(), "NOTIFICATIONS", "notifier-send-"+channel))
		}
	}},
	{name: "another ack_wait than the service's", id: "consumer.ack_wait", make: func(s *site) { s.env["ENRICHER_ACK_WAIT"] = "10s" }},
	{
		name: "few deliveries at a time", id: "consumer.max_ack_pending",
		make: retune("IMPORT_JOBS", "importer", func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 5 }),
	},
	{
		name: "the server gives jobs up", id: "consumer.max_deliver",
		make: retune("ENRICH_JOBS", "enricher", func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }),
	},
	{
		name: "a consumer takes too little", id: "consumer.filter_subjects",
		make: retune("EVENTS", "notifier", func(c *jetstream.ConsumerConfig) { c.FilterSubjects = []string{"events.a.>"} }),
	},
	{name: "a consumer is paused", id: "consumer.paused", make: func(s *site) {
		check.OK(s.T, check.Err(s.js.PauseConsumer(s.Context(), "EVENTS", "notifier", time.Now().Add(time.Hour))))
	}, undo: func(s *site) {
		check.OK(s.T, check.Err(s.js.ResumeConsumer(s.Context(), "EVENTS", "notifier")))
	}},
}

func TestMistakesInStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	checkAll(t, streamMistakes)
	s.healthy()
	for _, channel := range []string{"webpush", "webhook"} { // which nobody has set up
		check.OK(t, s.js.DeleteConsumer(t.Context(), "NOTIFICATIONS", "notifier-send-"+channel))
	}
	skipped := strings.Join(s.examine(0).Skipped, "\n")
	check.Contains(t, skipped, "notifier-send-webhook, consumer NOTIFICATIONS/notifier-send-webpush: missing, and no notifier")

	check.OK(t, check.Err(s.js.Publish(t.Context(), "dead.a", nil))) // an unreadable stream of dead letters does not count as empty
	cfg := check.Must(s.js.Stream(t.Context(), contracts.StreamDead))(t).CachedInfo().Config
	cfg.AllowDirect = false
	check.OK(t, check.Err(s.js.UpdateStream(t.Context(), cfg)))
	check.Contains(t, strings.Join(s.examine(1).Skipped, "\n"),
		"stream DEAD: its dead letters cannot be counted: deadletter: stream DEAD has no AllowDirect")
}
