package post

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

const (
	// maxBody is the number of bytes of an answer that are read. No channel needs more.
	maxBody = 64 << 10

	maxHeader = 64 << 10

	// maxRetryAfter bounds the pause that a provider can ask for.
	maxRetryAfter = 24 * time.Hour

	// maxIdle is the number of connections to one host that are kept for the next calls.
	maxIdle = 32

	idleTimeout = 90 * time.Second
	tlsTimeout  = 10 * time.Second

	// timeout bounds calls whose context has no deadline.
	timeout = time.Minute
)

// Config configures a client.
type Config struct {
	// AllowHTTP permits addresses without TLS. Defaults to false.
	AllowHTTP bool

	// BodyTimeout bounds the reading of an answer's body, because the status alone decides the outcome of the message. Defaults
	// to the time limit of the call.
	BodyTimeout time.Duration

	// Channel is the name of the channel, for errors. Required.
	Channel string

	// Guard selects the networks that may be dialled. Defaults to any, for addresses that the operator names.
	Guard *remote.Guard

	// Refused is the kind of an answer that refuses the message. Defaults to channel.KindRejected.
	Refused channel.Kind

	// RootCAs are the authorities against which certificates are checked. Defaults to the system's.
	RootCAs *x509.CertPool
}

// Client makes calls. It follows no redirects, keeps no cookies, and heeds no proxy of the environment.
type Client struct {
	cfg  Config
	http *http.Client
}

// Answer is the provider's answer.
type Answer struct {
	// Body is the beginning of the body.
	Body []byte

	// Header are the headers.
	Header http.Header

	// Status is the HTTP status.
	Status int
}

// New returns a client.
func New(cfg Config) *Client {
	dialer := &net.Dialer{}
	if cfg.Guard != nil {
		dialer = cfg.Guard.Dialer()
	}
	return &Client{cfg: cfg, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableCompression: true, ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout,
			MaxIdleConnsPerHost: maxIdle, MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: tlsTimeout,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs},
		},
	}}
}

// Close closes the connections that no call is using.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check parses an address. The error has the reason why this client does not call the address.
func (c *Client) Check(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case strings.ContainsFunc(address, unicode.IsSpace):
		return nil, errors.New("the address has a space")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https": // err would repeat the address, secrets included
		return nil, errors.New("the address is not an absolute https URL")
	case u.Scheme == "http" && !c.cfg.AllowHTTP:
		return nil, errors.New("the address is an http URL, and only https is allowed")
	case u.User != nil:
		return nil, errors.New("the address holds a user name")
	}
	return u, nil
}

// Post sends a body, and returns the answer if the provider has taken the message, by judge. The error is a [*channel.Error] that does
// not repeat the address: it may hold secrets.
func (c *Client) Post(
	ctx context.Context, address string, header http.Header, body []byte, judge func(*Answer) error,
) (*Answer, error) {
	u, err := c.Check(address)
	if err != nil {
		return nil, c.Fail(channel.KindBounced, 0, err.Error(), nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reached atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})
	request, err := http.NewRequestWithContext(traced, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, c.Fail(channel.KindBounced, 0, "the address cannot be called", nil)
	}
	if header != nil {
		request.Header = header
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.broken(ctx, err, reached.Load())
	}
	defer response.Body.Close()
	if c.cfg.BodyTimeout > 0 {
		defer time.AfterFunc(c.cfg.BodyTimeout, cancel).Stop()
	}
	// The status decides the outcome of the message, even if the body breaks off.
	data, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // see above
	answer := &Answer{Body: data, Header: response.Header, Status: response.StatusCode}
	return answer, judge(answer)
}

// broken returns the error of a call without an answer. When no connection was reached, nothing was sent.
func (c *Client) broken(ctx context.Context, err error, reached bool) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		err = sent.Err // without the address
	}
	if blocked, ok := errors.AsType[*remote.BlockedError](err); ok {
		return c.Fail(channel.KindBounced, 0, "the address leads to where it must not", blocked)
	}
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case !reached:
		return c.Fail(channel.KindUnavailable, 0, "no connection", err)
	case errors.Is(context.Cause(ctx), context.Canceled):
		return c.Fail(channel.KindInterrupted, 0, "", err)
	case ctx.Err() != nil, isNetwork && network.Timeout():
		return c.Fail(channel.KindTimeout, 0, "no answer in time", err)
	}
	return c.Fail(channel.KindUnknown, 0, "the connection broke", err)
}

// Fail returns the error of a message without an answer, or with a status.
func (c *Client) Fail(kind channel.Kind, status int, detail string, cause error) *channel.Error {
	return &channel.Error{Cause: cause, Channel: c.cfg.Channel, Detail: detail, Kind: kind, Status: status}
}

// Judge returns the error for a status, nil when the provider has taken the message. A provider that is not set up may be
// set up at the next attempt. A provider that has refused this message will refuse it again.
func (c *Client) Judge(answer *Answer) error {
	kind, detail := cmp.Or(c.cfg.Refused, channel.KindRejected), "the message is refused"
	switch status := answer.Status; {
	case status >= 200 && status < 300:
		return nil
	case status < 400:
		kind, detail = channel.KindUnavailable, "redirects are not followed"
	case status == http.StatusGone:
		kind, detail = channel.KindGone, "the address is given up"
	case status == http.StatusTooManyRequests:
		kind, detail = channel.KindRateLimited, "too many calls"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound,
		status == http.StatusMethodNotAllowed:
		kind, detail = channel.KindUnavailable, "nobody there takes messages"
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusServiceUnavailable:
		kind, detail = channel.KindUnavailable, "it asks to be called again"
	case status == http.StatusGatewayTimeout:
		kind, detail = channel.KindTimeout, "no answer in time from behind it"
	case status == http.StatusInternalServerError, status == http.StatusBadGateway:
		kind, detail = channel.KindUnknown, "it broke, before or after it took the message"
	case status > 500:
		kind, detail = channel.KindUnavailable, "it is out of order"
	}
	return c.Failed(kind, answer, detail)
}

// Failed returns the error of an answer.
func (c *Client) Failed(kind channel.Kind, answer *Answer, detail string) error {
	failed := c.Fail(kind, answer.Status, detail, nil)
	if failed.Temporary() {
		failed.RetryAfter = retry.After(answer.Header, 0, maxRetryAfter)
	}
	return failed
}

// JSON returns a body, without a line break at its end, and without escapes that only HTML needs.
func JSON(body any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
