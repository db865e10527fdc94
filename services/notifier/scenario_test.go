package notifier

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// The document's table, first processing and event reprocessed: the same event again, later than any window remembers. Each user is told
// once on each channel.
func TestTheSameEventAgainIsSkipped(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	d := p.directory(users("RESTAURANT_USER", 3)...)
	birds := &pigeon{}
	n := p.start(birds)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(6)
	check.OK(t, d.Put(t.Context(), contracts.Recipient{RecipientType: "RESTAURANT_USER", UserID: "new"}))
	for _, again := range []string{ // in another order, with other white space
		`{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","recipientType":"RESTAURANT_USER","restaurant_id":5,"payload":{"guests":4}}`,
		"{\"payload\": {\"guests\": 4.0}, \"restaurant_id\": 5,\n\"recipientType\":\"RESTAURANT_USER\",\"event_type\":\"RESERVATION_REQUESTED\",\"aggregate_type\":\"RESTAURANT\",\"event_id\":\"evt-001\"}",
	} {
		check.OK(t, check.Err(p.js.Publish(t.Context(), "events.RESTAURANT.RESERVATION_REQUESTED", []byte(again))))
	}
	p.until("both skipped", func() bool { return n.Stats().Duplicates == 2 })
	check.Equal(t, len(p.rows()), 6, "rows")
	messages, calls := birds.counts()
	check.That(t, messages == 3 && calls == 3, "%d messages in %d calls", messages, calls)
	stats := n.Stats()
	check.That(t, stats.Planned == 1 && stats.Notifications == 6 && stats.States["delivered"] == 3 && stats.States["sent"] == 3, "%+v", stats)
}

// The document's scenario 3: everything is delivered again, events, plans and notifications, as it is when acknowledgements were
// lost. Nothing is done again.
func TestWhatIsDeliveredAgainIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 10)...)
	birds := &pigeon{}
	first := p.start(birds)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	before := p.settled(20)
	check.OK(t, first.Stop())
	for stream, names := range map[string][]string{
		contracts.StreamEvents:        {"notifier"},
		contracts.StreamNotifications: {"notifier-expand", "notifier-send-inapp", "notifier-send-pigeon"},
	} {
		for _, name := range names {
			check.OK(t, p.js.DeleteConsumer(t.Context(), stream, name))
		}
	}
	again := p.start(birds)
	p.until("all is delivered again", func() bool {
		if again.Stats().Duplicates != 1 || again.Stats().Repeated != 20 {
			return false
		}
		for _, name := range []string{"notifier-send-inapp", "notifier-send-pigeon"} {
			consumer, err := p.js.Consumer(t.Context(), contracts.StreamNotifications, name)
			if err != nil || consumer.CachedInfo().NumPending+uint64(consumer.CachedInfo().NumAckPending) > 0 {
				return false
			}
		}
		return true
	})
	_, calls := birds.counts()
	check.That(t, calls == 10, "%d calls", calls)
	check.Equal(t, cmp.Diff(before, p.deliveries(), cmpopts.IgnoreUnexported(Delivery{})), "")
}

// Messages that are no events, and an event of another form.
func TestIntake(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	n := p.start(&pigeon{})
	for i, bad := range []string{"", "{", `{"event_id":"x"}`, `[1]`, `{"event_id":5,"event_type":"X","aggregate_type":"Y"}`} {
		check.OK(t, check.Err(p.js.Publish(t.Context(), "events.RESTAURANT.FOR_ALL", []byte(bad))))
		p.until("refused: "+bad, func() bool { return n.Stats().Refused == int64(i+1) })
	}
	p.publish(event("nobody", "NO_RULE"))
	p.until("ignored", func() bool { return n.Stats().Ignored == 1 })
	foreign := contracts.CloudEvent{
		ID: "42", Source: "/shop", Type: "FOR_ALL", Extensions: map[string]string{"recipienttype": "ADMIN", "userid": "root"},
		Data: []byte(`{"anything":true}`),
	}
	msg := check.Must(foreign.Msg("events.SHOP.sold"))(t)
	check.OK(t, check.Err(p.js.PublishMsg(t.Context(), msg)))
	p.settled(2)
	item, err := n.Inbox.Get(t.Context(), "ADMIN", "root", "/shop|42")
	check.That(t, err == nil && string(item.Payload) == `{"anything":true}`, "%+v: %v", item, err)
	p.until("dead letters", func() bool { return len(p.letters()) == 5 })
}
