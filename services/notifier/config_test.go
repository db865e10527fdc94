package notifier

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/channels"
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
)

// The permissions of deploy/nats are enough for the notifier when an administrator has made its streams and
// buckets.
func TestItNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	push, failure := providerThatFails("")
	p, _ := administered(t, "push")
	p.directory(users("RESTAURANT_USER", 2)...)
	denied := make(chan error, 100)
	may := natstest.NewPermissions(t, p.srv, "notifier")
	p.as = append(p.as, may.Through(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	n := p.start(push, listening)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
	p.settled(4)
	counts, err := n.Inbox.Counts(t.Context(), "RESTAURANT_USER", "u0")
	check.That(t, err == nil && counts.Unread == 1, "%+v: %v", counts, err)
	check.ErrorIs(t, check.Err(n.Inbox.Mark(t.Context(), "RESTAURANT_USER", "u0", "evt-001", inapp.Read)), nil)
	w := newHTTPClient(t, n)
	for _, body := range []string{reservation, strings.ReplaceAll(reservation, "evt-001", "evt-002"), strings.ReplaceAll(reservation, "evt-001", "evt-002")} {
		status, answer := w.call(http.MethodPost, "/v1/events", body)
		check.That(t, status < 300, "%d %s", status, answer)
	}
	p.settled(8)
	for _, path := range []string{"events/evt-002", "notifications?user=u0", "notifications?state=sent", "users/u0/inbox"} {
		w.wants(http.StatusOK, http.MethodGet, "/v1/"+path, "")
	}
	w.wants(http.StatusOK, http.MethodGet, "/readyz", "")
	for _, of := range [][2]string{
		{"users", `{"addresses":{"sms":"12"},"opt_out":{"reservations":["inapp"]}}`}, {"memberships", `{"add":[{"type":"RESTAURANT","id":"7"}]}`},
	} {
		w.wants(http.StatusOK, http.MethodPatch, "/v1/"+of[0]+"/CUSTOMER/carla", of[1])
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		status, answer := w.call(method, "/v1/users/CUSTOMER/carla", "")
		check.That(t, status < 300, "%d %s", status, answer)
	}
	later := strings.Replace(strings.ReplaceAll(reservation, "evt-001", "evt-003"), `"payload"`, `"not_before":"`+tomorrow()+`","payload"`, 1)
	w.wants(http.StatusAccepted, http.MethodPost, "/v1/events", later)
	p.until("notifications wait", func() bool { return len(p.deliveries()) == 12 })
	check.Equal(t, w.cancel("/v1/events/evt-003?user=u0&type=RESTAURANT_USER").Suppressed, 2, "suppressed")
	msg := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.cancel", []byte(`{"event_id":"evt-003"}`)))(t)
	check.Contains(t, string(msg.Data), `"suppressed":4`)
	failure.Store(channel.KindRejected)
	p.publish(event("evt-004", "RESERVATION_REQUESTED", toStaff))
	p.settled(16)
	failure.Store(channel.Kind(""))
	check.Equal(t, w.replay("reason=rejected").Replayed, 2, "replayed")
	p.until("they are sent", func() bool {
		all := p.deliveries()
		return all["evt-004.push.RESTAURANT_USER.u0"].State == "sent" && all["evt-004.push.RESTAURANT_USER.u1"].State == "sent"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	workers, err := inspect.Workers(ctx, p.js)
	check.ErrorIs(t, err, nil)
	check.Equal(t, len(workers), 4, "workers that answer") // of events, of plans, and of two channels
	next, end := w.listen("/v1/users/u0/inbox/events?last_event_id=1")
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
	for len(denied) > 0 {
		t.Errorf("denied: %v", <-denied)
	}
}

// administered is a fixture whose streams, buckets and consumers an administrator has made in the notifier's account. Its notifiers have
// the permissions of deploy/nats.
func administered(t *testing.T, names ...string) (*fixture, *natstest.Users) {
	t.Helper()
	users := natstest.NewUsers(t)
	server := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	nc, _ := natstest.Connect(t, server, users.As("admin"))
	js := natstest.InAccount(t, nc, "NOTIFIER")
	ours := contracts.AssetOptions{Channels: names, MaxBytes: 1 << 30, Services: []string{contracts.ServiceNotifier}}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(ours), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(ours), provision.Options{})))
	own := check.Must(jetstream.New(nc))(t)
	operators := contracts.Streams(contracts.AssetOptions{Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(provision.Apply(t.Context(), own, operators, provision.Options{})))
	as := []nats.Option{users.As("notifier")}
	return &fixture{T: t, as: as, store: deliveries.New(recordtest.Client(t, js)), js: js, nc: nc, srv: server}, users
}

func tomorrow() string { return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339) }

// The notifier of the examples has webhooks, SMS with a text, and a user whose push service refuses all.
func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	phones := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(phones.Close)
	roots, texts := trusting(t, phones), writeTexts(t, "welcome", "Hello {{.Payload.name}}", "Hello {{.Payload.name}}", "")
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	t.Cleanup(func() { check.OK(t, exports.Stop(context.WithoutCancel(t.Context()))) })

	p := newFixture(t, natstest.Server(t))
	p.directory(
		contracts.Recipient{RecipientType: "CUSTOMER", UserID: "eve"},
		contracts.Recipient{RecipientType: "RESTAURANT_USER", UserID: "dora", Addresses: map[string]string{"pigeon": "roof"}},
	)
	push, _ := providerThatFails(channel.KindRejected)
	push.name = "pigeon" // as in the examples
	n := p.start(push, listening, func(c *Config) {
		c.Rules = writeRules(t, strings.ReplaceAll(testRules, "push", push.name))
		c.Channels[0].Endpoints = true
		c.Channels = append(c.Channels, Channel{Channel: hooks})
		c.ChannelConfig = ChannelConfig{RootCAs: roots, SMSURL: phones.URL, Templates: texts}
		c.Exports = exports
	})
	w := newHTTPClient(t, n)
	p.publish(event("evt-000", "RESERVATION_REQUESTED", toStaff))
	p.until("it has failed", func() bool {
		users, _ := w.listed("")
		return strings.HasPrefix(users, "dora failing")
	})
	stale := servicetest.Case{Header: map[string]string{"If-Match": `"1"`}, Path: map[string]string{"user": "eve"}}
	d := servicetest.Described(t, api.OpenAPI)
	w.client.Transport = d.Transport(t, &http.Transport{})
	p.cancelUsers("evt-000", 1000) // so that one more is refused, for a minute
	for _, of := range []string{"?event=evt-000&", "/evt-000?"} {
		w.wants(http.StatusConflict, http.MethodDelete, "/v1/events"+of+"type=CUSTOMER&user=dan", "")
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
		Channels: []Channel{{Channel: &provider{name: "inapp"}}},
		Rules:    writeRules(t, "version: 1\nevents: {X: {ADMIN: {channels: [owl]}}}"),
	}
	_, err := cfg.withDefaults().validate()
	check.ErrorContains(t, err, "NOTIFIER_ACK_WAIT", "NOTIFIER_CONCURRENCY", "NOTIFIER_INBOX_KEEP", "NOTIFIER_MAX_BYTES",
		"NOTIFIER_MAX_RECIPIENTS", "NOTIFIER_REPLICAS", `two channels are named "inapp"`, `line 2: events.X.ADMIN.channels has "owl"`)
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
	opened, closers, err := cfg.open(tools{texts: texts})
	names := make([]string, len(opened))
	for i, c := range opened {
		names[i] = c.Name()
	}
	got := strings.Join(names, " ")
	check.That(t, err == nil && got == "webhook email sms fcm slack webpush" && len(opened[0].Retries) == 9, "%s: %v", got, err)
	check.Equal(t, strings.Join(cfg.names(), " "), "webhook email sms webpush fcm slack", "are to be set up")
	for _, c := range closers {
		c.Close()
	}
	opened, _, err = (ChannelConfig{}).open(tools{})
	check.That(t, err == nil && len(opened) == 0, "nothing is set up: %v %v", opened, err)
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

// A channel that is in the list and nowhere else would have a consumer, and be refused in rules.
func TestEveryListedChannelHasItsSetting(t *testing.T) {
	t.Parallel()
	var cfg Config
	var texts []string
	environment := map[string]string{}
	for _, c := range channels.All() {
		if c.Variable != "" {
			environment[c.Variable] = "-"
		}
		if c.Text != "" {
			texts = append(texts, c.Name)
		}
	}
	_ = service.Read(name, environment, t.Output(), &cfg) // the values are of no use to the channels
	check.Equal(t, strings.Join(texts, " "), strings.Join(cfg.textNames(), " "))
	got := append([]string{"inapp"}, cfg.names()...)
	slices.Sort(got)
	check.Equal(t, strings.Join(channels.Names(), " "), strings.Join(got, " "))
	check.Equal(t, "inapp webhook", strings.Join(Assume(&ChannelConfig{}, channels.Names()...), " "))
}

// rulesFolder is a folder with rules and templates, and the store of rules that is read from them.
type rulesFolder struct {
	*testing.T
	*rulesStore

	folder string
	log    bytes.Buffer
}

// newRulesFolder reads a store of rules with the channels inapp, push and email.
func newRulesFolder(t *testing.T, files map[string]string) *rulesFolder {
	t.Helper()
	s := &rulesFolder{T: t, folder: t.TempDir()}
	for name, text := range files {
		s.write(name, text)
	}
	cfg := Config{
		BaseConfig:    service.BaseConfig{Logger: slog.New(slog.NewTextHandler(&s.log, nil))},
		Rules:         filepath.Join(s.folder, "rules.yaml"),
		ChannelConfig: ChannelConfig{EmailServer: "mail:25", Templates: filepath.Join(s.folder, "templates")},
	}.withDefaults()
	b := check.Must(openRulesStore(cfg, []string{"inapp", "email", "push"}))(t)
	s.rulesStore = b
	return s
}

// write puts a file in place as editors do: by a new one.
func (s *rulesFolder) write(name, text string) {
	s.Helper()
	file := filepath.Join(s.folder, name)
	check.OK(s, os.MkdirAll(filepath.Dir(file), 0o700))
	check.OK(s, os.WriteFile(file+"~", []byte(text), 0o600))
	check.OK(s, os.Rename(file+"~", file))
}

// inForce are the channels that customers are told X by.
func (s *rulesFolder) inForce() string {
	return strings.Join(s.rules.Load().For("X")["CUSTOMER"].Channels, " ")
}

func ruled(names, more string) string {
	return "version: 1\nevents:\n  X:\n    CUSTOMER: {scope: user, channels: [" + names + "]}\n" + more
}

const (
	x     = "templates/X/default."
	other = "templates/other/default."
)

// The contents of the files come into force with the next look, however they were put there; files with mistakes do not, and
// are logged once with all of them, and shown.
func TestRulesAreReadAgainWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), x + "subject": "s", x + "txt": "one"})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { check.ErrorIs(t, s.run(ctx), nil) })
		looks := func(n int) {
			natstest.Pass(time.Duration(n) * s.every)
			synctest.Wait()
		}
		want := func(step, names string, failed, logged int) {
			t.Helper()
			looks(3)
			stats := s.Stats()
			if got := s.inForce(); got != names || (stats.Failed != "") != (failed != 0) || strings.Count(s.log.String(), "\n") != logged ||
				stats.Version != s.rules.Load().Version() {
				t.Errorf("%s: by %q, want %q; %+v, log:\n%s", step, got, names, stats, s.log.String())
			}
			check.That(t, strings.Count(stats.Failed, "line ") == max(0, failed) || failed < 0, "%s: %s", step, stats.Failed)
			check.That(t, failed <= 0 || strings.Contains(s.ready().Error(), stats.Failed), "%s: ready says %v", step, s.ready())
			check.That(t, failed != 0 || s.ready() == nil, "%s: ready says %v", step, s.ready())
		}
		want("as it was", "inapp", 0, 0)
		first := s.Stats().LoadedAt
		s.write("rules.yaml", ruled("inapp", ""))
		want("the same in another file", "inapp", 0, 0)
		s.write("rules.yaml", ruled("push", ""))
		want("by a new file", "push", 0, 1)
		check.That(t, s.Stats().LoadedAt.After(first), "it is not said when it was read")
		s.write("rules.yaml", ruled("owl", "  Y: 3\n"))
		want("mistakes", "push", 2, 2)
		s.write("rules.yaml", ruled("owl, bat", "  Y: 3\n"))
		want("other mistakes", "push", 3, 3)
		s.write("rules.yaml", ruled("push", ""))
		want("back to the rules in force", "push", 0, 4)
		check.OK(t, os.Remove(filepath.Join(s.folder, "rules.yaml")))
		want("no file", "push", -1, 5)
		check.Contains(t, s.Stats().Failed, "no such file")
		s.write("rules.yaml", ruled("inapp, email", ""))
		want("a file again", "inapp email", 0, 6)
		cancel()
		running.Wait()
		s.write("rules.yaml", ruled("inapp", ""))
		looks(3)
		check.Equal(t, s.inForce(), "inapp email", "in force after its end")
	})
}

// Kubernetes puts a folder in place by a link to another one, which the files are links into.
func TestRulesAreReadThroughLinks(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{
		"old/rules.yaml": ruled("inapp", ""), "new/rules.yaml": ruled("email", ""), "rules.yaml": ruled("inapp", ""),
		"new/templates/X/default.subject": "s", "new/templates/X/default.txt": "t", other + "subject": "s", other + "txt": "t",
	})
	link := func(to, name string) {
		check.OK(t, os.Symlink(to, filepath.Join(s.folder, name+"~")))
		check.OK(t, os.Rename(filepath.Join(s.folder, name+"~"), filepath.Join(s.folder, name)))
	}
	link("old", "..data")
	link("..data/rules.yaml", "rules.yaml")
	s.look(t.Context())
	check.That(t, s.log.Len() == 0 && s.inForce() == "inapp", "%s %s", s.inForce(), s.log.String())
	link("../..data/templates/X", "templates/X")
	s.look(t.Context())
	link("new", "..data")
	s.look(t.Context())
	check.That(t, s.inForce() == "email" && s.Stats().Failed == "" && s.texts.Has("X"), "%s %s", s.inForce(), s.log.String())
}

// Rules and templates come into force together, and a rule whose text is not there does not.
func TestRulesNeedTheirTexts(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), other + "subject": "s", other + "txt": "one"})
	body := func() string {
		return check.Must(s.texts.Render(channel.Message{Template: "other"}, "email", ""))(t).Text
	}
	s.write("templates/nothing/default.sms.txt", "not for a mail")
	s.write("rules.yaml", ruled("inapp, email", `  Y:
    ADMIN: {channels: [email], template: other}
    CUSTOMER: {channels: [email, inapp], template: nothing}
  "*":
    ADMIN: {channels: [email]}
    CUSTOMER: {channels: [email], template: nowhere}
`))
	s.look(t.Context())
	folder := s.channelConfig.Templates
	failed := s.Stats().Failed
	check.Contains(t, failed,
		"line 4: events.X.CUSTOMER is told by email, and has no text: there is no X/default.subject, and no X/default.txt, in "+folder,
		"line 7: events.Y.CUSTOMER is told by email, and has no text: there is no nothing/default.subject",
		"line 10: events.*.CUSTOMER is told by email, and has no text: there is no nowhere/default.subject")
	check.Equal(t, strings.Count(failed, "line "), 3, "mistakes")
	check.Equal(t, s.inForce(), "inapp", "in force")
	s.write("rules.yaml", ruled("inapp, email", ""))
	s.write(x+"subject", "s")
	s.write(x+"txt", "t")
	s.write(other+"txt", "two")
	s.look(t.Context())
	check.That(t, s.inForce() == "inapp email" && s.Stats().Failed == "" && body() == "two", "%s: %s", s.inForce(), s.Stats().Failed)
	s.write(x+"txt", "{{nonsense}}")
	s.write(other+"txt", "three")
	s.write("rules.yaml", ruled("inapp", ""))
	s.look(t.Context())
	check.That(t, s.inForce() == "inapp email" && body() == "two", "%s, %s", s.inForce(), body())
	check.Contains(t, s.Stats().Failed, "X/default.txt:1")
}

func TestCheckRules(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), x + "subject": "s", x + "txt": "t"})
	s.write("rules.yaml", ruled("email, push, inapp", ""))
	ways := ChannelConfig{EmailServer: "mail", Templates: s.channelConfig.Templates} // no From: that is not checked here
	check.ErrorIs(t, CheckRules(s.path, ways, "push"), nil)
	s.write("rules.yaml", ruled("email, push", "  Y:\n    ADMIN: {channels: [email]}\n"))
	s.write("templates/Z/default.txt", "t")
	err := CheckRules(s.path, ways)
	check.ErrorContains(t, err, `line 4: events.X.CUSTOMER.channels has "push"`, "Z: default needs")
	check.ErrorContains(t, CheckRules(filepath.Join(s.folder, "none.yaml"), ways), "none.yaml")
}

// An event that was planned keeps the rules it was planned by, also when it comes again after others have come into force.
func TestAPlanKeepsItsRules(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 1)...)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	file := writeRules(t, "version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp, push]}}}")
	n := p.start(&provider{}, listening, func(c *Config) { c.Exports, c.Rules, c.RulesEvery = exports, file, time.Hour })
	w := newHTTPClient(t, n)
	metrics := func() string { return w.wants(http.StatusOK, http.MethodGet, "/metrics", "") }
	publish := func(id string) { p.publish(event(id, "X")) }
	publish("evt-001")
	p.settled(2)
	first := n.Stats().Rules.Version
	check.Contains(t, metrics(), `notifier_rules_info{version="`+first+`"} 1`, "notifier_rules_failed 0")
	replace := func(text string) {
		check.OK(t, os.WriteFile(file, []byte(text), 0o600))
		n.rules.look(t.Context())
	}
	replace("version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp]}}}")
	second := n.Stats().Rules.Version
	publish("evt-001")
	publish("evt-002")
	p.until("both have been seen", func() bool { return n.Stats().Duplicates == 1 && n.Stats().Planned == 2 })
	p.settled(3)
	notifications := p.deliveries()
	check.That(t, len(notifications) == 3 && second != first, "%v by %s, then %s", notifications, first, second)
	for id, version := range map[string]string{"evt-001": first, "evt-002": second} {
		e, err := n.Event(t.Context(), id)
		check.That(t, err == nil && e.Rules == version, "%s is by %s, want %s (%v)", id, e.Rules, version, err)
	}
	replace("version: 2")
	ready := w.wants(http.StatusOK, http.MethodGet, "/readyz?verbose", "")
	check.Contains(t, ready, "[+]rules ok, but: version "+second+" stays in force: ")
	check.Contains(t, metrics(), "notifier_rules_failed 1", "notifier_rules_loaded_seconds ")
	check.That(t, n.Stats().Rules.Failed != "", "the statistics do not say so")
}
