package demo

import (
	"context"
	_ "embed" // the rules
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

const (
	// people is the number of recipients of each kind.
	people = 25

	// news is the number of events of each type that are published, each twice at the same moment.
	news = 5
)

// notifyRules has a type of event for each kind of recipient, and one for all kinds.
//
//go:embed rules.yaml
var notifyRules []byte

// emitted has the types of events, with the number of notifications that each is to have.
var emitted = []struct {
	kind          string
	notifications int
}{
	{"RESERVATION_REQUESTED", 2 * people},
	{"RESERVATION_CONFIRMED", 2},
	{"MENU_CHANGED", 2 * people},
	{"OUTAGE", 2 * people},
	{"CLOSING_DAY", 3 * people},
}

// mailbox is a channel that counts its messages by id and by address.
type mailbox struct {
	mu   sync.Mutex
	sent map[string]int
	to   map[string]int
}

// Name implements channel.Channel.
func (*mailbox) Name() string { return "mailbox" }

// Send implements channel.Channel.
func (b *mailbox) Send(_ context.Context, m channel.Message) (channel.Receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent[m.ID]++
	b.to[m.Address]++
	return channel.Receipt{ID: "receipt-" + m.ID}, nil
}

// count returns the numbers of all messages, of repeated ones, and of those to devices.
func (b *mailbox) count() (all, twice, toDevices int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.sent {
		all++
		twice += n - 1
	}
	for _, name := range devices {
		toDevices += b.to[name]
	}
	return all, twice, toDevices
}

// notifyAll publishes every event twice at the same moment, at both instances, and checks which recipients were
// notified.
func (d *demo) notifyAll(ctx context.Context) error {
	started := time.Now()
	if err := d.enlist(ctx); err != nil {
		return err
	}
	r := &d.report.Notifier
	var events []recipient.Event
	want := 0
	for _, kind := range emitted {
		for n := range news {
			events = append(events, happened(kind.kind, n))
			want += kind.notifications
		}
	}
	want += len(devices) - 1 // a notification of one customer becomes one for each device
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for _, e := range events {
		for _, n := range d.pipeline.Notifiers {
			wg.Go(func() {
				status, err := d.emit(ctx, n.URL(), e)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				r.Published++
				if status == http.StatusOK {
					r.DuplicatesDropped++
				}
			})
		}
	}
	wg.Wait()
	r.Events = r.Published - r.DuplicatesDropped
	other := happened(emitted[0].kind, 0)
	other.Payload = json.RawMessage(`{"another":"payload"}`)
	status, err := d.emit(ctx, d.pipeline.Notifiers[0].URL(), other)
	if status == http.StatusConflict {
		r.Refused++
		err = nil
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if err := d.countNotifications(ctx, want, events); err != nil {
		return err
	}
	d.sayf("notified   %d events of all four kinds of recipients, each published twice at the same moment: "+
		"%d notifications, %d sent, %d suppressed,",
		r.Events, r.Notifications, r.Sent, r.Suppressed)
	d.sayf("           %d duplicates dropped, in %s\n", r.DuplicatesDropped, round(time.Since(started)))
	return nil
}

// happened returns the n-th event of a type.
func happened(kind string, n int) recipient.Event {
	e := recipient.Event{
		EventID: fmt.Sprintf("demo-%s-%d", kind, n), EventType: kind, AggregateType: pipeline.Restaurant.Type,
		RestaurantID: json.RawMessage(`"` + pipeline.Restaurant.ID + `"`), Payload: json.RawMessage(fmt.Sprintf(`{"table":%d}`, n)),
	}
	if kind == "RESERVATION_CONFIRMED" {
		e.RecipientType, e.UserID = "CUSTOMER", customer(n+1)
	}
	return e
}

// emit publishes an event over HTTP, and returns the status of the answer.
func (d *demo) emit(ctx context.Context, url string, e recipient.Event) (int, error) {
	body, err := contracts.Encode(e)
	if err != nil {
		return 0, err
	}
	return d.service("notifier", url).Do(ctx, http.MethodPost, "/v1/events", nil, body, &[]byte{})
}

// countNotifications waits until the expected number of notifications has ended, and counts them as the notifier lists them, and the
// messages that arrived.
func (d *demo) countNotifications(ctx context.Context, want int, events []recipient.Event) error {
	r := &d.report.Notifier
	for {
		ended := 0
		for _, n := range d.pipeline.Notifiers {
			states := n.Stats().States
			ended += int(states["sent"] + states["delivered"] + states["suppressed"] + states["failed"] + states["bounced"])
		}
		if ended >= want {
			break
		}
		if !retry.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%d of %d notifications ended: %w", ended, want, context.Cause(ctx))
		}
	}
	for _, e := range events {
		if err := d.countEvent(ctx, e.EventID); err != nil {
			return err
		}
	}
	r.Lost = want - r.Sent - r.Suppressed - r.Failed
	r.Messages, r.DuplicateSends, r.DeviceMessages = d.mailbox.count()
	return d.countDead(ctx)
}

// countEvent adds the outcomes of the notifications of one event.
func (d *demo) countEvent(ctx context.Context, id string) error {
	r := &d.report.Notifier
	q := notifier.Query{EventID: id, Limit: 1000}
	for {
		page, err := d.pipeline.Notifiers[1].Notifications(ctx, q)
		if err != nil {
			return err
		}
		for _, one := range page.Notifications {
			if len(one.Addresses) > 0 {
				continue // those for its addresses replace it
			}
			r.Notifications++
			if one.Address != "" {
				r.Devices++
			}
			switch state := string(one.State); state {
			case "sent", "delivered":
				r.Sent++
			case "suppressed":
				r.Suppressed++
			case "failed", "bounced":
				r.Failed++
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

func (d *demo) countDead(ctx context.Context) error {
	js, err := jetstream.New(d.pipeline.Conns[0])
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	stream, err := js.Stream(ctx, contracts.StreamDead)
	if err != nil {
		return fmt.Errorf("count the dead letters: %w", err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter("dead."+contracts.StreamNotifications+".>"))
	if err != nil {
		return fmt.Errorf("count the dead letters: %w", err)
	}
	d.report.Notifier.DeadLetters = len(info.State.Subjects)
	return nil
}
