package notifier

import (
	"bytes"
	"encoding/pem"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

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
	taken, far := make(chan *mail.Message, 10), newFar(t, 0)
	far.read = func(_ string, raw []byte) error {
		m, err := mail.ReadMessage(bytes.NewReader(raw))
		taken <- m
		return err
	}
	return func(c *Config) {
		c.Rules = writeRules(t, mailRules)
		c.ChannelConfig = ChannelConfig{
			EmailFrom: "n@example.com", EmailSecurity: "plain", EmailServer: far.mail, LinkSecrets: []string{strings.Repeat("x", 32)},
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
	directory := p.directory(contracts.Recipient{
		RecipientType: "CUSTOMER", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"},
	})
	n := p.start(&pigeon{}, listening, mailing, func(c *Config) { c.Channels = nil })
	told := func(id, kind string) { p.publish(event(id, kind, func(e *recipient.Event) { e.UserID = "ada" })) }
	received := func() (link, body string, h mail.Header) {
		m := <-mails
		data := check.Must(io.ReadAll(quotedprintable.NewReader(m.Body)))(t)
		return strings.Trim(m.Header.Get("List-Unsubscribe"), "<>"), string(data), m.Header
	}
	told("evt-001", "NEWS")
	link, body, header := received()
	path, found := strings.CutPrefix(link, "https://n.example")
	if !found || !strings.HasPrefix(path, pages.PathUnsubscribe) || header.Get("List-Unsubscribe-Post") != "List-Unsubscribe=One-Click" ||
		!strings.Contains(body, "stop: https://n.example/v1/unsubscribe?token=") {
		t.Fatalf("%q in %v: %s", link, header, body)
	}
	w := newWeb(t, n)
	if status, page := w.call(http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(page, "<form") {
		t.Errorf("%d %s", status, page)
	}
	r, _, err := directory.Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.OptOut) == 0, "looking at the page has switched off: %v %v", r.OptOut, err)
	if status, _ := w.call(http.MethodPost, path+"x", ""); status != http.StatusForbidden {
		t.Errorf("a link that is not ours: %d", status)
	}
	for range 2 {
		form := []string{"Content-Type", "application/x-www-form-urlencoded"}
		status, page := w.call(http.MethodPost, path, "List-Unsubscribe=One-Click", form...)
		check.That(t, status == http.StatusOK, "%d %s", status, page)
	}
	_, choose, _ := strings.Cut(strings.TrimSpace(body), "choose: https://n.example")
	choose = strings.TrimSuffix(choose, ".")
	status, form := w.call(http.MethodGet, choose, "")
	check.That(t,
		status == http.StatusOK && strings.Contains(form, `value="news email">`) && strings.Contains(form, `value="other email" checked>`),
		"%d %s", status, form)
	_, state, _ := strings.Cut(form, `name="state" value="`)
	state, _, _ = strings.Cut(state, `"`)
	values := url.Values{"on": {"* email"}, "from": {"22:00"}, "to": {"22:00"}, "state": {state}}
	for _, category := range []string{"*", "news", "other"} {
		values["digest."+category], values["mute."+category] = []string{""}, []string{""}
	}
	values.Add("on", "other email")
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	status, page := w.call(http.MethodPost, choose, values.Encode())
	check.That(t, status == http.StatusSeeOther, "%d %s", status, page)
	r, _, err = directory.Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && r.QuietHours != nil && len(r.OptOut) == 1, "%+v %v", r, err)
	told("evt-002", "NEWS")
	told("evt-003", "ALARM")
	link, body, header = received()
	check.That(t, link == "" && header.Get("List-Unsubscribe-Post") == "" && !strings.Contains(body, "n.example/v1/unsub"),
		"a critical mail has a link: %q in %v: %s", link, header, body)
	told("evt-004", "OTHER")
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
	p := newPlace(t, natstest.Server(t))
	p.directory(contracts.Recipient{
		RecipientType: "CUSTOMER", UserID: "ada", Addresses: map[string]string{"webhook": srv.URL + "/hook"},
	})
	p.start(&pigeon{}, func(c *Config) {
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
