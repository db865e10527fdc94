package notifier

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// listed are the endpoints that a query selects, by user, in order.
func (w *web) listed(query string) (users string, page api.EndpointPage) {
	w.Helper()
	page = get[api.EndpointPage](w, "/v1/endpoints"+query)
	for _, e := range page.Endpoints {
		users += fmt.Sprintf("%s %s, ", e.UserID, e.State)
	}
	return users, page
}

// An operator finds the endpoints that do not work, by state and channel and in pages, and puts one back to work: its rows are
// sent again from then on. What answers is not in the list any more. No address is told.
func TestEndpointsOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	for _, user := range []string{"ada", "bob"} {
		p.directory(contracts.Recipient{
			RecipientType: contracts.RecipientCustomer, UserID: user, Addresses: map[string]string{"pigeon": "https://secret.example/" + user},
		})
	}
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	w := newWeb(t, p.start(moody(&mood), listening, func(c *Config) {
		c.Channels[0].Endpoints, c.DisableAfter = true, time.Nanosecond
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [pigeon]}}}")
	}))
	told := 0
	tell := func(user string) *deliveries.Delivery {
		t.Helper()
		told++
		id := fmt.Sprint("evt-", told)
		p.publish(event(id, "X", func(e *contracts.Event) { e.UserID = user }))
		return p.settled(told)[id+".pigeon.CUSTOMER."+user]
	}
	list := func(want, query string) {
		t.Helper()
		p.until(fmt.Sprintf("%q for %q", want, query), func() bool { // who tells writes that after the end of the row
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
	check.Same(t, "an endpoint that was enabled", tell("bob").State, deliveries.Sent)
	check.Same(t, "a failing endpoint", tell("ada").State, deliveries.Sent)
	list("", "")
}

func TestWhatIsWrongWithEndpoints(t *testing.T) {
	t.Parallel()
	w := newWeb(t, newPlace(t, natstest.Server(t)).watched().start(&pigeon{}, listening))
	const list, enable = "/v1/endpoints", "/v1/endpoints/enable"
	for _, test := range []struct {
		method, path, body string
		status             int
		names              string // what the answer says is wrong
	}{
		{"GET", list + "?state=healthy", "", 400, "?state"},
		{"GET", list + "?state=*", "", 400, "?state"},
		{"GET", list + "?channel=*", "", 400, "?channel"},
		{"GET", list + "?channel=a.b", "", 400, "?channel"},
		{"GET", list + "?channel=%00&state=x", "", 400, "?channel"},
		{"GET", list + "?channel=" + strings.Repeat("a", 400), "", 400, "?channel"},
		{"GET", list + "?limit=0", "", 400, "?limit"},
		{"GET", list + "?limit=1001", "", 400, "?limit"},
		{"GET", list + "?limit=many", "", 400, "?limit"},
		{"GET", list + "?cursor=%21", "", 400, "?cursor"},
		{"POST", list, "", 405, "method"},
		{"GET", enable, "", 405, "method"},
		{"POST", enable, "", 400, "JSON"},
		{"POST", enable, "{}", 400, "JSON"},
		{"POST", enable, `{"channel":"pigeon","id":"*"}`, 400, "JSON"},
		{"POST", enable, `{"channel":"pig.eon","id":"a"}`, 400, "JSON"},
		{"POST", enable, `{"channel":1,"id":"a"}`, 400, "JSON"},
		{"POST", enable, `{"channel":"pigeon","id":"` + strings.Repeat("a", 5000) + `"}`, 413, "limit"},
		{"POST", enable, `{"channel":"pigeon","id":"0f"}`, 404, "pigeon"},
	} {
		if status, body := w.call(test.method, test.path, test.body); status != test.status || !strings.Contains(body, test.names) {
			t.Errorf("%s %.60s %.60s: %d %.300s, want %d and %q", test.method, test.path, test.body, status, body, test.status, test.names)
		}
	}
}
