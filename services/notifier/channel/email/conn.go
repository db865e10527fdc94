package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

const (
	// idleTimeout is the time for which an unused connection is kept.
	idleTimeout = 30 * time.Second

	// replyTimeout bounds one exchange on a connection, in addition to the context.
	replyTimeout = time.Minute

	// quitTimeout bounds the exchange that closes a connection.
	quitTimeout = time.Second
)

// conn is a connection to the server, ready for a mail.
type conn struct {
	net    net.Conn
	sender *mail.Client
	smtp   *smtp.Client
	used   bool // for an earlier mail
	expiry *time.Timer
}

// dial connects, secures the connection, and authenticates.
func (e *Email) dial(ctx context.Context) (*conn, error) {
	c := &conn{}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.cfg.RootCAs, ServerName: e.host}
	policy := mail.TLSMandatory
	if e.cfg.Security != StartTLS {
		policy = mail.NoTLS
	}
	stop := func() bool { return true }
	options := []mail.Option{
		mail.WithTimeout(replyTimeout), mail.WithTLSPolicy(policy), mail.WithTLSConfig(config), mail.WithoutNoop(), mail.WithoutRset(),
		mail.WithDialContextFunc(func(dialing context.Context, network, _ string) (net.Conn, error) {
			dialed, err := (&net.Dialer{}).DialContext(dialing, network, e.cfg.Address)
			if err != nil {
				return nil, err
			}
			c.net = dialed
			stop = context.AfterFunc(ctx, func() { dialed.Close() })
			if e.cfg.Security == TLS {
				protected := tls.Client(dialed, config)
				err = protected.HandshakeContext(dialing)
				return protected, err
			}
			return dialed, nil
		}),
	}
	if e.cfg.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(e.cfg.User), mail.WithPassword(e.cfg.Password))
	}
	if e.cfg.Security == TLS {
		options = append(options, mail.WithSSL())
	}
	var err error
	if c.sender, err = mail.NewClient(e.host, options...); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	c.smtp, err = c.sender.DialToSMTPClientWithContext(ctx)
	if inTime := stop(); err == nil && !inTime {
		err = errors.New("the call was ended")
	}
	if err != nil {
		c.drop()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// send hands over one mail.
func (c *conn) send(ctx context.Context, msg *mail.Msg) result {
	stop := context.AfterFunc(ctx, c.drop)
	err := c.sender.SendWithSMTPClient(c.smtp, msg)
	out := result{response: clip(msg.ServerResponse()), interrupted: !stop()}
	if msg.IsDelivered() {
		return out
	}
	if failed, ok := errors.AsType[*mail.SendError](err); ok {
		out.code, out.enhanced, out.stage = failed.ErrorCode(), failed.EnhancedStatusCode(), failed.Reason
	}
	if out.err = err; err == nil {
		out.err, out.stage = errors.New("the library says nothing"), mail.ErrSMTPDataClose
	}
	return out
}

// drop closes the connection without QUIT.
func (c *conn) drop() {
	if c.net != nil {
		c.net.Close()
	}
}

// quit closes the connection with QUIT.
func (c *conn) quit() {
	if c.net.SetDeadline(time.Now().Add(quitTimeout)) == nil {
		c.smtp.Quit() //nolint:errcheck // it is over either way
	}
	c.drop()
}

// pool keeps connections for the next mail, and bounds their number.
type pool struct {
	dial    func(ctx context.Context) (*conn, error)
	timeout time.Duration
	slots   chan struct{}

	mu     sync.Mutex
	closed bool
	idle   []*conn

	background sync.WaitGroup // the expiries
}

// take returns the connection that was used last, or a new one.
func (p *pool) take(ctx context.Context, fresh bool) (*conn, error) {
	if !fresh {
		if c := p.kept(); c != nil {
			return c, nil
		}
	}
	return p.dial(ctx)
}

func (p *pool) kept() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		c := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if c.expiry.Stop() {
			p.background.Done()
			c.used = true
			return c
		}
	}
	return nil
}

// put keeps a connection for the next mail, for a while.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.drop()
		return
	}
	p.background.Add(1)
	c.expiry = time.AfterFunc(p.timeout, func() {
		defer p.background.Done()
		c.quit()
	})
	p.idle = append(p.idle, c)
}

// close quits all idle connections; those in use are dropped when they come back.
func (p *pool) close() {
	for {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		c := p.kept()
		if c == nil {
			break
		}
		c.quit()
	}
	p.background.Wait()
}

// result is the outcome of handing over a mail.
type result struct {
	code        int                // of the server's reply, 0 when there was none
	enhanced    string             // the code of RFC 3463, "" when there was none
	err         error              // nil when the server has taken the mail
	interrupted bool               // the notifier closed the connection
	response    string             // the server's reply when it took the mail
	stage       mail.SendErrReason // the stage at which it ended
}

// healthy reports whether the connection can be used for another mail.
func (r result) healthy() bool {
	refused := r.code != 0 && r.code != 421 && (r.stage == mail.ErrSMTPRcptTo || r.stage == mail.ErrSMTPDataClose)
	return !r.interrupted && (r.err == nil || refused)
}

// stale reports whether the server had closed the connection before it took anything.
func (r result) stale() bool {
	return r.stage != mail.ErrSMTPDataClose && (r.code == 0 || r.code == 421)
}

// failed returns the error of a result.
func (e *Email) failed(ctx context.Context, r result, to string) error {
	if r.code != 0 {
		// The library adds the recipient, and servers repeat it. Logs keep the text for longer than the user is known.
		text, _, _ := strings.Cut(r.err.Error(), ", affected ")
		return e.fail(judge(r.stage, r.code, r.enhanced), r.code, clip(strings.ReplaceAll(text, to, "…")), nil)
	}
	if r.stage != mail.ErrSMTPDataClose {
		return e.unsent(ctx, r.stage.String(), nil)
	}
	// The end of the mail may have been sent, so the server may have taken the mail.
	kind := channel.KindUnknown
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		kind = channel.KindInterrupted
	case ctx.Err() != nil:
		kind = channel.KindTimeout
	}
	return e.fail(kind, 0, "the connection broke before the server said whether it takes the mail", nil)
}

// unsent returns the error for a mail that was not handed to the server.
func (e *Email) unsent(ctx context.Context, detail string, cause error) error {
	if err := context.Cause(ctx); err != nil && cause == nil {
		cause = err
	}
	return e.fail(channel.KindUnavailable, 0, detail, cause)
}

// undialled returns the error for a connection that could not be made.
func (e *Email) undialled(ctx context.Context, err error) error {
	reply, replied := errors.AsType[*textproto.Error](err)
	switch {
	case replied && reply.Code >= 530 && reply.Code <= 538:
		return e.fail(channel.KindMisconfigured, reply.Code, "the server refuses the user", nil)
	case replied:
		return e.fail(channel.KindUnavailable, reply.Code, clip(reply.Msg), nil)
	case strings.Contains(err.Error(), "does not support"), errors.Is(err, mail.ErrNoSupportedAuthDiscovered):
		// The server does not support the configured STARTTLS or AUTH. The library has no more specific error.
		return e.fail(channel.KindMisconfigured, 0, clip(err.Error()), nil)
	}
	return e.unsent(ctx, clip(err.Error()), nil)
}

// judge returns the kind of failure for a reply at a stage.
func judge(stage mail.SendErrReason, code int, enhanced string) channel.Kind {
	subject, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(enhanced, "5."), "4."), ".")
	switch {
	case code == 421 && subject == "7", code == 450 && subject == "7", code == 451 && subject == "7":
		return channel.KindRateLimited
	case code < 500:
		return channel.KindUnavailable
	case code == 530, code == 534, code == 535, code == 538:
		return channel.KindMisconfigured
	case enhanced == "5.1.7", enhanced == "5.1.8": // the sender's address
		return channel.KindMisconfigured
	case subject == "1", enhanced == "5.2.1": // the address does not exist, or no longer
		return channel.KindBounced
	case stage == mail.ErrSMTPMailFrom && subject != "3": // 5.3.4 means that the mail is too big
		return channel.KindMisconfigured
	case stage == mail.ErrSMTPRcptTo && enhanced == "" && (code == 550 || code == 551 || code == 553):
		return channel.KindBounced
	}
	return channel.KindRejected
}

// maxReply bounds the part of a reply that is kept, in bytes.
const maxReply = 300

// clip shortens a reply and puts it on one line, without addresses.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.TrimSpace(redact.Shorten(redact.People(text), maxReply))
}
