package contracts_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
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
	check.That(t, publish("claim-3") != nil, "a second job was queued while the first was being worked")
	check.OK(t, msg.DoubleAck(t.Context()))
	check.ErrorIs(t, publish("claim-4"), nil)
}

func TestARowIsStoredOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.NotifySendSubject("email", "CUSTOMER", "user@example.com", "evt/001"))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0))))
	check.That(t, check.Err(js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0))) != nil, "stored twice")
	check.That(t, check.Err(js.Publish(t.Context(), subject, nil)) != nil, "stored twice by a publisher that expects nothing")
}

// TestADeadLetterIsStoredOnce: also when the worker that gives the job up again has been away for most of a day.
func TestADeadLetterIsStoredOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
		began := time.Now()
		for _, c := range []struct {
			at        time.Duration
			duplicate bool
		}{{0, false}, {3 * time.Minute, true}, {23 * time.Hour, true}, {25 * time.Hour, false}} {
			natstest.Pass(c.at - time.Since(began))
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
		consumers += len(provision.Consumers(options))
	}
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		want := 1
		if config.Name == contracts.StreamDead || config.Name == "KV_"+contracts.BucketJobs {
			want = 3
		}
		check.Equal(t, seen[config.Name], want, config.Name+" is services")
	}
	all := len(provision.Consumers(contracts.AssetOptions{}))
	check.That(t, consumers == all && all != 0, "the services have %d consumers, want %d", consumers, all)
}
