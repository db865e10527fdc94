package notifier

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// asked is a request and its answer: a status, and texts of the body.
type asked struct {
	method, path, body, ifMatch string
	status                      int
	says                        []string
}

// ask makes requests one after the other. "ETAG" in an If-Match is the ETag of the answer before that has one.
func (w *httpClient) ask(requests ...asked) {
	w.Helper()
	etag := ""
	for i, r := range requests {
		var header []string
		switch r.ifMatch {
		case "":
		case "none":
			header = []string{"If-None-Match", "*"}
		default:
			header = []string{"If-Match", strings.ReplaceAll(r.ifMatch, "ETAG", etag)}
		}
		resp := w.request(w.Context(), r.method, r.path, r.body, header...)
		data := new(strings.Builder)
		check.OK(w, errors.Join(resp.Write(data), resp.Body.Close()))
		if tag := resp.Header.Get("ETag"); tag != "" {
			etag = tag
		}
		ok := resp.StatusCode == r.status
		for _, text := range r.says {
			ok = ok && strings.Contains(data.String(), text)
		}
		check.That(w, ok, "request %d, %s %s %s: want %d and %q, got %s", i, r.method, r.path, r.body, r.status, r.says, data)
	}
}

func TestUsersOverHTTP(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening))
	const carla, dora, members = "/v1/users/CUSTOMER/carla", "/v1/users/CUSTOMER/dora", "/v1/memberships/CUSTOMER/carla"
	large := func(n int) string { return `{"x":"` + strings.Repeat("y", n) + `"}` }
	w.ask(
		asked{"GET", carla, "", "", 404, []string{"there is no such user"}},
		asked{"DELETE", carla, "", "", 404, nil},
		asked{"PUT", carla, `{"locale":"he-IL","vip":12345678901234567890,"nick":null}`, "none", 200, []string{
			`{"locale":"he-IL","recipient_type":"CUSTOMER","user_id":"carla","vip":12345678901234567890}`,
		}},
		asked{"PUT", carla, `{}`, "none", 412, []string{"USER_CHANGED"}},
		asked{"PATCH", carla, `{"time_zone":"Asia/Jerusalem","vip":null}`, "ETAG", 200, []string{`{"locale":"he-IL","recipient_type":"CUSTOMER","time_zone"`}},
		asked{"PATCH", carla, `{"time_zone":"Asia/Jerusalem"}`, "ETAG", 200, nil},
		asked{"PATCH", carla, `{"time_zone":"UTC"}`, `"1"`, 412, nil},
		asked{"PATCH", carla, `{"time_zone":"UTC"}`, `W/"x"`, 412, nil},
		asked{"PATCH", carla, `{"time_zone":"UTC"}`, "*", 200, nil},
		asked{"PUT", carla, `{"locale":"fr","addresses":{"email":"c@example.com","sms":"12"}}`, "ETAG", 200, nil},
		asked{"PATCH", carla, `{"addresses":{"sms":null,"webhook":"https://example.com"}}`, "ETAG", 200, []string{
			`{"addresses":{"email":"c@example.com","webhook":"https://example.com"},"locale":"fr","recipient`,
		}},
		asked{"PATCH", carla, `{"opt_out":{"reservations":["push"]},"quiet_hours":{"from":"22:00","to":"07:00"}}`, "", 200, nil},
		asked{"PATCH", carla, `{"opt_out":{"reservations":["Push","fax"],"News":["*"]}}`, "", 400, []string{
			`/opt_out/News","problem":"names no category: want reservations, *`, `/opt_out/reservations","problem":"names no channel: want inapp, push, *`,
		}},
		asked{"PATCH", carla, `{"mute":{"Reservations":"2030-12-01T08:00:00Z","*":"2030-12-01T08:00:00Z"}}`, "", 400, []string{"/mute/Reservations"}},
		asked{"PUT", carla, `{"digest":{"deals":"4h"},"opt_out":{"reservations":["push"]}}`, "", 400, []string{"/digest/deals"}},
		asked{"PATCH", carla, `{"opt_out":{"reservations":null}}`, "", 403, []string{"OPT_OUT_KEPT", `that of \"reservations\" on \"push\"`}},
		asked{"PATCH", carla, `{"quiet_hours":{"to":"08:00"}}`, "ETAG", 200, []string{`{"from":"22:00","to":"08:00"}`, `{"reservations":["push"]}`}},
		asked{"PATCH", carla, `{"mute":{"a b":"never"},"digest":{"news":"7m"}}`, "", 400, []string{"/mute/a b", "/digest/news", "such as 30m"}},

		asked{"PATCH", members, `{"add":[{"type":"RESTAURANT","id":"5"},{"type":"CITY","id":"a.b/*"}]}`, "", 200, []string{
			`{"memberships":[{"type":"CITY","id":"a.b/*"},{"type":"RESTAURANT","id":"5"}]}`,
		}},
		asked{"PATCH", members, `{"add":[{"type":"CITY","id":"2"}],"remove":[{"type":"CITY","id":"a.b/*"}]}`, "", 200, []string{
			`[{"type":"CITY","id":"2"},{"type":"RESTAURANT","id":"5"}]`,
		}},
		asked{"PATCH", members, `{"add":[{"type":"a.b","id":""}]}`, "", 400, []string{"/add/0"}},
		asked{"GET", members, "", "", 200, []string{`{"memberships":[{"type":"CITY","id":"2"},{"type":"RESTAURANT","id":"5"}]}`}},

		asked{"GET", carla, "", "", 200, nil},
		asked{"DELETE", carla, "", `"1"`, 412, nil},
		asked{"DELETE", carla, "", "ETAG", 204, nil},
		asked{"PUT", carla, `{}`, "ETAG", 412, nil},
		asked{"PUT", carla, `{}`, "*", 412, nil},
		asked{"GET", carla, "", "", 404, nil},
		asked{"GET", members, "", "", 200, []string{`{"memberships":[]}`}},
		asked{"PUT", carla, `{}`, "none", 200, []string{`{"recipient_type":"CUSTOMER","user_id":"carla"}`}},

		// Every mistake is named, and nothing is stored.
		asked{"PUT", dora, `{"locale":7,"user_id":"eve","memberships":[]}`, "", 400, []string{"/locale", "/user_id", "/memberships"}},
		asked{"PUT", dora, large(recipient.MaxDocument), "", 413, nil},
		asked{"PUT", dora, large(1 << 20), "", 413, nil},
		asked{"GET", dora, "", "", 404, nil},
		asked{"PUT", dora, large(60 << 10), "", 200, nil},
		asked{"PUT", "/v1/users/A%2EB/dora", `{}`, "", 400, []string{"/recipient_type"}},
		asked{"PUT", "/v1/users/CUSTOMER/" + strings.Repeat("x", contracts.MaxID+1), `{}`, "", 400, []string{"/user_id"}},
		asked{"GET", "/v1/users?limit=1001", "", "", 400, nil},
		asked{"GET", "/v1/users?cursor=%2E", "", "", 400, nil},
	)
	w.wants(400, "POST", "/v1/users", strings.Repeat("{}\n", 5001))
	page := get[api.UserPage](w, "/v1/users")
	check.That(t, len(page.Users) == 2, "%s", page.Users)
}

// An id is never a path, a wildcard, or another user's.
func TestIDsOfUsers(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening))
	ids := []string{"a.b", "a/b", "*", ">", "a b", "דנה", "..", ".", "inbox", "-", "%2F", "$KV", "a\tb", strings.Repeat("x", contracts.MaxID)}
	for _, id := range ids {
		query := "/CUSTOMER/-?user=" + url.QueryEscape(id)
		w.ask(
			asked{"PUT", "/v1/users" + query, fmt.Sprintf(`{"addresses":{"email":"%x"}}`, id), "none", 200, nil},
			asked{"PATCH", "/v1/memberships" + query, `{"add":[{"type":"RESTAURANT","id":"5"}]}`, "", 200, nil},
		)
	}
	d := p.directory()
	for _, id := range ids {
		r, found, err := d.Get(t.Context(), "CUSTOMER", id)
		check.That(t, err == nil && found && r.Addresses["email"] == fmt.Sprintf("%x", id), "%q: %+v %v %v", id, r, found, err)
		if strings.Trim(id, ".") != "" && id != "inbox" {
			w.ask(asked{"GET", "/v1/users/CUSTOMER/" + url.PathEscape(id), "", "", 200, nil})
		}
	}
	w.ask(asked{"DELETE", "/v1/users/CUSTOMER/%2A", "", "", 204, nil}, asked{"DELETE", "/v1/users/CUSTOMER/%3E", "", "", 204, nil})
	known := map[string]bool{}
	for path := "/v1/users?type=CUSTOMER&limit=5"; path != ""; {
		page := get[api.UserPage](w, path)
		for _, line := range page.Users {
			var r contracts.Recipient
			check.OK(t, json.Unmarshal(line, &r))
			known[r.UserID] = true
		}
		if path = ""; page.Next != "" {
			path = "/v1/users?type=CUSTOMER&limit=5&cursor=" + page.Next
		}
	}
	check.Equal(t, len(known), len(ids)-2, "users are left")
}

// A key of a user reaches that user, and takes the user's own opt-outs back.
func TestKeysOfUsers(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada", OptOut: map[string][]string{"news": {"email"}}})
	keys := filepath.Join(t.TempDir(), "keys.json")
	key := addKey(t, keys, access.Key{Name: "ada", User: "ada", RecipientType: "CUSTOMER", Scopes: []access.Scope{access.People}})
	w := newHTTPClient(t, p.start(&provider{}, listening, func(c *Config) { c.Keys = keys }))
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "CUSTOMER/ada", "", 200},
		{"PATCH", "CUSTOMER/ada", `{"vip":true}`, 400},
		{"PUT", "CUSTOMER/ada", `{}`, 403},
		{"DELETE", "CUSTOMER/ada", "", 403},
		{"PATCH", "../memberships/CUSTOMER/ada", `{"add":[{"type":"RESTAURANT","id":"7"}]}`, 403},
		{"GET", "../memberships/CUSTOMER/ada", "", 200},
		{"PATCH", "CUSTOMER/ada", `{"addresses":{"email":"a@example.com"}}`, 200},
		{"GET", "", "", 403},
		{"GET", "CUSTOMER/bob", "", 403},
		{"PATCH", "CUSTOMER/ada?user=bob", `{"addresses":{"email":"a@example.com"}}`, 403},
		{"GET", "ADMIN/ada", "", 403},
		{"PATCH", "CUSTOMER/ada", `{"opt_out":{"news":null}}`, 200},
	} {
		w.wants(test.status, test.method, strings.TrimSuffix("/v1/users/"+test.path, "/"), test.body, key...)
	}
	r, _, err := p.directory().Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.OptOut) == 0 && r.Addresses["email"] == "a@example.com", "%+v %v", r, err)
}

// A token that an application has signed reaches the inbox and the preferences of its user, and nothing else, while an identity provider is
// configured, too, and does not answer.
func TestTokensOfAnApplication(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada"})
	keys := filepath.Join(t.TempDir(), "keys.json")
	signer := check.Must(access.AddSigner(keys, "shop-1", access.SignerAlgorithms()[0]))(t)
	w := newHTTPClient(t, p.start(&provider{}, listening, func(c *Config) {
		c.Keys, c.TokenAudience, c.OIDCAudience, c.OIDCIssuer = keys, "shop", "shop", "http://127.0.0.1:1"
	}))
	token := func(claims map[string]any) []string {
		return []string{"Authorization", "Bearer " + servicetest.Token(t, signer, "shop", claims)}
	}
	all := map[string]any{"recipient_type": "CUSTOMER", "scope": "read mark people publish"}
	for _, test := range []struct {
		claims             map[string]any
		method, path, body string
		status             int
	}{
		{all, "GET", "users/ada/inbox", "", 200},
		{all, "GET", "users/ada/inbox?type=CUSTOMER", "", 200},
		{all, "GET", "users/ada/inbox?type=ADMIN", "", 403},
		{all, "GET", "users/eve/inbox", "", 403},
		{all, "GET", "users/eve/inbox/events", "", 403},
		{all, "POST", "users/ada/inbox", `{"state":"read"}`, 200},
		{all, "GET", "users/CUSTOMER/ada", "", 200},
		{all, "GET", "users/ADMIN/ada", "", 403},
		{all, "GET", "users/CUSTOMER/eve", "", 403},
		{all, "PATCH", "users/CUSTOMER/ada", `{"addresses":{"email":"a@example.com"}}`, 200},
		{all, "PUT", "users/CUSTOMER/ada", `{}`, 403},
		{all, "GET", "users", "", 403},
		{all, "POST", "events", `{}`, 403},
		{all, "POST", "notify", `{}`, 403},
		{all, "GET", "endpoints", "", 403},
		{map[string]any{"scope": "read"}, "GET", "users/ada/inbox", "", 200},
		{map[string]any{"scope": "read"}, "PATCH", "users/CUSTOMER/ada", `{"opt_out":{}}`, 403},
		{map[string]any{"scope": "read operate"}, "GET", "users/ada/inbox", "", 401},
		{map[string]any{"aud": "notifier", "scope": "read"}, "GET", "users/ada/inbox", "", 401},
	} {
		w.wants(test.status, test.method, "/v1/"+test.path, test.body, token(test.claims)...)
	}
	resp := w.request(t.Context(), "GET", "/v1/users/ada/inbox", "", token(map[string]any{"aud": "notifier", "scope": "read"})...)
	check.OK(t, resp.Body.Close())
	check.Equal(t, resp.Header.Get("WWW-Authenticate"),
		`Bearer realm="notifier", error="invalid_token", error_description="the token is for another audience"`)
	r, _, err := p.directory().Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && r.Addresses["email"] == "a@example.com", "%+v %v", r, err)
}

// Users that are imported over HTTP are exported alike over NATS.
func TestImportAndExportOfUsers(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening))
	lines := strings.Join([]string{
		`{"recipient_type":"CUSTOMER","user_id":"a","locale":"he","addresses":{"email":"a@example.com"},"opt_out":{"news":["sms"]},"memberships":[{"type":"CITY","id":"1"}]}`,
		`{"recipient_type":"CUSTOMER","user_id":"b","locale":7,"time_zone":"Mars","memberships":[{"type":"","id":""}]}`,
		``,
		`{"recipient_type":"CUSTOMER","user_id":"a","locale":"fr","vip":true}`,
		`no JSON`,
		`{"recipient_type":"ADMIN","user_id":"z","opt_out":{"*":["*"]},"unlisted":true}`,
		`{"recipient_type":"CUSTOMER","user_id":"c","locale":"en","memberships":[{"type":"CITY","id":"1"}]}`,
	}, "\n")
	status, body := w.call("POST", "/v1/users", lines)
	check.Equal(t, status, 200, "status")
	check.Contains(t, body, `{"line":1,"recipient_type":"CUSTOMER","user_id":"a","status":"stored"}`, `"line":2`, `"/locale"`, `"/time_zone"`,
		`/memberships/0`, `{"line":4,`, `{"line":5,"status":"invalid"`, `{"line":6,`)
	check.That(t, !strings.Contains(body, `"line":3`), "a blank line has a result: %s", body)
	many := `{"recipient_type":"ADMIN","user_id":"y","addresses":{"a b":"","c d":"","e f":"","g h":"","i j":"",` +
		`"k l":"","m n":"","o p":"","q r":"","s t":"","u v":""}}` + "\n"
	_, body = w.call("POST", "/v1/users", strings.Repeat(many, 200))
	check.Equal(t, strings.Count(body, `"path"`), 1000, "mistakes are named")
	check.Equal(t, strings.Count(body, `"status":"invalid"`), 200, "lines are invalid")
	again := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.users.import", []byte(strings.Split(lines, "\n")[3])))(t)
	check.Equal(t, string(again.Data), `{"line":1,"recipient_type":"CUSTOMER","user_id":"a","status":"unchanged"}`+"\n", "again")
	msg := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.users.list", []byte(`{}`)))(t)
	var page api.UserPage
	check.OK(t, json.Unmarshal(msg.Data, &page))
	slices.SortFunc(page.Users, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	check.Equal(t, page.Users, []json.RawMessage{
		json.RawMessage(`{"addresses":{"email":"a@example.com"},"locale":"fr","opt_out":{"news":["sms"]},"recipient_type":"CUSTOMER","user_id":"a","vip":true}`),
		json.RawMessage(`{"locale":"en","recipient_type":"CUSTOMER","user_id":"c"}`),
		json.RawMessage(`{"memberships":[{"type":"CITY","id":"1"}],"recipient_type":"CUSTOMER","unlisted":true,"user_id":"a"}`),
		json.RawMessage(`{"memberships":[{"type":"CITY","id":"1"}],"recipient_type":"CUSTOMER","unlisted":true,"user_id":"c"}`),
		json.RawMessage(`{"opt_out":{"*":["*"]},"recipient_type":"ADMIN","unlisted":true,"user_id":"z"}`),
	})
	w.ask(asked{"GET", "/v1/users/ADMIN/z", "", "", 200, []string{`{"*":["*"]}`}})
	for _, test := range [][3]string{
		{"get", `{"recipient_type":"CUSTOMER","user_id":"a"}`, `"email":"a@example.com"`},
		{"put", `{"recipient_type":"CUSTOMER","user_id":"a","merge":true,"body":{"locale":"en"}}`, `"locale":"en"`},
		{"members", `{"recipient_type":"CUSTOMER","user_id":"a","remove":[{"type":"CITY","id":"1"}]}`, `{"memberships":[]}`},
		{"put", `{"recipient_type":"CUSTOMER","user_id":"a","if_match":"7","body":{}}`, "USER_CHANGED"},
		{"delete", `{"recipient_type":"CUSTOMER","user_id":"a"}`, "{}"},
		{"get", `{"recipient_type":"CUSTOMER","user_id":"a"}`, ""},
	} {
		msg := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.users."+test[0], []byte(test[1])))(t)
		check.Contains(t, string(msg.Data), test[2])
		check.That(t, test[2] != "" || msg.Header.Get("Nats-Service-Error-Code") == "404", "%s %s: %v", test[0], test[1], msg.Header)
	}
}

// notificationsOf are the notifications that a query lists, as "<channel>/<address> <state> <reason>".
func (w *httpClient) notificationsOf(query string) string {
	w.Helper()
	var all []string
	ids := map[string]bool{}
	for _, n := range get[Page](w, "/v1/notifications?"+query).Notifications {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s/%s %s %s", n.Channel, n.Address, n.State, n.Reason)))
		ids[n.MessageID] = true
	}
	check.That(w, len(ids) == len(all), "%d notifications have %d message ids", len(all), len(ids))
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// The notifications of a user's addresses are listed with the one that was split for them, are selected by address, sent again one by
// one, and cancelled with it.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	user := users("RESTAURANT_USER", 1)[0]
	user.Addresses = map[string]string{"push": "roof"}
	user.Endpoints = map[string]map[string]contracts.Endpoint{"push": {"tower": {Address: "tower"}}}
	p.directory(user)
	push, failure := providerThatFails(channel.KindRejected)
	n := p.start(push, listening)
	w := newHTTPClient(t, n)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
	p.settled(4)
	check.Equal(t, w.notificationsOf("event=evt-001"), "inapp/ delivered, push/ split, push/main failed rejected, push/tower failed rejected",
		"notifications")
	check.Equal(t, w.notificationsOf("user=u0&channel=push&address=tower"), "push/tower failed rejected", "notifications of the user")
	check.Equal(t, w.notificationsOf("state=failed"), "push/main failed rejected, push/tower failed rejected", "failed notifications")
	failure.Store(channel.Kind(""))
	check.Equal(t, w.replay("user=u0&channel=push&address=tower").Replayed, 1, "replayed")
	p.until("the tower has it", func() bool { return w.notificationsOf("event=evt-001&address=tower") == "push/tower sent" })
	check.Equal(t, w.notificationsOf("event=evt-001&address=main"), "inapp/ delivered, push/main failed rejected", "the others")

	failure.Store(channel.KindUnavailable)
	p.publish(event("evt-002", "RESERVATION_REQUESTED", toStaff))
	p.until("both were tried", func() bool {
		return w.notificationsOf("event=evt-002&channel=push&state=pending") == "push/main pending unavailable, push/tower pending unavailable"
	})
	done := w.cancel("/v1/events/evt-002")
	check.That(t, done.Suppressed == 2 && done.Sent == 1 && done.Ended == 0, "%+v", done)
	const cancelled = "push/ split, push/main suppressed cancelled, push/tower suppressed cancelled"
	check.Equal(t, w.notificationsOf("event=evt-002&channel=push"), cancelled, "notifications")

	// Of a notification whose process died those of the addresses are cancelled before they are stored.
	failure.Store(channel.Kind(""))
	p.publish(event("evt-003", "RESERVATION_REQUESTED", toStaff, notBefore(time.Now().Add(time.Hour))))
	p.until("it waits", func() bool { return w.notificationsOf("event=evt-003&channel=push") == "push/ deferred not_before" })
	const key = "evt-003.push.RESTAURANT_USER.u0"
	split := check.Must(p.store.Get(t.Context(), key))(t)
	split.State, split.Reason, split.Addresses = deliveries.Split, "", []string{"main", "tower"}
	check.OK(t, p.store.Put(t.Context(), key, split))
	check.Equal(t, w.notificationsOf("event=evt-003&channel=push"), "push/ split, push/main pending, push/tower pending", "notifications")
	check.OK(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: "evt-003"})))
	check.Equal(t, w.notificationsOf("event=evt-003&channel=push"), cancelled, "notifications")
}

// The owner of a webhook sees its secret, replaces it, sends a test message, and has failed notifications sent again. The secrets and
// notifications of other addresses and users stay as they are, and no secret is stored.
func TestSecretsOfAddresses(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	var status atomic.Int32
	var got atomic.Pointer[http.Header]
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Clone()
		got.Store(&header)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(far.Close)
	const service = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	hooks, err := webhook.New(webhook.Config{AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Secrets: []string{service}})
	check.OK(t, err)
	t.Cleanup(hooks.Close)
	n := p.start(&provider{}, listening, func(c *Config) {
		c.Channels = []Channel{{Channel: hooks, Retries: []time.Duration{time.Millisecond}}}
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [webhook]}}}")
	})
	w := newHTTPClient(t, n)
	const carla = "/v1/users/CUSTOMER/carla"
	at := func(id, action string) string { return carla + "/endpoints/webhook/" + id + "/" + action }
	w.ask(
		asked{"PUT", carla, fmt.Sprintf(`{"addresses":{"webhook":%q},"endpoints":{"webhook":{"phone":{"address":%q}}}}`, far.URL, far.URL+"/p"), "", 200, nil},
		asked{"GET", at("none", "secret"), "", "", 404, nil},
		asked{"GET", strings.Replace(at("main", "secret"), "webhook", "email", 1), "", "", 404, nil},
		asked{"GET", strings.Replace(at("main", "secret"), "carla", "dora", 1), "", "", 404, nil},
		asked{"POST", at("main", "replay?since=yesterday"), "", "", 400, []string{"?since"}},
	)
	secret := func(method, id, action string) api.AddressSecrets {
		return answerTo[api.AddressSecrets](w, method, at(id, action), "")
	}
	plain := hooks.Secrets("CUSTOMER", "carla", "", contracts.Endpoint{})[0]
	main, phone := secret("GET", "main", "secret"), secret("GET", "phone", "secret")
	check.Equal(t, main.Secret, plain, "secret of main")
	check.That(t, phone.Secret != main.Secret && len(phone.Also) == 0, "%+v", phone)
	for id, was := range map[string]string{"main": main.Secret, "phone": phone.Secret} {
		is := secret("POST", id, "rotate")
		check.That(t, is.Secret != was && len(is.Also) == 1 && is.Also[0] == was && !is.RotatedAt.IsZero(), "%s: %+v", id, is)
		check.Equal(t, secret("POST", id, "rotate"), is) // the answer of the first was lost
		check.Equal(t, secret("GET", id, "secret"), is)
	}

	for _, problem := range []string{"", "418"} {
		status.Store(204)
		if problem != "" {
			status.Store(418)
		}
		sent := answerTo[TestSent](w, "POST", at("phone", "test"), "")
		check.That(t, strings.Contains(sent.Problem, problem) && (problem == "") == (sent.Problem == ""), "%+v", sent)
		check.Equal(t, len(strings.Fields(got.Load().Get("Webhook-Signature"))), 2, "signatures")
	}

	p.publish(event("evt-001", "X", func(e *recipient.Event) { e.UserID = "carla" }))
	const failed = "webhook/ split, webhook/main failed exhausted, webhook/phone failed exhausted"
	p.until("both have failed", func() bool { return w.notificationsOf("event=evt-001") == failed })
	status.Store(204)
	for since, want := range map[time.Time]string{time.Now().Add(time.Hour): `"replayed":0`, time.Now().Add(-time.Hour): `"replayed":1`} {
		w.ask(asked{"POST", at("phone", "replay?since="+since.UTC().Format(time.RFC3339)), "", "", 200, []string{want}})
	}
	p.until("the phone has it", func() bool {
		return w.notificationsOf("event=evt-001") == "webhook/ split, webhook/main failed exhausted, webhook/phone delivered"
	})
}

// listed are the endpoints that a query selects, by user, in order.
func (w *httpClient) listed(query string) (users string, page api.EndpointPage) {
	w.Helper()
	page = get[api.EndpointPage](w, "/v1/endpoints"+query)
	for _, e := range page.Endpoints {
		users += fmt.Sprintf("%s %s, ", e.UserID, e.State)
	}
	return users, page
}

// An operator finds the endpoints that do not work, by state and channel and in pages, and puts one back to work: its notifications are
// sent again from then on. An endpoint that answers leaves the list. The list shows no address.
func TestEndpointsOverHTTP(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	for _, user := range []string{"ada", "bob"} {
		p.directory(contracts.Recipient{
			RecipientType: "CUSTOMER", UserID: user, Addresses: map[string]string{"push": "https://secret.example/" + user},
		})
	}
	push, failure := providerThatFails(channel.KindRejected)
	n := p.start(push, listening, func(c *Config) {
		c.Channels[0].Endpoints, c.DisableAfter = true, time.Nanosecond
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [push]}}}")
	})
	w := newHTTPClient(t, n)
	check.Equal(t, n.slots(n.cfg.Channels[0]), 1024, "slots, of which new endpoints that hang take one each")
	told := 0
	publish := func(user string) *deliveries.Delivery {
		t.Helper()
		told++
		id := fmt.Sprint("evt-", told)
		p.publish(event(id, "X", func(e *recipient.Event) { e.UserID = user }))
		return p.settled(told)[id+".push.CUSTOMER."+user]
	}
	list := func(want, query string) {
		t.Helper()
		p.until(fmt.Sprintf("%q for %q", want, query), func() bool { // the worker writes the endpoint's record after the end
			users, _ := w.listed(query)
			return users == want
		})
	}
	none, page := w.listed("")
	check.That(t, none == "" && page.Endpoints != nil, "%+v", page)
	publish("ada")
	list("ada failing, ", "")
	publish("bob")
	list("ada failing, bob failing, ", "")
	publish("bob")
	for query, want := range map[string]string{
		"":                "ada failing, bob disabled, ",
		"?state=failing":  "ada failing, ",
		"?state=disabled": "bob disabled, ",
		"?channel=push":   "ada failing, bob disabled, ",
		"?channel=email":  "",
		"?limit=1":        "ada failing, ",
	} {
		list(want, query)
	}
	_, first := w.listed("?limit=1")
	second, rest := w.listed("?limit=1&cursor=" + first.Next)
	check.That(t, second == "bob disabled, " && first.Next != "" && rest.Next == "", "%+v, then %+v", first, rest)
	bob := rest.Endpoints[0]
	check.That(t, bob.Channel == "push" && bob.ID != "" && bob.LastError != "" && !bob.At.IsZero() && !bob.Since.IsZero(), "%+v", bob)
	answer := w.wants(http.StatusOK, http.MethodGet, "/v1/endpoints", "")
	check.That(t, !strings.Contains(answer, "secret.example"), "an address is told: %s", answer)

	d := publish("bob")
	check.That(t, d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonEndpointDisabled && len(d.Attempts) == 0, "%+v", d)
	failure.Store(channel.Kind(""))
	name := fmt.Sprintf(`{"channel":%q,"id":%q}`, bob.Channel, bob.ID)
	for _, want := range []health.State{health.Disabled, health.Healthy} { // as it was before
		check.Equal(t, answerTo[health.Endpoint](w, http.MethodPost, "/v1/endpoints/enable", name).State, want, "it was")
	}
	list("ada failing, ", "")
	check.Equal(t, publish("bob").State, deliveries.Sent, "an endpoint that was enabled")
	check.Equal(t, publish("ada").State, deliveries.Sent, "a failing endpoint")
	list("", "")
}

const mailRules = `
version: 1
events:
  NEWS: {CUSTOMER: {scope: user, channels: [email], category: news, template: X}}
  ALARM: {CUSTOMER: {scope: user, channels: [email], category: news, priority: critical, template: X}}
  OTHER: {CUSTOMER: {scope: user, channels: [email], category: other, template: X}}
`

// withMails configures a notifier whose only template has this subject and text. mails gets what it sends to its mail server.
func withMails(t *testing.T, subject, text string) (configure func(*Config), mails <-chan *mail.Message) {
	t.Helper()
	taken := make(chan *mail.Message, 10)
	server := mailServer(t, func(_ net.Conn, _ string, raw []byte) error {
		m, err := mail.ReadMessage(bytes.NewReader(raw))
		taken <- m
		return err
	})
	return func(c *Config) {
		c.Rules = writeRules(t, mailRules)
		c.ChannelConfig = ChannelConfig{
			EmailFrom: "n@example.com", EmailSecurity: "plain", EmailServer: server, LinkSecrets: []string{strings.Repeat("x", 32)},
			PublicURL: "https://n.example", Templates: writeTexts(t, "X", subject, text, ""),
		}
	}, taken
}

// trusting is a file with the certificate of a server.
func trusting(t *testing.T, srv *httptest.Server) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "ca.pem")
	check.OK(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	return file
}

// A user who follows the link of a mail gets no other one of its category; critical mails come all the same, and have no link.
// The permissions of deploy/nats are enough for that.
func TestALinkSwitchesACategoryOff(t *testing.T) {
	t.Parallel()
	mailing, mails := withMails(t, "hello", "stop: {{.Unsubscribe}} or choose: {{.Preferences}}.")
	p, _ := administered(t)
	ada := contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}}
	directory := p.directory(ada)
	n := p.start(&provider{}, listening, mailing, func(c *Config) { c.Channels = nil })
	publish := func(id, kind string) { p.publish(event(id, kind, func(e *recipient.Event) { e.UserID = "ada" })) }
	received := func() (link, body string, h mail.Header) {
		m := <-mails
		data := check.Must(io.ReadAll(quotedprintable.NewReader(m.Body)))(t)
		return strings.Trim(m.Header.Get("List-Unsubscribe"), "<>"), string(data), m.Header
	}
	publish("evt-001", "NEWS")
	link, body, header := received()
	path, found := strings.CutPrefix(link, "https://n.example")
	check.Require(t, found && strings.HasPrefix(path, pages.PathUnsubscribe), "%q in %v", link, header)
	check.Equal(t, header.Get("List-Unsubscribe-Post"), "List-Unsubscribe=One-Click")
	check.Contains(t, body, "stop: https://n.example/v1/unsubscribe?token=")
	w := newHTTPClient(t, n)
	check.Contains(t, w.wants(http.StatusOK, http.MethodGet, path, ""), "<form")
	r, _, err := directory.Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.OptOut) == 0, "looking at the page has switched off: %v %v", r.OptOut, err)
	w.wants(http.StatusForbidden, http.MethodPost, path+"x", "") // a link that is not ours
	for range 2 {
		w.wants(http.StatusOK, http.MethodPost, path, "List-Unsubscribe=One-Click", "Content-Type", "application/x-www-form-urlencoded")
	}
	_, choose, _ := strings.Cut(strings.TrimSpace(body), "choose: https://n.example")
	form := w.wants(http.StatusOK, http.MethodGet, strings.TrimSuffix(choose, "."), "")
	check.Contains(t, form, `value="news email">`, `value="other email" checked>`)
	publish("evt-002", "NEWS")
	publish("evt-003", "ALARM")
	link, body, header = received()
	check.That(t, link == "" && header.Get("List-Unsubscribe-Post") == "" && !strings.Contains(body, "n.example/v1/unsub"),
		"a critical mail has a link: %q in %v: %s", link, header, body)
	publish("evt-004", "OTHER")
	link, _, _ = received()
	check.That(t, link != "", "no link")
	all := p.settled(4)
	for id, want := range map[string]string{"evt-001": "sent ", "evt-002": "suppressed opt_out", "evt-003": "sent ", "evt-004": "sent "} {
		d := all[id+".email.CUSTOMER.ada"]
		check.That(t, string(d.State)+" "+d.Reason == want, "%s is %s %s, want %s", id, d.State, d.Reason, want)
	}
}

// Webhooks trust the certificates of an authority of the operator's own.
func TestAuthoritiesOfTheOperator(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	t.Cleanup(srv.Close)
	p := newFixture(t, natstest.Server(t))
	p.directory(contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada", Addresses: map[string]string{"webhook": srv.URL + "/hook"}})
	p.start(&provider{}, func(c *Config) {
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: all, channels: [webhook]}}}")
		c.RootCAs, c.UserNetworks = trusting(t, srv), []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		c.WebhookSecrets = []string{"whsec_" + strings.Repeat("A", 40)}
	})
	p.publish(event("evt-001", "X"))
	<-called
	all := p.settled(1)
	check.That(t, all["evt-001.webhook.CUSTOMER.ada"].State == "delivered", "%+v", all["evt-001.webhook.CUSTOMER.ada"])
}

func TestAuthoritiesAndLinksAreChecked(t *testing.T) {
	t.Parallel()
	for _, file := range []string{filepath.Join(t.TempDir(), "none"), writeRules(t, "no certificate")} {
		check.ErrorContains(t, check.Err((ChannelConfig{RootCAs: file}).roots()), "NOTIFIER_ROOT_CAS", file)
	}
	for _, ways := range []ChannelConfig{{PublicURL: "https://n.example"}, {LinkSecrets: []string{strings.Repeat("x", 32)}}} {
		_, err := ways.links()
		check.That(t, err != nil && strings.Contains(err.Error(), "notifier: "), "%+v: %v", ways, err)
	}
}
