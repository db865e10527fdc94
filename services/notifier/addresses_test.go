package notifier

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// rowsOf are the notifications that a query lists, as "<channel>/<address> <state> <reason>".
func (w *web) rowsOf(query string) string {
	w.Helper()
	status, body := w.call(http.MethodGet, "/v1/notifications?"+query, "")
	var page Page
	err := json.Unmarshal([]byte(body), &page)
	check.Require(w, err == nil && status == http.StatusOK, "%s: %d %s", query, status, body)
	var all []string
	ids := map[string]bool{}
	for _, n := range page.Notifications {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s/%s %s %s", n.Channel, n.Address, n.State, n.Reason)))
		ids[n.MessageID] = true
	}
	check.That(w, len(ids) == len(all), "%d rows have %d message ids", len(all), len(ids))
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// The notifications of a user's addresses are listed with the one that was split for them, are selected by address, sent again one by
// one, and cancelled with it.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	user := users("RESTAURANT_USER", 1)[0]
	user.Addresses = map[string]string{"pigeon": "roof"}
	user.Endpoints = map[string]map[string]contracts.Endpoint{"pigeon": {"tower": {Address: "tower"}}}
	p.directory(user)
	birds, mood := moody(channel.KindRejected)
	n := p.start(birds, listening)
	w := newWeb(t, n)
	tell := func(id string) {
		p.publish(event(id, "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = "RESTAURANT_USER" }))
	}
	tell("evt-001")
	p.settled(4)
	check.Equal(t, w.rowsOf("event=evt-001"), "inapp/ delivered, pigeon/ split, pigeon/main failed rejected, pigeon/tower failed rejected",
		"rows")
	check.Equal(t, w.rowsOf("user=u0&channel=pigeon&address=tower"), "pigeon/tower failed rejected", "rows of the user")
	check.Equal(t, w.rowsOf("state=failed"), "pigeon/main failed rejected, pigeon/tower failed rejected", "failed rows")
	mood.Store(channel.Kind(""))
	check.Equal(t, w.replay("user=u0&channel=pigeon&address=tower").Replayed, 1, "replayed")
	p.until("the tower has it", func() bool { return w.rowsOf("event=evt-001&address=tower") == "pigeon/tower sent" })
	check.Equal(t, w.rowsOf("event=evt-001&address=main"), "inapp/ delivered, pigeon/main failed rejected", "the others")

	mood.Store(channel.KindUnavailable)
	tell("evt-002")
	p.until("both were tried", func() bool {
		return w.rowsOf("event=evt-002&channel=pigeon&state=pending") == "pigeon/main pending unavailable, pigeon/tower pending unavailable"
	})
	status, body := w.call(http.MethodDelete, "/v1/events/evt-002", "")
	var done Cancelled
	check.OK(t, json.Unmarshal([]byte(body), &done))
	check.That(t, status == http.StatusOK && done.Suppressed == 2 && done.Sent == 1 && done.Ended == 0, "%d %s", status, body)
	check.Equal(t, w.rowsOf("event=evt-002&channel=pigeon"),
		"pigeon/ split, pigeon/main suppressed cancelled, pigeon/tower suppressed cancelled",
		"rows")

	// Of a notification whose process died those of the addresses are cancelled before they are stored.
	mood.Store(channel.Kind(""))
	p.publish(event("evt-003", "RESERVATION_REQUESTED", func(e *recipient.Event) {
		e.RecipientType, e.NotBefore = "RESTAURANT_USER", time.Now().Add(time.Hour)
	}))
	p.until("it waits", func() bool { return w.rowsOf("event=evt-003&channel=pigeon") == "pigeon/ deferred not_before" })
	const key = "evt-003.pigeon.RESTAURANT_USER.u0"
	split := check.Must(p.store.Get(t.Context(), key))(t)
	split.State, split.Reason, split.Addresses = deliveries.Split, "", []string{"main", "tower"}
	check.OK(t, p.store.Put(t.Context(), key, split))
	check.Equal(t, w.rowsOf("event=evt-003&channel=pigeon"), "pigeon/ split, pigeon/main pending, pigeon/tower pending", "rows")
	check.OK(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: "evt-003"})))
	check.Equal(t, w.rowsOf("event=evt-003&channel=pigeon"),
		"pigeon/ split, pigeon/main suppressed cancelled, pigeon/tower suppressed cancelled",
		"rows")
}

// The owner of a webhook sees its secret, replaces it, sends a test message, and has failed notifications sent again. The secrets and
// notifications of other addresses and users stay as they are, and no secret is stored.
func TestSecretsOfAddresses(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
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
	n := p.start(&pigeon{}, listening, func(c *Config) {
		c.Channels = []Channel{{Channel: hooks, Retries: []time.Duration{time.Millisecond}}}
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [webhook]}}}")
	})
	w := newWeb(t, n)
	const carla = "/v1/users/CUSTOMER/carla"
	at := func(id, action string) string { return carla + "/endpoints/webhook/" + id + "/" + action }
	w.ask(
		asked{"PUT", carla, fmt.Sprintf(`{"addresses":{"webhook":%q},"endpoints":{"webhook":{"phone":{"address":%q}}}}`, far.URL, far.URL+"/p"), "", 200, nil},
		asked{"GET", at("none", "secret"), "", "", 404, nil},
		asked{"GET", strings.Replace(at("main", "secret"), "webhook", "email", 1), "", "", 404, nil},
		asked{"GET", strings.Replace(at("main", "secret"), "carla", "dora", 1), "", "", 404, nil},
		asked{"POST", at("main", "replay?since=yesterday"), "", "", 400, []string{"?since"}},
	)
	secret := func(method, id, action string) (s api.AddressSecrets) {
		status, body := w.call(method, at(id, action), "")
		check.OK(t, json.Unmarshal([]byte(body), &s))
		check.Equal(t, status, http.StatusOK, "status")
		return s
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
		sent := TestSent{}
		code, body := w.call("POST", at("phone", "test"), "")
		check.OK(t, json.Unmarshal([]byte(body), &sent))
		check.That(t, code == 200 && strings.Contains(sent.Problem, problem) && (problem == "") == (sent.Problem == ""), "%d %s", code, body)
		check.Equal(t, len(strings.Fields(got.Load().Get("Webhook-Signature"))), 2, "signatures")
	}

	p.publish(event("evt-001", "X", func(e *recipient.Event) { e.UserID = "carla" }))
	const failed = "webhook/ split, webhook/main failed exhausted, webhook/phone failed exhausted"
	p.until("both have failed", func() bool { return w.rowsOf("event=evt-001") == failed })
	status.Store(204)
	for since, want := range map[time.Time]string{time.Now().Add(time.Hour): `"replayed":0`, time.Now().Add(-time.Hour): `"replayed":1`} {
		w.ask(asked{"POST", at("phone", "replay?since="+since.UTC().Format(time.RFC3339)), "", "", 200, []string{want}})
	}
	p.until("the phone has it", func() bool {
		return w.rowsOf("event=evt-001") == "webhook/ split, webhook/main failed exhausted, webhook/phone delivered"
	})
}

// listed are the endpoints that a query selects, by user, in order.
func (w *web) listed(query string) (users string, page api.EndpointPage) {
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
	p := newPlace(t, natstest.Server(t))
	for _, user := range []string{"ada", "bob"} {
		p.directory(contracts.Recipient{
			RecipientType: "CUSTOMER", UserID: user, Addresses: map[string]string{"pigeon": "https://secret.example/" + user},
		})
	}
	birds, mood := moody(channel.KindRejected)
	n := p.start(birds, listening, func(c *Config) {
		c.Channels[0].Endpoints, c.DisableAfter = true, time.Nanosecond
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [pigeon]}}}")
	})
	w := newWeb(t, n)
	check.Equal(t, n.slots(n.cfg.Channels[0]), 1024, "slots, of which new endpoints that hang take one each")
	told := 0
	tell := func(user string) *deliveries.Delivery {
		t.Helper()
		told++
		id := fmt.Sprint("evt-", told)
		p.publish(event(id, "X", func(e *recipient.Event) { e.UserID = user }))
		return p.settled(told)[id+".pigeon.CUSTOMER."+user]
	}
	list := func(want, query string) {
		t.Helper()
		p.until(fmt.Sprintf("%q for %q", want, query), func() bool { // the worker writes the endpoint's record after the end
			users, _ := w.listed(query)
			return users == want
		})
	}
	if users, page := w.listed(""); users != "" || page.Endpoints == nil {
		t.Errorf("%+v", page)
	}
	tell("ada")
	list("ada failing, ", "")
	tell("bob")
	list("ada failing, bob failing, ", "")
	tell("bob")
	for query, want := range map[string]string{
		"":                "ada failing, bob disabled, ",
		"?state=failing":  "ada failing, ",
		"?state=disabled": "bob disabled, ",
		"?channel=pigeon": "ada failing, bob disabled, ",
		"?channel=email":  "",
		"?limit=1":        "ada failing, ",
	} {
		list(want, query)
	}
	_, first := w.listed("?limit=1")
	second, rest := w.listed("?limit=1&cursor=" + first.Next)
	check.That(t, second == "bob disabled, " && first.Next != "" && rest.Next == "", "%+v, then %+v", first, rest)
	bob := rest.Endpoints[0]
	check.That(t, bob.Channel == "pigeon" && bob.ID != "" && bob.LastError != "" && !bob.At.IsZero() && !bob.Since.IsZero(), "%+v", bob)
	_, body := w.call(http.MethodGet, "/v1/endpoints", "")
	check.That(t, !strings.Contains(body, "secret.example"), "an address is told: %s", body)

	if d := tell("bob"); d.State != deliveries.Suppressed || d.Reason != deliveries.ReasonEndpointDisabled || len(d.Attempts) != 0 {
		t.Errorf("a disabled endpoint: %+v", d)
	}
	mood.Store(channel.Kind(""))
	name := fmt.Sprintf(`{"channel":%q,"id":%q}`, bob.Channel, bob.ID)
	for _, want := range []health.State{health.Disabled, health.Healthy} { // as it was before
		var was health.Endpoint
		status, body := w.call(http.MethodPost, "/v1/endpoints/enable", name)
		err := json.Unmarshal([]byte(body), &was)
		check.That(t, err == nil && status == http.StatusOK && was.State == want, "%d %s, want it to have been %s", status, body, want)
	}
	list("ada failing, ", "")
	check.Equal(t, tell("bob").State, deliveries.Sent, "an endpoint that was enabled")
	check.Equal(t, tell("ada").State, deliveries.Sent, "a failing endpoint")
	list("", "")
}
