package notifier

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// Notifier is a running notifier.
type Notifier struct {
	// API has the operations of the HTTP API, for callers within the process.
	*api.API

	// Directory holds the recipients.
	Directory *recipient.Directory

	// Inbox holds the items that users see in the application.
	Inbox *inapp.Inbox

	rules      *rulesStore
	cancelled  *hold.Cancelled
	closers    []closer // the channels of ChannelConfig
	cfg        Config
	counters   counters
	digests    *hold.Digests
	expander   *deliver.Expander
	health     *health.Store
	deliveries *deliveries.Store
	links      *pages.Links // nil without links for users
	payloads   payloads
	planner    *plan.Planner
	reader     *plan.Reader
	records    *kvrecord.Client
	senders    []*deliver.Sender
	throttle   *hold.Throttles

	illegible atomic.Int64 // records that could not be read
	running   *service.Service
	telemetry *natsotel.Telemetry
	unobserve func() error // ends the metrics, nil without exports
}

// Run connects to NATS, serves until ctx ends, and stops: requests and jobs under way are finished.
func Run(ctx context.Context, cfg Config) error {
	n, err := prepare(cfg)
	if err != nil {
		return err
	}
	return service.Run(ctx, n.spec())
}

// Start begins to serve on a connection that the caller keeps open until after Stop.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Notifier, error) {
	n, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if n.running, err = service.Start(ctx, nc, n.spec()); err != nil {
		return nil, err
	}
	return n, nil
}

// prepare does the part of Start that needs no server.
func prepare(cfg Config) (*Notifier, error) {
	cfg = cfg.withDefaults()
	rules, err := cfg.validate()
	roots, rootsErr := cfg.roots()
	links, linksErr := cfg.links()
	channels, closers, waysErr := cfg.open(tools{links: links, roots: roots, texts: rules.texts})
	cfg.Channels = append(slices.Clip(cfg.Channels), channels...)
	n := &Notifier{cfg: cfg, closers: closers, links: links, rules: rules}
	return n, errors.Join(rootsErr, linksErr, waysErr, err)
}

func (n *Notifier) spec() service.Spec {
	return service.Spec{
		Checks:      func() map[string]error { return map[string]error{"rules": n.rules.ready()} },
		Close:       n.close,
		Config:      n.cfg.BaseConfig,
		Description: "Delivers each event to its recipients",
		OpenAPI:     api.OpenAPI,
		Errors:      api.Problem,
		Name:        name,
		Open:        n.open,
		Routes: func(r *service.Router) {
			r.Add(api.Operations(n.API, n.Inbox)...)
			n.unsubscribing(r)
		},
		Streams: n.streams(),
	}
}

// streams returns the names of the streams that the notifier needs.
func (n *Notifier) streams() []string {
	streams := []string{
		contracts.StreamDead, contracts.StreamEvents, contracts.StreamNotifications,
		"KV_" + contracts.BucketDeliveries, "KV_" + contracts.BucketDirectory, "KV_" + contracts.BucketInbox, "KV_" + contracts.BucketJobs,
	}
	if n.cfg.CreateAssets { // an administrator makes it in the operators' account
		streams = append(streams, contracts.StreamAudit, contracts.StreamAuditUsers)
	}
	return streams
}

// open makes the stores, the workers and the API.
func (n *Notifier) open(ctx context.Context, s *service.Service) (err error) {
	n.telemetry = s.Telemetry
	if err := n.openStores(ctx, s); err != nil {
		return err
	}
	n.openPlanner()
	if err := n.addWorkers(s); err != nil {
		return err
	}
	if err := s.Held(n.health.Held); err != nil {
		return err
	}
	if n.unobserve, err = n.observe(s.Config.Exports); err != nil {
		return err
	}
	publishing := recipient.PublisherConfig()
	publishing.Prepare = func(ctx context.Context, msg *nats.Msg) { s.Telemetry.Inject(ctx, msg.Header) }
	publishing.Source = "/notifier"
	publisher, err := contracts.NewPublisher(s.JetStream, publishing)
	if err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{n.cancelled.Run, n.rules.run, n.health.Run} {
		s.Go(run)
	}
	channels := map[string]channel.Channel{}
	for _, c := range n.cfg.Channels {
		channels[c.Name()] = c.Channel
	}
	n.API = api.New(n.records, api.Config{
		Audit:     audit.New(audit.Config{JetStream: s.JetStream, Logger: n.cfg.Logger, Source: name}),
		Cancelled: n.cancelled, Deliveries: n.deliveries, Digests: n.digests,
		Directory: n.Directory, Health: n.health, Logger: n.cfg.Logger, Planner: n.planner,
		Publisher: publisher, Reader: n.reader, Rules: n.rules.rules.Load,
		Telemetry: s.Telemetry, Tested: n.tested(), Throttles: n.throttle, Channels: channels,
	})
	return nil
}

// tested returns the channels that send test messages: the channels of ChannelConfig that have texts.
func (n *Notifier) tested() map[string]channel.Channel {
	all := map[string]channel.Channel{}
	for _, c := range n.closers {
		if slices.Contains(n.cfg.textNames(), c.Name()) {
			all[c.Name()] = c
		}
	}
	return all
}

// unsubscribing adds the pages that users reach by links.
func (n *Notifier) unsubscribing(r *service.Router) {
	if n.links != nil {
		site := &pages.Site{Directory: n.Directory, Links: n.links, Rules: n.rules.rules.Load}
		r.Handle("GET "+pages.PathUnsubscribe, access.Public(), site.Ask)
		r.Handle("POST "+pages.PathUnsubscribe, access.Public(), site.Do)
		r.Handle("GET "+pages.PathPreferences, access.Public(), site.Show)
		r.Handle("POST "+pages.PathPreferences, access.Public(), site.Save)
	}
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (n *Notifier) URL() string { return n.running.URL() }

// openStores opens the streams and buckets.
func (n *Notifier) openStores(ctx context.Context, s *service.Service) (err error) {
	if n.records, err = kvrecord.New(kvrecord.Config{JetStream: s.JetStream, Prepare: n.traced}); err != nil {
		return err
	}
	if n.health, err = health.Open(ctx, n.records, health.Config{DisableAfter: n.cfg.DisableAfter, Logger: n.cfg.Logger}); err != nil {
		return err
	}
	if n.cancelled, err = hold.OpenCancelled(ctx, s.Conn, n.records); err != nil {
		return err
	}
	n.digests, n.deliveries = hold.NewDigests(n.records), deliveries.New(n.records)
	n.Directory = recipient.NewDirectory(s.JetStream, n.records)
	n.deliveries.ItemKeep, n.deliveries.Unreadable = cmp.Or(n.cfg.InboxKeep, deliveries.ItemKeep), n.unreadable
	n.Inbox = inapp.New(s.JetStream, n.records, n.deliveries)
	n.reader, n.throttle = plan.NewReader(n.records), hold.NewThrottles(n.records)
	return nil
}

// unreadable counts and logs a record that cannot be read. Lists leave such a record out.
func (n *Notifier) unreadable(ctx context.Context, r kvrecord.Record, err error) {
	n.illegible.Add(1)
	n.cfg.Logger.WarnContext(ctx, "notifier: a record cannot be read", "subject", r.Subject, "revision", r.Revision, "error", err)
}

// openPlanner makes the planner, which finds the recipients of an event, and the expander, which stores its notifications.
func (n *Notifier) openPlanner() {
	var resolver recipient.Resolver = n.Directory
	if n.cfg.Resolver != nil {
		resolver = recipient.Once(n.cfg.Resolver)
	}
	n.planner = plan.New(n.records, plan.Config{
		MaxRecipients: n.cfg.MaxRecipients, PageBytes: n.cfg.pageBytes, Passed: n.cfg.passed,
		Resolver: recipient.Carried(resolver),
		Route:    n.rules.route, Rules: n.rules.rules.Load,
	})
	n.expander = deliver.NewExpander(n.records, n.cfg.passed)
	n.expander.Telemetry = n.telemetry
}

// traced writes trace context into plans and notifications, which are jobs as well as records, so that their spans link to the
// span that stored them.
func (n *Notifier) traced(ctx context.Context, subject string, header nats.Header) {
	if strings.HasPrefix(subject, "notify.") {
		n.telemetry.Inject(ctx, header)
	}
}

// eventsConsumer is the consumer that reads the events.
const eventsConsumer = "notifier"

// addWorkers makes the workers: one for events, one for plans, and one for each channel, so that none delays another.
func (n *Notifier) addWorkers(s *service.Service) error {
	add := func(stream, consumer string, concurrency int) (*worker.Worker, error) {
		return s.Worker(consumer, worker.Config{
			Concurrency: concurrency, Consumer: consumer, Stream: stream,
		})
	}
	w, err := add(contracts.StreamEvents, eventsConsumer, 0)
	if err == nil {
		err = worker.Handle(w, contracts.EventsSubjects, n.planPolicy(), n.planEvent)
	}
	if err != nil {
		return err
	}
	if w, err = add(contracts.StreamNotifications, "notifier-expand", expansions); err == nil {
		err = worker.Handle(w, "notify.plan.*", expandPolicy(), n.expandPlan)
	}
	if err != nil {
		return err
	}
	inbox := Channel{Channel: n.Inbox, Timeout: inboxTimeout}
	for _, c := range append([]Channel{inbox}, n.cfg.Channels...) {
		w, err := add(contracts.StreamNotifications, "notifier-send-"+c.Name(), n.slots(c))
		if err != nil {
			return err
		}
		sender, err := n.sender(c, w.Paused)
		if err == nil {
			err = worker.Handle(w, "notify.send."+c.Name()+".>", sender.Policy(), sender.Work)
		}
		if err != nil {
			return err
		}
		n.senders = append(n.senders, sender)
		if c.Name() == inapp.Name {
			n.expander.Direct = sender
		}
	}
	return nil
}

// endpointSlots is the factor of notifications that are sent at a time to endpoints of users, compared with a provider: calls of
// endpoints that hang take slots, but little else.
const endpointSlots = 32

// inboxSlots is the factor for the inbox, whose notifications wait for the store alone: the writes of many notifications share a
// packet.
const inboxSlots = 8

// slots returns the number of notifications of a channel that are sent at a time.
func (n *Notifier) slots(c Channel) int {
	switch {
	case c.Endpoints:
		return endpointSlots * n.cfg.Concurrency
	case c.Name() == inapp.Name:
		return inboxSlots * n.cfg.Concurrency
	}
	return n.cfg.Concurrency
}

// sender returns the sender of a channel. paused reports whether its notifications of a subject are paused.
func (n *Notifier) sender(c Channel, paused func(subject string) bool) (*deliver.Sender, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var known deliver.Health
	if c.Endpoints {
		known = n.health
	}
	cfg := deliver.Config{
		AtMostOnce: c.AtMostOnce, Cancelled: n.cancelled, Channel: c.Channel, Digests: n.digests, Health: known,
		Deliveries: n.deliveries, Logger: n.cfg.Logger, Passed: n.cfg.passed, Paused: paused,
		Payload: n.payload, Preferences: n.PreferencesURL, Profiles: n.Directory, Read: n.read, Retries: c.Retries,
		Notifications: n.records.Stream(contracts.StreamNotifications), Slots: n.slots(c),
		Telemetry: n.telemetry, Throttles: n.throttle, Timeout: c.Timeout, Worker: host + "-" + strconv.Itoa(os.Getpid()),
	}
	return deliver.New(cfg)
}

// read reports whether a user has read an event in the inbox, or removed it there. One round trip.
func (n *Notifier) read(ctx context.Context, row *contracts.Notification) (bool, error) {
	return n.Inbox.Seen(ctx, row.RecipientType, row.UserID, row.EventID)
}

// PreferencesURL returns the link to the page of a user's preferences, "" without ChannelConfig.PublicURL. Show it to that user only:
// changes made there count as the user's own.
func (n *Notifier) PreferencesURL(kind contracts.RecipientType, userID string) string {
	if n.links == nil {
		return ""
	}
	return n.links.Preferences(kind, userID)
}

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns the errors
// of the notifier while it ran. It may be called more than once.
func (n *Notifier) Stop() error { return n.running.Stop() }

func (n *Notifier) close() error {
	for _, c := range n.closers {
		c.Close()
	}
	if n.records != nil {
		n.records.Close()
	}
	if n.unobserve != nil {
		return n.unobserve()
	}
	return nil
}
