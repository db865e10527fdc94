package deliver_test

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// A store that is full holds rows up, for however long, and costs them neither attempts nor their message.
func TestAFullLedgerLosesNothing(t *testing.T) {
	inNest(t, func(n *nest) {
		size := func(bytes int64) {
			stream, err := n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries)
			check.OK(n, err)
			cfg := stream.CachedInfo().Config
			cfg.MaxBytes = bytes
			check.OK(n, check.Err(n.js.UpdateStream(n.Context(), cfg)))
		}
		size(1)
		b := &bird{}
		n.work(n.sender("a", b, profile{}))
		n.store()
		elapse(10 * time.Minute) // hundreds of tries
		if len(b.sent) != 0 || n.letters() != 0 {
			t.Errorf("%d calls, %d dead letters", len(b.sent), n.letters())
		}
		size(1 << 20)
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "sent")
	})
}
