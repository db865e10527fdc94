package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestMain(m *testing.M) { crash.Main(m, 2, notifiers) }

// patience ends a test that waits in vain. No test's outcome depends on it otherwise.
const patience = time.Minute

// provider is a channel that counts its messages, by message id. By default it takes everything.
type provider struct {
	name string
	send func(ctx context.Context, m channel.Message) (channel.Receipt, error)

	mu   sync.Mutex
	sent map[string][]channel.Message
}

func (p *provider) Name() string {
	if p.name == "" {
		return "push"
	}
	return p.name
}

func (p *provider) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	p.mu.Lock()
	if p.sent == nil {
		p.sent = map[string][]channel.Message{}
	}
	p.sent[m.ID] = append(p.sent[m.ID], m)
	p.mu.Unlock()
	if p.send != nil {
		return p.send(ctx, m)
	}
	return channel.Receipt{ID: "p-" + m.ID}, nil
}

// counts are how many different messages there were, and how many calls.
func (p *provider) counts() (messages, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.sent {
		calls += len(all)
	}
	return len(p.sent), calls
}

const testRules = `
version: 1
events:
  RESERVATION_REQUESTED:
    RESTAURANT_USER: {channels: [inapp, push], category: reservations, template: reservation.requested}
    CUSTOMER: {scope: user, channels: [inapp]}
  FOR_ALL:
    RESTAURANT_USER: {scope: all, channels: [inapp]}
    CUSTOMER: {scope: all, channels: [inapp]}
    AGENCY_USER: {scope: all, channels: [inapp]}
    ADMIN: {scope: all, channels: [inapp, push]}
  URGENT:
    RESTAURANT_USER: {channels: [inapp, push], category: reservations, priority: critical}
`

func writeRules(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// writeTexts writes a folder with the parts of one template, of which those that are "" are left out.
func writeTexts(t testing.TB, name, subject, text, html string) string {
	t.Helper()
	dir := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	for part, content := range map[string]string{"subject": subject, "txt": text, "html": html} {
		if content != "" {
			check.OK(t, os.WriteFile(filepath.Join(dir, name, "default."+part), []byte(content), 0o600))
		}
	}
	return dir
}

// config is that of a notifier that makes its streams, and has one channel beside the inbox, and no API.
func config(of channel.Channel, rules string) Config {
	return Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), MaxBytes: 2 << 30},
		Channels:   []Channel{{Channel: of}}, Rules: rules,
	}
}

// fixture is a server with everything declared on it, and its own client.
type fixture struct {
	*testing.T

	as    []nats.Option // the options of notifiers' connections; with any, a notifier makes no streams
	store *deliveries.Store
	js    jetstream.JetStream
	nc    *nats.Conn
	srv   *natsrun.Server
}

func newFixture(t *testing.T, srv *natsrun.Server, opts ...nats.Option) *fixture {
	t.Helper()
	js, records := recordtest.Open(t, srv, opts...)
	return &fixture{T: t, store: deliveries.New(records), js: js, nc: js.Conn(), srv: srv}
}

// start starts a notifier, which the test's end stops.
func (p *fixture) start(of *provider, mutate ...func(*Config)) *Notifier {
	p.Helper()
	nc, _ := natstest.Connect(p.T, p.srv, p.as...)
	cfg := config(of, writeRules(p.T, testRules))
	cfg.CreateAssets = p.as == nil
	for _, m := range mutate {
		m(&cfg)
	}
	n := check.Must(Start(p.Context(), nc, cfg))(p)
	p.Cleanup(func() { check.ErrorIs(p, n.Stop(), nil) })
	return n
}

// directory puts recipients into the directory: the users of restaurant 5, and the others by themselves.
func (p *fixture) directory(users ...contracts.Recipient) *recipient.Directory {
	p.Helper()
	d := recipient.NewDirectory(p.js, recordtest.Client(p, p.js))
	for _, r := range users {
		check.OK(p, d.Put(p.Context(), r, recipient.Member{Type: "RESTAURANT", ID: "5"}))
	}
	return d
}

func users(kind contracts.RecipientType, n int) []contracts.Recipient {
	list := make([]contracts.Recipient, n)
	for i := range list {
		list[i] = contracts.Recipient{RecipientType: kind, UserID: fmt.Sprintf("u%d", i)}
	}
	return list
}

func event(id, kind string, mutate ...func(*recipient.Event)) recipient.Event {
	e := recipient.Event{
		EventID: id, EventType: kind, AggregateType: "RESTAURANT", RestaurantID: json.RawMessage("5"), Payload: json.RawMessage(`{"guests":4}`),
	}
	for _, m := range mutate {
		m(&e)
	}
	return e
}

// toStaff has an event notify the users of its restaurant.
func toStaff(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }

// notBefore has an event wait for a moment.
func notBefore(at time.Time) func(*recipient.Event) {
	return func(e *recipient.Event) { e.NotBefore = at }
}

// publish publishes an event, without a message id: the stream's window is not tested.
func (p *fixture) publish(e recipient.Event) {
	p.Helper()
	data := check.Must(contracts.Encode(e))(p)
	subject := check.Must(contracts.EventSubject(e.AggregateType, e.EventType))(p)
	check.OK(p, check.Err(p.js.Publish(p.Context(), subject, data)))
}

// until waits for a condition, which it asks for again and again.
func (p *fixture) until(condition string, met func() bool) {
	p.Helper()
	check.Until(p, patience, condition, met)
}

// stored are the subjects of the notifications that are stored, and how often each was.
func (p *fixture) stored() map[string]uint64 {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), contracts.StreamNotifications))(p)
	info := check.Must(stream.Info(p.Context(), jetstream.WithSubjectFilter("notify.send.>")))(p)
	return info.State.Subjects
}

// expanded waits until an event is known to have all its notifications, which is noted after the last of them is there to be sent.
func (p *fixture) expanded(n *Notifier, id string) *plan.Event {
	p.Helper()
	var known *plan.Event
	p.until(id+" is expanded", func() bool {
		var err error
		known, err = n.reader.Event(p.Context(), id)
		return err == nil && known.State == plan.StateExpanded
	})
	return known
}

// settled waits until n notifications of all events have ended.
func (p *fixture) settled(n int) map[string]*deliveries.Delivery {
	p.Helper()
	var all map[string]*deliveries.Delivery
	var open []string
	defer func() {
		if p.Failed() {
			p.Logf("%d notifications, of which have not ended: %s", len(all), strings.Join(open, "; "))
		}
	}()
	p.until(fmt.Sprintf("%d notifications settled", n), func() bool {
		all, open = p.deliveries(), nil
		for key, d := range all {
			if !d.State.Ended() {
				open = append(open, fmt.Sprintf("%s: %+v", key, *d))
			}
		}
		return len(all)-len(open) >= n
	})
	return all
}

// deliveries are the records of all notifications, by key.
func (p *fixture) deliveries() map[string]*deliveries.Delivery {
	p.Helper()
	all := map[string]*deliveries.Delivery{}
	for _, scan := range []func(context.Context, uint64, int) ([]deliveries.Entry, int, uint64, error){p.store.Scan, p.store.ScanItems} {
		entries, _, _, err := scan(p.Context(), 1, 10_000)
		check.OK(p, err)
		for _, entry := range entries {
			all[entry.Key] = entry.Delivery
		}
	}
	return all
}

// deadLetters returns the dead letters.
func (p *fixture) deadLetters() []contracts.DeadLetter {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), contracts.StreamDead))(p)
	info := check.Must(stream.Info(p.Context()))(p)
	var deadLetters []contracts.DeadLetter
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(p.Context(), sequence)
		if err != nil {
			continue
		}
		if deadLetter, err := worker.ParseDeadLetter(msg.Data); err == nil && deadLetter.Subject != "" {
			deadLetters = append(deadLetters, deadLetter)
		}
	}
	return deadLetters
}
