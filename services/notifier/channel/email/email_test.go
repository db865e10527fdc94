package email

import (
	"bytes"
	"context"
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
	gomail "github.com/wneessen/go-mail"
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
	p := newMailServer(t)
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
	mails, conns := p.taken()
	check.Require(t, len(mails) == 2 && conns == 1 && lines(mails[0].raw) == lines(mails[1].raw),
		"%d mails over %d connections, want the same one twice, over one", len(mails), conns)
	got := mails[0]
	check.That(t, got.from == "notify@mail.example.com" && got.to == "ada@example.org" && got.secure && got.user == "expediter", "%+v", got)
	header, parts := read(t, got.raw)
	decoder := &mime.WordDecoder{}
	fields := map[string]string{}
	for _, name := range []string{"From", "To", "Subject", "Message-Id", "Date", "Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post", "Mime-Version"} {
		fields[name], err = decoder.DecodeHeader(header.Get(name))
		check.ErrorIs(t, err, nil)
	}
	check.Equal(t, fields, map[string]string{
		"From": "Экспедитор <notify@mail.example.com>", "To": "Ada Lövelace <ada@example.org>", "Subject": "שלום Ada",
		"Message-Id": "<ntf_1@mail.example.com>", "Date": "Fri, 20 Nov 2026 18:00:00 +0000", "Auto-Submitted": "auto-generated",
		"List-Unsubscribe": "<https://n.example/u?user=ada" + long + ">", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click", "Mime-Version": "1.0",
	})
	check.Equal(t, parts, map[string]string{
		"text/plain": "Grüße, Ada", "text/html": `<a href="https://n.example/u?user=ada` + long + `">ende</a>`,
	})
	for i, line := range bytes.Split(got.raw, []byte("\r\n")) {
		check.That(t, len(line) <= 998 && !bytes.ContainsFunc(line, func(r rune) bool { return r > 126 }), "line %d is not plain: %q", i, line)
	}
}

func TestWithoutHTMLNorUnsubscribe(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
	check.OK(t, check.Err(p.client().Send(t.Context(), message(func(m *channel.Message) { m.Template = "plain" }))))
	mails, _ := p.taken()
	header, parts := read(t, mails[0].raw)
	check.Equal(t, parts, map[string]string{"text/plain": "text\r\n"})
	check.Equal(t, header.Get("List-Unsubscribe"), "")
}

// Nothing of an event, nor of a user, becomes its own header, or another recipient.
func TestHeadersCannotBeInjected(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
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
	mails, _ := p.taken()
	check.Equal(t, len(mails), sent, "mails")
	for _, l := range mails {
		header, _ := read(t, l.raw)
		check.That(t, header.Get("Bcc") == "" && header.Get("Subject") != "" && l.to == "ada@example.org", "%s", l.raw)
	}
}

// TestEncodedWordsStayText: what looks like encoded words in a text or a name is shown as it is, and not decoded by the reader.
func TestEncodedWordsStayText(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
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
		mails, _ := p.taken()
		header, _ := read(t, mails[i].raw)
		name, err := (&mime.WordDecoder{}).DecodeHeader(header.Get("To"))
		check.That(t, err == nil && mails[i].to == "ada@example.org" && header.Get("Bcc") == "" &&
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
		p := newMailServer(t, func(s *smtp.Server) { s.EnableSMTPUTF8 = !strings.HasPrefix(address, "ada") })
		_, err := p.client(func(c *Config) { c.From = "notify@пример.example" }).Send(t.Context(), message(func(m *channel.Message) { m.Address = address }))
		mails, _ := p.taken()
		if want == "" {
			check.That(t, channel.Of("email", err).Kind == channel.KindBounced && len(mails) == 0, "%s: %v", address, err)
			continue
		}
		check.Require(t, err == nil && len(mails) == 1, "%s: %v", address, err)
		check.Equal(t, mails[0].to, want, address)
	}
	p := newMailServer(t)
	check.OK(t, check.Err(p.client().Send(t.Context(), message())))
	mails, _ := p.taken()
	check.Equal(t, mails[0].to, "ada@example.org", "to a server that has SMTPUTF8")
}

func TestNoText(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
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

// takenMail is a mail that the server has taken.
type takenMail struct {
	from, to string
	raw      []byte
	secure   bool
	user     string
}

// mailServer is a mail server.
type mailServer struct {
	*testing.T

	address string
	data    func(c *smtp.Conn) error // before a mail is taken
	fresh   func(c *smtp.Conn) error // for each connection
	left    chan struct{}            // gets one for each session that has ended
	mail    error
	rcpt    error
	roots   *x509.CertPool

	mu    sync.Mutex
	conns map[string]bool
	mails []takenMail
}

// quiet is a log that nobody reads.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type session struct {
	*mailServer

	conn      *smtp.Conn
	takenMail takenMail
	utf8      bool
}

// newMailServer starts a server, with TLS at hand.
func newMailServer(t *testing.T, mutate ...func(*smtp.Server)) *mailServer {
	t.Helper()
	p := &mailServer{T: t, conns: map[string]bool{}, roots: x509.NewCertPool()}
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

func (p *mailServer) NewSession(c *smtp.Conn) (smtp.Session, error) { //nolint:ireturn // the library's
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c.Conn().RemoteAddr().String()] = true
	if p.fresh != nil {
		if err := p.fresh(c); err != nil {
			return nil, err
		}
	}
	return &session{mailServer: p, conn: c}, nil
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) { //nolint:ireturn // the library's
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "sesame" {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no"}
		}
		s.takenMail.user = user
		return nil
	}), nil
}

func (s *session) Mail(from string, o *smtp.MailOptions) error {
	s.takenMail.from, s.utf8 = from, o.UTF8
	return s.mail
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if s.takenMail.to = to; s.utf8 {
		s.takenMail.to += " UTF8"
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
	s.takenMail.raw = raw
	_, s.takenMail.secure = s.conn.TLSConnectionState()
	s.mails = append(s.mails, s.takenMail)
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
func (p *mailServer) taken() (mails []takenMail, conns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mails, len(p.conns)
}

func texts(t *testing.T, subject, text, html string) *template.Set {
	t.Helper()
	return check.Must(template.Parse(fstest.MapFS{
		"x/default.subject": {Data: []byte(subject)}, "x/default.txt": {Data: []byte(text)}, "x/default.html": {Data: []byte(html)},
		"plain/default.subject": {Data: []byte(subject)}, "plain/default.txt": {Data: []byte(text)},
	}, template.Config{}))(t)
}

// client returns a channel to the server.
func (p *mailServer) client(mutate ...func(*Config)) *Email {
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

// TestRepliesAreKeptWithoutAddresses: the error of a mail goes into logs.
func TestRepliesAreKeptWithoutAddresses(t *testing.T) {
	t.Parallel()
	for address, reply := range map[string]string{
		"ada@example.org":         "<ADA@example.org>: no such user, see postmaster@example.org",
		"ada@localhost":           "ada@localhost: no such user",
		`"ada l"@example.org`:     `<"ada l"@example.org>... user unknown`,
		"Ada <ada@xn--p1ai.test>": "no mailbox for ada@xn--p1ai.test",
	} {
		p := newMailServer(t)
		p.rcpt = &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: reply}
		_, err := p.client().Send(t.Context(), message(func(m *channel.Message) { m.Address = address }))
		failed := channel.Of("email", err)
		check.That(t, failed.Kind == channel.KindBounced && !strings.Contains(strings.ToLower(err.Error()), "ada") && strings.Contains(failed.Detail, "5.1.1"),
			"%s: %v", address, err)
	}
}

func refused(code int, enhanced ...int) error {
	out := &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: "no"}
	if len(enhanced) == 3 {
		out.EnhancedCode = smtp.EnhancedCode{enhanced[0], enhanced[1], enhanced[2]}
	}
	return out
}

func TestReplies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mail, rcpt, data error
		kind             channel.Kind
		status           int
	}{
		"no such user":                {rcpt: refused(550, 5, 1, 1), kind: channel.KindBounced, status: 550},
		"no such user, without words": {rcpt: refused(550), kind: channel.KindBounced, status: 550},
		"no such user, told late":     {data: refused(550, 5, 1, 1), kind: channel.KindBounced, status: 550},
		"mailbox is closed":           {rcpt: refused(550, 5, 2, 1), kind: channel.KindBounced, status: 550},
		"mailbox is full":             {rcpt: refused(552, 5, 2, 2), kind: channel.KindRejected, status: 552},
		"policy":                      {rcpt: refused(550, 5, 7, 1), kind: channel.KindRejected, status: 550},
		"greylisted":                  {rcpt: refused(451, 4, 7, 1), kind: channel.KindRateLimited, status: 451},
		"too many":                    {rcpt: refused(450, 4, 7, 28), kind: channel.KindRateLimited, status: 450},
		"mailbox is busy":             {rcpt: refused(450, 4, 2, 1), kind: channel.KindUnavailable, status: 450},
		"disk is full":                {mail: refused(452, 4, 3, 1), kind: channel.KindUnavailable, status: 452},
		"sender is refused":           {mail: refused(550, 5, 7, 1), kind: channel.KindMisconfigured, status: 550},
		"too big":                     {mail: refused(552, 5, 3, 4), kind: channel.KindRejected, status: 552},
		"log in first":                {mail: refused(530, 5, 7, 0), kind: channel.KindMisconfigured, status: 530},
		"spam":                        {data: refused(554, 5, 7, 1), kind: channel.KindRejected, status: 554},
		"cannot keep it now":          {data: refused(451, 4, 3, 0), kind: channel.KindUnavailable, status: 451},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMailServer(t)
			p.mail, p.rcpt, p.data = test.mail, test.rcpt, func(*smtp.Conn) error { return test.data }
			e := p.client()
			for range 2 {
				_, err := e.Send(t.Context(), message())
				failed := channel.Of("email", err)
				check.That(t, failed.Kind == test.kind && failed.Status == test.status, "%v, want %s", err, test.kind)
			}
			mails, conns := p.taken()
			check.That(t, len(mails) == 0 && (test.mail != nil || conns == 1), "%d mails over %d connections", len(mails), conns)
		})
	}
	for enhanced, want := range map[string]channel.Kind{"5.1.7": channel.KindMisconfigured, "5.1.8": channel.KindMisconfigured, "5.1.10": channel.KindBounced} {
		check.Equal(t, judge(gomail.ErrSMTPRcptTo, 550, enhanced), want, enhanced)
	}
}

// When the connection breaks, it depends on when.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	t.Run("after the mail, on a new connection and on one that was kept", func(t *testing.T) {
		t.Parallel()
		p := newMailServer(t)
		calls := 0
		p.data = func(c *smtp.Conn) error {
			calls++
			if calls != 2 {
				return c.Conn().Close()
			}
			return nil
		}
		e := p.client()
		for i, want := range []channel.Kind{channel.KindUnknown, "", channel.KindUnknown} {
			if _, err := e.Send(t.Context(), message()); want == "" {
				check.OK(t, err)
			} else {
				check.Equal(t, channel.Of("email", err).Kind, want, "mail", i)
			}
		}
		mails, conns := p.taken()
		check.That(t, len(mails) <= 3 && conns == 2, "%d mails over %d connections, want none tried again", len(mails), conns)
	})
	for name, test := range map[string]struct {
		cause error
		kind  channel.Kind
	}{"late": {context.DeadlineExceeded, channel.KindTimeout}, "stopped": {context.Canceled, channel.KindInterrupted}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMailServer(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := make(chan struct{})
			p.data = func(*smtp.Conn) error {
				cancel(test.cause)
				<-gone
				return nil
			}
			_, err := p.client().Send(ctx, message())
			close(gone)
			check.That(t, channel.Of("email", err).Kind == test.kind, "%v", err)
		})
	}
	for name, spoil := range map[string]func(p *mailServer){
		"before the mail": func(p *mailServer) { p.fresh = func(c *smtp.Conn) error { return c.Conn().Close() } },
		"nobody there":    func(p *mailServer) { p.address = "127.0.0.1:1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMailServer(t)
			spoil(p)
			check.Equal(t, channel.Of("email", check.Err(p.client().Send(t.Context(), message()))).Kind, channel.KindUnavailable)
		})
	}
}

// A connection that the server has closed while nobody used it costs no try.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
	var last *smtp.Conn
	p.fresh = func(c *smtp.Conn) error {
		last = c
		return nil
	}
	e := p.client()
	for i := range 3 {
		_, err := e.Send(t.Context(), message())
		check.Require(t, err == nil, "mail %d: %v", i+1, err)
		p.mu.Lock()
		last.Conn().Close()
		p.mu.Unlock()
	}
	mails, conns := p.taken()
	check.That(t, len(mails) == 3 && conns == 3, "%d mails over %d connections", len(mails), conns)
}

func TestConnectionsAreBoundedAndKept(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
	e := p.client()
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() { check.ErrorIs(t, check.Err(e.Send(t.Context(), message())), nil) })
	}
	all.Wait()
	mails, conns := p.taken()
	check.That(t, len(mails) == 40 && conns <= connections, "%d mails over %d connections", len(mails), conns)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range connections {
		e.pool.slots <- struct{}{}
	}
	_, err := e.Send(ctx, message())
	check.That(t, channel.Of("email", err).Kind == channel.KindUnavailable, "no connection is free: %v", err)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	p := newMailServer(t)
	p.left = make(chan struct{}, 10)
	e := p.client(func(c *Config) { c.Security = Plain })
	e.pool.timeout = time.Nanosecond
	for range 2 {
		check.OK(t, check.Err(e.Send(t.Context(), message())))
		e.pool.background.Wait()
		<-p.left
	}
	_, conns := p.taken()
	check.That(t, conns == 2, "%d connections, want 2", conns)
}

func TestSecurity(t *testing.T) {
	t.Parallel()
	asIs := func(*smtp.Server) {}
	bare := func(s *smtp.Server) { s.TLSConfig = nil }
	insecure := func(s *smtp.Server) { s.TLSConfig, s.AllowInsecureAuth = nil, true }
	login := func(c *Config) { c.User, c.Password = "expediter", "sesame" }
	for name, test := range map[string]struct {
		server func(*smtp.Server)
		client func(*Config)
		kind   channel.Kind
		secure bool
	}{
		"STARTTLS":                          {asIs, func(*Config) {}, "", true},
		"a server without it":               {bare, func(*Config) {}, channel.KindMisconfigured, false},
		"in the clear, when allowed":        {bare, func(c *Config) { c.Security = Plain }, "", false},
		"a certificate that nobody knows":   {asIs, func(c *Config) { c.RootCAs = nil }, channel.KindUnavailable, false},
		"no password in the clear":          {insecure, func(c *Config) { login(c); c.Security = Plain }, channel.KindMisconfigured, false},
		"a wrong password":                  {asIs, func(c *Config) { login(c); c.Password = "guess" }, channel.KindMisconfigured, false},
		"TLS to a server that waits for it": {asIs, func(c *Config) { c.Security = TLS }, channel.KindUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMailServer(t, test.server)
			_, err := p.client(test.client).Send(t.Context(), message())
			mails, _ := p.taken()
			if test.kind == "" {
				check.That(t, err == nil && len(mails) == 1 && mails[0].secure == test.secure, "%+v %v", mails, err)
				return
			}
			check.Require(t, channel.Of("email", err).Kind == test.kind && len(mails) == 0, "%v, want %s", err, test.kind)
			check.That(t, !strings.Contains(err.Error(), "guess") && !strings.Contains(err.Error(), "sesame"), "%v has the password", err)
		})
	}
}
