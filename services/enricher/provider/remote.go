package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/match"
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

	// Transport makes the calls. Defaults to one that has a connection for each call, and heeds the proxies of the environment.
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
	return c
}

// validate reports every mistake in the configuration that is not one of the address or the key.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !(c.Rate >= minRate && c.Rate <= maxRate) { // also true for NaN
		bad("Rate is %g: want %g to %d calls a second", c.Rate, minRate, maxRate)
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		bad("Timeout is %s: want at most %s", c.Timeout, maxTimeout)
	}
	return errors.Join(errs...)
}

// ErrCircuitOpen is the cause of an unavailable Error when no call was made because those for too many places failed in a row.
var ErrCircuitOpen = errors.New("the circuit breaker is open after too many failed calls in a row")

var _ Limited = (*Client)(nil)

// Client asks the service. It is safe for concurrent use, and a process needs only one, which has the pauses and the breaker.
type Client struct {
	config Config
	calls  *remote.Client

	mu      sync.Mutex     // guards the fields below
	asked   time.Time      // until then no call is made, because the service has asked for a pause
	breaker remote.Breaker // its parties are places
}

// New returns a client. It makes no call. The error is a misconfigured [*Error] that names every mistake in the
// configuration.
func New(config Config) (*Client, error) {
	c := &Client{config: config.withDefaults()}
	var err error
	c.calls, err = remote.New(remote.Config{
		AllowHTTP: config.AllowHTTP, BaseURL: config.URL, Timeout: c.config.Timeout, Token: config.Key, Transport: config.Transport,
	}, "Authorization", "Bearer ")
	if err := errors.Join(c.config.validate(), err); err != nil {
		return nil, c.fail(KindMisconfigured, "the configuration cannot be used", err)
	}
	return c, nil
}

// Name returns the configured name.
func (c *Client) Name() string { return c.config.Name }

// Limits returns the limits of the configuration. At most Rate × Timeout searches may be under way: with more, some would wait
// longer for their turn than for their answer.
func (c *Client) Limits() Limits {
	return Limits{
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
	return now.Before(c.asked) || c.breaker.Wait(c.bounds(), "", now) > 0
}

// Search posts the place and returns the venues of the answer. An empty list with a nil error means that the service answered
// with an empty list.
func (c *Client) Search(ctx context.Context, place match.Place) ([]Venue, error) {
	body, err := json.Marshal(place)
	if err != nil { // the position is no number
		return nil, c.fail(KindUnsupported, "the place cannot be written as JSON", err)
	}
	if ctx.Err() != nil {
		return nil, c.ended(ctx)
	}
	if err := c.enter(body, false); err != nil {
		return nil, err
	}
	if err := c.takeTurn(ctx); err != nil {
		return nil, err
	}
	// Calls that waited for their turn must not be sent when the service has begun to refuse or to fail in the meantime.
	if err := c.enter(body, true); err != nil {
		return nil, err
	}
	venues, err := c.post(ctx, body)
	c.leave(ctx, string(body), err)
	return venues, err
}

// takeTurn waits until the rate allows a call.
func (c *Client) takeTurn(ctx context.Context) error {
	err := c.config.Turn(ctx)
	switch {
	case ctx.Err() != nil:
		return c.ended(ctx)
	case err != nil:
		failure := c.fail(KindRateLimited, "there is no turn under the rate", err)
		failure.RetryAfter = turnPause
		return failure
	}
	return nil
}

// bounds returns the bounds of the breaker.
func (c *Client) bounds() remote.BreakerConfig {
	return remote.BreakerConfig{
		Parties: breakerFailures, First: breakerPause, Last: breakerPause, Trial: c.config.Timeout, Grace: breakerPause,
	}
}

// enter returns an error while no call is to be made. With call, the caller makes one next, and then calls leave.
func (c *Client) enter(place []byte, call bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.asked) {
		failure := c.fail(KindRateLimited, "the service asked for a pause, which is not over", nil)
		failure.RetryAfter = max(c.asked.Sub(now), time.Second)
		return failure
	}
	if wait := c.breaker.Wait(c.bounds(), string(place), now); wait > 0 {
		failure := c.fail(KindUnavailable, "no call was made", ErrCircuitOpen)
		failure.RetryAfter = max(wait, time.Second)
		return failure
	}
	if call {
		c.breaker.Call(c.bounds(), string(place), now)
	}
	return nil
}

// leave counts the outcome of a call. An answer that cannot be read is a failure, like a missing one. A caller that gave up says
// nothing about the service, and a service that asks for a pause works: keeping the pause is enough.
func (c *Client) leave(ctx context.Context, place string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	failure, failed := errors.AsType[*Error](err)
	if failed && failure.RetryAfter > 0 {
		if until := now.Add(failure.RetryAfter); until.After(c.asked) { // a pause is never shortened
			c.asked = until
		}
	}
	switch {
	case !failed:
		if c.breaker.Succeed(now) {
			c.config.Logger.InfoContext(ctx, "the provider works again", slog.String("provider", c.config.Name))
		}
	case ctx.Err() != nil, failure.Kind == KindRateLimited:
		c.breaker.Leave(place, now)
	case c.breaker.Fail(c.bounds(), place, now, false):
		c.config.Logger.WarnContext(ctx, "the provider is not called for a while after failures in a row",
			slog.String("provider", c.config.Name), slog.Int("places", breakerFailures), slog.Duration("pause", breakerPause))
	}
}

const (
	// maxBody bounds the body of an answer, unpacked, and maxVenues its venues. A larger answer is refused, not cut: the place
	// could be in the part that was cut off.
	maxBody   = 1 << 20
	maxVenues = 100
	// maxAliases bounds the other names of a venue.
	maxAliases = 20
	// maxRefusal bounds what an error repeats of a refusal's body.
	maxRefusal = 200
	// maxRetryAfter bounds the wait that an answer can ask for, and rateLimitPause is the wait after a 429 that asks for none.
	maxRetryAfter  = 5 * time.Minute
	rateLimitPause = 30 * time.Second
	// turnPause is the wait before the retry when no turn was free.
	turnPause = 5 * time.Second
)

// post makes one call. Any error is a *Error.
func (c *Client) post(ctx context.Context, place []byte) ([]Venue, error) {
	answer, err := c.calls.Call(ctx, http.MethodPost, "", place, "", maxBody)
	switch {
	case answer.Status != 0 && answer.Status != http.StatusOK:
		return nil, c.refused(answer)
	case err != nil && answer.Status == 0:
		return nil, c.broken(ctx, KindUnavailable, "the call did not get through", err)
	}
	kind := answer.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return nil, c.fail(KindMalformed, fmt.Sprintf("the content type is %.100q, want application/json", kind), nil)
	}
	switch {
	case err != nil:
		return nil, c.broken(ctx, KindMalformed, "the answer broke off", err)
	case len(answer.Body) > maxBody:
		return nil, c.fail(KindMalformed, fmt.Sprintf("the answer is larger than %d bytes", maxBody), nil)
	}
	venues, err := decode(answer.Body)
	if err != nil {
		return nil, c.fail(KindMalformed, "the answer cannot be used", err)
	}
	return venues, nil
}

// broken returns the error of a call without a whole answer: its caller gave up, it took too long, or the connection failed.
func (c *Client) broken(ctx context.Context, kind Kind, detail string, err error) *Error {
	switch {
	case ctx.Err() != nil:
		return c.ended(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return c.fail(KindTimeout, fmt.Sprintf("no answer within %s", c.config.Timeout), err)
	}
	return c.fail(kind, detail, err)
}

// ended returns the error of a search whose context has ended.
func (c *Client) ended(ctx context.Context) *Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return c.fail(KindTimeout, "the caller's deadline passed", context.Cause(ctx))
	}
	return c.fail(KindCanceled, "the caller gave up", context.Cause(ctx))
}

// refused returns the error for the status of an answer, with the pause that the answer asks for.
func (c *Client) refused(answer remote.Answer) *Error {
	kind, detail := sortStatus(answer.Status)
	// The beginning of the body usually says what was wrong. A body that breaks off changes nothing.
	if said := bytes.TrimSpace(answer.Body[:min(len(answer.Body), maxRefusal)]); len(said) > 0 {
		detail += fmt.Sprintf(": %q", said)
	}
	failure := c.fail(kind, detail, nil)
	failure.Status = answer.Status
	switch answer.Status {
	case http.StatusTooManyRequests:
		failure.RetryAfter = cmp.Or(retry.After(answer.Header, time.Second, maxRetryAfter), rateLimitPause)
	case http.StatusServiceUnavailable:
		failure.RetryAfter = retry.After(answer.Header, time.Second, maxRetryAfter)
	}
	return failure
}

// sortStatus returns the kind of a status other than 200. A 404 is no answer: a service without the place answers with an empty
// list, and a wrong path must not become NOT_FOUND for a day.
func sortStatus(status int) (Kind, string) {
	switch {
	case status == http.StatusTooManyRequests:
		return KindRateLimited, "too many calls"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return KindBlocked, "the key is refused"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return KindTimeout, "the service ran out of time"
	case status >= http.StatusInternalServerError:
		return KindUnavailable, "the service is out of order"
	case status >= http.StatusBadRequest:
		return KindMisconfigured, "the service does not accept such a call: check the URL and its version of the contract"
	case status >= http.StatusMultipleChoices:
		return KindMisconfigured, "redirects are not followed: set the final URL"
	}
	return KindMalformed, "only 200 carries an answer"
}

func (c *Client) fail(kind Kind, detail string, cause error) *Error {
	return &Error{Cause: cause, Detail: detail, Kind: kind, Provider: c.config.Name}
}

// decode reads the body of a 200. Unknown members are ignored, so that a service may answer with its own records. One venue that
// breaks the contract refuses the whole answer: it may be the place, and without it "none" cannot be concluded.
func decode(body []byte) ([]Venue, error) {
	var answer struct {
		Venues *[]Venue `json:"venues"` // nil: missing, which is not an empty list
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("decode %d bytes: %w", len(body), err)
	}
	if answer.Venues == nil {
		return nil, errors.New("it has no list of venues: without a venue, answer with an empty one")
	}
	if n := len(*answer.Venues); n > maxVenues {
		return nil, fmt.Errorf("it has %d venues, more than %d: answer with the likeliest", n, maxVenues)
	}
	for i := range *answer.Venues {
		if err := checkVenue(&(*answer.Venues)[i]); err != nil {
			return nil, fmt.Errorf("venues/%d: %w", i, err)
		}
	}
	return *answer.Venues, nil
}

// checkVenue reports the first mistake of a venue. It takes 0,0 as a location that was not filled in.
func checkVenue(v *Venue) error {
	for _, field := range []struct {
		name, value string
		most        int
	}{
		{"name", v.Name, contracts.MaxText},
		{"address", v.Address, contracts.MaxText},
		{"city", v.City, contracts.MaxText},
		{"phone", v.Phone, contracts.MaxText},
		{"id", v.ID, contracts.MaxID},
		{"url", v.URL, contracts.MaxURL},
		{"aliases", strings.Join(v.Aliases, ""), contracts.MaxText},
	} {
		if len(field.value) > field.most {
			return fmt.Errorf("%s has %d bytes, more than %d", field.name, len(field.value), field.most)
		}
	}
	if strings.ContainsRune(v.ID, utf8.RuneError) { // as results may not have it
		return fmt.Errorf("id %q is not valid Unicode", v.ID)
	}
	if strings.TrimSpace(v.Name) == "" {
		return errors.New("name is missing")
	}
	if len(v.Aliases) > maxAliases {
		return fmt.Errorf("aliases are %d, more than %d", len(v.Aliases), maxAliases)
	}
	if _, err := ParseURL(v.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if at := v.Location; at != nil {
		if math.Abs(at.Lat) > 90 || math.Abs(at.Lng) > 180 {
			return fmt.Errorf("location: latitude %g, longitude %g is no place on earth", at.Lat, at.Lng)
		}
		if *at == (match.Point{}) {
			v.Location = nil
		}
	}
	return nil
}
