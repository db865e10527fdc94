package email

import (
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

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

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.letter.from = from
	return s.mail
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.letter.to = to
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
		Address: p.address, From: "Expediter <notify@example.com>", RootCAs: p.roots, IdleTimeout: time.Hour,
		Templates: texts(p.T, "hello", "text", "<p>html</p>"),
	}
	for _, m := range mutate {
		m(&cfg)
	}
	e := check.Must(New(cfg))(p)
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
