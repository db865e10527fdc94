package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// keeper is a directory of which addresses are dropped.
type keeper struct {
	profile

	dropped []string
	err     error
}

func (k *keeper) Drop(_ context.Context, kind contracts.RecipientType, userID, name, address string) (bool, error) {
	k.dropped = append(k.dropped, string(kind)+" "+userID+" "+name+" "+address)
	return true, k.err
}

// An address that asks never to be used again is dropped, and no other; the row has ended either way.
func TestAddressesThatAreGoneAreDropped(t *testing.T) {
	for kind, want := range map[channel.Kind]int{channel.KindGone: 1, channel.KindBounced: 0, channel.KindRejected: 0} {
		inNest(t, func(n *nest) {
			k := &keeper{profile: profile{Addresses: map[string]string{"bird": "nest 5", "fish": "pond"}}, err: errors.New("the store is away")}
			n.store()
			n.work(n.sender("a", &bird{fly: fails(kind)}, profile{}, func(c *deliver.Config) { c.Profiles = k }))
			elapse(1e9)
			if len(k.dropped) != want || want == 1 && k.dropped[0] != "CUSTOMER u bird nest 5" {
				n.Errorf("%s: dropped %q", kind, k.dropped)
			}
			if kind == channel.KindGone {
				n.want(deliveries.Bounced, "gone", "gone")
			}
		})
	}
}

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
		stream := check.Must(n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries))(n)
		consumer := check.Must(n.js.Consumer(n.Context(), contracts.StreamNotifications, "bird"))(n)
		info := consumer.CachedInfo()
		if len(b.sent) > 0 || n.letters() > 0 || stream.CachedInfo().State.Msgs > 0 || info.NumAckPending > 0 || info.AckFloor.Stream != 1 {
			n.Errorf("%d calls, %d letters, %d records, %+v", len(b.sent), n.letters(), stream.CachedInfo().State.Msgs, info)
		}
	})
}

// A store that is full holds rows up, for however long, and costs them neither attempts nor their message.
func TestAFullLedgerLosesNothing(t *testing.T) {
	inNest(t, func(n *nest) {
		size := func(bytes int64) {
			stream := check.Must(n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries))(n)
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
