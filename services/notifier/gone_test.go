package notifier

import (
	"crypto/x509"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
)

// A webhook that is given up is called once, and with what deploy/nats permits the notifier its address is removed.
func TestAWebhookThatIsGoneIsCalledOnce(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r.Header.Get("Webhook-Id")
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	hook, err := webhook.New(webhook.Config{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots,
		Secrets: []string{"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))},
	})
	check.OK(t, err)
	t.Cleanup(hook.Close)
	users := natstest.NewUsers(t)
	server := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	p := administered(t, server, users)
	cfg := Config{
		BaseConfig: service.BaseConfig{
			Listen: "-", Logger: slog.New(slog.DiscardHandler),
		},
		Channels: []Channel{{Channel: hook}},
		Rules:    writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [webhook]}}}"),
	}
	directory := p.directory(contracts.Recipient{
		RecipientType: contracts.RecipientCustomer, UserID: "ada", Addresses: map[string]string{"webhook": srv.URL, "email": "ada@example.org"},
	})
	nc, _ := natstest.Connect(t, server, users.As("notifier"))
	n, err := Start(t.Context(), nc, cfg)
	check.OK(t, err)
	told := func(id string) { p.publish(event(id, "X", func(e *contracts.Event) { e.UserID = "ada" })) }
	told("evt-001")
	p.until("the address is removed", func() bool {
		r, _, err := directory.Get(t.Context(), contracts.RecipientCustomer, "ada")
		return err == nil && len(r.Addresses) == 1 && r.Addresses["email"] != ""
	})
	told("evt-002")
	all := p.settled(2)
	check.Is(t, n.Stop(), nil)
	first, second := all["evt-001.webhook.CUSTOMER.ada"], all["evt-002.webhook.CUSTOMER.ada"]
	if len(calls) != 1 || first.State != "bounced" || first.Reason != "gone" || second.State != "suppressed" || second.Reason != "no_address" {
		t.Errorf("%d calls, %+v, %+v", len(calls), first, second)
	}
}
