package contracts

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// Names of the streams.
const (
	// StreamAudit keeps the actions of operators.
	StreamAudit = "AUDIT"
	// StreamAuditUsers keeps the actions of callers who are no operators, so that they cannot push out those of operators.
	StreamAuditUsers = "AUDIT_USERS"
	// StreamDead keeps dead letters, and the server's advisories about messages that reached their last delivery.
	StreamDead = "DEAD"
	// StreamEnrichJobs queues the look-ups of places, each place once.
	StreamEnrichJobs = "ENRICH_JOBS"
	// StreamEvents keeps domain events.
	StreamEvents = "EVENTS"
	// StreamImportJobs queues imports.
	StreamImportJobs = "IMPORT_JOBS"
	// StreamNotifications keeps the plan of each event and the rows of each plan.
	StreamNotifications = "NOTIFICATIONS"
)

// Names of the buckets.
const (
	// BucketDeliveries holds the delivery of each row: its state, its recipient and its attempts.
	BucketDeliveries = "deliveries"
	// BucketDirectory holds the recipients.
	BucketDirectory = "directory"
	// BucketEnrich holds the entry of each place and provider.
	BucketEnrich = "enrich"
	// BucketImportJobs holds the state of each import.
	BucketImportJobs = "import-jobs"
	// BucketImportSteps holds the steps of imports.
	BucketImportSteps = "import-steps"
	// BucketInbox holds the in-app notifications of each user.
	BucketInbox = "inbox"
	// BucketJobs is the worker's bookkeeping of attempts.
	BucketJobs = "jobs"
	// BucketLocks holds the leases.
	BucketLocks = "locks"
	// BucketRecipes holds the recipes that imports produced, and the owners of each.
	BucketRecipes = "recipes"
	// BucketRequests holds the state from which the patches of an enrichment request are resumed.
	BucketRequests = "requests"
)

// Names of the object buckets.
const (
	// ObjectsImportSteps holds the values that are too large for a message of BucketImportSteps: photos, and long
	// transcripts.
	ObjectsImportSteps = "import-steps"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	day = 24 * time.Hour

	// dedupWindow is the time for which a stream remembers message ids: longer than any client retries one publish.
	dedupWindow = 2 * time.Minute

	// deadDedupWindow is the same for dead letters: longer than any time between publishing a letter and removing its job from the queue.
	deadDedupWindow = day

	// maxConsumers bounds the consumers of a stream: each service has a few durable ones, consoles and CLIs
	// add short-lived ones. It is explicit because servers since 2.15 read -1 as their own default.
	maxConsumers = 128
)

// The names of the services, and of the part of the assets that none of them uses: the bucket of `expediter lock`
// and the stream of operators' actions.
const (
	ServiceEnricher = "enricher"
	ServiceImporter = "importer"
	ServiceNotifier = "notifier"
	ServiceLock     = "lock"
)

// Services returns the names of all services, each with the assets that it uses.
func Services() []string {
	return []string{ServiceEnricher, ServiceImporter, ServiceNotifier, ServiceLock}
}

// AssetOptions are the options of the declarations of streams, buckets and consumers.
type AssetOptions struct {
	// AckWait is the AckWait of the consumers. Defaults to 0: 5 seconds for a new consumer, and no change for others.
	AckWait time.Duration
	// Channels are the channels of notifiers that are made with code. Defaults to none.
	Channels []string
	// MaxBytes is the space that all assets together may reserve. When their declared sizes add up to more, the largest are cut to one size,
	// of at least 1 MiB. A server refuses a stream whose size it cannot reserve, so set MaxBytes below the account's limit. Defaults to 0:
	// the declared sizes, 61.1 GiB for all services.
	MaxBytes int64
	// Replicas is the number of servers that keep each stream and bucket: 1, 3 or 5. Defaults to 1.
	Replicas int
	// Services are the services whose assets are wanted, see [Services]. Defaults to all.
	Services []string
	// Storage is the storage of the assets. Defaults to jetstream.FileStorage.
	Storage jetstream.StorageType
}

// asset is a declaration, with the service that uses it: "" for all but ServiceLock.
type asset struct {
	service string
	config  jetstream.StreamConfig
}

// Assets returns the declarations of all streams, then of the streams under all buckets and object buckets.
func Assets(options AssetOptions) []jetstream.StreamConfig {
	var wanted []jetstream.StreamConfig
	for _, a := range slices.Concat(streams(options), buckets(options)) {
		if options.Has(a.service) {
			wanted = append(wanted, a.config)
		}
	}
	return scale(wanted, options.MaxBytes)
}

// Has reports whether the options select the assets of a service.
func (o AssetOptions) Has(service string) bool {
	return len(o.Services) == 0 || slices.ContainsFunc(o.Services, func(s string) bool {
		return s == service || service == "" && s != ServiceLock
	})
}

// Streams returns the declarations of the streams that are not under buckets, in alphabetical order. Bind the bucket of another of the
// [Assets] with js.KeyValue or js.ObjectStore, and never change it with UpdateKeyValue, which would rewrite settings that kvlock depends
// on.
func Streams(options AssetOptions) []jetstream.StreamConfig {
	return slices.DeleteFunc(Assets(options), func(c jetstream.StreamConfig) bool {
		return strings.HasPrefix(c.Name, "KV_") || strings.HasPrefix(c.Name, "OBJ_")
	})
}

// cancelledKeys selects the keys, in BucketDeliveries, of all cancellations.
const cancelledKeys = "/cancelled.>"

// RepublishSubject returns the subject on which the server repeats every change of a key of a bucket. Of BucketDeliveries it repeats the
// changes of the keys of cancellations only. key may be ">" for all keys.
func RepublishSubject(bucket, key string) string {
	return "rp." + bucket + ".$KV." + bucket + "." + key
}

func streams(options AssetOptions) []asset { //nolint:funlen // a list
	return []asset{
		// A full stream drops its oldest messages: operators must be able to act when most is to be repaired.
		{ServiceLock, declare(options, jetstream.StreamConfig{
			Name:        StreamAudit,
			Description: "What operators did",
			Subjects:    []string{"audit.*.operators"},
			MaxAge:      400 * day,
			MaxBytes:    256 * mib,

			// No source of records (cli, console or notifier) takes the room of another, whatever it writes.
			MaxMsgsPerSubject: 20_000,
			MaxMsgSize:        4 << 10,
		})},
		{ServiceLock, declare(options, jetstream.StreamConfig{
			Name:        StreamAuditUsers,
			Description: "What callers did who are no operators",
			Subjects:    []string{"audit.*.users.*"},
			MaxAge:      400 * day,
			MaxBytes:    16 * mib,

			// The actions of which users have many push out none of an application's, such as the deletion of a user.
			MaxMsgsPerSubject: 8000,
		})},
		// A full stream drops its oldest messages: there must always be room for a dead letter.
		{"", declare(options, jetstream.StreamConfig{
			Name:        StreamDead,
			Description: "Dead letters, and advisories about messages that nobody could work",
			Subjects: []string{
				DeadSubjects,
				"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
				"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
			},
			Duplicates: deadDedupWindow,
			MaxAge:     30 * day,
			MaxBytes:   512 * mib,
		})},
		// One message per place: while a place is queued, a second job for it is refused, for any length of the backlog
		// and any state of the claim. A full stream refuses jobs, because the answer can say PENDING.
		{ServiceEnricher, declare(options, jetstream.StreamConfig{
			Name:                 StreamEnrichJobs,
			Description:          "Look-ups of places at providers, each place once",
			Subjects:             []string{EnrichJobsSubjects},
			Retention:            jetstream.WorkQueuePolicy,
			MaxMsgsPerSubject:    1,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			MaxBytes:             256 * mib,
		})},
		// A full stream drops its oldest messages, which its consumers have had for days.
		{ServiceNotifier, declare(options, jetstream.StreamConfig{
			Name:        StreamEvents,
			Description: "Domain events",
			Subjects:    []string{EventsSubjects},
			MaxAge:      7 * day,
			MaxBytes:    1 * gib,
		})},
		{ServiceImporter, declare(options, jetstream.StreamConfig{
			Name:        StreamImportJobs,
			Description: "Imports of recipes",
			Subjects:    []string{ImportJobsSubjects},
			Retention:   jetstream.WorkQueuePolicy,
			Discard:     jetstream.DiscardNew,
			MaxBytes:    256 * mib,
		})},
		// One message per subject is the unique constraint over event, user, type and channel, also against a publisher
		// that forgets to expect sequence 0. A full stream refuses rows: dropping the oldest would lift the constraint.
		{ServiceNotifier, declare(options, jetstream.StreamConfig{
			Name:                 StreamNotifications,
			Description:          "The plan of each event and the rows of each plan, each once",
			Subjects:             []string{"notify.plan.>", "notify.send.>"},
			MaxAge:               30 * day,
			MaxMsgsPerSubject:    1,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			MaxBytes:             20 * gib,
		})},
	}
}

// The sizes of the notifier are those of 10 million notifications a month, see docs/operate.md.
func buckets(options AssetOptions) []asset {
	bucket := func(name, description string, size int64) kvlock.BucketConfig {
		return kvlock.BucketConfig{
			Bucket: name, Description: description, MaxBytes: size, Replicas: options.Replicas, Storage: options.Storage,
		}
	}
	var list []asset
	for _, b := range []struct {
		service, name, description string
		size                       int64
	}{
		{ServiceNotifier, BucketDeliveries, "What was sent to whom", 13 * gib},
		{ServiceNotifier, BucketDirectory, "Recipients of notifications", 2 * gib},
		{ServiceEnricher, BucketEnrich, "Entries of places: a claim that becomes a result", 512 * mib},
		{ServiceImporter, BucketImportJobs, "States of imports", 256 * mib},
		{ServiceImporter, BucketImportSteps, "Steps of imports: a claim that becomes a result", 1 * gib},
		{ServiceNotifier, BucketInbox, "In-app notifications", 20 * gib},
		{"", BucketJobs, "Attempts of jobs", 512 * mib},
		{ServiceLock, BucketLocks, "Leases", 64 * mib},
		{ServiceImporter, BucketRecipes, "Recipes, and which of them are whose", 512 * mib},
		{ServiceEnricher, BucketRequests, "Enrichment requests whose patches can be resumed", 256 * mib},
	} {
		config := kvlock.StreamConfig(bucket(b.name, b.description, b.size))
		if b.name == BucketDeliveries { // nobody waits for the other keys, and each row has one
			config.RePublish = &jetstream.RePublish{
				Source: "$KV." + BucketDeliveries + "." + cancelledKeys, Destination: RepublishSubject(BucketDeliveries, cancelledKeys),
			}
		}
		list = append(list, asset{b.service, config})
	}
	// Each object expires by itself, with the record that refers to it. A full stream refuses objects: the importer
	// fetches them again when it needs them.
	large := flight.LargeValueConfig(bucket(ObjectsImportSteps, "Photos and long transcripts of imports", 1*gib))
	return append(list, asset{ServiceImporter, large})
}

// declare fills in the settings that all streams share.
func declare(options AssetOptions, config jetstream.StreamConfig) jetstream.StreamConfig {
	config.MaxMsgsPerSubject = cmp.Or(config.MaxMsgsPerSubject, -1)
	config.AllowDirect = true
	config.Duplicates = cmp.Or(config.Duplicates, dedupWindow)
	config.MaxConsumers = maxConsumers
	config.MaxMsgs = -1
	config.MaxMsgSize = cmp.Or(config.MaxMsgSize, MaxBody)
	config.Replicas = max(options.Replicas, 1)
	config.Storage = options.Storage
	return config
}

// scale cuts the largest streams to one size, so that all together reserve no more than maxBytes.
func scale(configs []jetstream.StreamConfig, maxBytes int64) []jetstream.StreamConfig {
	if maxBytes <= 0 {
		return configs
	}
	sizes := make([]int64, len(configs))
	for i, config := range configs {
		sizes[i] = config.MaxBytes
	}
	slices.Sort(sizes)
	for i, size := range sizes {
		share := max(maxBytes/int64(len(sizes)-i), mib)
		if size > share {
			for j := range configs {
				configs[j].MaxBytes = min(configs[j].MaxBytes, share)
			}
			break
		}
		maxBytes -= size
	}
	return configs
}
