package deliveries_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A record outlives its row, which may be sent again as long as it is there, and is not kept for ever.
func TestRecordsOutliveTheirRows(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	rows, err := js.Stream(t.Context(), contracts.StreamNotifications)
	check.OK(t, err)
	bucket, err := js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries)
	check.OK(t, err)
	store := deliveries.New(recordtest.Client(t, js))
	d := &deliveries.Delivery{}
	for _, s := range []deliveries.State{deliveries.Sending, deliveries.Sent} {
		d.State = s
		check.OK(t, store.Put(t.Context(), "key", d))
		stored, err := bucket.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketDeliveries+".key")
		check.OK(t, err)
		age := rows.CachedInfo().Config.MaxAge
		ttl, err := time.ParseDuration(stored.Header.Get(jetstream.MsgTTLHeader))
		if err != nil || ttl <= age || ttl > 2*age {
			t.Errorf("%s: kept for %s, %v, when rows are kept for %s", s, ttl, err, age)
		}
	}
}
