package deliver_test

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// replay has the row sent again, as the API does.
func (n *nest) replay() {
	n.Helper()
	d := n.record()
	d.Replay()
	check.OK(n, n.book.Put(n.Context(), rowKey, d))
	n.storeReplay(d.Replays)
}

// storeReplay stores the message that has the row sent again.
func (n *nest) storeReplay(number int) {
	n.Helper()
	data, err := contracts.Encode(n.job(1).Args)
	check.OK(n, err)
	subject, err := contracts.NotifyReplaySubject("bird", "CUSTOMER", "u", "e", number)
	check.OK(n, err)
	check.OK(n, check.Err(n.js.Publish(n.Context(), subject, data)))
}

// A row that is sent again has all its tries, and keeps its id and the record of the tries before.
func TestAReplayHasAllTries(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: fails(channel.KindUnavailable)}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Second, time.Second} }))
		n.store()
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted", "unavailable", "unavailable", "unavailable")
		n.replay()
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted", "unavailable", "unavailable", "unavailable", "unavailable", "unavailable", "unavailable")
		b.fly = nil
		n.replay()
		elapse(time.Minute)
		d := n.record()
		if d.State != deliveries.Sent || len(d.Attempts) != 7 || d.Replays != 2 || n.letters() != 2 {
			t.Errorf("%+v, %d dead letters", d, n.letters())
		}
		for i, m := range b.sent {
			if m.ID != deliver.MessageID(rowKey) || m.Attempt != i+1 {
				t.Errorf("%+v", m)
			}
		}
	})
}

// A replay whose row does not say yet that it is sent again, because the server that answers has not heard of it, waits:
// taken for one that has ended, it would be lost.
func TestAReplayWaitsForItsRecord(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: fails(channel.KindRejected)}
		n.work(n.sender("a", b, profile{}))
		n.store()
		elapse(time.Minute)
		b.fly = nil
		n.storeReplay(1)
		elapse(time.Minute)
		n.want(deliveries.Failed, "rejected", "rejected")
		d := n.record()
		d.Replay()
		check.OK(t, n.book.Put(n.Context(), rowKey, d))
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "rejected", "sent")
	})
}
