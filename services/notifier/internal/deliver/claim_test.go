package deliver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// box is an inbox, and into sends the row there.
func (n *nest) box(keep ...time.Duration) (box *inapp.Inbox, into func(*deliver.Config)) {
	n.Helper()
	cfg := inapp.Config{}
	if len(keep) > 0 {
		cfg.Keep = keep[0]
	}
	box = check.Must(inapp.Open(n.Context(), n.js, recordtest.Client(n.T, n.js), cfg))(n)
	return box, func(c *deliver.Config) { c.Channel, c.Claim, c.Withhold = box, box.Claim, box.Withhold }
}

// writes is how often something was written into a bucket.
func (n *nest) writes(bucket string) int {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), "KV_"+bucket))(n)
	info := stream.CachedInfo()
	return int(info.State.LastSeq + 1 - info.Config.FirstSeq)
}

// itemKey is the key of the row of an item, and itemJob that row as it is delivered for the n-th time.
const itemKey = "e.inapp.CUSTOMER.u"

func (n *nest) itemJob(delivered int, mutate ...func(*contracts.Notification)) *worker.Job[contracts.Notification] {
	return n.job(delivered, append([]func(*contracts.Notification){func(row *contracts.Notification) { row.Channel = "inapp" }}, mutate...)...)
}

// wantItem wants the row of an item in a state, after attempts with outcomes, one item at most, and so many writes of records.
func (n *nest) wantItem(records int, state deliveries.State, reason string, outcomes ...string) *deliveries.Delivery {
	n.Helper()
	d := check.Must(n.deliveries.Get(n.Context(), itemKey))(n)
	n.wantDelivery(d, state, reason, outcomes)
	check.Same(n, "records", n.writes(contracts.BucketDeliveries), records)
	return d
}

// An item is its row's attempt, and stands for the row's record: however many work the row, one after the other or all at once, there is
// one item, one attempt, and no record but of a worker that came late. It says so after the user has marked it, too.
func TestAnItemIsTheAttempt(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		begun := time.Now()
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		elapse(time.Hour)
		check.OK(n, check.Err(box.Mark(n.Context(), "CUSTOMER", "u", "e", inapp.Read)))
		check.OK(n, n.sender("b", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(2)))
		d := n.wantItem(0, deliveries.Delivered, "", "sent")
		a := d.Attempts[0]
		check.That(n, a.Worker == "a" && a.At.Equal(begun) && d.UpdatedAt.Equal(begun) && d.ProviderID == deliver.MessageID(itemKey), "%+v", d)
		check.Same(n, "writes of the item", n.writes(contracts.BucketInbox), 2)
	})
	inNest(t, func(n *nest) {
		_, into := n.box()
		var all sync.WaitGroup
		for i := range 8 {
			s := n.sender(fmt.Sprint("worker-", i), &bird{}, profile{}, into)
			all.Go(func() { check.OK(n, s.Work(n.Context(), n.itemJob(1+i/4))) })
		}
		all.Wait()
		n.wantItem(min(1, n.writes(contracts.BucketDeliveries)), deliveries.Delivered, "", "sent")
		check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
	})
}

// An inbox that keeps items for less than a row can be there has records of its rows: a row whose item is gone was delivered, and has no
// other one.
func TestItemsThatAreNotKept(t *testing.T) {
	inNest(t, func(n *nest) {
		_, into := n.box(deliveries.Keep - time.Second)
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		n.wantItem(1, deliveries.Delivered, "", "sent")
	})
	inNest(t, func(n *nest) {
		_, into := n.box(time.Minute)
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		elapse(time.Hour)
		check.OK(n, n.sender("b", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(2)))
		n.wantItem(1, deliveries.Delivered, "", "sent")
		check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
	})
}

// A row that follows another one has a record, by which it is found when its plan is gone. So has one whose item an earlier version has
// stored, which has no attempt: until there is that record, the row is delivered all the same.
func TestItemsThatStandForNoRecord(t *testing.T) {
	inNest(t, func(n *nest) {
		_, into := n.box()
		follows := func(row *contracts.Notification) { row.FallbackOf = "bird" }
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1, follows)))
		n.wantItem(1, deliveries.Delivered, "", "sent")
	})
	inNest(t, func(n *nest) {
		box, into := n.box()
		check.OK(n, check.Err(box.Send(n.Context(), channel.Message{EventID: "e", RecipientType: "CUSTOMER", UserID: "u"})))
		n.wantItem(0, deliveries.Delivered, "")
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		n.wantItem(1, deliveries.Delivered, "", "sent")
	})
}

// A row whose item was removed was delivered, and has no other one.
func TestAnItemThatIsRemoved(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		check.OK(n, check.Must(n.js.KeyValue(n.Context(), contracts.BucketInbox))(n).Delete(n.Context(), "CUSTOMER.u.e"))
		row := n.itemJob(1).Args
		there, err := box.Withhold(n.Context(), &row)
		check.That(n, there && err == nil, "%v, %v", there, err)
		check.OK(n, n.sender("b", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(2)))
		n.wantItem(0, deliveries.Delivered, "")
		check.OK(n, n.sender("b", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		n.wantItem(1, deliveries.Delivered, "", "sent")
		check.Same(n, "writes of the item", n.writes(contracts.BucketInbox), 2)
	})
}

// The item of a worker that died counts as sent, whatever the user wants by then, and whenever the next worker finds it: before it
// begins, or not before it ends the row. The next channel is not called then.
func TestAnItemOfADeadWorkerIsDelivered(t *testing.T) {
	var cancelled gone
	cancelled.are("e")
	for name, then := range map[string]struct {
		wants  profile
		mutate func(*deliver.Config)
		fails  error
	}{
		"nothing new": {profile{}, func(*deliver.Config) {}, nil},
		"cancelled":   {profile{}, func(c *deliver.Config) { c.Cancelled = &cancelled }, nil},
		"opted out":   {profile{OptOut: map[string][]string{contracts.Anything: {contracts.Anything}}}, func(*deliver.Config) {}, nil},
		"unreadable":  {profile{}, func(*deliver.Config) {}, &recipient.Error{Permanent: true}},
	} {
		for _, late := range []bool{false, true} {
			runInNest(t, fmt.Sprintf("%s, late %v", name, late), func(n *nest) {
				_, into := n.box()
				brings := n.sender("a", &bird{}, profile{}, into)
				bring := sync.OnceFunc(func() { check.OK(n, brings.Work(n.Context(), n.itemJob(1))) })
				if !late {
					bring()
				}
				next := n.sender("b", &bird{}, profile{}, into, then.mutate, func(c *deliver.Config) {
					c.Profiles = finds(func(string) (contracts.Recipient, error) {
						bring()
						return contracts.Recipient(then.wants), then.fails
					})
					c.Cancelled = &during{c.Cancelled, bring}
				})
				falls := func(row *contracts.Notification) { row.Fallback = []string{"bird"} }
				check.OK(n, next.Work(n.Context(), n.itemJob(2, falls)))
				n.wantItem(map[bool]int{true: 1}[late], deliveries.Delivered, "", "sent")
				check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
				check.Same(n, "rows of the next channel", n.followed(), 0)
			})
		}
	}
}

// followed is how many rows have been stored that follow another one.
func (n *nest) followed() int {
	n.Helper()
	return int(check.Must(n.js.Stream(n.Context(), contracts.StreamNotifications))(n).CachedInfo().State.Msgs)
}

// during are cancellations in the midst of whose answer something is done.
type during struct {
	deliver.Cancellations

	do func()
}

func (d *during) Covers(ctx context.Context, row *contracts.Notification, sure bool) (bool, error) {
	if d.Cancellations == nil {
		return false, nil
	}
	d.do()
	return d.Cancellations.Covers(ctx, row, sure)
}

// The record of a row whose item has come all the same does not count: neither in answers nor for the worker that has the row
// next, which writes that down, nor for one that gives it up.
func TestARecordThatIsBehindItsItem(t *testing.T) {
	for _, state := range []deliveries.State{deliveries.Pending, deliveries.Failed, deliveries.Sending} {
		runInNest(t, string(state), func(n *nest) {
			_, into := n.box()
			failed := deliveries.Delivery{State: state, Reason: "timeout", Attempts: []deliveries.Attempt{{At: time.Now(), Outcome: "timeout", Detail: "x"}}}
			check.OK(n, n.deliveries.Put(n.Context(), itemKey, &failed))
			check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
			n.wantItem(1, deliveries.Delivered, "", "timeout", "sent")
			entries, _, _, err := n.deliveries.Scan(n.Context(), 1, 10)
			check.That(n, err == nil && len(entries) == 1 && entries[0].State == deliveries.Delivered, "%+v, %v", entries, err)
			entries, _, _, err = n.deliveries.ScanItems(n.Context(), 1, 10)
			check.That(n, err == nil && len(entries) == 0, "%+v, %v", entries, err)
			check.OK(n, n.sender("b", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(2)))
			d := n.wantItem(2, deliveries.Delivered, "", "timeout", "sent")
			check.That(n, !d.Behind(), "it is behind")
		})
	}
}

// A row that is dead-lettered is not given up, and not followed by the next channel, when its item has come: before its record is read, or
// after that.
func TestADeadLetterOfAnItem(t *testing.T) {
	for _, late := range []bool{false, true} {
		runInNest(t, fmt.Sprint("late ", late), func(n *nest) {
			_, into := n.box()
			brings := n.sender("a", &bird{}, profile{}, into)
			bring := sync.OnceFunc(func() { check.OK(n, brings.Work(n.Context(), n.itemJob(1))) })
			if !late {
				bring()
			}
			proxy := natstest.NewProxy(n.T, n.srv)
			proxy.Filter(func(f natstest.Frame) natstest.Verdict {
				if f.FromClient && strings.HasSuffix(f.Subject, ".STREAM.MSG.GET.KV_"+contracts.BucketInbox) {
					bring()
				}
				return natstest.Relay
			})
			_, js := natstest.Connect(n.T, n.srv, proxy.Through())
			s := n.sender("b", &bird{}, profile{}, into, func(c *deliver.Config) { c.Deliveries = deliveries.New(recordtest.Client(n, js)) })
			row := n.itemJob(1, func(row *contracts.Notification) { row.Fallback = []string{"bird"} }).Args
			data := check.Must(contracts.Encode(row))(n)
			check.OK(n, s.Policy().OnDeadLetter(n.Context(), worker.DeadLetter{Subject: "notify.send.inapp.CUSTOMER.u.e", Payload: data}))
			n.wantItem(map[bool]int{true: 1}[late], deliveries.Delivered, "", "sent")
			check.Same(n, "rows of the next channel", n.followed(), 0)
		})
	}
}

// A row that has failed and is sent again has a record, with all attempts.
func TestAnItemAfterAFailure(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		fails := &channel.Error{Channel: "inapp", Kind: channel.KindUnavailable}
		s := n.sender("a", &bird{}, profile{}, into, func(c *deliver.Config) {
			c.Claim = func(ctx context.Context, m channel.Message, a deliveries.Attempt) (channel.Receipt, bool, error) {
				if m.Attempt == 1 {
					return channel.Receipt{}, false, fails
				}
				return box.Claim(ctx, m, a)
			}
		})
		check.Failsf(n, s.Work(n.Context(), n.itemJob(1)), "it did not fail")
		check.OK(n, s.Work(n.Context(), n.itemJob(2)))
		n.wantItem(2, deliveries.Delivered, "", "unavailable", "sent")
		check.Same(n, "items", n.writes(contracts.BucketInbox), 1)
	})
}

// A row that is cancelled has no item, neither of a worker that has not heard of that, nor of one that was stopped before it sent.
func TestAnItemThatIsWithheld(t *testing.T) {
	inNest(t, func(n *nest) {
		box, into := n.box()
		var cancelled gone
		cancelled.are("e")
		check.OK(n, n.sender("a", &bird{}, profile{}, into, func(c *deliver.Config) { c.Cancelled = &cancelled }).Work(n.Context(), n.itemJob(2)))
		n.wantItem(1, deliveries.Suppressed, deliveries.ReasonCancelled)
		_, err := box.Send(n.Context(), channel.Message{EventID: "e", RecipientType: "CUSTOMER", UserID: "u"})
		check.Same(n, "kind", channel.Of("", err).Kind, channel.KindCancelled)
	})
	inNest(t, func(n *nest) {
		box, into := n.box()
		row := n.itemJob(1).Args
		there, err := box.Withhold(n.Context(), &row)
		check.Require(t, !there && err == nil, "%v, %v", there, err)
		check.OK(n, n.sender("a", &bird{}, profile{}, into).Work(n.Context(), n.itemJob(1)))
		n.wantItem(1, deliveries.Suppressed, deliveries.ReasonCancelled, "cancelled")
	})
}

// The outcome that others recorded for a row while one of its workers was calling stays, unless the call has
// stored the item.
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
				check.OK(n, n.deliveries.Put(ctx, rowKey, &test.there))
				if test.fails != "" {
					return channel.Receipt{}, &channel.Error{Channel: "bird", Kind: test.fails}
				}
				return channel.Receipt{Delivered: true}, nil
			}
			_, into := n.box()
			s := n.sender("a", b, profile{}, into, func(c *deliver.Config) { c.Channel, c.Claim = b, nil })
			_ = s.Work(n.Context(), n.job(1)) //nolint:errcheck // that of the channel, or none
			d := n.record()
			n.wantDelivery(d, test.state, d.Reason, test.outcomes)
		})
	}
}

// A store that is full holds rows up, for however long, and costs them neither attempts nor their message.
func TestAFullStreamOfDeliveriesLosesNothing(t *testing.T) {
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
		check.That(t, len(b.sent) == 0 && n.letters() == 0, "%d calls, %d dead letters", len(b.sent), n.letters())
		size(1 << 20)
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "sent")
	})
}
