package wolt

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/sony/gobreaker/v2"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// Name is the provider's name.
const Name = "wolt"

var _ provider.Limited = (*Client)(nil)

// Client asks Wolt's consumer search. It is safe for concurrent use, and a process needs only one, which has the
// pauses and the breaker.
type Client struct {
	base    string
	breaker *gobreaker.CircuitBreaker[struct{}]
	cities  *cityStore
	config  Config
	http    *http.Client
	id      string // of this installation, which Wolt requires
	open    pause  // until the breaker lets a call through again
	pause   pause  // that Wolt has asked for
}

// New sets up a client. It makes no call. The error is a misconfigured [*provider.Error] that names every mistake in
// the configuration.
func New(config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, &provider.Error{
			Cause: err, Detail: "the configuration cannot be used", Kind: provider.KindMisconfigured, Provider: Name,
		}
	}
	transport := config.Transport
	if transport == nil {
		transport = newTransport()
	}
	c := &Client{
		base:   strings.TrimRight(config.BaseURL, "/"),
		cities: &cityStore{fetching: make(chan struct{}, 1)},
		config: config,
		id:     uuid.NewString(),
		http: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     transport,
		},
	}
	c.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		IsExcluded:    spared,
		Name:          Name,
		OnStateChange: c.changed,
		ReadyToTrip:   func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= breakerFailures },
		Timeout:       breakerPause,
	})
	return c, nil
}

// Close closes idle connections. Searches in progress go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Name returns [Name].
func (c *Client) Name() string { return Name }

// Limits returns the limits of the configuration, from Rate, Burst, Timeout and MaxCalls. The number of searches at a
// time is bounded so that each can make all its calls within Timeout: half of the time is for their turns under the
// rate, half for the answers. With more searches each would make only some of its calls, none would end, and all
// calls would be wasted.
func (c *Client) Limits() provider.Limits {
	turns := c.config.Rate * c.config.Timeout.Seconds() / 2
	gap := float64(time.Second) / c.config.Rate
	return provider.Limits{
		Burst:    c.config.Burst,
		Gap:      time.Duration(min(max(gap, float64(time.Microsecond)), float64(longestGap))),
		Searches: int(min(max(turns/float64(c.config.MaxCalls), 1), maxSearches)),
	}
}

const (
	// longestGap bounds the time between two calls.
	longestGap = 24 * time.Hour

	// maxSearches bounds the searches under a high rate.
	maxSearches = 1 << 16
)

// Search asks for venues near the place with its name, in at most MaxCalls calls, and once a day for the list of
// cities. It stops as soon as Confident is satisfied.
//
// A place without a location is searched for in the middle of its city; if Wolt does not have the city, the error is
// unsupported. An empty list with a nil error means that every call of the plan was answered with a readable list of
// venues, none of which has a restaurant.
func (c *Client) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	if ctx.Err() != nil {
		return nil, c.ended(ctx)
	}
	queries := plan(place, c.config.MaxCalls)
	if len(queries) == 0 {
		return nil, c.fail(provider.KindUnsupported, "the place has no name to search for", nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, errSearchTimeout)
	defer cancel()
	cities, err := c.knownCities(ctx)
	if err != nil {
		return nil, err
	}
	at, near, err := c.locate(cities, place)
	if err != nil {
		return nil, err
	}
	return c.follow(ctx, place, queries, at, &gathered{
		at: make(map[string]int), cities: cities, near: near,
	})
}

// locate returns the point around which to search, and its city.
func (c *Client) locate(cities *cityList, place match.Place) (match.Point, city, error) {
	if at := place.Location; at != nil {
		if !(math.Abs(at.Lat) <= 90 && math.Abs(at.Lng) <= 180) { // Also true for NaN.
			return match.Point{}, city{}, c.fail(provider.KindUnsupported,
				fmt.Sprintf("latitude %g, longitude %g is no place on earth", at.Lat, at.Lng), nil)
		}
		return *at, cities.nearest(*at, ""), nil
	}
	near, ok := cities.named(place.City)
	if !ok {
		return match.Point{}, city{}, c.fail(provider.KindUnsupported, fmt.Sprintf(
			"the place has no location, and %q is not one city of the provider's: give a location", place.City), nil)
	}
	return near.location, near, nil
}

// follow makes the calls of a plan until one settles the matter.
func (c *Client) follow(
	ctx context.Context, place match.Place, queries []query, at match.Point, g *gathered,
) ([]provider.Venue, error) {
	for _, q := range queries {
		f, err := c.ask(ctx, q, at)
		if err != nil {
			return nil, err
		}

		g.add(f)

		if len(g.venues) > 0 && c.config.Confident(place, g.venues) {
			return g.venues, nil
		}
	}

	if g.broken > 0 {
		return nil, c.fail(provider.KindMalformed, fmt.Sprintf(
			"%d venues of the answers cannot be read, and the place may be among them", g.broken), nil)
	}
	return g.venues, nil
}

// pause holds back calls until a time.
type pause struct {
	mu    sync.Mutex
	until time.Time
}

// extend holds back calls for d from now. It never shortens a pause.
func (p *pause) extend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.until) {
		p.until = until
	}
}

// left returns the remaining time of the pause, or 0.
func (p *pause) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, time.Until(p.until))
}

func bound(d, most time.Duration) time.Duration {
	return min(max(d, time.Second), most)
}
