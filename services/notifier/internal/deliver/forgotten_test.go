package deliver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// erased is a directory from which everybody was erased.
type erased struct{ profile }

func (erased) Get(context.Context, contracts.RecipientType, string) (contracts.Recipient, bool, error) {
	return contracts.Recipient{}, false, fmt.Errorf("profile: %w", recipient.ErrForgotten)
}

// Nothing is sent to a user whose data was erased, however critical it is and whatever address the plan has, and no record
// of the row comes to be.
func TestNothingIsSentToTheForgotten(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Profiles = erased{} }))
		n.store(func(r *contracts.Notification) {
			r.Priority = contracts.UrgencyCritical
			r.Recipient = &contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID, Addresses: map[string]string{"bird": "nest 7"}}
		})
		elapse(time.Hour)
		stream, err := n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries)
		check.OK(n, err)
		consumer, err := n.js.Consumer(n.Context(), contracts.StreamNotifications, "bird")
		check.OK(n, err)
		info := consumer.CachedInfo()
		if len(b.sent) > 0 || n.letters() > 0 || stream.CachedInfo().State.Msgs > 0 || info.NumAckPending > 0 || info.AckFloor.Stream != 1 {
			n.Errorf("%d calls, %d letters, %d records, %+v", len(b.sent), n.letters(), stream.CachedInfo().State.Msgs, info)
		}
	})
}
