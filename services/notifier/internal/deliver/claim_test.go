package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// box is an inbox, and into sends the row there.
func (n *nest) box() (box *inapp.Inbox, into func(*deliver.Config)) {
	n.Helper()
	box = check.Must(inapp.Open(n.Context(), n.js, recordtest.Client(n.T, n.js), inapp.Config{}))(n)
	return box, func(c *deliver.Config) { c.Channel, c.Withhold = box, box.Withhold }
}

// writes is how often something was written into a bucket.
func (n *nest) writes(bucket string) int {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), "KV_"+bucket))(n)
	info := stream.CachedInfo()
	return int(info.State.LastSeq + 1 - info.Config.FirstSeq)
}

// An item is its row's attempt: however many work the row, one after the other or all at once, there is one item, and one attempt that is
// written down once.
func TestAnItemIsTheAttempt(t *testing.T) {
	for name, at := range map[string]int{"one": 1, "all at once": 8} {
		runInNest(t, name, func(n *nest) {
			_, into := n.box()
			var all sync.WaitGroup
			for i := range at {
				s := n.sender(fmt.Sprint("worker-", i), &bird{}, profile{}, into)
				all.Go(func() { check.OK(n, s.Work(n.Context(), n.job(i+1))) })
			}
			all.Wait()
			n.want(deliveries.Delivered, "", "sent")
			check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
			check.Same(n, "records", n.writes(contracts.BucketDeliveries), 1)
		})
	}
}

// The item of a worker that died before it wrote that down is what was sent, whatever is wanted by then.
func TestAnItemOfADeadWorkerIsDelivered(t *testing.T) {
	var cancelled gone
	cancelled.are("e")
	for name, then := range map[string]struct {
		wants  profile
		mutate func(*deliver.Config)
	}{
		"nothing new": {profile{}, func(*deliver.Config) {}},
		"cancelled":   {profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }},
		"opted out":   {profile{OptOut: map[string][]string{contracts.Anything: {contracts.Anything}}}, func(*deliver.Config) {}},
	} {
		runInNest(t, name, func(n *nest) {
			_, into := n.box()
			n.dead(&bird{}, deliver.PointSent, into)
			check.Same(n, "records", n.writes(contracts.BucketDeliveries), 0)
			check.OK(n, n.sender("b", &bird{}, then.wants, into, then.mutate).Work(n.Context(), n.job(2)))
			n.want(deliveries.Delivered, "", "sent")
			check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
		})
	}
}

// A row that is cancelled has no item, neither of a worker that has not heard of that, nor of one that was stopped before it sent.
func TestAnItemThatIsWithheld(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		var cancelled gone
		cancelled.are("e")
		check.OK(n, n.sender("a", &bird{}, profile{}, into, func(c *deliver.Config) { c.Cancelled = &cancelled }).Work(n.Context(), n.job(2)))
		n.want(deliveries.Suppressed, deliveries.ReasonCancelled)
		_, err := box.Send(n.Context(), channel.Message{EventID: "e", RecipientType: "CUSTOMER", UserID: "u"})
		check.Same(n, "kind", channel.Of("", err).Kind, channel.KindCancelled)
	})
	inNest(t, func(n *nest) {
		box, into := n.box()
		row := n.job(1).Args
		if there, err := box.Withhold(n.Context(), &row); there || err != nil {
			t.Fatalf("%v, %v", there, err)
		}
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.job(1)))
		n.want(deliveries.Suppressed, deliveries.ReasonCancelled, "cancelled")
	})
}

// What others have made of a row while one of its workers was calling stays, unless the call has brought the item.
func TestALateCallOfAnItem(t *testing.T) {
	sent := []string{deliveries.OutcomeSent}
	for _, test := range []struct {
		name     string
		there    deliveries.Delivery
		fails    channel.Kind
		state    deliveries.State
		outcomes []string
	}{
		{"sent by another", deliveries.Delivery{State: deliveries.Delivered}, "", deliveries.Delivered, nil},
		{"fails, and was sent by another", deliveries.Delivery{State: deliveries.Delivered}, channel.KindUnavailable, deliveries.Delivered, nil},
		{"fails, and was suppressed", deliveries.Delivery{State: deliveries.Suppressed}, channel.KindUnavailable, deliveries.Suppressed, nil},
		{"given up by another", deliveries.Delivery{State: deliveries.Failed}, "", deliveries.Delivered, sent},
		{"put off by another", deliveries.Delivery{State: deliveries.Pending}, "", deliveries.Delivered, sent},
		{"fails, and is put off", deliveries.Delivery{State: deliveries.Pending}, channel.KindRejected, deliveries.Failed, []string{"rejected"}},
	} {
		runInNest(t, test.name, func(n *nest) {
			b := &bird{}
			b.fly = func(ctx context.Context, _ int) (channel.Receipt, error) {
				check.OK(n, n.book.Put(ctx, rowKey, &test.there))
				if test.fails != "" {
					return channel.Receipt{}, &channel.Error{Channel: "bird", Kind: test.fails}
				}
				return channel.Receipt{Delivered: true}, nil
			}
			_, into := n.box()
			s := n.sender("a", b, profile{}, into, func(c *deliver.Config) { c.Channel = b })
			_ = s.Work(n.Context(), n.job(1)) //nolint:errcheck // that of the channel, or none
			var outcomes []string
			d := n.record()
			for _, a := range d.Attempts {
				outcomes = append(outcomes, a.Outcome)
			}
			if d.State != test.state || !slices.Equal(outcomes, test.outcomes) {
				t.Errorf("%s after %q, want %s after %q", d.State, outcomes, test.state, test.outcomes)
			}
		})
	}
}

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
