package email

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines are those of a mail, sorted: the order of headers means nothing.
func lines(raw []byte) string {
	all := strings.Split(string(raw), "\r\n")
	slices.Sort(all)
	return strings.Join(all, "\r\n")
}

// read reads a mail as a mail program does.
func read(t *testing.T, raw []byte) (header mail.Header, parts map[string]string) {
	t.Helper()
	msg := check.Must(mail.ReadMessage(bytes.NewReader(raw)))(t)
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	check.OK(t, err)
	parts = map[string]string{}
	if kind != "multipart/alternative" {
		body := check.Must(io.ReadAll(msg.Body))(t)
		parts[kind] = string(body)
		return msg.Header, parts
	}
	for reader := multipart.NewReader(msg.Body, params["boundary"]); ; {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return msg.Header, parts
		}
		check.OK(t, err)
		body := check.Must(io.ReadAll(part))(t)
		kind, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		check.OK(t, err)
		parts[kind] = string(body)
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	long := strings.Repeat("-token_0", 40)
	e := p.client(func(c *Config) {
		c.From = "Экспедитор <notify@mail.example.com>"
		c.Templates = texts(t, "שלום {{.Payload.name}}", "Grüße, {{.Payload.name}}", `<a href="{{.Unsubscribe}}">ende</a>`)
		c.Unsubscribe = func(m channel.Message) string { return "https://n.example/u?user=" + m.UserID + long }
		c.User, c.Password = "expediter", "sesame"
	})
	m := message(func(m *channel.Message) {
		m.Address, m.Payload = `"Ada Lövelace" <ada@example.org>`, json.RawMessage(`{"name":"Ada"}`)
	})
	receipt, err := e.Send(t.Context(), m)
	check.Require(t, err == nil && !receipt.Delivered && receipt.ID != "", "%v %v", receipt, err)
	m.Attempt++
	check.OK(t, check.Err(e.Send(t.Context(), m)))
	letters, conns := p.taken()
	check.Require(t, len(letters) == 2 && conns == 1 && lines(letters[0].raw) == lines(letters[1].raw),
		"%d mails over %d connections, want the same one twice, over one", len(letters), conns)
	got := letters[0]
	check.That(t, got.from == "notify@mail.example.com" && got.to == "ada@example.org" && got.secure && got.user == "expediter", "%+v", got)
	header, parts := read(t, got.raw)
	decoder := &mime.WordDecoder{}
	fields := map[string]string{}
	for _, name := range []string{"From", "To", "Subject", "Message-Id", "Date", "Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post", "Mime-Version"} {
		fields[name], err = decoder.DecodeHeader(header.Get(name))
		check.ErrorIs(t, err, nil)
	}
	if diff := cmp.Diff(map[string]string{
		"From": "Экспедитор <notify@mail.example.com>", "To": "Ada Lövelace <ada@example.org>", "Subject": "שלום Ada",
		"Message-Id": "<ntf_1@mail.example.com>", "Date": "Fri, 20 Nov 2026 18:00:00 +0000", "Auto-Submitted": "auto-generated",
		"List-Unsubscribe": "<https://n.example/u?user=ada" + long + ">", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click", "Mime-Version": "1.0",
	}, fields); diff != "" {
		t.Log(string(got.raw))
		t.Error(diff)
	}
	check.Equal(t, parts, map[string]string{
		"text/plain": "Grüße, Ada", "text/html": `<a href="https://n.example/u?user=ada` + long + `">ende</a>`,
	})
	for i, line := range bytes.Split(got.raw, []byte("\r\n")) {
		check.That(t, len(line) <= 998 && !bytes.ContainsFunc(line, func(r rune) bool { return r > 126 }), "line %d is not plain: %q", i, line)
	}
}

func TestWithoutHTMLNorUnsubscribe(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	check.OK(t, check.Err(p.client().Send(t.Context(), message(func(m *channel.Message) { m.Template = "plain" }))))
	letters, _ := p.taken()
	header, parts := read(t, letters[0].raw)
	diff := cmp.Diff(map[string]string{"text/plain": "text\r\n"}, parts)
	check.That(t, diff == "" && header.Get("List-Unsubscribe") == "", "%v %v", diff, header)
}

// Nothing of an event, nor of a user, becomes its own header, or another recipient.
func TestHeadersCannotBeInjected(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	e := p.client(func(c *Config) { c.Templates = texts(t, "{{.Payload.v}}", "{{.Payload.v}}", "{{.Payload.v}}") })
	sent := 0
	for _, evil := range []string{"x\r\nBcc: eve@evil.example", "x\nBcc: eve@evil.example\n\nbody", "x\rBcc: eve@evil.example", "x\r\n.\r\nMAIL FROM:<eve@evil.example>"} {
		payload := check.Must(json.Marshal(map[string]string{"v": evil}))(t)
		check.OK(t, check.Err(e.Send(t.Context(), message(func(m *channel.Message) { m.Payload = payload }))))
		sent++
		for _, address := range []string{
			"ada@example.org" + evil, evil + "@example.org", `"` + evil + `" <ada@example.org>`, "ada@example.org, eve@evil.example",
			"<ada@example.org> SIZE=1", "ada@example.org>" + evil,
		} {
			_, err := e.Send(t.Context(), message(func(m *channel.Message) { m.Address, m.Payload = address, payload }))
			check.That(t, channel.Of("email", err).Kind == channel.KindBounced, "%q: %v", address, err)
		}
	}
	letters, _ := p.taken()
	check.Equal(t, len(letters), sent, "mails")
	for _, l := range letters {
		header, _ := read(t, l.raw)
		check.That(t, header.Get("Bcc") == "" && header.Get("Subject") != "" && l.to == "ada@example.org", "%s", l.raw)
	}
}

// TestEncodedWordsStayText: what looks like encoded words in a text or a name is shown as it is, and not decoded by the reader.
func TestEncodedWordsStayText(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	e := p.client(func(c *Config) { c.Templates = texts(t, "{{.Payload.v}}", "text", "") })
	_, err := New(Config{Address: "localhost:25", From: `"=?utf-8?q?Bank?=" <a@example.org>`, Templates: texts(t, "x", "x", "")})
	check.ErrorContains(t, err, "From is")
	for i, word := range []string{
		"=?utf-8?b?4oCuZ25wLmV4ZQ==?=", "=?utf-8?q?x=0D=0ABcc:_eve?=", "a =?us-ascii?Q?evil=2Eexample?= b", "=?", "=?é?=",
		strings.Repeat("=?iso-8859-1?q?=2E?= ", 8) + "end",
	} {
		payload := check.Must(json.Marshal(map[string]string{"v": word}))(t)
		to := strconv.Quote(word) + " <ada@example.org>"
		check.OK(t, check.Err(e.Send(t.Context(), message(func(m *channel.Message) { m.Address, m.Payload = to, payload }))))
		letters, _ := p.taken()
		header, _ := read(t, letters[i].raw)
		name, err := (&mime.WordDecoder{}).DecodeHeader(header.Get("To"))
		check.That(t, err == nil && letters[i].to == "ada@example.org" && header.Get("Bcc") == "" &&
			strings.NewReplacer(`"`, "", " <ada@example.org>", "").Replace(name) == word, "%q is read as %q: %v", word, name, err)
		subject, err := (&mime.WordDecoder{}).DecodeHeader(header.Get("Subject"))
		check.That(t, err == nil && subject == word, "%q is read as %q: %v", word, subject, err)
	}
}

// TestAddressesWithOtherLetters: a domain is encoded for every server, and SMTPUTF8 is asked for only where a name needs it.
func TestAddressesWithOtherLetters(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"ada@bücher.example":         "ada@xn--bcher-kva.example",
		"Ada <ada@почта.рф>":         "ada@xn--80a1acny.xn--p1ai",
		"ada@BÜCHER.example":         "ada@xn--bcher-kva.example",
		"ada@例え.テスト":                 "ada@xn--r8jz45g.xn--zckzah",
		"ada@example.org":            "ada@example.org",
		"ada@a_b.example":            "ada@a_b.example",
		"ädä@bücher.example":         "ädä@xn--bcher-kva.example UTF8",
		"ada@bü\u202echer.example":   "",
		"ada@" + "ü" + ".-x.example": "",
	} {
		p := newPost(t, func(s *smtp.Server) { s.EnableSMTPUTF8 = !strings.HasPrefix(address, "ada") })
		_, err := p.client(func(c *Config) { c.From = "notify@пример.example" }).Send(t.Context(), message(func(m *channel.Message) { m.Address = address }))
		letters, _ := p.taken()
		if want == "" {
			check.That(t, channel.Of("email", err).Kind == channel.KindBounced && len(letters) == 0, "%s: %v", address, err)
			continue
		}
		check.Require(t, err == nil && len(letters) == 1, "%s: %v", address, err)
		check.Equal(t, letters[0].to, want, address)
	}
	p := newPost(t)
	check.OK(t, check.Err(p.client().Send(t.Context(), message())))
	letters, _ := p.taken()
	check.Equal(t, letters[0].to, "ada@example.org", "to a server that has SMTPUTF8")
}

func TestNoText(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	e := p.client(func(c *Config) { c.Templates = texts(t, "{{.Payload.v}}", "", "") })
	for name, test := range map[string]struct {
		mutate func(*channel.Message)
		kind   channel.Kind
	}{
		"no template":  {func(m *channel.Message) { m.Template = "y" }, channel.KindMisconfigured},
		"no value":     {func(*channel.Message) {}, channel.KindRejected},
		"no address":   {func(m *channel.Message) { m.Address = "" }, channel.KindNoAddress},
		"long address": {func(m *channel.Message) { m.Address = strings.Repeat("a", 1000) + "@example.org" }, channel.KindBounced},
	} {
		_, err := e.Send(t.Context(), message(test.mutate))
		check.That(t, channel.Of("email", err).Kind == test.kind, "%s: %v", name, err)
	}
	_, conns := p.taken()
	check.That(t, conns == 0, "it has connected")
	insecure := p.client(func(c *Config) { c.Unsubscribe = func(channel.Message) string { return "http://n.example" } })
	_, err := insecure.Send(t.Context(), message())
	check.That(t, channel.Of("email", err).Kind == channel.KindMisconfigured, "one click over http: %v", err)
}

func TestConfigIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Address: "mail", From: "x", User: "u", Security: "ssl"})
	check.ErrorContains(t, err, "Address", "From", "User and Password", "Security", "Templates")
}

// FuzzCompose: whatever the user's address and the text are, there is one recipient, and no header that is not ours.
func FuzzCompose(f *testing.F) {
	f.Add("ada@example.org", "hello")
	f.Add(`"a\r\nBcc: b" <ada@example.org>`, "x\r\nBcc: eve@evil.example\r\n\r\n")
	set, err := template.Parse(fstest.MapFS{"x/default.subject": {Data: []byte("{{.Payload.v}}")}, "x/default.txt": {Data: []byte("{{.Payload.v}}")}}, template.Config{})
	check.OK(f, err)
	e := check.Must(New(Config{Address: "127.0.0.1:1", From: "notify@example.com", Templates: set}))(f)
	f.Fuzz(func(t *testing.T, address, text string) {
		to, err := parseAddress(address)
		payload, jsonErr := json.Marshal(map[string]string{"v": text})
		if err != nil || jsonErr != nil {
			t.Skip()
		}
		m := message(func(m *channel.Message) { m.Payload = payload })
		rendered, err := set.Render(m, "email", "")
		if err != nil {
			t.Skip()
		}
		msg := check.Must(e.compose(m, to, rendered, ""))(t)
		var raw bytes.Buffer
		check.OK(t, check.Err(msg.WriteTo(&raw)))
		rcpts, err := msg.GetRecipients()
		check.That(t, err == nil && len(rcpts) == 1 && !strings.ContainsAny(rcpts[0], "\r\n"), "%q to %q (%v)", address, rcpts, err)
		header, _ := read(t, raw.Bytes())
		for name := range header {
			switch name {
			case "Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To":
			default:
				t.Errorf("%q: header %s", address, name)
			}
		}
	})
}

// letter is a mail that the server has taken.
type letter struct {
	from, to string
	raw      []byte
	secure   bool
	user     string
}

// post is a mail server.
type post struct {
	*testing.T

	address string
	data    func(c *smtp.Conn) error // before a mail is taken
	fresh   func(c *smtp.Conn) error // for each connection
	left    chan struct{}            // gets one for each session that has ended
	mail    error
	rcpt    error
	roots   *x509.CertPool

	mu      sync.Mutex
	conns   map[string]bool
	letters []letter
}

// quiet is a log that nobody reads.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type session struct {
	*post

	conn   *smtp.Conn
	letter letter
	utf8   bool
}

// newPost starts a server, with TLS at hand.
func newPost(t *testing.T, mutate ...func(*smtp.Server)) *post {
	t.Helper()
	p := &post{T: t, conns: map[string]bool{}, roots: x509.NewCertPool()}
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	p.roots.AddCert(certified.Certificate())
	srv := smtp.NewServer(p)
	srv.Domain, srv.TLSConfig, srv.EnableSMTPUTF8 = "localhost", certified.TLS.Clone(), true
	srv.TLSConfig.NextProtos = nil
	srv.ErrorLog = quiet{}
	for _, m := range mutate {
		m(srv)
	}
	listener := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p.address = listener.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(listener) //nolint:errcheck // it is closed
	}()
	t.Cleanup(func() {
		listener.Close() // Serve may not have seen it yet
		srv.Close()
		<-done
	})
	return p
}

func (p *post) NewSession(c *smtp.Conn) (smtp.Session, error) { //nolint:ireturn // the library's
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c.Conn().RemoteAddr().String()] = true
	if p.fresh != nil {
		if err := p.fresh(c); err != nil {
			return nil, err
		}
	}
	return &session{post: p, conn: c}, nil
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) { //nolint:ireturn // the library's
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "sesame" {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no"}
		}
		s.letter.user = user
		return nil
	}), nil
}

func (s *session) Mail(from string, o *smtp.MailOptions) error {
	s.letter.from, s.utf8 = from, o.UTF8
	return s.mail
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if s.letter.to = to; s.utf8 {
		s.letter.to += " UTF8"
	}
	return s.rcpt
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if s.data != nil {
		if err := s.data(s.conn); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letter.raw = raw
	_, s.letter.secure = s.conn.TLSConnectionState()
	s.letters = append(s.letters, s.letter)
	return nil
}

func (*session) Reset() {}

func (s *session) Logout() error {
	if s.left != nil {
		s.left <- struct{}{}
	}
	return nil
}

// taken are the mails that the server has, and how many connections there were.
func (p *post) taken() (letters []letter, conns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters, len(p.conns)
}

func texts(t *testing.T, subject, text, html string) *template.Set {
	t.Helper()
	set, err := template.Parse(fstest.MapFS{
		"x/default.subject": {Data: []byte(subject)}, "x/default.txt": {Data: []byte(text)}, "x/default.html": {Data: []byte(html)},
		"plain/default.subject": {Data: []byte(subject)}, "plain/default.txt": {Data: []byte(text)},
	}, template.Config{})
	check.OK(t, err)
	return set
}

// client returns a channel to the server.
func (p *post) client(mutate ...func(*Config)) *Email {
	p.Helper()
	cfg := Config{
		Address: p.address, From: "Expediter <notify@example.com>", RootCAs: p.roots,
		Templates: texts(p.T, "hello", "text", "<p>html</p>"),
	}
	for _, m := range mutate {
		m(&cfg)
	}
	e := check.Must(New(cfg))(p)
	e.pool.timeout = time.Hour
	p.Cleanup(e.Close)
	return e
}

func message(mutate ...func(*channel.Message)) channel.Message {
	m := channel.Message{
		Address: "ada@example.org", Attempt: 1, CreatedAt: time.Date(2026, 11, 17, 18, 0, 0, 0, time.UTC), FirstAttempt: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), EventID: "evt-001",
		EventType: "X", ID: "ntf_1", Template: "x", UserID: "ada",
	}
	for _, f := range mutate {
		f(&m)
	}
	return m
}
