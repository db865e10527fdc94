package contracts_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestAPlaceIsQueuedOnce: also with another message id, also after the claim and the window of ids have ended.
func TestAPlaceIsQueuedOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.EnrichJobSubject(contracts.ProviderWolt, "ChIJ123"))(t)
	publish := func(id string) error {
		return check.Err(js.Publish(t.Context(), subject, []byte("{}"), jetstream.WithMsgID(id)))
	}
	check.OK(t, publish("claim-1"))
	var refused *jetstream.APIError
	err := publish("claim-2")
	check.Require(t, errors.As(err, &refused) && refused.ErrorCode == 10077, "got %v, want it refused by the stream", err)
	consumer, err := js.CreateConsumer(t.Context(), contracts.StreamEnrichJobs, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	msg := check.Must(consumer.Next())(t)
	check.Failsf(t, publish("claim-3"), "a second job was queued while the first was being worked")
	check.OK(t, msg.DoubleAck(t.Context()))
	check.Is(t, publish("claim-4"), nil)
}

func TestARowIsStoredOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.NotifySendSubject("email", contracts.RecipientCustomer, "user@example.com", "evt/001"))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0))))
	check.Failsf(t, check.Err(js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0))), "stored twice")
	check.Failsf(t, check.Err(js.Publish(t.Context(), subject, nil)), "stored twice by a publisher that expects nothing")
}

// TestADeadLetterIsStoredOnce: also when the worker that gives the job up again has been away for most of a day.
func TestADeadLetterIsStoredOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
		began := time.Now()
		for _, c := range []struct {
			at        time.Duration
			duplicate bool
		}{{0, false}, {3 * time.Minute, true}, {23 * time.Hour, true}, {25 * time.Hour, false}} {
			time.Sleep(c.at - time.Since(began)) //nolint:forbidigo // fake time
			ack, err := js.Publish(t.Context(), "dead.ENRICH_JOBS.jobs.enrich.wolt.x", []byte("{}"), jetstream.WithMsgID("letter"))
			check.That(t, err == nil && ack.Duplicate == c.duplicate, "after %s: %+v, %v, want a duplicate: %t", c.at, ack, err, c.duplicate)
		}
	})
}

func TestAdvisoriesAreKept(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.ImportJobSubject(contracts.PriorityNormal, "job1"))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), subject, []byte("{}"))))
	dead := check.Must(js.OrderedConsumer(t.Context(), contracts.StreamDead, jetstream.OrderedConsumerConfig{}))(t)
	consumer, err := js.CreateConsumer(t.Context(), contracts.StreamImportJobs, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	msg := check.Must(consumer.Next())(t)
	check.OK(t, msg.TermWithReason("cannot be read"))
	advisory := check.Must(dead.Next())(t)
	want := "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.IMPORT_JOBS."
	check.That(t, strings.HasPrefix(advisory.Subject(), want), "got %s", advisory.Subject())
}

func TestChangesOfAKeyAreRepublished(t *testing.T) {
	t.Parallel()
	nc, js := applied(t)
	key := check.Must(contracts.EnrichEntryKey(contracts.ProviderWolt, "מסעדה.1"))(t)
	one := check.Must(nc.SubscribeSync(contracts.RepublishSubject(contracts.BucketEnrich, key)))(t)
	all := check.Must(nc.SubscribeSync(contracts.RepublishSubject(contracts.BucketEnrich, ">")))(t)
	kv := check.Must(js.KeyValue(t.Context(), contracts.BucketEnrich))(t)
	check.OK(t, check.Err(kv.Put(t.Context(), key, []byte("v"))))
	for _, subscription := range []*nats.Subscription{one, all} {
		msg, err := subscription.NextMsgWithContext(t.Context())
		check.That(t, err == nil && string(msg.Data) == "v", "got %v, %v", msg, err)
	}
}

// TestEveryKeyIsOneTheServerTakes puts each kind of key with an id that needs encoding at its longest.
func TestEveryKeyIsOneTheServerTakes(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	id := strings.Repeat("é", contracts.MaxID/2)
	keys := map[string]func() (string, error){
		contracts.BucketDeliveries: (&contracts.Notification{
			EventID: id, UserID: id, RecipientType: "CUSTOMER", Channel: "email", Address: strings.Repeat("x", contracts.MaxName),
		}).Key,
		contracts.BucketDirectory:   func() (string, error) { return contracts.DirectoryKey("CUSTOMER", id) },
		contracts.BucketEnrich:      func() (string, error) { return contracts.EnrichEntryKey("wolt", id) },
		contracts.BucketImportJobs:  func() (string, error) { return contracts.ImportJobKey(id) },
		contracts.BucketImportSteps: func() (string, error) { return contracts.ImportStepKey(id, "transcript") },
		contracts.BucketInbox:       func() (string, error) { return contracts.InboxKey("CUSTOMER", id, id) },
		contracts.BucketRecipes:     func() (string, error) { return contracts.RecipeOwnerKey(id, id) },
		contracts.BucketRequests:    func() (string, error) { return contracts.RequestKey(id) },
	}
	for _, bucket := range slices.Sorted(maps.Keys(keys)) {
		key := check.Must(keys[bucket]())(t)
		kv := check.Must(js.KeyValue(t.Context(), bucket))(t)
		check.Is(t, check.Err(kv.Create(t.Context(), key, []byte("v"))), nil, bucket)
		entry, err := kv.Get(t.Context(), key)
		check.That(t, err == nil && string(entry.Value()) == "v", "%s: %v", bucket, err)
	}
}

// TestACloudEventSurvivesTheServer publishes one with text that headers cannot carry as it is.
func TestACloudEventSurvivesTheServer(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	event := contracts.CloudEvent{
		ID: "evt-001", Source: "/reservations", Type: contracts.CloudEventDomain, Subject: "מסעדה \"50%\"\u2028",
		Extensions: map[string]string{"tenant": "תל אביב"}, DataContentType: "application/json", Data: []byte(`{"a": 1}`),
	}
	subject := check.Must(contracts.EventSubject("RESTAURANT", "RESERVATION_REQUESTED"))(t)
	for _, duplicate := range []bool{false, true} {
		msg := check.Must(event.Msg(subject))(t)
		ack, err := js.PublishMsg(t.Context(), msg)
		check.Require(t, err == nil && ack.Duplicate == duplicate, "got %+v, %v, want duplicate %v", ack, err, duplicate)
	}
	stream := check.Must(js.Stream(t.Context(), contracts.StreamEvents))(t)
	msg := check.Must(stream.GetLastMsgForSubject(t.Context(), subject))(t)
	got := check.Must(contracts.ParseCloudEvent(msg.Header, msg.Data))(t)
	check.Equal(t, event, got)
}

// grown is a declared stream as an operator has made it larger, with two old messages.
func grown(t *testing.T, js jetstream.JetStream, want jetstream.StreamConfig) {
	t.Helper()
	larger := want
	larger.MaxAge, larger.MaxBytes, larger.MaxConsumers, larger.MaxMsgs = 2*want.MaxAge, 2*want.MaxBytes, 2*want.MaxConsumers, 0
	larger.MaxMsgsPerSubject, larger.Subjects = -1, append(larger.Subjects, "more.>")
	check.OK(t, check.Err(js.CreateStream(t.Context(), larger)))
	for range 2 {
		check.OK(t, check.Err(js.Publish(t.Context(), "events.A.B", make([]byte, 1000))))
	}
}

// A stream that an operator has made larger stays so until --allow-shrink, and each difference names the messages that lowering
// it drops.
func TestApplyKeepsWhatIsLarger(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	want := contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}})[1]
	want.MaxBytes, want.MaxMsgs, want.MaxMsgsPerSubject = 1500, 1, 1
	grown(t, js, want)
	fields := map[string]string{
		"max_age": "", "max_bytes": "bytes of the oldest messages", "max_consumers": "", "max_msgs": "1 of the oldest messages",
		"max_msgs_per_subject": "all but the newest 1 messages of each subject", "subjects": "",
	}
	for _, options := range []contracts.ApplyOptions{{}, {DryRun: true, AllowShrink: true}, {CreateOnly: true, AllowShrink: true}, {AllowShrink: true}} {
		changes := check.Must(contracts.Apply(t.Context(), js, []jetstream.StreamConfig{want}, options))(t)
		removes := options.AllowShrink && !options.CreateOnly
		action := contracts.ActionKeep
		if removes {
			action = contracts.ActionUpdate
		}
		check.Require(t, len(changes) == 1 && changes[0].Action == action && len(changes[0].Differences) == len(fields),
			"%+v: got %+v", options, changes)
		for _, d := range changes[0].Differences {
			drops, known := fields[d.Field]
			check.That(t, known && d.Shrinks && d.Fixed == removes && drops == "" == (d.Drops == "") && strings.HasSuffix(d.Drops, drops),
				"%+v: got %+v, want it to drop %q", options, d, drops)
		}
		stream := check.Must(js.Stream(t.Context(), want.Name))(t)
		left := uint64(2)
		if removes && !options.DryRun {
			left = 1
		}
		check.Same(t, fmt.Sprintf("%+v: messages are left", options), stream.CachedInfo().State.Msgs, left)
	}
}

// Fewer replicas are a loss, too.
func TestApplyKeepsReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	options := contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: 3, Services: []string{contracts.ServiceLock}}
	replicas := func() int {
		t.Helper()
		stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketLocks))(t)
		return stream.CachedInfo().Config.Replicas
	}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})))
	options.Replicas = 1
	changes, err := contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})
	if err != nil || replicas() != 3 || changes[0].Action != contracts.ActionKeep || changes[0].Differences[0].Drops != "the copies on 2 of 3 servers" {
		t.Errorf("got %+v, %v, and %d replicas, want 3", changes, err, replicas())
	}
	_, err = contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{AllowShrink: true})
	check.That(t, err == nil && replicas() == 1, "got %v, and %d replicas, want 1", err, replicas())
	options.Replicas = 3
	changes, err = contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})
	if d := changes[0].Differences; err != nil || replicas() != 3 || len(d) != 1 || d[0].Shrinks || d[0].Drops != "" {
		t.Errorf("got %+v, %v, and %d replicas, want 3 and nothing dropped", changes, err, replicas())
	}
}

func TestApplyConsumers(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	options := contracts.AssetOptions{Channels: []string{"pigeon"}, Services: []string{contracts.ServiceNotifier}}
	want := contracts.Consumers(options)
	apply := func(o contracts.ApplyOptions, action contracts.Action, n int) []contracts.Change {
		t.Helper()
		changes, err := contracts.ApplyConsumers(t.Context(), js, want, o)
		check.Require(t, err == nil && actions(changes)[action] == n, "got %+v, %v, want %s %d times", changes, err, action, n)
		return changes
	}
	apply(contracts.ApplyOptions{DryRun: true}, contracts.ActionCreate, len(want))
	check.Failsf(t, check.Err(contracts.ApplyConsumers(t.Context(), js, want, contracts.ApplyOptions{})),
		"consumers were made without their streams")
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})))
	apply(contracts.ApplyOptions{DryRun: true}, contracts.ActionCreate, len(want))
	apply(contracts.ApplyOptions{CreateOnly: true}, contracts.ActionCreate, len(want))
	apply(contracts.ApplyOptions{}, contracts.ActionNone, len(want))

	change := func(cfg jetstream.ConsumerConfig) {
		t.Helper()
		check.OK(t, check.Err(js.UpdateConsumer(t.Context(), contracts.StreamEvents, cfg)))
	}
	byHand := want[0].Config
	byHand.AckWait, byHand.MaxDeliver, byHand.Metadata = time.Minute, 3, map[string]string{"owner": "ops"}
	change(byHand)
	kept := apply(contracts.ApplyOptions{CreateOnly: true}, contracts.ActionKeep, 1)
	check.Equal(t, []contracts.Difference{
		{Stream: contracts.StreamEvents, Consumer: "notifier", Field: "max_deliver", Got: "3", Want: "-1"},
	}, kept[0].Differences)
	apply(contracts.ApplyOptions{}, contracts.ActionUpdate, 1)
	consumer := check.Must(js.Consumer(t.Context(), contracts.StreamEvents, "notifier"))(t)
	got := consumer.CachedInfo().Config
	check.That(t, got.AckWait == time.Minute && got.MaxDeliver == -1 && got.Metadata["owner"] == "ops", "got %+v", got)
	options.AckWait = 10 * time.Second
	want = contracts.Consumers(options)
	apply(contracts.ApplyOptions{}, contracts.ActionUpdate, len(want))

	check.OK(t, js.DeleteConsumer(t.Context(), contracts.StreamEvents, "notifier"))
	byHand = want[0].Config
	byHand.AckPolicy = jetstream.AckAllPolicy
	check.OK(t, check.Err(js.CreateConsumer(t.Context(), contracts.StreamEvents, byHand)))
	apply(contracts.ApplyOptions{}, contracts.ActionRefuse, 1)
}

// Each service has its own, and all of them together have everything.
func TestAssetsOfServices(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	consumers := 0
	for _, s := range contracts.Services() {
		options := contracts.AssetOptions{Services: []string{s}}
		for _, config := range contracts.Assets(options) {
			seen[config.Name]++
		}
		consumers += len(contracts.Consumers(options))
	}
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		want := 1
		if config.Name == contracts.StreamDead || config.Name == "KV_"+contracts.BucketJobs {
			want = 3
		}
		check.Same(t, config.Name+" is services", seen[config.Name], want)
	}
	all := len(contracts.Consumers(contracts.AssetOptions{}))
	check.That(t, consumers == all && all != 0, "the services have %d consumers, want %d", consumers, all)
}
