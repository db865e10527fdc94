package service

import (
	"cmp"
	"container/list"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/pkg/service/access"
)

// maxCallers is the number of callers without a request under way that a service remembers.
const maxCallers = 4096

// quotaError is returned for a request beyond one of the quotas of its caller.
type quotaError struct {
	after time.Duration // the wait until the next attempt
	code  string
	text  string
}

func (e *quotaError) Error() string { return e.text }

// retryAfter returns the value of Retry-After.
func (e *quotaError) retryAfter() string { return strconv.Itoa(int(math.Ceil(e.after.Seconds()))) }

// callers counts the requests and streams of each caller.
type callers struct {
	limits LimitConfig
	name   string // of the service

	mu     sync.Mutex
	all    map[string]*usage
	recent *list.List // the callers without a request under way, the latest last
}

// usage is the open requests and streams of a caller.
type usage struct {
	caller   string
	place    *list.Element // in recent
	rate     *rate.Limiter
	requests int
	streams  int
}

func newCallers(name string, limits LimitConfig) *callers {
	return &callers{all: map[string]*usage{}, limits: limits, name: name, recent: list.New()}
}

// take counts a request towards the rate of its caller.
func (c *callers) take(r *http.Request) error {
	if c.limits.Rate == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.find(r)
	c.settle(u)
	turn := u.rate.Reserve()
	wait := turn.Delay()
	if wait == 0 {
		return nil
	}
	turn.Cancel()
	return over(c.name, "RATE", "requests a second", c.limits.Rate, wait)
}

// begin counts a request, or a stream, of its caller until end is called.
func (c *callers) begin(r *http.Request, stream bool) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.find(r)
	count, most, code, noun := &u.requests, c.limits.Requests, "REQUESTS", "requests at a time"
	if stream {
		count, most, code, noun = &u.streams, c.limits.Streams, "STREAMS", "open streams"
	}
	if most > 0 && *count >= most {
		return nil, over(c.name, code, noun, most, 2*time.Second)
	}
	*count++
	c.settle(u)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*count--
		c.settle(u)
	}, nil
}

// over returns the error of a request beyond a quota of the service with the name.
func over(name, code, noun string, most int, after time.Duration) error {
	return &quotaError{after: after, code: "QUOTA_" + code, text: fmt.Sprintf(
		"too many %s: a caller may have %d (%s_%s)", noun, most, strings.ToUpper(name), code)}
}

// OverQuota returns the error of a request beyond a bound of the service's own. It is answered 429, with Retry-After and the code
// QUOTA_ and name.
func OverQuota(name, text string, after time.Duration) error {
	return &quotaError{after: after, code: "QUOTA_" + name, text: text}
}

// find returns the usage of a request's caller.
func (c *callers) find(r *http.Request) *usage {
	caller := caller(r)
	u := c.all[caller]
	if u == nil {
		u = &usage{caller: caller, rate: rate.NewLimiter(rate.Limit(c.limits.Rate), c.limits.Rate)}
		c.all[caller] = u
	}
	return u
}

// settle puts a caller without a request under way behind the others, and forgets the first ones beyond maxCallers.
func (c *callers) settle(u *usage) {
	if u.place != nil {
		c.recent.Remove(u.place)
		u.place = nil
	}
	if u.requests+u.streams == 0 {
		u.place = c.recent.PushBack(u)
	}
	if c.recent.Len() > maxCallers {
		delete(c.all, c.recent.Remove(c.recent.Front()).(*usage).caller) //nolint:forcetypeassert // all are
	}
}

// caller returns the name of a request's caller, from its key or token, or from its address. An IPv6 network of 64 bits is one address.
func caller(r *http.Request) string {
	if name := access.From(r.Context()).Name; name != "" {
		return "key " + name
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := from.Addr().Unmap()
	if addr.Is6() {
		network, _ := addr.WithZone("").Prefix(64) // 64 bits are not too many
		return network.String()
	}
	return addr.String()
}

// LimitConfig bounds the connections and requests of the HTTP API's callers. A caller is a key, or the user of an issuer, or else a remote
// address: all callers behind a gateway have one address. Refused requests are answered 429, with Retry-After and the name of the quota.
type LimitConfig struct {
	// Connections is the largest number of connections of each listener. A further connection replaces one that waits for a request; requests
	// beyond seven eighths of that number are answered 503. Defaults to 16,384, and at most a quarter of the files that the process may open.
	Connections int `env:"SERVICE_CONNECTIONS"`

	// Rate is the number of requests that a caller may begin in a second. Defaults to 500, and without Keys and OIDCIssuer to no bound.
	Rate int `env:"SERVICE_RATE"`

	// Requests is the number of requests of a caller that may be under way at a time, without streams. Defaults to 256, and without Keys and
	// OIDCIssuer to no bound.
	Requests int `env:"SERVICE_REQUESTS"`

	// Streams is the number of event streams and WebSockets that a caller may have open. Defaults to 1,000, and without Keys and OIDCIssuer
	// to no bound.
	Streams int `env:"SERVICE_STREAMS"`
}

// minConnections is enough for some connections with requests, and some that wait.
const minConnections = 16

// limits returns the limits with their defaults, for callers that the guard knows.
func (cfg LimitConfig) limits(guard *access.Guard) LimitConfig {
	cfg.Connections = cmp.Or(cfg.Connections, max(minConnections, min(16_384, maxFiles()/4)))
	if guard != nil {
		cfg.Rate, cfg.Requests, cfg.Streams = cmp.Or(cfg.Rate, 500), cmp.Or(cfg.Requests, 256), cmp.Or(cfg.Streams, 1000)
	}
	return cfg
}

// validate calls bad for every mistake.
func (cfg LimitConfig) validate(bad func(field, variable string, value any, want string)) {
	if cfg.Connections != 0 && cfg.Connections < minConnections {
		bad("Connections", "CONNECTIONS", cfg.Connections, "at least 16")
	}
	for field, n := range map[string]int{"Rate": cfg.Rate, "Requests": cfg.Requests, "Streams": cfg.Streams} {
		if n < 0 {
			bad(field, strings.ToUpper(field), n, "a positive number")
		}
	}
}
