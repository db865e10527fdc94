package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	maxHeader   = 64 << 10
	userAgent   = "expediter/1"
)

// Config names a service. Only BaseURL has no default.
type Config struct {
	// AllowHTTP permits plain http to another machine, such as one in the same cluster. Defaults to false.
	AllowHTTP bool

	// BaseURL is the URL that is called, or to which paths are appended. Required.
	BaseURL string

	// Timeout bounds a call from beginning to end. Defaults to a minute.
	Timeout time.Duration

	// Token is the secret of the caller. Defaults to none.
	Token string

	// Transport makes the calls. Defaults to one of the client's own, which heeds the proxies of the environment.
	Transport http.RoundTripper
}

// String names the service, without Token.
func (c Config) String() string {
	u, err := url.Parse(c.BaseURL)
	if err != nil {
		return "an address that does not parse"
	}
	return u.Redacted()
}

// GoString returns String, so that nothing prints Token.
func (c Config) GoString() string { return c.String() }

// LogValue returns String, so that nothing logs Token.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Validate reports everything that is wrong at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "":
		bad("BaseURL is missing")
	case err != nil:
		bad("BaseURL does not parse as a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		bad("BaseURL is not an http or https address with a host")
	case u.User != nil:
		bad("BaseURL holds a user name: use Token")
	case u.RawQuery != "" || u.Fragment != "":
		bad("BaseURL has a query or a fragment")
	case u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()):
		bad("BaseURL is plain http to another machine, which anybody between may read: use https, or set AllowHTTP")
	}
	if c.Timeout < 0 {
		bad("Timeout is %s: want more than 0, or 0 for the default", c.Timeout)
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r < ' ' || r > '~' }) {
		bad("Token holds characters that no header may hold")
	}
	return errors.Join(errs...)
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Client calls one service. It is safe for concurrent use.
type Client struct {
	base    string
	header  http.Header // of every call
	http    *http.Client
	timeout time.Duration
}

// New returns a client that sends the token in a header, behind a prefix. It makes no call. The error is that of Validate.
func New(config Config, header, prefix string) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	transport := config.Transport
	if transport == nil {
		transport = &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			// On a kept connection, an answer that comes twice could be taken for the answer to the next call.
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: maxHeader,
			Proxy:                  http.ProxyFromEnvironment,
			TLSHandshakeTimeout:    dialTimeout,
		}
	}
	c := &Client{
		base: config.BaseURL, timeout: cmp.Or(config.Timeout, time.Minute),
		header: http.Header{"Accept": {"application/json"}, "User-Agent": {userAgent}},
		http: &http.Client{
			// A redirect would send the token to a server that is not configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     transport,
		},
	}
	if config.Token != "" {
		c.header.Set(header, prefix+config.Token)
	}
	return c, nil
}

// Timeout bounds a call.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Answer is the answer to a call, with any status.
type Answer struct {
	// Body is the body, up to one byte more than was asked for.
	Body   []byte
	Header http.Header
	// Status is the HTTP status.
	Status int
}

// Call sends a JSON body, nil for none, under a key, "" for none, and returns the answer with the first bytes of its body. Where
// the body broke off, it returns the answer with the error.
func (c *Client) Call(ctx context.Context, method, path string, body []byte, key string, maxBody int64) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	address := c.base
	if path != "" {
		address = strings.TrimRight(c.base, "/") + path
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return Answer{}, withoutAddress(err)
	}
	request.GetBody = nil // Otherwise the transport would send the request again when a kept connection breaks.
	request.Header = c.header.Clone()
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Answer{}, withoutAddress(err)
	}
	defer response.Body.Close()
	answer := Answer{Header: response.Header, Status: response.StatusCode}
	answer.Body, err = io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	return answer, withoutAddress(err)
}

// withoutAddress takes the address out of an error of the client.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
