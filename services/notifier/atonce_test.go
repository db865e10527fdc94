package notifier

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// inboxRows are the subjects of the rows of the inbox that are stored.
func (p *place) inboxRows() (subjects []string) {
	p.Helper()
	for subject := range p.stored() {
		if key, _, _ := contracts.RowKey(subject); check.Must(contracts.RowOfKey(key))(p).Channel == deliveries.Inbox {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// A row of the inbox that nothing holds is not stored. Lists have it all the same, with all that they say of the others.
func TestARowOfTheInboxIsNotStored(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	staff := users(contracts.RecipientRestaurantUser, 3)
	staff[1].OptOut = map[string][]string{"reservations": {"inapp"}}
	p.directory(staff...)
	n := p.start(&pigeon{})
	p.publish(event("e", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
	p.settled(6)
	p.expanded(n, "e")
	check.Equal(t, []string{"notify.send.inapp.RESTAURANT_USER.u1.e"}, p.inboxRows())
	check.Same(t, "rows", n.Stats().Rows, 6)
	check.Same(t, "delivered", n.Stats().States["delivered"], 2)
	for name, q := range map[string]Query{"by event": {EventID: "e"}, "by user": {UserID: "u0"}, "all": {}} {
		var of []Notification
		for _, row := range check.Must(n.Notifications(t.Context(), q))(t).Notifications {
			if row.UserID == "u0" {
				of = append(of, row)
			}
		}
		slices.SortFunc(of, func(a, b Notification) int { return len(a.Channel) - len(b.Channel) })
		check.Require(t, len(of) == 2, "%s: %+v", name, of)
		item, other := of[0], of[1]
		check.That(t, item.Channel == "inapp" && item.State == deliveries.Delivered && len(item.Attempts) == 1, "%s: %+v", name, item)
		for _, row := range []*Notification{&item, &other} {
			row.Attempts, row.Channel, row.MessageID, row.ProviderID, row.State, row.UpdatedAt = nil, "", "", "", "", time.Time{}
		}
		check.That(t, item.Category+item.Template+item.EventType == "reservations"+"reservation.requested"+"RESERVATION_REQUESTED" &&
			item.CreatedAt.Equal(other.CreatedAt), "%s: %+v, the row beside it is %+v", name, item, other)
	}
}

// Rows of the inbox that were stored, because they may wait, are in lists once.
func TestAStoredRowOfTheInboxIsListedOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users(contracts.RecipientRestaurantUser, 9)...)
	n := p.start(&pigeon{})
	p.publish(event("e", "RESERVATION_REQUESTED", func(e *contracts.Event) {
		e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().UTC()
	}))
	p.settled(18)
	check.Same(t, "stored", len(p.stored()), 18)
	for i := range 9 {
		page := check.Must(n.Notifications(t.Context(), Query{UserID: fmt.Sprint("u", i)}))(t)
		check.Same(t, "rows of a user", len(page.Notifications), 2)
	}
	check.Same(t, "rows", len(check.Must(n.Notifications(t.Context(), Query{}))(t).Notifications), 18)
}

// Any number of users can be cancelled of an event whose items are there: each has been notified. Items are read few at a time, since
// each may have the payload of an event.
func TestUsersWhoseItemsAreThereAreCancelledOneByOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	const many = 1001
	p.directory(users(contracts.RecipientCustomer, many)...)
	n := p.start(&pigeon{})
	p.publish(event("e", "FOR_ALL", func(e *contracts.Event) { e.RecipientType = contracts.RecipientCustomer }))
	p.expanded(n, "e")
	asked := check.Must(p.nc.SubscribeSync("$JS.API.DIRECT.GET.KV_" + contracts.BucketInbox))(t)
	page := check.Must(n.Notifications(t.Context(), Query{EventID: "e", Limit: 200}))(t)
	check.Same(t, "rows", len(page.Notifications), 200)
	for items := 0; items < 200; {
		some := bytes.Count(check.Must(asked.NextMsg(patience))(t).Data, []byte("$KV."))
		check.That(t, some <= deliveries.ItemsAtOnce, "%d items are read at a time", some)
		items += some
	}
	refused := flood(t, many, func(i int) error {
		done, err := n.Cancel(t.Context(), Cancellation{EventID: "e", RecipientType: contracts.RecipientCustomer, UserID: fmt.Sprint("u", i)})
		check.Same(t, "sent", done.Sent, 1)
		return err
	}, nil)
	check.Same(t, "refused", refused, 0)
}

// Rows of the inbox wait while they are paused, and come when they are not.
func TestThePausedInbox(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		p.directory(users(contracts.RecipientRestaurantUser, 2)...)
		client := check.Must(worker.NewClient(p.js, worker.ClientConfig{Bucket: contracts.BucketJobs, Stream: contracts.StreamNotifications}))(t)
		check.OK(t, client.Pause(t.Context(), worker.Pause{Pattern: "notify.send.inapp.>"}))
		n := p.start(&pigeon{})
		p.publish(event("e", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
		elapse(time.Minute)
		check.Same(t, "stored", len(p.inboxRows()), 2)
		check.Same(t, "delivered", n.Stats().States["delivered"], 0)
		check.OK(t, check.Err(client.Resume(t.Context(), "notify.send.inapp.>")))
		elapse(20 * time.Minute)
		check.Same(t, "delivered", n.Stats().States["delivered"], 2)
	})
}

// judgeUnstored judges the rows that are in no stream, and returns how many there are: the inbox has the item of each.
func (c *cell) judgeUnstored(stored map[string]bool) (n int) {
	c.Helper()
	for key, row := range c.wants {
		if stored[key] {
			continue
		}
		if row.Channel != deliveries.Inbox {
			c.Errorf("%s is in no stream", key)
			continue
		}
		c.ask(func(ctx context.Context) error {
			d, err := c.store.Get(ctx, key)
			check.That(c, err != nil || d.AtOnce, "%s is neither in a stream nor in the inbox", key)
			return err
		})
		n++
	}
	check.That(c, n > 0, "each row is stored")
	return n
}
