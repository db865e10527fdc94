package notifier

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/audit"
)

// What an operator does is recorded under the name of the key, whatever the request says, and that of NATS without a name. The
// user is a pseudonym. Requests that are refused, or that only read, leave nothing.
func TestOperatorsLeaveRecords(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	keys := filepath.Join(t.TempDir(), "keys.json")
	operator, err := access.Add(keys, access.Key{Name: "olga", Scopes: []access.Scope{access.Operate, access.Read}})
	reader, readErr := access.Add(keys, access.Key{Name: "rita", Scopes: []access.Scope{access.Read}})
	check.OK(t, errors.Join(err, readErr))
	p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	n := p.start(&pigeon{}, func(c *Config) { c.Keys, c.Listen = keys, "127.0.0.1:0" })
	w := newWeb(t, n)
	p.publish(event("evt-1", "RESERVATION_REQUESTED", func(e *contracts.Event) {
		e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
	}))
	p.until("rows wait", func() bool { return len(p.deliveries()) == 4 })
	user := users(contracts.RecipientRestaurantUser, 1)[0].UserID
	for _, c := range []struct {
		key, method, path, body string
		want                    int
	}{
		{reader, http.MethodDelete, "/v1/events/evt-1", "", http.StatusForbidden},
		{operator, http.MethodGet, "/v1/endpoints", "", http.StatusOK},
		{operator, http.MethodDelete, "/v1/events/evt-1?type=RESTAURANT_USER&user=" + user, "", http.StatusOK},
		{operator, http.MethodPost, "/v1/notifications/replay?state=failed", "", http.StatusOK},
		{operator, http.MethodPost, "/v1/endpoints/enable", `{"channel":"webhook","id":"0f"}`, http.StatusNotFound},
	} {
		header := []string{"Authorization", "Bearer " + c.key, "X-Actor", "mallory", "Nats-Request-Info", `{"user":"mallory"}`}
		status, answer := w.call(c.method, c.path, c.body, header...)
		check.That(t, status == c.want, "%s %s: %d %s", c.method, c.path, status, answer)
	}
	check.Is(t, check.Err(p.nc.Request("notifier.v1.cancel", []byte(`{"event_id":"evt-1","actor":"mallory"}`), patience)), nil)
	records, err := audit.List(t.Context(), p.js, 10)
	check.Require(t, err == nil && len(records) == 4, "%+v %v", records, err)
	for i, want := range []audit.Record{
		{Actor: audit.ActorNATS, Action: "cancel", Target: `notifications event="evt-1"`, Count: 4, Outcome: audit.Done},
		{Actor: "olga", Action: "enable", Target: "endpoint 0f of webhook", Outcome: audit.Failed},
		{Actor: "olga", Action: "replay", Target: `notifications state="failed"`, Outcome: audit.Done},
		{
			Actor: "olga", Action: "cancel", Count: 2, Outcome: audit.Done,
			Target: `notifications event="evt-1" type="RESTAURANT_USER" user="` + audit.User(user) + `"`,
		},
	} {
		want.ID, want.At, want.Source = records[i].ID, records[i].At, "notifier"
		check.Same(t, "records[i]", records[i], want)
	}
}

// Without a place for the record nothing is cancelled, replayed or enabled, and the caller may ask again.
func TestNothingIsCancelledWithoutARecord(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users(contracts.RecipientRestaurantUser, 1)...)
	w := newWeb(t, p.start(&pigeon{}, func(c *Config) { c.Listen = "127.0.0.1:0" }))
	p.publish(event("evt-1", "RESERVATION_REQUESTED", func(e *contracts.Event) {
		e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
	}))
	p.until("rows wait", func() bool { return len(p.deliveries()) == 2 })
	check.OK(t, p.js.DeleteStream(t.Context(), contracts.StreamAudit))
	for path, method := range map[string]string{
		"/v1/events/evt-1": http.MethodDelete, "/v1/notifications/replay?state=failed": http.MethodPost, "/v1/endpoints/enable": http.MethodPost,
	} {
		status, answer := w.call(method, path, `{"channel":"webhook","id":"0f"}`)
		check.That(t, status == http.StatusServiceUnavailable && strings.Contains(answer, "STORE_UNAVAILABLE"), "%s: %d %s", path, status, answer)
	}
	for key, d := range p.deliveries() {
		check.That(t, !d.State.Ended(), "%s is %s", key, d.State)
	}
}
