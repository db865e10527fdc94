package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

const (
	// replyTimeout bounds how long one exchange on a connection takes, beside the context.
	replyTimeout = time.Minute

	// quitTimeout bounds how long a server is asked to close a connection.
	quitTimeout = time.Second
)

// conn is a connection to the server, ready for a mail.
type conn struct {
	net    net.Conn
	sender *mail.Client
	smtp   *smtp.Client
	used   bool // by a mail before
	expiry *time.Timer
}

// dial connects, protects the connection, and says who we are.
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
				return nil, err //nolint:wrapcheck // by dial
			}
			c.net = dialed
			stop = context.AfterFunc(ctx, func() { dialed.Close() }) //nolint:errcheck,gosec // it is given up
			if e.cfg.Security == TLS {
				protected := tls.Client(dialed, config)
				err = protected.HandshakeContext(dialing)
				return protected, err //nolint:wrapcheck // by dial
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

// drop closes the connection without a word.
func (c *conn) drop() {
	if c.net != nil {
		c.net.Close() //nolint:errcheck,gosec // nothing is left to send
	}
}

// quit takes leave of the server.
func (c *conn) quit() {
	if c.net.SetDeadline(time.Now().Add(quitTimeout)) == nil {
		c.smtp.Quit() //nolint:errcheck,gosec // it is over either way
	}
	c.drop()
}
