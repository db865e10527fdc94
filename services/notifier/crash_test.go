package notifier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// notifiers are the processes that are killed.
var notifiers = crash.Role[task]{Name: "notifier", Run: notify}

const (
	// ackWait is how soon the work of a process that died is taken over, and callTimeout for how long no other process repeats a call
	// that it may have made.
	ackWait     = 500 * time.Millisecond
	callTimeout = time.Second

	// inFlight is how many calls of each channel a process makes at a time.
	inFlight = 8

	// tries are more than a notification needs: each death takes one.
	tries = 60

	// generation is that of the secret of each address but main.
	generation = 7
)

// task is the work of a notifier process, and the point at which it dies.
type task struct {
	After     int    // it dies when it passes Point for this time
	Log       string // the path of the effect log
	Mail      string // the address of the mail server
	Name      string // in the effect log
	Once      bool   // at most
	Point     string // where it dies; "" is nowhere
	PushKey   string // the key of VAPID
	Rules     string // a file
	Secret    string // of webhooks
	Templates string // a folder
	URL       string // of NATS
}

// notify is the work of a notifier process.
func notify(ctx context.Context, d task) error {
	nc, err := nats.Connect(d.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.RetryOnFailedConnect(true), nats.IgnoreDiscoveredServers())
	if err != nil {
		return err
	}
	defer nc.Close()
	log, err := crash.OpenLog(d.Log, d.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	texts, err := template.Load(d.Templates, template.Config{})
	if err != nil {
		return err
	}
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	mail, mailErr := email.New(email.Config{Address: d.Mail, From: "Expediter <notify@example.com>", Security: email.Plain, Templates: texts})
	hooks, hooksErr := webhook.New(webhook.Config{AllowHTTP: true, AllowNetworks: local, Secrets: []string{d.Secret}})
	push, pushErr := webpush.New(webpush.Config{
		AllowHTTP: true, AllowNetworks: local, PrivateKey: d.PushKey, Subject: "mailto:push@example.com", Templates: texts,
	})
	if err := errors.Join(mailErr, hooksErr, pushErr); err != nil {
		return err
	}
	defer mail.Close()
	defer hooks.Close()
	defer push.Close()
	cfg := Config{
		BaseConfig: service.BaseConfig{
			AckWait: ackWait, Concurrency: inFlight, CreateAssets: true, Listen: "-", MaxBytes: 2 << 30,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		},
		Rules: d.Rules, pageBytes: 512, passed: testbed.DieAt(d.Point, d.After),
	}
	for _, c := range []channel.Channel{mail, hooks, push} {
		cfg.Channels = append(cfg.Channels, Channel{
			Channel: named{c, log, d.Name}, AtMostOnce: d.Once, Timeout: callTimeout,
			Retries: slices.Repeat([]time.Duration{200 * time.Millisecond}, tries),
		})
	}
	for {
		n, err := Start(ctx, nc, cfg)
		if err == nil {
			<-ctx.Done()
			return n.Stop()
		}
		fmt.Fprintln(os.Stderr, err)
		select { // the server is away: an operator would start the service again
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// named is a channel whose calls are in the effect log, and whose messages name the process in their category.
type named struct {
	channel.Channel

	log     *crash.Log
	process string
}

func (c named) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if err := c.log.Write(crash.Started, m.ID); err != nil {
		return channel.Receipt{}, err
	}
	m.Category = c.process
	return c.Channel.Send(ctx, m)
}

var (
	planPoints   = []string{plan.PointSeen, plan.PointPage, plan.PointRecord, plan.PointPlanned}
	expandPoints = []string{deliver.PointNotificationStored, deliver.PointAllStored, deliver.PointExpanded}
	callPoints   = []string{deliver.PointClaimed, deliver.PointSent, deliver.PointRecorded}
	sendPoints   = append([]string{deliver.PointSplit, deliver.PointSpread}, callPoints...)
	allPoints    = slices.Concat(planPoints, expandPoints, sendPoints)
)

// TestKilledNotifiers kills notifier processes at each point of their work and anywhere else, freezes them, cuts them off, has
// everything delivered again, publishes events repeatedly, and kills and freezes the server, or the leader of three, while mail servers,
// users' servers and a push service fail at times. It compares the messages that they got, notification by notification, with the
// deliveries. No user and no address is left out. A message comes twice only where a process died, or a provider did not answer, between
// the call and its record, and has the same id then; in a channel that is set to at-most-once none does, and a notification whose message
// may have been lost is failed, with unknown_outcome.
func TestKilledNotifiers(t *testing.T) {
	t.Parallel()
	random := crash.Random(t)
	for i, test := range []struct {
		name string
		on   func(t testing.TB) *crash.Servers
		once bool
		at   []string
	}{
		{"one server", crash.OneServer, false, allPoints},
		{"one server, killed", crash.MortalServer, false, []string{plan.PointRecord, deliver.PointNotificationStored, deliver.PointSent}},
		{"three servers, the leader killed", crash.ThreeServers, false, []string{deliver.PointSent}},
		{"at most once", crash.OneServer, true, callPoints},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newCrashSuite(t, test.on(t), random(uint64(i)), test.once)
			result := s.run(time.Time{}, test.at)
			check.OK(t, result.Err())
		})
	}
}

// TestProof is the part of the proof about notifications.
func TestProof(t *testing.T) {
	crash.Proof(t, "notifications", func(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
		t.Helper()
		return newCrashSuite(t, on, r, false).run(until, allPoints)
	})
}

// crashSuite is some events whose notifiers are killed.
type crashSuite struct {
	*testing.T

	log       *crash.Log
	on        *crash.Servers
	once      bool
	processes int
	providers *providers
	random    *rand.Rand
	task      task
	users     int // of each kind

	directory *recipient.Directory
	js        jetstream.JetStream
	reader    *plan.Reader
	records   *kvrecord.Client
	store     *deliveries.Store
	seen      seen

	published int
	want      map[string]wanted // by key

	mu      sync.Mutex
	started map[string]string // names in the effect log, by those in the records
}

func newCrashSuite(t *testing.T, on *crash.Servers, r *rand.Rand, once bool) *crashSuite {
	t.Helper()
	s := &crashSuite{
		T: t, log: crash.NewLog(t), on: on, once: once, random: r, users: 5, processes: 2, want: map[string]wanted{}, started: map[string]string{},
	}
	s.js, s.records = openURL(t, on)
	s.providers = newProviders(t, s.log, r.Uint64())
	s.task = task{
		Log: s.log.Path(), Mail: s.providers.mail, Once: once, PushKey: s.providers.pushKey, Rules: writeRules(t, crashRules()),
		Secret: s.providers.secret, Templates: writeTexts(t, "news", "{{.EventID}}", "{{.Category}}", ""),
	}
	s.store, s.reader = deliveries.New(s.records), plan.NewReader(s.records)
	s.directory = recipient.NewDirectory(s.js, s.records)
	s.seen = seen{from: [2]uint64{1, 1}, open: map[string]bool{}, records: map[string]*deliveries.Delivery{}}
	for _, kind := range kinds {
		for n := range s.users {
			s.ask(func(ctx context.Context) error { return s.directory.Put(ctx, s.user(kind, n)) })
		}
	}
	return s
}

// openURL connects to servers in other processes, and makes the streams and buckets.
func openURL(t *testing.T, on *crash.Servers) (jetstream.JetStream, *kvrecord.Client) {
	t.Helper()
	_, js := natstest.ConnectURL(t, on.URL)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 2 << 30, Replicas: on.Replicas})
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
		return check.Err(provision.Apply(ctx, js, assets, provision.Options{}))
	}))
	return js, recordtest.Client(t, js)
}

// ask asks until there is an answer: servers are killed.
func (s *crashSuite) ask(question func(ctx context.Context) error) {
	s.Helper()
	check.OK(s, natstest.UntilAnswered(s.T, question))
}

// start starts a notifier under a name, which dies when it passes a point for the n-th time.
func (s *crashSuite) start(name, servers, point string, n int) *crash.Process {
	s.Helper()
	d := s.task
	d.Name, d.URL, d.Point, d.After = name, servers, point, n
	p := notifiers.Start(s, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started[fmt.Sprint(check.Must(os.Hostname())(s), "-", p.PID())] = name
	return p
}

// run publishes events, injects each fault once, or all until a time, in random orders, lets everything come to an end, and judges it.
// Processes die at points, one after the other.
func (s *crashSuite) run(until time.Time, points []string) crash.Result {
	s.Helper()
	group := crash.NewGroup(s, s.log, s.on.URL, s.processes, func(name, servers string) *crash.Process {
		return s.start(name, servers, "", 0)
	})
	long := 2 * ackWait
	faults := append(group.Faults(long), crash.Fault{Name: "consumers deleted", Do: s.deleteConsumers})
	faults = append(faults, s.on.Faults(s.log, long, contracts.StreamNotifications, "KV_"+contracts.BucketDeliveries)...)
	for _, point := range points {
		faults = append(faults, s.deathAt(point))
	}
	for again := true; again; again = time.Now().Before(until) {
		for _, i := range s.random.Perm(len(faults)) {
			s.publish(1)
			check.Require(s, s.Context().Err() == nil, "the test ends")
			err := faults[i].Do(s.Context(), s.random)
			check.Require(s, err == nil, "%s: %v", faults[i].Name, err)
			if !until.IsZero() && !time.Now().Before(until) {
				break
			}
		}
	}
	s.settle()
	for n := range s.published { // as a source does that forgot, later than any window remembers
		s.send(s.event(n), false)
	}
	s.drain()
	s.settle()
	group.Stop()
	return s.judge()
}

// deathAt is the death of a process at a point, while it works on new events and on those that are left.
func (s *crashSuite) deathAt(point string) crash.Fault {
	name := "process dies at " + point
	return crash.Fault{Name: name, Do: func(context.Context, *rand.Rand) error {
		after := 1
		switch {
		case point == deliver.PointSplit, point == deliver.PointSpread: // few notifications are
			after += s.random.IntN(2)
		case point == deliver.PointNotificationStored, point == plan.PointPage, slices.Contains(sendPoints, point):
			after += s.random.IntN(s.users)
		}
		who := fmt.Sprint("v", len(s.started))
		p := s.start(who, s.on.URL, point, after)
		s.seen.changed = time.Now()
		for !p.Ended() {
			select {
			case <-p.Gone:
			case <-time.After(250 * time.Millisecond): // the others may have done all that there was
				if s.look() || !slices.Contains(sendPoints, point) && s.expanded() {
					s.publish(1)
				}
			}
		}
		p.Died()
		return s.log.Inject(name, who)
	}}
}

// expanded reports whether the last event has all its notifications.
func (s *crashSuite) expanded() bool {
	s.Helper()
	kept, err := s.reader.Event(s.Context(), s.event(s.published-1).EventID)
	return err == nil && kept.State == plan.StateExpanded
}

// publish publishes new events, some of them several times: under one id, and without any.
func (s *crashSuite) publish(events int) {
	s.Helper()
	for range events {
		e := s.event(s.published)
		maps.Copy(s.want, s.notificationsOf(e))
		s.published++
		for range 1 + s.random.IntN(3) {
			s.send(e, s.random.IntN(2) == 0)
		}
	}
}

func (s *crashSuite) send(e recipient.Event, id bool) {
	s.Helper()
	data := check.Must(contracts.Encode(e))(s)
	subject := check.Must(contracts.EventSubject(e.AggregateType, e.EventType))(s)
	s.ask(func(ctx context.Context) error {
		msg := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
		if id {
			msg.Header.Set(nats.MsgIdHdr, e.EventID)
		}
		return check.Err(s.js.PublishMsg(ctx, msg))
	})
}

// consumers are those of a notifier, by stream.
var consumers = map[string][]string{
	contracts.StreamEvents: {eventsConsumer},
	contracts.StreamNotifications: {
		"notifier-expand", "notifier-send-inapp", "notifier-send-email", "notifier-send-webhook", "notifier-send-webpush",
	},
}

// deleteConsumers has every event, every plan and every notification delivered again, also those that are done.
func (s *crashSuite) deleteConsumers(context.Context, *rand.Rand) error {
	for stream, names := range consumers {
		for _, name := range names {
			err := natstest.UntilAnswered(s.T, func(ctx context.Context) error { return s.js.DeleteConsumer(ctx, stream, name) })
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) { // the answer to a first try was lost
				return err
			}
		}
	}
	return s.log.Inject("consumers deleted", "")
}

// waiting is the number of jobs of a consumer that were not delivered, and for all but senders also of those that were not acknowledged:
// senders have notifications that wait for the end of quiet hours. A consumer that is being made again has none.
func (s *crashSuite) waiting(stream, name string) (n int) {
	s.Helper()
	err := natstest.UntilAnswered(s.T, func(ctx context.Context) error {
		consumer, err := s.js.Consumer(ctx, stream, name)
		if err == nil {
			info := consumer.CachedInfo()
			if n = int(info.NumPending); !strings.Contains(name, "send") {
				n += info.NumAckPending
			}
		}
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 1
	}
	check.OK(s, err)
	return n
}

// drain waits until everything has been delivered, for as long as there comes to be less of it.
func (s *crashSuite) drain() {
	s.Helper()
	for stream, names := range consumers {
		for _, name := range names {
			least, changed := -1, time.Now()
			for left := 1; left > 0; <-time.After(20 * time.Millisecond) {
				if left = s.waiting(stream, name); least < 0 || left < least {
					least, changed = left, time.Now()
				}
				check.Require(s, time.Since(changed) <= patience, "%s has had %d jobs for %s", name, left, patience)
			}
		}
	}
}

var kinds = []contracts.RecipientType{"RESTAURANT_USER", "CUSTOMER"}

// crashRules notify each kind on every channel. Urgent events reach users who opted out, and come in quiet hours. Customers find
// everything in the application too.
func crashRules() string {
	var b strings.Builder
	b.WriteString("version: 1\nevents:\n")
	for event, priority := range map[string]string{"NEWS": "normal", "ALARM": "critical"} {
		fmt.Fprintf(&b, "  %s:\n", event)
		for _, kind := range kinds {
			fmt.Fprintf(&b, "    %s: {scope: all, channels: [%s], category: news, template: news, priority: %s}\n",
				kind, strings.Join(channelsOf(kind), ", "), priority)
		}
	}
	return b.String()
}

func channelsOf(kind contracts.RecipientType) []string {
	channels := []string{email.Name, webhook.Name, webpush.Name}
	if kind == "CUSTOMER" {
		channels = append(channels, inapp.Name)
	}
	return channels
}

// trait is a property of a user that decides how their notifications end.
type trait int

const (
	noMail      trait = iota // opted out of the news by email
	asleep                   // has quiet hours all the time
	goneBrowser              // has a subscription that is not there any more
	noHook                   // has no server
	several                  // has several servers and browsers
	plain                    // nothing
)

// traitOf is the trait of a user, one of each in ten.
func traitOf(user string) trait {
	n, err := strconv.Atoi(strings.TrimPrefix(user, "u"))
	if err != nil {
		return plain
	}
	return min(trait(n%10), plain)
}

// addresses are the ids of the addresses of a user who has several on a channel.
func addresses(user, on string) []string {
	switch {
	case traitOf(user) == several && on == webhook.Name:
		return []string{contracts.MainEndpoint, "desk", "phone"}
	case traitOf(user) == several && on == webpush.Name:
		return []string{contracts.MainEndpoint, "phone"}
	}
	return nil
}

// user returns the directory's record of a user.
func (s *crashSuite) user(kind contracts.RecipientType, n int) contracts.Recipient {
	id := fmt.Sprint("u", n)
	path := "/" + string(kind) + "/" + id + "/"
	r := contracts.Recipient{UserID: id, RecipientType: kind, Addresses: map[string]string{
		email.Name: id + "." + string(kind) + "@example.org",
	}, Endpoints: map[string]map[string]contracts.Endpoint{webhook.Name: {}, webpush.Name: {}}}
	for on, at := range map[string]func(address string) string{
		webhook.Name: func(address string) string { return s.providers.http.URL + "/hook" + path + address },
		webpush.Name: func(address string) string {
			return s.providers.browser.Address(s.providers.http.URL + "/push" + path + address)
		},
	} {
		for _, address := range addresses(id, on) {
			r.Endpoints[on][address] = contracts.Endpoint{Address: at(address), Generation: generation}
		}
		delete(r.Endpoints[on], contracts.MainEndpoint)
		r.Addresses[on] = at(contracts.MainEndpoint)
	}
	switch traitOf(id) {
	case noMail:
		r.OptOut = map[string][]string{"news": {email.Name}}
	case asleep:
		clock := func(d time.Duration) string { return time.Now().UTC().Add(d).Format("15:04") }
		r.QuietHours = &contracts.QuietHours{From: clock(-2 * time.Hour), To: clock(4 * time.Hour)}
	case noHook:
		delete(r.Addresses, webhook.Name)
	case goneBrowser, several, plain:
	}
	return r
}

// event is the n-th event: every fourth brings its recipients along, and every fifth is urgent.
func (s *crashSuite) event(n int) recipient.Event {
	e := recipient.Event{
		EventID: fmt.Sprint("evt-", n), EventType: "NEWS", AggregateType: "RESTAURANT", RecipientType: "BROADCAST",
		Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}
	if n%5 == 4 {
		e.EventType = "ALARM"
	}
	if n%4 == 3 {
		for _, kind := range kinds {
			for i := range s.users {
				e.Recipients = append(e.Recipients, contracts.Recipient{RecipientType: kind, UserID: fmt.Sprint("u", i), Locale: "en"})
			}
		}
	}
	return e
}

// wanted is a notification whose outcome is checked.
type wanted struct {
	contracts.Notification

	end end
}

// notificationsOf are the notifications that an event has, and those of addresses, by key.
func (s *crashSuite) notificationsOf(e recipient.Event) map[string]wanted {
	s.Helper()
	all := map[string]wanted{}
	for _, kind := range kinds {
		for i := range s.users {
			user := fmt.Sprint("u", i)
			for _, on := range channelsOf(kind) {
				for _, address := range append(addresses(user, on), "") {
					n := contracts.Notification{Address: address, Channel: on, EventID: e.EventID, RecipientType: kind, UserID: user}
					all[check.Must(keys.Of(&n))(s)] = wanted{n, endOf(n, e.EventType == "ALARM")}
				}
			}
		}
	}
	return all
}
