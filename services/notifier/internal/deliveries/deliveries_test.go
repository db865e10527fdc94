package deliveries_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A record outlives its notification, which may be sent again as long as it is there, and is not kept for ever.
func TestRecordsOutliveTheirNotifications(t *testing.T) {
	t.Parallel()
	js, records := recordtest.Open(t, natstest.Server(t))
	notifications := check.Must(js.Stream(t.Context(), contracts.StreamNotifications))(t)
	bucket := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries))(t)
	store := deliveries.New(records)
	d := &deliveries.Delivery{}
	for _, s := range []deliveries.State{deliveries.Sending, deliveries.Sent} {
		d.State = s
		check.OK(t, store.Put(t.Context(), "key", d))
		stored := check.Must(bucket.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketDeliveries+".key"))(t)
		age := notifications.CachedInfo().Config.MaxAge
		ttl, err := time.ParseDuration(stored.Header.Get(jetstream.MsgTTLHeader))
		check.That(t, err == nil && ttl > age && ttl <= 2*age, "%s: kept for %s, %v, when notifications are kept for %s", s, ttl, err, age)
	}
}

// One record that cannot be read hides no other: it is listed as unreadable, and reported.
func TestAnUnreadableRecord(t *testing.T) {
	t.Parallel()
	js, records := recordtest.Open(t, natstest.Server(t))
	store, reported := deliveries.New(records), 0
	store.Unreadable = func(context.Context, kvrecord.Record, error) { reported++ }
	keys := []string{"a.email.CUSTOMER.u", "b.email.CUSTOMER.u"}
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV."+contracts.BucketDeliveries+"."+keys[0], []byte(`{"state":7}`))))
	check.OK(t, store.Put(t.Context(), keys[1], &deliveries.Delivery{State: deliveries.Sent}))
	known, err := store.GetMany(t.Context(), keys)
	check.That(t, err == nil && known[keys[0]].State == deliveries.Unreadable && known[keys[1]].State == deliveries.Sent,
		"%+v, %v", known, err)
	entries, _, _, err := store.Scan(t.Context(), 0, 10)
	check.That(t, err == nil && len(entries) == 2 && entries[0].State == deliveries.Unreadable && entries[1].State == deliveries.Sent && reported == 2,
		"%+v, %v: %d reports", entries, err, reported)
}

// Items are read few at a time, since each may have the payload of an event.
func TestItemsAreReadFewAtATime(t *testing.T) {
	t.Parallel()
	js, records := recordtest.Open(t, natstest.Server(t))
	nc := js.Conn()
	asked := check.Must(nc.SubscribeSync("$JS.API.DIRECT.GET.KV_" + contracts.BucketInbox))(t)
	keys := make([]string, 2*deliveries.ItemsAtOnce+1)
	for i := range keys {
		keys[i] = fmt.Sprintf("e.%s.CUSTOMER.u%d", deliveries.Inbox, i)
	}
	check.OK(t, check.Err(deliveries.New(records).GetMany(t.Context(), keys)))
	check.OK(t, nc.Flush())
	requests, _, err := asked.Pending()
	check.That(t, err == nil && requests == 3, "%d requests: %v", requests, err)
}
