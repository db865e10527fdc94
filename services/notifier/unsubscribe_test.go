package notifier

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"maps"
	"mime"
	"mime/multipart"
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
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
)

// letterbox is a mail server that takes everything.
type letterbox struct {
	address string
	mails   chan *mail.Message
}

type mailSession struct {
	smtp.Session

	box *letterbox
}

func newLetterbox(t *testing.T) *letterbox {
	t.Helper()
	box := &letterbox{mails: make(chan *mail.Message, 10)}
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return mailSession{box: box}, nil }))
	srv.Domain = "localhost"
	listener := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	box.address = listener.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(listener) //nolint:errcheck // it is closed
	}()
	t.Cleanup(func() {
		listener.Close()
		srv.Close()
		<-done
	})
	return box
}

func (mailSession) Mail(string, *smtp.MailOptions) error { return nil }
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (mailSession) Reset()                               {}
func (mailSession) Logout() error                        { return nil }

func (s mailSession) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(m.Body)
	m.Body = bytes.NewReader(body)
	s.box.mails <- m
	return err
}

const mailRules = `
version: 1
events:
  NEWS: {CUSTOMER: {scope: user, channels: [email], category: news, template: X}}
  ALARM: {CUSTOMER: {scope: user, channels: [email], category: news, priority: critical, template: X}}
  OTHER: {CUSTOMER: {scope: user, channels: [email], category: other, template: X}}
`

// A user who follows the link of a mail gets no other one of its category; critical mails come all the same, and have no link.
// The permissions of deploy/nats are enough for that.
func TestALinkSwitchesACategoryOff(t *testing.T) {
	t.Parallel()
	box := newLetterbox(t)
	folder := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(folder, "X"), 0o700))
	for part, text := range map[string]string{"subject": "hello", "txt": "stop: {{.Unsubscribe}} or choose: {{.Preferences}}."} {
		check.OK(t, os.WriteFile(filepath.Join(folder, "X", "default."+part), []byte(text), 0o600))
	}
	users := natstest.NewUsers(t)
	server := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	p := administered(t, server, users)
	cfg := Config{
		BaseConfig: service.BaseConfig{
			Listen: "-", Logger: slog.New(slog.DiscardHandler),
		},
		Rules: writeRules(t, mailRules),
		ChannelConfig: ChannelConfig{
			EmailFrom: "n@example.com", EmailSecurity: "plain", EmailServer: box.address, LinkSecrets: []string{strings.Repeat("x", 32)},
			PublicURL: "https://n.example", Templates: folder,
		},
	}
	directory := p.directory(contracts.Recipient{
		RecipientType: contracts.RecipientCustomer, UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"},
	})
	nc, _ := natstest.Connect(t, server, users.As("notifier"))
	cfg.Listen, cfg.UnsubscribeListen = "127.0.0.1:0", "127.0.0.1:0"
	n := check.Must(Start(t.Context(), nc, cfg))(t)
	t.Cleanup(func() {
		check.Is(t, n.Stop(), nil)
	})
	told := func(id, kind string) { p.publish(event(id, kind, func(e *contracts.Event) { e.UserID = "ada" })) }
	received := func() (link, body string, h mail.Header) {
		m := <-box.mails
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
	if status, page := w.call(http.MethodGet, path, ""); status != http.StatusNotFound {
		t.Errorf("the API has the page, too: %d %s", status, page)
	}
	w.base, w.client.Transport = n.running.PartURL("unsubscribe"), &http.Transport{} // another listener than that of the API
	for _, other := range []string{"/livez", "/v1/notifications"} {
		status, page := w.call(http.MethodGet, other, "")
		check.That(t, status == http.StatusNotFound, "the page's listener has %s, too: %d %s", other, status, page)
	}
	if status, page := w.call(http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(page, "<form") {
		t.Errorf("%d %s", status, page)
	}
	r, _, err := directory.Get(t.Context(), contracts.RecipientCustomer, "ada")
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
	if status != http.StatusOK || !strings.Contains(form, `value="news email">`) || !strings.Contains(form, `value="other email" checked>`) {
		t.Errorf("%d %s", status, form)
	}
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
	r, _, err = directory.Get(t.Context(), contracts.RecipientCustomer, "ada")
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

// Webhooks and the requests for recipients trust the certificates of an authority of the operator's own.
func TestAuthoritiesOfTheOperator(t *testing.T) {
	t.Parallel()
	var base string
	called := make(chan struct{}, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/who" {
			//nolint:errcheck // the client sees it
			io.WriteString(w, `{"recipients":[{"user_id":"ada","recipient_type":"CUSTOMER","addresses":{"webhook":"`+base+`/hook"}}]}`)
			return
		}
		called <- struct{}{}
	}))
	t.Cleanup(srv.Close)
	base = srv.URL
	authority := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	check.OK(t, os.WriteFile(authority, data, 0o600))
	p := newPlace(t, natstest.Server(t)).watched()
	p.start(&pigeon{}, func(c *Config) {
		c.ResolverURL = srv.URL + "/who"
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {channels: [webhook]}}}")
		c.RootCAs, c.UserNetworks = authority, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
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
		check.Contains(t, check.Err((ChannelConfig{RootCAs: file}).roots()), "NOTIFIER_ROOT_CAS", file)
	}
	for _, ways := range []ChannelConfig{{PublicURL: "https://n.example"}, {LinkSecrets: []string{strings.Repeat("x", 32)}}} {
		_, err := ways.links()
		check.That(t, err != nil && strings.Contains(err.Error(), "notifier: "), "%+v: %v", ways, err)
	}
}

// Values that strangers write into payloads and addresses arrive at the mail server as text: they add no header, no recipient,
// no markup and no link.
func TestPayloadsStayTextInTheMailThatArrives(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	directory := p.directory(
		contracts.Recipient{RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}},
		contracts.Recipient{RecipientType: "ADMIN", UserID: "two", Addresses: map[string]string{"email": "two@example.org, mallory@example.org"}},
	)
	eve := contracts.Recipient{RecipientType: "ADMIN", UserID: "eve", Addresses: map[string]string{"email": "eve@example.org>\r\nRCPT TO:<mallory@example.org"}}
	check.Contains(t, directory.Put(t.Context(), eve), "/addresses/email")
	type letter struct {
		to  string
		raw []byte
	}
	letters := make(chan letter, 10)
	far := newFar(t, 0)
	far.read = func(to string, raw []byte) error {
		letters <- letter{to, raw}
		return nil
	}
	n := p.start(&pigeon{}, func(c *Config) {
		c.Rules = writeRules(t, "{version: 1, events: {X: {ADMIN: {scope: all, channels: [email]}}}}")
		c.ChannelConfig = ChannelConfig{
			EmailFrom: "Expediter <notify@example.com>", EmailSecurity: email.Plain, EmailServer: far.mail,
			Templates: writeTexts(t, "X", "Table for {{.Payload.name}}", "{{.Payload.name}} {{.Payload.url}} {{link .Payload.url}}",
				`<p title="{{.Payload.name}}">{{.Payload.name}}</p><a href="{{.Payload.url}}">more</a>{{link .Payload.url}}`),
		}
	})
	payload, err := json.Marshal(map[string]string{
		"name": "Bob\r\nBcc: mallory@example.org\r\n\r\n.\r\nMAIL FROM:<x@example.org>\" onload=\"alert(1)<script>alert(2)</script>\u2028X-Evil: 1",
		"url":  "javascript:alert(3)//https://evil.example/x",
	})
	check.OK(t, err)
	p.publish(event("evil", "X", func(e *contracts.Event) { e.Payload = payload }))
	for key, d := range p.settled(2) {
		want := deliveries.Bounced
		if strings.HasSuffix(key, ".ada") {
			want = deliveries.Sent
		}
		check.That(t, d.State == want, "%s is %+v, want %s", key, d, want)
	}
	check.Is(t, n.Stop(), nil)
	check.Require(t, len(letters) == 1, "%d letters, want 1", len(letters))
	got := <-letters
	check.Same(t, "it went to", got.to, "ada@example.org")
	msg, err := mail.ReadMessage(bytes.NewReader(got.raw))
	check.Require(t, err == nil, "%q: %v", got.raw, err)
	want := []string{"Auto-Submitted", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To"}
	check.Equal(t, want, slices.Sorted(maps.Keys(msg.Header)))
	for kind, part := range parts(t, msg) {
		for _, bad := range []string{"<script", `" onload=`, `href="javascript`, "https://evil.example", `href="https://evil`} {
			check.That(t, !strings.Contains(part, bad) || kind != "text/html" && !strings.HasPrefix(bad, "https"),
				"%s has %s: %s", kind, bad, part)
		}
		check.That(t, strings.Contains(part, "Bob") && strings.Contains(part, "alert(2)"), "%s does not say what it was to say: %s", kind, part)
	}
}

// parts are those of a mail, by their type.
func parts(t *testing.T, msg *mail.Message) map[string]string {
	t.Helper()
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	check.OK(t, err)
	found := map[string]string{}
	reader := multipart.NewReader(msg.Body, params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF { //nolint:errorlint // as it is documented
			break
		}
		check.OK(t, err)
		body := check.Must(io.ReadAll(quotedprintable.NewReader(part)))(t)
		kind, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		check.OK(t, err)
		found[kind] = string(body)
	}
	check.Require(t, len(found) == 2, "the mail has the parts %v, want text and HTML", found)
	return found
}
