package wolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// The defaults of a Config.
const (
	defaultBurst    = 2
	defaultMaxCalls = 4
	defaultRate     = 2
	defaultTimeout  = 20 * time.Second
)

const (
	// breakerFailures is the number of failed calls in a row after which no call is made for breakerPause. Then one call is let
	// through to try.
	breakerFailures = 5
	breakerPause    = 30 * time.Second
	// callTimeout bounds one HTTP call.
	callTimeout = 8 * time.Second
	// citiesTTL is the time for which the list of cities is used before it is fetched again. A list that cannot be refreshed is
	// used for as long as this process lives.
	citiesTTL = 24 * time.Hour
	// clientVersion is the version of Wolt's own client. Versions that are too old are refused (HTTP 430 or 410).
	clientVersion = "1.16.125"
	// linkBase is the prefix of the links: pages in English.
	linkBase = "https://wolt.com/en/"
	// maxBodyBytes bounds the body of an answer, unpacked.
	maxBodyBytes = 8 << 20
	// maxCities bounds the list of cities.
	maxCities = 5000
	// maxRetryAfter bounds the wait that an answer can ask for.
	maxRetryAfter = 5 * time.Minute
	// rateLimitPause is the time without calls after an answer 429 without a Retry-After.
	rateLimitPause = 30 * time.Second
	userAgent      = "expediter-enricher/1"
)

// languages are the languages in which venues are asked for. A place whose name is in the script of one of the languages
// is first asked for in this language.
var languages = []string{"en", "he"}

// Config sets up a [Client]. Only BaseURL has no default.
type Config struct {
	// BaseURL is the address of the API: scheme, host and optionally a path, to which /v1/pages/search and /v1/cities
	// are added. Wolt's terms forbid systematic automated retrieval, so the operator of the address must allow this use.
	// Plain http is only for this machine. It has no default, so that no host is called by accident.
	BaseURL string

	// Burst is the number of calls that may be made at once before Rate spreads them. Defaults to 2.
	Burst int

	// Confident reports whether the venues found so far decide the search, so that the remaining queries of the plan are
	// left out. Defaults to the matcher deciding FOUND.
	Confident func(place match.Place, venues []provider.Venue) bool

	// Logger gets events other than errors of a search: a list of cities that could not be refreshed, a breaker that
	// opened. Defaults to none.
	Logger *slog.Logger

	// MaxCalls bounds the calls to the search for one place. Defaults to 4.
	MaxCalls int

	// Rate is the number of calls per second that the Clients of all processes together may make: see Limits and Turn.
	// Defaults to 2.
	Rate float64

	// Timeout bounds a whole search: waiting for turns, the list of cities, all calls. At most Rate x Timeout / (2 x
	// MaxCalls) searches are to be under way, five by default. Defaults to 20 s.
	Timeout time.Duration

	// Transport makes the calls. Redirects are never followed. Defaults to a separate transport without cookies.
	Transport http.RoundTripper

	// Turn waits before each call until Rate and Burst allow one, or ctx ends. Defaults to no wait: the caller of Search
	// keeps to the rate.
	Turn func(ctx context.Context) error
}

// withDefaults returns the configuration with every zero field filled in.
func (c Config) withDefaults() Config {
	c.Burst = cmp.Or(c.Burst, defaultBurst)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.MaxCalls = cmp.Or(c.MaxCalls, defaultMaxCalls)
	c.Rate = cmp.Or(c.Rate, defaultRate)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Turn == nil {
		c.Turn = func(context.Context) error { return nil }
	}
	if c.Confident == nil {
		c.Confident = matched
	}
	return c
}

// matched reports whether the matcher finds the place among the venues. It is the default of Confident.
func matched(place match.Place, venues []provider.Venue) bool {
	return match.Best(place, provider.Places(venues)).Outcome == match.Found
}

// newTransport returns the default transport of a Client.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: callTimeout}).DialContext,
		ForceAttemptHTTP2:      true,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           16,
		MaxResponseHeaderBytes: 64 << 10,
		Proxy:                  http.ProxyFromEnvironment,
		TLSHandshakeTimeout:    callTimeout,
	}
}

// validate reports every mistake in the configuration.
func (c Config) validate() error {
	return errors.Join(
		c.validateBaseURL(),
		positive("Burst", c.Burst),
		positive("MaxCalls", c.MaxCalls),
		positive("Rate", c.Rate),
		positive("Timeout", c.Timeout),
	)
}

func (c Config) validateBaseURL() error {
	if c.BaseURL == "" {
		return errors.New("BaseURL is missing: set it to an address that you may ask automatically; there is no default")
	}
	u, err := provider.ParseURL(c.BaseURL)
	switch {
	case err != nil:
		return fmt.Errorf("BaseURL: %w", err)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("BaseURL has a query or a fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("BaseURL asks %s over plain http: use https", u.Host)
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func positive[T int | float64 | time.Duration](field string, value T) error {
	if value > 0 { // Also false for NaN.
		return nil
	}
	return fmt.Errorf("%s is %v: it must be above zero", field, value)
}

// ErrCircuitOpen is returned, inside an unavailable provider.Error, when no call was
// made because too many failed in a row.
var ErrCircuitOpen = errors.New("the circuit breaker is open after too many failed calls in a row")

// errNoContent is returned when the answer is a no-content page. A client with wrong headers, or one that is taken
// for a robot, gets this page too, so it is no answer about the place.
var errNoContent = errors.New("the answer is a no-content page, which is also given to clients that are not trusted")

// errSearchTimeout is the cause when the time limit of a search ends its context.
var errSearchTimeout = errors.New("the time for one search is over")
