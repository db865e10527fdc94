package email

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/wneessen/go-mail"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// TestRepliesAreKeptWithoutAddresses: the error of a mail goes into logs.
func TestRepliesAreKeptWithoutAddresses(t *testing.T) {
	t.Parallel()
	for address, reply := range map[string]string{
		"ada@example.org":         "<ADA@example.org>: no such user, see postmaster@example.org",
		"ada@localhost":           "ada@localhost: no such user",
		`"ada l"@example.org`:     `<"ada l"@example.org>... user unknown`,
		"Ada <ada@xn--p1ai.test>": "no mailbox for ada@xn--p1ai.test",
	} {
		p := newPost(t)
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
			p := newPost(t)
			p.mail, p.rcpt, p.data = test.mail, test.rcpt, func(*smtp.Conn) error { return test.data }
			e := p.client()
			for range 2 {
				_, err := e.Send(t.Context(), message())
				failed := channel.Of("email", err)
				check.That(t, failed.Kind == test.kind && failed.Status == test.status, "%v, want %s", err, test.kind)
			}
			letters, conns := p.taken()
			check.That(t, len(letters) == 0 && (test.mail != nil || conns == 1), "%d mails over %d connections", len(letters), conns)
		})
	}
	for enhanced, want := range map[string]channel.Kind{"5.1.7": channel.KindMisconfigured, "5.1.8": channel.KindMisconfigured, "5.1.10": channel.KindBounced} {
		check.Equal(t, judge(mail.ErrSMTPRcptTo, 550, enhanced), want, enhanced)
	}
}

// When the connection breaks, it depends on when.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	t.Run("after the mail", func(t *testing.T) {
		t.Parallel()
		p := newPost(t)
		p.data = func(c *smtp.Conn) error { return c.Conn().Close() }
		_, err := p.client().Send(t.Context(), message())
		if _, conns := p.taken(); channel.Of("email", err).Kind != channel.KindUnknown || conns != 1 {
			t.Errorf("%v, over %d connections: want it unknown, and not tried again", err, conns)
		}
	})
	t.Run("after the mail, on a connection that was kept", func(t *testing.T) {
		t.Parallel()
		p := newPost(t)
		calls := 0
		p.data = func(c *smtp.Conn) error {
			calls++
			if calls == 2 {
				return c.Conn().Close()
			}
			return nil
		}
		e := p.client()
		check.OK(t, check.Err(e.Send(t.Context(), message())))
		_, err := e.Send(t.Context(), message())
		if letters, conns := p.taken(); channel.Of("email", err).Kind != channel.KindUnknown || conns != 1 || len(letters) > 2 {
			t.Errorf("%v, over %d connections: want it unknown, and not tried again", err, conns)
		}
	})
	for name, test := range map[string]struct {
		cause error
		kind  channel.Kind
	}{"late": {context.DeadlineExceeded, channel.KindTimeout}, "stopped": {context.Canceled, channel.KindInterrupted}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPost(t)
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
	t.Run("before the mail", func(t *testing.T) {
		t.Parallel()
		p := newPost(t)
		p.fresh = func(c *smtp.Conn) error { return c.Conn().Close() }
		_, err := p.client().Send(t.Context(), message())
		check.That(t, channel.Of("email", err).Kind == channel.KindUnavailable, "%v", err)
	})
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		p := newPost(t)
		e := p.client(func(c *Config) { c.Address = "127.0.0.1:1" })
		_, err := e.Send(t.Context(), message())
		check.That(t, channel.Of("email", err).Kind == channel.KindUnavailable, "%v", err)
	})
}

// A connection that the server has closed while nobody used it costs no try.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	p := newPost(t)
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
	letters, conns := p.taken()
	check.That(t, len(letters) == 3 && conns == 3, "%d mails over %d connections", len(letters), conns)
}

func TestConnectionsAreBoundedAndKept(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	e := p.client()
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			check.ErrorIs(t, check.Err(e.Send(t.Context(), message())), nil)
		})
	}
	all.Wait()
	letters, conns := p.taken()
	check.That(t, len(letters) == 40 && conns <= connections, "%d mails over %d connections", len(letters), conns)
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
	p := newPost(t)
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
	bare := func(s *smtp.Server) { s.TLSConfig = nil }
	insecure := func(s *smtp.Server) { s.TLSConfig, s.AllowInsecureAuth = nil, true }
	login := func(c *Config) { c.User, c.Password = "expediter", "sesame" }
	for name, test := range map[string]struct {
		server func(*smtp.Server)
		client func(*Config)
		kind   channel.Kind
		secure bool
	}{
		"STARTTLS":                          {nil, func(*Config) {}, "", true},
		"a server without it":               {bare, func(*Config) {}, channel.KindMisconfigured, false},
		"in the clear, when allowed":        {bare, func(c *Config) { c.Security = Plain }, "", false},
		"a certificate that nobody knows":   {nil, func(c *Config) { c.RootCAs = nil }, channel.KindUnavailable, false},
		"no password in the clear":          {insecure, func(c *Config) { login(c); c.Security = Plain }, channel.KindMisconfigured, false},
		"a wrong password":                  {nil, func(c *Config) { c.User, c.Password = "expediter", "guess" }, channel.KindMisconfigured, false},
		"TLS to a server that waits for it": {nil, func(c *Config) { c.Security = TLS }, channel.KindUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mutate []func(*smtp.Server)
			if test.server != nil {
				mutate = append(mutate, test.server)
			}
			p := newPost(t, mutate...)
			_, err := p.client(test.client).Send(t.Context(), message())
			letters, _ := p.taken()
			if test.kind == "" {
				check.That(t, err == nil && len(letters) == 1 && letters[0].secure == test.secure, "%+v %v", letters, err)
				return
			}
			if channel.Of("email", err).Kind != test.kind || len(letters) != 0 || strings.Contains(err.Error(), "guess") || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%v, want %s", err, test.kind)
			}
		})
	}
}
