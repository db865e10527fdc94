package notifier

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// The permissions of deploy/nats are enough for the notifier when an administrator has made its streams and
// buckets.
func TestItNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	birds, mood := moody("")
	p, _ := administered(t, "pigeon")
	for _, r := range []contracts.Recipient{{RecipientType: "RESTAURANT_USER", UserID: "a"}, {RecipientType: "RESTAURANT_USER", UserID: "b"}} {
		p.directory(r)
	}
	denied := make(chan error, 100)
	may := natstest.NewPermissions(t, p.srv, "notifier")
	p.as = append(p.as, may.Through(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	n := p.start(birds, listening)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(4)
	counts, err := n.Inbox.Counts(t.Context(), "RESTAURANT_USER", "a")
	check.That(t, err == nil && counts.Unread == 1, "%+v: %v", counts, err)
	check.ErrorIs(t, check.Err(n.Inbox.Mark(t.Context(), "RESTAURANT_USER", "a", "evt-001", inapp.Read)), nil)
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
	for _, of := range [][2]string{
		{"users", `{"addresses":{"sms":"12"},"opt_out":{"reservations":["inapp"]}}`}, {"memberships", `{"add":[{"type":"RESTAURANT","id":"7"}]}`},
	} {
		status, answer := w.call(http.MethodPatch, "/v1/"+of[0]+"/CUSTOMER/carla", of[1])
		check.That(t, status == http.StatusOK, "%s: %d %s", of, status, answer)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		status, answer := w.call(method, "/v1/users/CUSTOMER/carla", "")
		check.That(t, status < 300, "%d %s", status, answer)
	}
	later := strings.Replace(strings.ReplaceAll(reservation, "evt-001", "evt-003"), `"payload"`, `"not_before":"`+tomorrow()+`","payload"`, 1)
	status, answer := w.call(http.MethodPost, "/v1/events", later)
	check.That(t, status == http.StatusAccepted, "%d %s", status, answer)
	p.until("rows wait", func() bool { return len(p.deliveries()) == 12 })
	check.Equal(t, w.cancel("/v1/events/evt-003?user=a&type=RESTAURANT_USER").Suppressed, 2, "suppressed")
	if msg, err := p.nc.RequestWithContext(t.Context(), "notifier.v1.cancel", []byte(`{"event_id":"evt-003"}`)); err != nil ||
		!strings.Contains(string(msg.Data), `"suppressed":4`) {
		t.Errorf("%s: %v", msg.Data, err)
	}
	mood.Store(channel.KindRejected)
	p.publish(event("evt-004", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.settled(16)
	mood.Store(channel.Kind(""))
	check.Equal(t, w.replay("reason=rejected").Replayed, 2, "replayed")
	p.until("they are sent", func() bool {
		return p.deliveries()["evt-004.pigeon.RESTAURANT_USER.a"].State == "sent" && p.deliveries()["evt-004.pigeon.RESTAURANT_USER.b"].State == "sent"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	workers, err := inspect.Workers(ctx, p.js)
	check.ErrorIs(t, err, nil)
	check.Equal(t, len(workers), 4, "workers that answer") // of events, of plans, and of two channels
	next, end := w.listen("/v1/users/a/inbox/events?last_event_id=1")
	_, _, more := next()
	check.That(t, more, "the inbox has no item")
	end()
	check.ErrorIs(t, n.Stop(), nil)
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

// administered is a place whose streams, buckets and consumers an administrator has made in the notifier's account. Its notifiers have
// the permissions of deploy/nats.
func administered(t *testing.T, channels ...string) (*place, *natstest.Users) {
	t.Helper()
	users := natstest.NewUsers(t)
	server := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	nc, _ := natstest.Connect(t, server, users.As("admin"))
	js := natstest.InAccount(t, nc, "NOTIFIER")
	ours := contracts.AssetOptions{Channels: channels, MaxBytes: 1 << 30, Services: []string{contracts.ServiceNotifier}}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(ours), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(ours), provision.Options{})))
	own := check.Must(jetstream.New(nc))(t)
	operators := contracts.Streams(contracts.AssetOptions{Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(provision.Apply(t.Context(), own, operators, provision.Options{})))
	as := []nats.Option{users.As("notifier")}
	return &place{T: t, as: as, store: deliveries.New(recordtest.Client(t, js)), js: js, nc: nc, srv: server}, users
}

func tomorrow() string { return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339) }

// The notifier of the examples has webhooks, SMS with a text, and a user whose pigeon does not fly.
func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	phones := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(phones.Close)
	roots, texts := trusting(t, phones), writeTexts(t, "welcome", "Hello {{.Payload.name}}", "Hello {{.Payload.name}}", "")
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	t.Cleanup(func() { check.OK(t, exports.Stop(context.WithoutCancel(t.Context()))) })

	p := newPlace(t, natstest.Server(t))
	p.directory(
		contracts.Recipient{RecipientType: "CUSTOMER", UserID: "eve"},
		contracts.Recipient{RecipientType: "RESTAURANT_USER", UserID: "dora", Addresses: map[string]string{"pigeon": "roof"}},
	)
	birds, _ := moody(channel.KindRejected)
	n := p.start(birds, listening, func(c *Config) {
		c.Channels[0].Endpoints = true
		c.Channels = append(c.Channels, Channel{Channel: hooks})
		c.ChannelConfig = ChannelConfig{RootCAs: roots, SMSURL: phones.URL, Templates: texts}
		c.Exports = exports
	})
	w := newWeb(t, n)
	p.publish(event("evt-000", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	p.until("the pigeon has failed", func() bool {
		users, _ := w.listed("")
		return strings.HasPrefix(users, "dora failing")
	})
	stale := servicetest.Case{Header: map[string]string{"If-Match": `"1"`}, Path: map[string]string{"user": "eve"}}
	d := servicetest.Described(t, api.OpenAPI)
	w.client.Transport = d.Transport(t, &http.Transport{})
	var cancelling errgroup.Group
	cancelling.SetLimit(50)
	for i := range 1000 { // so that one more is refused, for a minute
		cancelling.Go(func() error {
			return check.Err(n.Cancel(t.Context(), Cancellation{EventID: "evt-000", RecipientType: "CUSTOMER", UserID: fmt.Sprint("u-", i)}))
		})
	}
	check.OK(t, cancelling.Wait())
	for _, of := range []string{"?event=evt-000&", "/evt-000?"} {
		status, answer := w.call(http.MethodDelete, "/v1/events"+of+"type=CUSTOMER&user=dan", "")
		check.That(t, status == http.StatusConflict, "%s: %d %s", of, status, answer)
	}
	servicetest.Answers(t, p.nc, service.Endpoints(api.Operations(nil, nil)), [][2]string{
		{"publish", `{"event_id":"evt-003","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,"payload":{"guests":4}}`},
		{"users-import", "{\"user_id\":\"frida\",\"recipient_type\":\"CUSTOMER\"}\n"},
		{"users-put", `{"recipient_type":"CUSTOMER","user_id":"frida","body":{"addresses":{"webhook":"https://phone.example.com/hook"}}}`},
		{"users-get", `{"recipient_type":"CUSTOMER","user_id":"frida"}`},
		{"cancel", `{"event_id":"evt-003"}`},
		{"endpoints-enable", `{"channel":"pigeon","id":"310df89304dd8d96a74d83bf096b05ce"}`},
		{"endpoints-list", `{"state":"failing"}`},
		{"endpoints-replay", `{"recipient_type":"CUSTOMER","user_id":"frida","channel":"webhook","id":"main"}`},
		{"endpoints-rotate", `{"recipient_type":"CUSTOMER","user_id":"frida","channel":"webhook","id":"main"}`},
		{"endpoints-secret", `{"recipient_type":"CUSTOMER","user_id":"frida","channel":"webhook","id":"main"}`},
		{"endpoints-test", `{"recipient_type":"RESTAURANT_USER","user_id":"dora","channel":"pigeon","id":"main"}`},
		{"get", `{"event_id":"evt-003"}`},
		{"list", `{"event_id":"evt-000","state":"failed"}`},
		{"notify", `{"event_id":"welcome-eve","recipients":[{"recipient_type":"CUSTOMER","user_id":"eve"}],"payload":{"name":"Eve"},"channels":["inapp"]}`},
		{"replay", `{"event_id":"evt-000","state":"failed"}`},
		{"templates-test", `{"template":"welcome","channel":"sms","to":"+15550100","payload":{"name":"Carla"}}`},
		{"users-delete", `{"recipient_type":"CUSTOMER","user_id":"frida"}`},
		{"users-members", `{"recipient_type":"CUSTOMER","user_id":"frida","add":[{"type":"RESTAURANT","id":"5"}]}`},
		{"users-list", `{"recipient_type":"CUSTOMER"}`},
	})
	const user = "/v1/users/{type}/{user}"
	d.Examples(t, w.client, n.URL(), []string{"POST /v1/users"}, map[string]servicetest.Case{
		"DELETE /v1/events 404":         {Query: "event=digest:c:2000-01-01T00:15:00Z"},
		"DELETE /v1/events/{event} 404": {Path: map[string]string{"event": "digest:c:2000-01-01T00:15:00Z"}},
		"POST /v1/endpoints/enable 404": {Body: `{"channel":"pigeon","id":"nobody"}`},
		"DELETE /v1/events/{event} 200": {Query: "user=carla&type=CUSTOMER"},
		"POST /v1/events 200":           {},
		"POST /v1/users 400":            {Body: strings.Repeat("{}\n", 5001)},
		"POST /v1/events 409":           {Body: strings.Replace(reservation, "4", "5", 1)},
		"POST /v1/events 422":           {Body: strings.Replace(reservation, "{", `{"not_before":"2999-01-01T00:00:00Z",`, 1)},
		"POST /v1/notify 409":           {Body: `{"event_id":"welcome-carla","recipients":[{"recipient_type":"CUSTOMER","user_id":"dan"}],"channels":["inapp"]}`},
		"POST /v1/notify 422":           {Body: `{"event_id":"x","not_before":"2999-01-01T00:00:00Z","recipients":[{"recipient_type":"CUSTOMER","user_id":"dan"}],"channels":["inapp"]}`},
		"PUT " + user + " 412":          stale, "PATCH " + user + " 412": stale, "DELETE " + user + " 412": stale,
	})
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	cfg := Config{
		BaseConfig: service.BaseConfig{AckWait: time.Millisecond, Concurrency: -1, MaxBytes: -1, Replicas: 7},
		InboxKeep:  time.Millisecond, MaxRecipients: -1,
		Channels: []Channel{{Channel: &pigeon{name: "inapp"}}},
		Rules:    writeRules(t, "version: 1\nevents: {X: {ADMIN: {channels: [owl]}}}"),
	}
	_, err := cfg.withDefaults().validate()
	for _, want := range []string{
		"NOTIFIER_ACK_WAIT", "NOTIFIER_CONCURRENCY", "NOTIFIER_INBOX_KEEP", "NOTIFIER_MAX_BYTES", "NOTIFIER_MAX_RECIPIENTS", "NOTIFIER_REPLICAS",
		`two channels are named "inapp"`, `line 2: events.X.ADMIN.channels has "owl"`,
	} {
		check.ErrorContains(t, err, want)
	}
	check.ErrorContains(t, check.Err((Config{}).withDefaults().validate()), "NOTIFIER_RULES")
}

func TestWaysOutOfTheEnvironment(t *testing.T) {
	t.Parallel()
	folder := writeTexts(t, "x", "x", "x", "")
	key, _, err := webpush.GenerateKey()
	check.OK(t, err)
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	var cfg Config
	err = service.Read(name, map[string]string{
		"NOTIFIER_EMAIL_FROM": "n@example.com", "NOTIFIER_EMAIL_SERVER": "127.0.0.1:25", "NOTIFIER_EMAIL_SECURITY": "plain",
		"NOTIFIER_SMS_URL": "https://sms.example", "NOTIFIER_GATEWAYS": "fcm:https://adapter.example/fcm,slack:https://adapter.example/slack",
		"NOTIFIER_TEMPLATES": folder, "NOTIFIER_USER_NETWORKS": "10.1.0.0/16,fd00::/8",
		"NOTIFIER_WEBHOOK_SECRETS": secret + "," + secret, "NOTIFIER_WEBPUSH_KEY": key, "NOTIFIER_WEBPUSH_SUBJECT": "mailto:n@example.com",
	}, io.Discard, &cfg)
	check.Require(t, err == nil && len(cfg.UserNetworks) == 2 && len(cfg.WebhookSecrets) == 2, "%+v %v", cfg.ChannelConfig, err)
	texts := check.Must(cfg.texts())(t)
	channels, closers, err := cfg.open(tools{texts: texts})
	names := make([]string, len(channels))
	for i, c := range channels {
		names[i] = c.Name()
	}
	got := strings.Join(names, " ")
	check.That(t, err == nil && got == "webhook email sms fcm slack webpush" && len(channels[0].Retries) == 9, "%s: %v", got, err)
	check.Equal(t, strings.Join(cfg.names(), " "), "webhook email sms webpush fcm slack", "are to be set up")
	for _, c := range closers {
		c.Close()
	}
	channels, _, err = (ChannelConfig{}).open(tools{})
	check.That(t, err == nil && len(channels) == 0, "nothing is set up: %v %v", channels, err)
}

func TestWaysAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := ChannelConfig{
		EmailServer: "mail", SMSURL: "http://sms.example", Templates: t.TempDir(), WebhookSecrets: []string{"sesame"}, WebPushKey: "sesame",
	}.open(tools{})
	_, _, names := ChannelConfig{Gateways: map[string]string{"sms": "https://x.example", "a.b": "https://x.example", "fcm": "http://x.example"}}.open(tools{})
	check.ErrorContains(t, names, `"sms" is the name of no gateway`, `"a.b" is the name`, "gateway fcm: URL")
	for _, want := range []string{"webhook: Secrets", "email: Address", "email: From", "sms: URL", "webpush: Subject", "PrivateKey"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "sesame"),
			"%v does not say %s", err, want)
	}
	for _, folder := range []string{"", filepath.Join(t.TempDir(), "none")} {
		check.ErrorContains(t, check.Err((ChannelConfig{EmailServer: "mail:25", Templates: folder}).texts()), "NOTIFIER_TEMPLATES")
	}
	_, err = ChannelConfig{EmailServer: "mail:25", Templates: t.TempDir(), TemplatesLanguage: "no-language"}.texts()
	check.ErrorContains(t, err, "NOTIFIER_TEMPLATES_LANGUAGE")
}

// A notification whose recipient cannot be read is not sent, and says why: the opt-outs are not known.
func TestARecipientThatCannotBeRead(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	p := newPlace(t, srv)
	data := `{"user_id":"eve","recipient_type":"CUSTOMER","opt_out":{"news":"pigeon"}}`
	check.OK(t, check.Err(p.js.Publish(t.Context(), "$KV.directory.CUSTOMER.eve", []byte(data))))
	w := newWeb(t, p.start(&pigeon{}, func(c *Config) {
		c.Listen = "127.0.0.1:0"
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [pigeon]}}}")
	}))
	p.publish(event("eve", "X", func(e *recipient.Event) { e.UserID = "eve" }))
	row := p.settled(1)["eve.pigeon.CUSTOMER.eve"]
	check.That(t, row.State == deliveries.Failed && row.Reason == deliveries.ReasonRecipient, "%+v", row)
	if _, answer := w.call("GET", "/v1/notifications?event=eve", ""); !strings.Contains(answer, `"detail":"recipients: $KV.directory.CUSTOMER.eve: contracts: invalid Recipient: /opt_out/news must be`) {
		t.Error(answer)
	}
}
