package fetch

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/publicsuffix"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
)

const (
	maxRedirects  = 5
	maxHeader     = 256 << 10
	maxRetryAfter = 24 * time.Hour

	// unreserved is the number of bytes of an answer that are read before memory is reserved for the rest.
	unreserved = 256 << 10

	// maxCookies bounds the cookies of a session, of which an answer can set thousands.
	maxCookies = 200

	// maxWindow is the memory in bytes of a decompressor of Brotli; that of Zstandard is bounded to half of it.
	maxWindow = 16 << 20
)

// Config sets up a [Client].
type Config struct {
	// Allow are networks that may be dialled although they are not public. Defaults to none.
	Allow []netip.Prefix
	// Resolver finds the addresses of names. Defaults to the system's.
	Resolver *net.Resolver
	// Timeout bounds a whole request. Required.
	Timeout time.Duration
	// UserAgent identifies this program. Required.
	UserAgent string
}

// Client gets files. It keeps no connections, and no cookies but those of a [Client.Session], and heeds no proxy of the environment.
type Client struct {
	config Config
	http   *http.Client
}

// Response is the content of an address.
type Response struct {
	// Body is the part of the content that was read, decompressed.
	Body []byte
	// ContentType is the header, unchanged.
	ContentType string
	// Truncated reports whether a part of the content was not read.
	Truncated bool
	// URL is the address after all redirects.
	URL *url.URL
}

// New returns a client.
func New(config Config) *Client {
	c := &Client{config: config}
	guard := remote.Guard{Allow: config.Allow, Resolver: config.Resolver, Timeout: config.Timeout}
	c.http = &http.Client{
		CheckRedirect: c.redirect,
		Transport: &http.Transport{
			DialContext:            guard.Dialer().DialContext,
			DisableCompression:     true, // see unpack
			DisableKeepAlives:      true, // each source is another host
			MaxResponseHeaderBytes: maxHeader,
			TLSHandshakeTimeout:    config.Timeout,
		},
	}
	return c
}

// Session returns a client for one source, which has the cookies that the answers to its own requests set, and no others.
func (c *Client) Session() *Client {
	jar, _ := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List}) // never fails
	own := *c.http
	own.Jar = &cookies{Jar: jar, left: maxCookies}
	return &Client{config: c.config, http: &own}
}

// cookies are those of a session, whose requests follow each other.
type cookies struct {
	*cookiejar.Jar

	left int
}

// SetCookies implements [http.CookieJar].
func (c *cookies) SetCookies(u *url.URL, set []*http.Cookie) {
	set = set[:min(len(set), c.left)]
	c.left -= len(set)
	c.Jar.SetCookies(u, set)
}

// redirect checks the address of a redirect. The network of its host is checked when it is dialled.
func (c *Client) redirect(request *http.Request, before []*http.Request) error {
	if len(before) > maxRedirects {
		return &remote.BlockedError{Address: request.URL.Redacted(), Reason: "it is behind more than 5 redirects"}
	}
	return check(request.URL)
}

func check(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return &remote.BlockedError{Address: u.Redacted(), Reason: "only http and https are fetched"}
	}
	if u.User != nil {
		return &remote.BlockedError{Address: u.Redacted(), Reason: "it holds a user name"}
	}
	return nil
}

// Get returns the content of an address, up to maxBytes. The error wraps a [*StatusError], [*remote.BlockedError] or
// [*TimeoutError], or says how the connection failed.
func (c *Client) Get(ctx context.Context, address, accept string, maxBytes int64) (*Response, error) {
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(c.config.Timeout, cancel)
	defer timer.Stop()
	reserve := func(size int64) error { // waiting for memory does not count as time of the site
		timer.Stop()
		defer timer.Reset(c.config.Timeout)
		return memory.Hold(parent, size)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	if err := check(request.URL); err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("User-Agent", c.config.UserAgent)
	out, err := c.do(request, maxBytes, reserve)
	var network net.Error
	if err != nil && parent.Err() == nil && (ctx.Err() != nil || errors.As(err, &network) && network.Timeout()) {
		return nil, fmt.Errorf("%w: %w", &TimeoutError{After: c.config.Timeout}, err)
	}
	return out, err
}

func (c *Client) do(request *http.Request, maxBytes int64, reserve func(int64) error) (*Response, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNonAuthoritativeInfo {
		h := response.Header
		return nil, &StatusError{
			URL: response.Request.URL, Status: response.StatusCode, RetryAfter: retry.After(h, 0, maxRetryAfter),
			Challenge: cmp.Or(h.Get("Cf-Mitigated"), h.Get("X-Amzn-Waf-Action"), h.Get("Sg-Captcha")) != "",
		}
	}
	body, err := unpack(response, maxBytes, reserve)
	if err != nil {
		return nil, fmt.Errorf("fetch: read the answer: %w", &url.Error{Op: "Get", URL: response.Request.URL.Redacted(), Err: err})
	}
	out := &Response{Body: body, ContentType: response.Header.Get("Content-Type"), URL: response.Request.URL}
	if int64(len(body)) > maxBytes {
		out.Body, out.Truncated = body[:maxBytes], true
	}
	return out, nil
}

var (
	// ErrHollow is the error of an answer in gzip that goes on, and holds nothing.
	ErrHollow = errors.New("fetch: the gzip is longer than what it holds")
	// ErrEncoding is the error of an answer that is compressed in another way.
	ErrEncoding = errors.New("fetch: only gzip, br and zstd are read")
)

// unpack reads an answer, decompressed. It asks for gzip, but some sites send what they have. Of a compressed answer, which can go on for
// ever and hold nothing, it reads hardly more than maxBytes.
func unpack(response *http.Response, maxBytes int64, reserve func(int64) error) ([]byte, error) {
	packed := &io.LimitedReader{R: response.Body, N: maxBytes + unreserved}
	var unpacked io.Reader
	var err error
	switch encoding := strings.ToLower(response.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return read(response.Body, maxBytes, reserve)
	case "gzip", "x-gzip":
		unpacked, err = gzip.NewReader(packed)
	case "br", "zstd":
		free := reserve
		reserve = func(size int64) error { return free(size + maxWindow) }
		if err := reserve(0); err != nil {
			return nil, err
		}
		if unpacked = brotli.NewReader(packed); encoding == "zstd" {
			var z *zstd.Decoder
			if z, err = zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow/2)); err != nil {
				return nil, err
			}
			defer z.Close()
			unpacked = z
		}
	default:
		return nil, fmt.Errorf("%w, not %.40q", ErrEncoding, encoding)
	}
	if err != nil {
		return nil, err
	}
	body, err := read(unpacked, maxBytes, reserve)
	if err != nil && packed.N <= 0 {
		err = ErrHollow
	}
	return body, err
}

// read reads an answer up to one byte more than maxBytes. It reserves memory for all but the first unreserved bytes.
func read(body io.Reader, maxBytes int64, reserve func(int64) error) ([]byte, error) {
	var out bytes.Buffer
	if _, err := out.ReadFrom(io.LimitReader(body, min(unreserved, maxBytes+1))); err != nil {
		return nil, err
	}
	if out.Len() >= unreserved {
		if err := reserve(2 * maxBytes); err != nil {
			return nil, err
		}
		out.Grow(int(maxBytes) + bytes.MinRead - out.Len())
		if _, err := out.ReadFrom(io.LimitReader(body, maxBytes+1-int64(out.Len()))); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), reserve(memory.ToRead(out.Len()))
}

// StatusError is returned when the server answers with another status than 200 or 203.
type StatusError struct {
	// Challenge reports whether the answer is a test that tells people from programs, by the headers that Cloudflare, AWS and SiteGround
	// document for it.
	Challenge bool
	// Status is the HTTP status.
	Status int
	// RetryAfter is the wait that the server has asked for, at most a day; zero when it has asked for none.
	RetryAfter time.Duration
	// URL is the address that was answered so, after redirects.
	URL *url.URL
}

// FailedAt returns the address, after redirects, at which Get failed, nil when it is not known.
func FailedAt(err error) *url.URL {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.URL
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if u, err := url.Parse(failed.URL); err == nil {
			return u
		}
	}
	return nil
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("fetch: the site answered HTTP %d", e.Status)
}

// TimeoutError is returned when the answer is not complete in time.
type TimeoutError struct {
	// After is the time limit.
	After time.Duration
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("fetch: no complete answer within %s", e.After)
}
