package notifier

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

// The notifier does with what deploy/nats permits it, when an administrator has made what it needs.
func TestItNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	rules := writeRules(t, testRules)
	logger := slog.New(slog.DiscardHandler)
	var mood atomic.Value
	ours := func(c *Config) {
		c.Channels, c.Logger, c.Rules = []Channel{{Channel: moody(&mood)}}, logger, rules
	}
	p := administered(t, srv, users, "pigeon")
	for _, r := range []contracts.Recipient{{RecipientType: "RESTAURANT_USER", UserID: "a"}, {RecipientType: "RESTAURANT_USER", UserID: "b"}} {
		p.directory(r)
	}
	denied := make(chan error, 100)
	may := natstest.NewPermissions(t, srv, "notifier")
	nc, _ := natstest.Connect(t, srv, users.As("notifier"), may.Through(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	cfg := Config{BaseConfig: service.BaseConfig{Listen: "127.0.0.1:0"}}
	ours(&cfg)
	n := check.Must(Start(t.Context(), nc, cfg))(t)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(4)
	counts, err := n.Inbox.Counts(t.Context(), "RESTAURANT_USER", "a")
	check.That(t, err == nil && counts.Unread == 1, "%+v: %v", counts, err)
	check.Is(t, check.Err(n.Inbox.Mark(t.Context(), "RESTAURANT_USER", "a", "evt-001", inapp.Read)), nil)
	w := newWeb(t, n)
	for _, body := range []string{reservation, strings.ReplaceAll(reservation, "evt-001", "evt-002"), strings.ReplaceAll(reservation, "evt-001", "evt-002")} {
		status, answer := w.call(http.MethodPost, "/v1/events", body)
		check.That(t, status < 300, "%d %s", status, answer)
	}
	p.settled(8)
	for _, path := range []string{"/v1/events/evt-002", "/v1/notifications?user=a", "/v1/notifications?state=sent", "/v1/users/a/inbox", "/readyz"} {
		status, answer := w.call(http.MethodGet, path, "")
		check.That(t, status == http.StatusOK, "%s: %d %s", path, status, answer)
	}
	for _, part := range [][2]string{
		{"", `{}`},
		{"/addresses", `{"addresses":{"sms":"12"}}`},
		{"/preferences", `{"opt_out":{"news":["sms"]}}`},
		{"/memberships", `{"memberships":[{"type":"RESTAURANT","id":"7"}]}`},
	} {
		status, answer := w.call(http.MethodPut, "/v1/users/CUSTOMER/carla"+part[0], part[1])
		check.That(t, status == http.StatusOK, "%s: %d %s", part, status, answer)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		status, answer := w.call(method, "/v1/users/CUSTOMER/carla", "")
		check.That(t, status < 300, "%d %s", status, answer)
	}
	later := strings.Replace(strings.ReplaceAll(reservation, "evt-001", "evt-003"), `"payload"`, `"not_before":"`+tomorrow()+`","payload"`, 1)
	status, answer := w.call(http.MethodPost, "/v1/events", later)
	check.That(t, status == http.StatusAccepted, "%d %s", status, answer)
	p.until("rows wait", func() bool { return len(p.deliveries()) == 12 })
	check.Same(t, "suppressed", w.cancel("/v1/events/evt-003?user=a&type=RESTAURANT_USER").Suppressed, 2)
	if msg, err := p.nc.RequestWithContext(t.Context(), "notifier.v1.cancel", []byte(`{"event_id":"evt-003"}`)); err != nil ||
		!strings.Contains(string(msg.Data), `"suppressed":4`) {
		t.Errorf("%s: %v", msg.Data, err)
	}
	mood.Store(channel.KindRejected)
	p.publish(event("evt-004", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(16)
	mood.Store(channel.Kind(""))
	check.Same(t, "replayed", w.replay("reason=rejected").Replayed, 2)
	p.until("they are sent", func() bool {
		return p.deliveries()["evt-004.pigeon.RESTAURANT_USER.a"].State == "sent" && p.deliveries()["evt-004.pigeon.RESTAURANT_USER.b"].State == "sent"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	workers, err := inspect.Workers(ctx, p.nc)
	check.Is(t, err, nil)
	check.Same(t, "workers that answer", len(workers), 4) // of events, of plans, and of two channels
	next, end := w.listen("/v1/users/a/inbox/events?last_event_id=1")
	next()
	end()
	check.Is(t, n.Stop(), nil)
	may.CheckNeeded(t,
		"$JS.ACK.*.*.EVENTS.notifier.>", "$JS.ACK.*.*.NOTIFICATIONS.>", // acknowledgements with the server's feature js_ack_fc_v2
		"$JS.API.STREAM.MSG.GET.NOTIFICATIONS", "$JS.API.STREAM.MSG.GET.KV_directory", "$JS.API.STREAM.MSG.GET.KV_inbox", // a lost answer
		"$JS.API.STREAM.MSG.GET.KV_jobs", "$KV.jobs.excused.EVENTS.>", // an attempt that does not count
		"$JS.API.DIRECT.GET.KV_jobs",                                      // a job that takes long
		"$KV.jobs.progress.EVENTS.>", "$KV.jobs.progress.NOTIFICATIONS.>", // a job that takes long
		"$JS.API.STREAM.MSG.GET.EVENTS",                   // an event that another worker may have been given
		"$JS.API.DIRECT.GET.EVENTS",                       // an id that another event has
		"$JS.API.DIRECT.GET.KV_directory.$KV.directory.>", // a recipient whom a list does not show
		"dead.EVENTS.>",                                   // an event that cannot be planned
	)
	select {
	case err := <-denied:
		t.Errorf("denied: %v", err)
	default:
	}
}

// administered is a place whose streams, buckets and consumers an administrator has made in the notifier's account.
func administered(t *testing.T, server *natsrun.Server, users *natstest.Users, channels ...string) *place {
	t.Helper()
	nc, _ := natstest.Connect(t, server, users.As("admin"))
	js := natstest.InAccount(t, nc, "NOTIFIER")
	ours := contracts.AssetOptions{Channels: channels, MaxBytes: 1 << 30, Services: []string{contracts.ServiceNotifier}}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(ours), contracts.ApplyOptions{})))
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(ours), contracts.ApplyOptions{})))
	own := check.Must(jetstream.New(nc))(t)
	operators := contracts.Streams(contracts.AssetOptions{Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(contracts.Apply(t.Context(), own, operators, contracts.ApplyOptions{})))
	return &place{T: t, book: deliveries.New(recordtest.Client(t, js)), js: js, nc: nc, srv: server}
}

func tomorrow() string { return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339) }
