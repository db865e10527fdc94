// Package remote looks places up at an HTTP service that the operator names: it posts a place, and the service answers with the
// venues that may be that place. docs/provider.md is the contract, for those who write such a service.
//
// A [Client] makes no call before its Turn, none while a Retry-After lasts, and none for 30 seconds after failed calls for five places
// in a row, unless the service has answered within 30 seconds. A search that meets one of the latter fails at once with the time after
// which a retry is worthwhile. The client makes one call for each search and leaves retries to the job. It follows no redirect, so it
// dials only the host that the operator named.
package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const (
	// breakerFailures is the number of places whose calls failed, with no success in between, after which no call is made for
	// breakerPause, unless a call for another place has succeeded for less than breakerPause: whoever asks for the places may have chosen
	// them. Then one call is let through to try: not one for these places, unless no other comes for half as long again.
	breakerFailures = 5
	breakerPause    = 30 * time.Second
	// burst is the number of calls that may be made at once after a pause.
	burst = 2
	// minRate and maxRate bound the calls a second. A job has 30 seconds, in which its turn has to come.
	minRate = 0.1
	maxRate = 10_000
	// maxTimeout leaves time in a job for the turn before the call.
	maxTimeout = 10 * time.Second
)

// Config configures a [Client]. Only URL is required.
type Config struct {
	// AllowHTTP permits plain http to another machine, such as one in the same cluster. Defaults to false.
	AllowHTTP bool

	// Key is sent as a bearer token. Defaults to none.
	Key string

	// Logger gets a warning when the breaker changes. Defaults to none.
	Logger *slog.Logger

	// Name is the provider's name. Defaults to [contracts.ProviderWolt].
	Name string

	// Rate is the number of calls a second that the clients of all processes together may make, 0.1 to 10,000. Defaults to 10.
	Rate float64

	// Timeout bounds a call, from the dial to the end of the body. Defaults to 8 seconds, at most 10.
	Timeout time.Duration

	// Transport makes the calls. Defaults to a separate one, without cookies, that heeds the proxies of the environment.
	Transport http.RoundTripper

	// Turn waits before each call until Rate allows one, or ctx ends. Defaults to no wait: then the caller of Search limits the
	// rate.
	Turn func(ctx context.Context) error

	// URL is the address to which places are posted. Required.
	URL string
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Name = cmp.Or(c.Name, contracts.ProviderWolt)
	c.Rate = cmp.Or(c.Rate, 10)
	c.Timeout = cmp.Or(c.Timeout, 8*time.Second)
	if c.Turn == nil {
		c.Turn = func(context.Context) error { return nil }
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{
			DialContext: (&net.Dialer{Timeout: c.Timeout}).DialContext, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
			MaxIdleConnsPerHost: 16, MaxResponseHeaderBytes: 64 << 10, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: c.Timeout,
		}
	}
	return c
}

// validate reports every mistake in the configuration. No error repeats URL or Key: both may be secret.
func (c Config) validate() error {
	errs := []error{c.validateURL()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !(c.Rate >= minRate && c.Rate <= maxRate) { // also true for NaN
		bad("Rate is %g: want %g to %d calls a second", c.Rate, minRate, maxRate)
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		bad("Timeout is %s: want at most %s", c.Timeout, maxTimeout)
	}
	if strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		bad("Key has a space or a character that a header cannot have")
	}
	return errors.Join(errs...)
}

func (c Config) validateURL() error {
	if c.URL == "" {
		return errors.New("URL is missing: set the address to which places are posted")
	}
	u, err := provider.ParseURL(c.URL)
	switch {
	case err != nil:
		return fmt.Errorf("URL: %w", err)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("URL has a query or a fragment: a secret belongs into Key")
	case u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()):
		return errors.New("URL is plain http to another machine, and anybody between could read the key: use https, or set AllowHTTP")
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// ErrCircuitOpen is the cause of an unavailable provider.Error when no call was made because those for too many places failed in a row.
var ErrCircuitOpen = errors.New("the circuit breaker is open after too many failed calls in a row")

var _ provider.Limited = (*Client)(nil)

// Client asks the service. It is safe for concurrent use, and a process needs only one, which has the pauses and the breaker.
type Client struct {
	config Config
	http   *http.Client

	mu     sync.Mutex
	asked  time.Time       // until then no call is made, because the service has asked for a pause
	failed map[string]bool // up to breakerFailures places whose calls failed since the last success
	open   time.Time       // until then no call is made, because of failures; zero when the last call succeeded
	worked time.Time       // the last success
}

// New returns a client. It makes no call. The error is a misconfigured [*provider.Error] that names every mistake in the
// configuration.
func New(config Config) (*Client, error) {
	c := &Client{config: config.withDefaults(), failed: map[string]bool{}}
	if err := c.config.validate(); err != nil {
		return nil, c.fail(provider.KindMisconfigured, "the configuration cannot be used", err)
	}
	c.http = &http.Client{
		// A redirect would send the key and the place to a host that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     c.config.Transport,
	}
	return c, nil
}

// Close closes idle connections. Searches in progress go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Name returns the configured name.
func (c *Client) Name() string { return c.config.Name }

// Limits returns the limits of the configuration. At most Rate × Timeout searches may be under way: with more, some would wait
// longer for their turn than for their answer.
func (c *Client) Limits() provider.Limits {
	return provider.Limits{
		Burst:    burst,
		Gap:      time.Duration(float64(time.Second) / c.config.Rate),
		Searches: int(math.Ceil(c.config.Rate * c.config.Timeout.Seconds())),
	}
}

// Held reports whether calls are held back now, because the service asked for a pause or failed too often in a row.
func (c *Client) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Before(c.asked) || now.Before(c.open)
}

// Search posts the place and returns the venues of the answer. An empty list with a nil error means that the service answered
// with an empty list.
func (c *Client) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	body, err := json.Marshal(place)
	if err != nil { // the position is no number
		return nil, c.fail(provider.KindUnsupported, "the place cannot be written as JSON", err)
	}
	if ctx.Err() != nil {
		return nil, c.ended(ctx)
	}
	if _, err := c.enter(body, false); err != nil {
		return nil, err
	}
	if err := c.takeTurn(ctx); err != nil {
		return nil, err
	}
	// Calls that waited for their turn must not be sent when the service has begun to refuse or to fail in the meantime.
	trial, err := c.enter(body, true)
	if err != nil {
		return nil, err
	}
	venues, err := c.post(ctx, body)
	c.leave(ctx, body, trial, err)
	return venues, err
}

// takeTurn waits until the rate allows a call.
func (c *Client) takeTurn(ctx context.Context) error {
	err := c.config.Turn(ctx)
	switch {
	case ctx.Err() != nil:
		return c.ended(ctx)
	case err != nil:
		failure := c.fail(provider.KindRateLimited, "there is no turn under the rate", err)
		failure.RetryAfter = turnPause
		return failure
	}
	return nil
}

// enter returns an error while no call is to be made. With call, the caller makes one next, and then calls leave with trial, which
// reports whether this is the one call that tries after a pause.
func (c *Client) enter(place []byte, call bool) (trial bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, open := time.Now(), c.open
	if c.failed[string(place)] && !open.IsZero() {
		open = open.Add(breakerPause / 2)
	}
	switch {
	case now.Before(c.asked):
		failure := c.fail(provider.KindRateLimited, "the service asked for a pause, which is not over", nil)
		failure.RetryAfter = max(c.asked.Sub(now), time.Second)
		return false, failure
	case now.Before(open):
		failure := c.fail(provider.KindUnavailable, "no call was made", ErrCircuitOpen)
		failure.RetryAfter = max(open.Sub(now), time.Second)
		return false, failure
	}
	if trial = call && !c.open.IsZero(); trial {
		c.open = now.Add(c.config.Timeout) // for the others, while this call tries
	}
	return trial, nil
}

// leave counts the outcome of a call. An answer that cannot be read is a failure, like a missing one. A caller that gave up says
// nothing about the service, and a service that asks for a pause works: keeping the pause is enough. A call that began before the
// others failed and fails during their pause does not prolong it.
func (c *Client) leave(ctx context.Context, place []byte, trial bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failure, failed := errors.AsType[*provider.Error](err)
	if failed && failure.RetryAfter > 0 {
		if until := time.Now().Add(failure.RetryAfter); until.After(c.asked) { // a pause is never shortened
			c.asked = until
		}
	}
	switch {
	case !failed:
		if !c.open.IsZero() {
			c.config.Logger.InfoContext(ctx, "the provider works again", slog.String("provider", c.config.Name))
		}
		c.failed, c.open, c.worked = map[string]bool{}, time.Time{}, time.Now()
	case ctx.Err() != nil, failure.Kind == provider.KindRateLimited:
		if trial {
			c.open = time.Now() // the next call tries
		}
	case !trial && time.Now().Before(c.open):
	default:
		if len(c.failed) < breakerFailures {
			c.failed[string(place)] = true
		}
		if len(c.failed) == breakerFailures && time.Since(c.worked) >= breakerPause {
			c.open = time.Now().Add(breakerPause)
			c.config.Logger.WarnContext(ctx, "the provider is not called for a while after failures in a row",
				slog.String("provider", c.config.Name), slog.Int("places", len(c.failed)), slog.Duration("pause", breakerPause))
		}
	}
}
