package notifier

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/internal/httpapi"
	"github.com/expediter-io/expediter/services/notifier/internal/natsapi"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// The notifier of the examples has webhooks, SMS with a text, and a user whose pigeon does not fly.
func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	phones := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(phones.Close)
	roots, texts := filepath.Join(t.TempDir(), "roots.pem"), t.TempDir()
	check.OK(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: phones.Certificate().Raw}), 0o600))
	check.OK(t, os.Mkdir(filepath.Join(texts, "welcome"), 0o700))
	for _, part := range []string{"subject", "txt"} {
		check.OK(t, os.WriteFile(filepath.Join(texts, "welcome", "default."+part), []byte("Hello {{.Payload.name}}"), 0o600))
	}
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	t.Cleanup(func() { check.OK(t, exports.Stop(context.WithoutCancel(t.Context()))) })

	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(
		contracts.Recipient{RecipientType: contracts.RecipientCustomer, UserID: "eve"},
		contracts.Recipient{RecipientType: contracts.RecipientRestaurantUser, UserID: "dora", Addresses: map[string]string{"pigeon": "roof"}},
	)
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	n := p.start(moody(&mood), listening, func(c *Config) {
		c.Channels[0].Endpoints = true
		c.Channels = append(c.Channels, Channel{Channel: hooks})
		c.ChannelConfig = ChannelConfig{RootCAs: roots, SMSURL: phones.URL, Templates: texts}
		c.Exports = exports
	})
	w := newWeb(t, n)
	p.publish(event("evt-000", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
	p.until("the pigeon has failed", func() bool {
		users, _ := w.listed("")
		return strings.HasPrefix(users, "dora failing")
	})
	for i := range plan.MaxUnpublished { // so that one more is refused
		check.OK(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: fmt.Sprint("later-", i)})))
	}
	stale := servicetest.Case{Header: map[string]string{"If-Match": `"1"`}, Path: map[string]string{"user": "eve"}}
	d := servicetest.Described(t, httpapi.Docs)
	w.client.Transport = d.Transport(t, &http.Transport{})
	d.Requests(t, p.nc, natsapi.Endpoints(nil), "publish", "users-import", "users-put", "users-get")
	const user, part = "/v1/users/{type}/{user}", "/v1/users/{type}/{user}/{part}"
	d.Examples(t, w.client, n.URL(), []string{"POST /v1/users"}, map[string]servicetest.Case{
		"DELETE /v1/events 404":         {Query: "event=digest:c:2000-01-01T00:15:00Z"},
		"DELETE /v1/events/{event} 404": {Path: map[string]string{"event": "digest:c:2000-01-01T00:15:00Z"}},
		"DELETE /v1/events 409":         {Query: "event=later"},
		"DELETE /v1/events/{event} 409": {Path: map[string]string{"event": "later"}},
		"POST /v1/endpoints/enable 404": {Body: `{"channel":"pigeon","id":"nobody"}`},
		"DELETE /v1/events/{event} 200": {Query: "user=carla&type=CUSTOMER"},
		"POST /v1/events 200":           {},
		"POST /v1/users 400":            {Body: strings.Repeat("{}\n", 5001)},
		"POST /v1/events 409":           {Body: strings.Replace(reservation, "4", "5", 1)},
		"POST /v1/events 422":           {Body: strings.Replace(reservation, "{", `{"not_before":"2999-01-01T00:00:00Z",`, 1)},
		"POST /v1/notify 409":           {Body: `{"event_id":"welcome-carla","recipients":[{"recipient_type":"CUSTOMER","user_id":"dan"}],"channels":["inapp"]}`},
		"POST /v1/notify 422":           {Body: `{"event_id":"x","not_before":"2999-01-01T00:00:00Z","recipients":[{"recipient_type":"CUSTOMER","user_id":"dan"}],"channels":["inapp"]}`},
		"PUT " + user + " 412":          stale, "PATCH " + user + " 412": stale, "DELETE " + user + " 412": stale,
		"PUT " + part + " 412": stale, "PATCH " + part + " 412": stale, "DELETE " + part + " 412": stale,
	})
}
