// Package remote asks a service that reads recipes: one call with a JSON body, in bounded time, with a bounded answer. It
// classifies failures.
package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
)

const (
	dialTimeout   = 10 * time.Second
	maxHeader     = 64 << 10
	maxAnswer     = 1 << 20
	maxErrorBody  = 16 << 10
	maxRetryAfter = time.Hour
	userAgent     = "expediter-importer/1"

	// costOfByte is the memory, in bytes, that one byte of an answer can take as a recipe: a list may have empty
	// ingredients.
	costOfByte = 100
)

// Client asks one service. It is safe for concurrent use.
type Client struct {
	config Config
	http   *http.Client
}

// New returns a client, or an error that names everything that is wrong with the configuration.
func New(config Config) (*Client, error) {
	if err := config.validate(); err != nil {
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
	config.BaseURL = strings.TrimRight(config.BaseURL, "/")
	return &Client{config: config, http: &http.Client{
		// A redirect would send the token to a server that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}}, nil
}

// Close closes idle connections. Calls in progress go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends a JSON body with the key of its input, and returns the body of a 200. The error is an [*extract.Error],
// which wraps a [*StatusError] when there was another answer. When ctx has ended, the error wraps its cause.
func (c *Client) Post(ctx context.Context, path string, body []byte, key string) ([]byte, error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, extract.Failed(false, err, "the request cannot be made")
	}
	request.GetBody = nil // Otherwise the transport would send the request again when a kept connection breaks.
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("User-Agent", userAgent)
	if c.config.Token != "" {
		request.Header.Set(c.config.TokenHeader, c.config.TokenPrefix+c.config.Token)
	}
	answer, err := c.exchange(request)
	if err == nil {
		return answer, nil
	}
	if parent.Err() != nil {
		return nil, fmt.Errorf("%s: %w", c.config.Name, context.Cause(parent))
	}
	if failed, ok := errors.AsType[*extract.Error](err); ok {
		return nil, failed
	}
	var network net.Error
	if ctx.Err() != nil || errors.As(err, &network) && network.Timeout() {
		return nil, outage(extract.Failed(true, err, "no complete answer within %s", c.config.Timeout))
	}
	return nil, outage(extract.Failed(true, err, "the connection failed"))
}

func (c *Client) exchange(request *http.Request) ([]byte, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.config.Name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		// An error of reading does not matter.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody)) //nolint:errcheck // the status says enough
		return nil, statusError(&StatusError{
			Body: body, RetryAfter: retryAfter(response.Header), Status: response.StatusCode,
		})
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: read the answer: %w", c.config.Name, err)
	case len(body) > maxAnswer:
		failed := extract.Failed(false, nil, "the answer is longer than %d bytes", maxAnswer)
		failed.Status = response.StatusCode
		return nil, failed
	}
	if err := memory.More(request.Context(), costOfByte*int64(len(body))); err != nil {
		return nil, err
	}
	return body, nil
}

// Config sets up a [Client]. Everything but AllowHTTP, Token and Transport is required.
type Config struct {
	// AllowHTTP permits plain http to another machine.
	AllowHTTP bool
	// BaseURL is the URL to which paths are appended.
	BaseURL string
	// Name is the name of the service in errors.
	Name string
	// Timeout bounds a call.
	Timeout time.Duration
	// Token, unless empty, is sent in TokenHeader after TokenPrefix. TokenField is its name in the caller's
	// configuration.
	Token, TokenField, TokenHeader, TokenPrefix string
	// Transport makes the calls. Defaults to one of the client's own.
	Transport http.RoundTripper
}

// validate reports everything that is wrong at once. It repeats no address and no token, which may be secret.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(c.Name+": "+format, args...)) }
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "":
		bad("Config.BaseURL is missing")
	case err != nil:
		bad("Config.BaseURL does not parse as a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		bad("Config.BaseURL is not an http or https address with a host")
	case u.User != nil:
		bad("Config.BaseURL holds a user name: use Config.%s", c.TokenField)
	case u.RawQuery != "" || u.Fragment != "":
		bad("Config.BaseURL has a query or a fragment")
	case u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()):
		bad("Config.BaseURL is plain http to another machine, which anybody between may read: use https, or set AllowHTTP")
	}
	if c.Timeout <= 0 {
		bad("Config.Timeout is %s: want more than 0, or 0 for the default", c.Timeout)
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r < ' ' || r > '~' }) {
		bad("Config.%s holds characters that no header may hold", c.TokenField)
	}
	return errors.Join(errs...)
}

// Address returns a base URL in a form that may be printed.
func Address(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return "an address that does not parse"
	}
	return u.Redacted()
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// StatusError is an answer that is not 200.
type StatusError struct {
	// Body is the beginning of the body. It is not part of the text of the error: a service may repeat the request in it.
	Body []byte
	// RetryAfter is the wait that the service asked for, at most an hour; zero when it asked for none.
	RetryAfter time.Duration
	// Status is the HTTP status.
	Status int
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d", e.Status) }

// statusError returns the error of a status.
func statusError(cause *StatusError) *extract.Error {
	retryable, out, reason := true, true, "it is out of order"
	switch status := cause.Status; {
	case status == http.StatusTooManyRequests:
		reason = "too many calls"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		reason = "it ran out of time"
	case status == http.StatusConflict, status == http.StatusTooEarly:
		out, reason = false, "the same call is still under way"
	case status >= http.StatusInternalServerError:
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		reason = "it refuses the token"
	case status == http.StatusRequestEntityTooLarge:
		retryable, reason = false, "the source is too long for it"
	case status >= http.StatusBadRequest:
		retryable, reason = false, "it does not take such a call"
	case status >= http.StatusMultipleChoices:
		retryable, reason = false, "it redirects, which is not followed"
	default:
		out, reason = false, "only 200 carries an answer"
	}
	failed := extract.Failed(retryable, cause, "%s (HTTP %d)", reason, cause.Status)
	failed.Outage = retryable && out
	failed.Refused = cause.Status == http.StatusUnauthorized || cause.Status == http.StatusForbidden
	failed.Status = cause.Status
	if retryable {
		failed.RetryAfter = cause.RetryAfter
	}
	return failed
}

func outage(failed *extract.Error) *extract.Error {
	failed.Outage = true
	return failed
}

// retryAfter reads the wait that the service asks for: the milliseconds that some services send, or the header.
func retryAfter(header http.Header) time.Duration {
	if millis, err := strconv.ParseUint(header.Get("Retry-After-Ms"), 10, 31); err == nil {
		return min(time.Duration(millis)*time.Millisecond, maxRetryAfter)
	}
	return retryafter.Parse(header, 0, maxRetryAfter)
}
