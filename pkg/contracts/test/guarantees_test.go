package test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// TestAPlaceIsQueuedOnce: also with another message id, also after the claim and the window of ids have ended.
func TestAPlaceIsQueuedOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject, err := contracts.EnrichJobSubject(contracts.ProviderWolt, "ChIJ123")
	if err != nil {
		t.Fatal(err)
	}
	publish := func(id string) error {
		_, err := js.Publish(t.Context(), subject, []byte("{}"), jetstream.WithMsgID(id))
		return err
	}
	if err := publish("claim-1"); err != nil {
		t.Fatal(err)
	}
	var refused *jetstream.APIError
	if err := publish("claim-2"); !errors.As(err, &refused) || refused.ErrorCode != 10077 {
		t.Fatalf("got %v, want it refused by the stream", err)
	}
	consumer, err := js.CreateConsumer(t.Context(), contracts.StreamEnrichJobs, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := publish("claim-3"); err == nil {
		t.Error("a second job was queued while the first was being worked")
	}
	if err := msg.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := publish("claim-4"); err != nil {
		t.Errorf("after the first was done: %v", err)
	}
}

func TestARowIsStoredOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject, err := contracts.NotifySendSubject("email", contracts.RecipientCustomer, "user@example.com", "evt/001")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0)); err == nil {
		t.Error("stored twice")
	}
	if _, err := js.Publish(t.Context(), subject, nil); err == nil {
		t.Error("stored twice by a publisher that expects nothing")
	}
}

// TestADeadLetterIsStoredOnce: also when the worker that gives the job up again has been away for most of a day.
func TestADeadLetterIsStoredOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		if _, err := contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, c := range []struct {
			at        time.Duration
			duplicate bool
		}{{0, false}, {3 * time.Minute, true}, {23 * time.Hour, true}, {25 * time.Hour, false}} {
			time.Sleep(c.at - time.Since(began)) //nolint:forbidigo // fake time
			ack, err := js.Publish(t.Context(), "dead.ENRICH_JOBS.jobs.enrich.wolt.x", []byte("{}"), jetstream.WithMsgID("letter"))
			if err != nil || ack.Duplicate != c.duplicate {
				t.Errorf("after %s: %+v, %v, want a duplicate: %t", c.at, ack, err, c.duplicate)
			}
		}
	})
}

func TestAdvisoriesAreKept(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject, err := contracts.ImportJobSubject(contracts.PriorityNormal, "job1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	dead, err := js.OrderedConsumer(t.Context(), contracts.StreamDead, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.CreateConsumer(t.Context(), contracts.StreamImportJobs, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := msg.TermWithReason("cannot be read"); err != nil {
		t.Fatal(err)
	}
	advisory, err := dead.Next()
	if err != nil {
		t.Fatal(err)
	}
	if want := "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.IMPORT_JOBS."; !strings.HasPrefix(advisory.Subject(), want) {
		t.Errorf("got %s", advisory.Subject())
	}
}

func TestChangesOfAKeyAreRepublished(t *testing.T) {
	t.Parallel()
	nc, js := applied(t)
	key, err := contracts.EnrichSlotKey(contracts.ProviderWolt, "מסעדה.1")
	if err != nil {
		t.Fatal(err)
	}
	one, err := nc.SubscribeSync(contracts.RepublishSubject(contracts.BucketEnrich, key))
	if err != nil {
		t.Fatal(err)
	}
	all, err := nc.SubscribeSync(contracts.RepublishSubject(contracts.BucketEnrich, ">"))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), contracts.BucketEnrich)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), key, []byte("v")); err != nil {
		t.Fatal(err)
	}
	for _, subscription := range []*nats.Subscription{one, all} {
		msg, err := subscription.NextMsgWithContext(t.Context())
		if err != nil || string(msg.Data) != "v" {
			t.Errorf("got %v, %v", msg, err)
		}
	}
}

// TestEveryKeyIsOneTheServerTakes puts each kind of key with an id that needs encoding at its longest.
func TestEveryKeyIsOneTheServerTakes(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	id := strings.Repeat("é", contracts.MaxID/2)
	keys := map[string]func() (string, error){
		contracts.BucketDeliveries:  func() (string, error) { return contracts.DeliveryKey(id, "email", "CUSTOMER", id) },
		contracts.BucketDirectory:   func() (string, error) { return contracts.DirectoryKey("CUSTOMER", id) },
		contracts.BucketEnrich:      func() (string, error) { return contracts.EnrichSlotKey("wolt", id) },
		contracts.BucketImportJobs:  func() (string, error) { return contracts.ImportJobKey(id) },
		contracts.BucketImportSteps: func() (string, error) { return contracts.ImportStepKey(id, "transcript") },
		contracts.BucketInbox:       func() (string, error) { return contracts.InboxKey("CUSTOMER", id, id) },
		contracts.BucketRecipes:     func() (string, error) { return contracts.RecipeOwnerKey(id, id) },
		contracts.BucketRequests:    func() (string, error) { return contracts.RequestKey(id) },
	}
	for _, bucket := range slices.Sorted(maps.Keys(keys)) {
		key, err := keys[bucket]()
		if err != nil {
			t.Fatal(err)
		}
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Create(t.Context(), key, []byte("v")); err != nil {
			t.Errorf("%s: %v", bucket, err)
		}
		if entry, err := kv.Get(t.Context(), key); err != nil || string(entry.Value()) != "v" {
			t.Errorf("%s: %v", bucket, err)
		}
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
	subject, err := contracts.EventSubject("RESTAURANT", "RESERVATION_REQUESTED")
	if err != nil {
		t.Fatal(err)
	}
	for _, duplicate := range []bool{false, true} {
		msg, err := event.Msg(subject)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := js.PublishMsg(t.Context(), msg)
		if err != nil || ack.Duplicate != duplicate {
			t.Fatalf("got %+v, %v, want duplicate %v", ack, err, duplicate)
		}
	}
	stream, err := js.Stream(t.Context(), contracts.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	got, err := contracts.ParseCloudEvent(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(event, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
