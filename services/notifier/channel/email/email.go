package email

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net"
	netmail "net/mail"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/wneessen/go-mail"
	"golang.org/x/net/idna"

	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// Name is the channel's name, unless it is given another.
const Name = "email"

// Security is the protection of the connection to the server.
type Security string

// The kinds of protection.
const (
	// StartTLS begins unencrypted and requires a change to TLS.
	StartTLS Security = "starttls"
	// TLS is TLS from the beginning, as on port 465.
	TLS Security = "tls"
	// Plain is no protection, for a server on the same machine. A password is sent only by mechanisms that do not reveal
	// it.
	Plain Security = "plain"
)

// connections is the largest number of connections to the server at a time.
const connections = 8

// Config configures an [Email].
type Config struct {
	// Address is the host and port of the server. Required.
	Address string

	// From is the sender, such as "Expediter <notify@example.com>". Its domain is that of the Message-IDs. Required.
	From string

	// Password is the password of User. Defaults to none.
	Password string

	// RootCAs are the authorities against which the server's certificate is checked. Defaults to the system's.
	RootCAs *x509.CertPool

	// Security protects the connection. Defaults to [StartTLS].
	Security Security

	// Templates make the texts. Required.
	Templates *template.Set

	// Unsubscribe returns the https URL at which one POST switches a category off for a user, or "". It must return the
	// same URL in every attempt. Defaults to no URL.
	Unsubscribe func(m channel.Message) string

	// User is the name to authenticate with. Defaults to none: no authentication.
	User string
}

// Email is the channel. It is safe for concurrent use.
type Email struct {
	cfg  Config
	from *netmail.Address
	host string
	pool pool
}

var _ channel.Channel = (*Email)(nil)

// New returns the channel. It connects when there is something to send. Close it after its last use.
func New(cfg Config) (*Email, error) {
	cfg.Security = cmp.Or(cfg.Security, StartTLS)
	if cfg.Unsubscribe == nil {
		cfg.Unsubscribe = func(channel.Message) string { return "" }
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("email: "+format, args...)) }
	host, port, err := net.SplitHostPort(cfg.Address)
	if number, numberErr := strconv.Atoi(port); err != nil || host == "" || numberErr != nil || number < 1 || number > 65535 {
		bad("Address is %q: want host:port", cfg.Address)
	}
	from, err := netmail.ParseAddress(cfg.From)
	if err == nil {
		err = encodeDomain(from)
	}
	if err != nil || encode(from.Name) != from.Name {
		bad(`From is %q: want "Name <name@example.com>"`, cfg.From)
	}
	if (cfg.User == "") != (cfg.Password == "") {
		bad("User and Password belong together")
	}
	if cfg.Security != StartTLS && cfg.Security != TLS && cfg.Security != Plain {
		bad("Security is %q: want %s, %s or %s", cfg.Security, StartTLS, TLS, Plain)
	}
	if cfg.Templates == nil {
		bad("Templates are missing")
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	e := &Email{cfg: cfg, from: from, host: host}
	e.pool.dial, e.pool.timeout, e.pool.slots = e.dial, idleTimeout, make(chan struct{}, connections)
	return e, nil
}

// Close closes the connections that are not in use.
func (e *Email) Close() { e.pool.close() }

// Name implements [channel.Channel].
func (*Email) Name() string { return Name }

// Send implements [channel.Channel]. The address is one of RFC 5322, with or without a name. Four round trips to the server,
// and some more for the first mail on a connection.
func (e *Email) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if m.Address == "" {
		return channel.Receipt{}, e.fail(channel.KindNoAddress, 0, "", nil)
	}
	to, err := parseAddress(m.Address)
	if err != nil {
		return channel.Receipt{}, e.fail(channel.KindBounced, 0, err.Error(), nil)
	}
	unsubscribe := e.cfg.Unsubscribe(m)
	text, err := e.cfg.Templates.Render(m, Name, unsubscribe)
	if err != nil {
		return channel.Receipt{}, err
	}
	msg, err := e.compose(m, to, text, unsubscribe)
	if err != nil {
		return channel.Receipt{}, e.fail(channel.KindMisconfigured, 0, "no mail can be made of it", err)
	}
	select {
	case e.pool.slots <- struct{}{}:
		defer func() { <-e.pool.slots }()
	case <-ctx.Done():
		return channel.Receipt{}, e.unsent(ctx, "no connection is free", nil)
	}
	for again := false; ; again = true {
		c, err := e.pool.take(ctx, again)
		if err != nil {
			return channel.Receipt{}, e.undialled(ctx, err)
		}
		c.smtp.SkipSMTPUTF8(isASCII(e.from.Address + to.Address)) // a relay may refuse it for a next server without it
		result := c.send(ctx, msg)
		if result.healthy() {
			e.pool.put(c)
		} else {
			c.drop()
		}
		switch {
		case result.err == nil:
			return channel.Receipt{ID: result.response}, nil
		case c.used && result.stale() && !again && ctx.Err() == nil:
			continue // the server had closed the connection while it was idle
		}
		return channel.Receipt{}, e.failed(ctx, result, to.Address)
	}
}

func (e *Email) fail(kind channel.Kind, status int, detail string, cause error) *channel.Error {
	return &channel.Error{Cause: cause, Channel: Name, Detail: detail, Kind: kind, Status: status}
}

// maxAddress bounds addresses: RFC 5321 allows 254 bytes, and an address may have a name.
const maxAddress = 512

// parseAddress reads the address of a user. Its errors do not repeat the address.
func parseAddress(text string) (*netmail.Address, error) {
	if len(text) > maxAddress || strings.ContainsAny(text, "\r\n\x00") {
		return nil, errors.New("the address is too long, or has a line break")
	}
	to, err := netmail.ParseAddress(text)
	if err != nil {
		return nil, errors.New("the address is none of RFC 5322")
	}
	return to, encodeDomain(to)
}

// encodeDomain replaces a domain with other letters than those of ASCII by its form that every server takes. Only the part before the @
// then needs a server that supports SMTPUTF8.
func encodeDomain(of *netmail.Address) error {
	at := strings.LastIndexByte(of.Address, '@') + 1
	if isASCII(of.Address[at:]) {
		return nil
	}
	domain, err := idna.Lookup.ToASCII(of.Address[at:])
	if err != nil {
		return errors.New("the domain of the address is none of IDNA")
	}
	of.Address = of.Address[:at] + domain
	return nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

// encode returns a header value, in encoded words if it holds one: a reader would decode that, and undo what templates do against
// direction marks and links. The library, and mime.WordEncoder, leave such a value as it is when it is ASCII.
func encode(value string) string {
	if !strings.Contains(value, "=?") || mime.QEncoding.Encode("utf-8", value) != value {
		return value
	}
	var words []string
	for part := range slices.Chunk([]byte(value), 45) { // an encoded word has at most 75 bytes
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString(part)+"?=")
	}
	return strings.Join(words, " ")
}

// compose makes the mail, the same in every attempt.
func (e *Email) compose(m channel.Message, to *netmail.Address, text template.Text, unsubscribe string) (*mail.Msg, error) {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(e.from)
	if name := encode(to.Name); name != to.Name {
		msg.AddBccMailAddress(to) // for the envelope: the library writes no header of it
		msg.SetGenHeaderPreformatted("To", name+" "+(&netmail.Address{Address: to.Address}).String())
	} else {
		msg.AddToMailAddress(to)
	}
	msg.SetMessageIDWithValue(m.ID + "@" + e.from.Address[strings.LastIndexByte(e.from.Address, '@')+1:])
	// The separator is a hash of both parts, so it is the same in every attempt and occurs in neither.
	msg.SetBoundary(fmt.Sprintf("part_%.16x", sha256.Sum256([]byte(text.Text+"\x00"+text.HTML))))
	msg.SetDateWithValue(m.FirstAttempt) // filters distrust a mail that is much older than its delivery
	msg.Subject(encode(text.Subject))
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: suppresses automatic replies
	if unsubscribe != "" {
		if err := msg.SetListUnsubscribeOneClick(unsubscribe); err != nil {
			return nil, fmt.Errorf("the address to unsubscribe at: %w", err)
		}
	}
	msg.SetBodyString(mail.TypeTextPlain, text.Text)
	if text.HTML != "" {
		msg.AddAlternativeString(mail.TypeTextHTML, text.HTML)
	}
	return msg, nil
}
