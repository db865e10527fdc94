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
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/service/access"
)

const (
	// maxCallers is the number of callers without a request under way that a service remembers.
	maxCallers = 4096

	// userStreams is the part of the streams, one of so many, that a caller gets that is bound to a user: one person.
	userStreams = 16

	// writePart is the length of a body, in bytes, that counts as another change.
	writePart = 256 << 10
)

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
	guarded bool // callers can have names
	limits  LimitConfig
	name    string // of the service, in capitals

	mu        sync.Mutex
	all       map[string]*usage
	recent    [2]*list.List // the callers without a request under way, the latest last: those without a name, and those with one
	requests  int           // of all callers
	strangers int           // requests of callers without a name, where others have one
	streams   int           // of all callers
}

// usage is the open requests and streams of a caller.
type usage struct {
	caller   string
	named    int           // 1 for a caller with a key or token
	place    *list.Element // in recent
	rate     *rate.Limiter
	requests int
	streams  int
	writes   *rate.Limiter // nil for a caller that is not bound to a user
}

func newCallers(name string, limits LimitConfig, guard *access.Guard) *callers {
	return &callers{
		all: map[string]*usage{}, guarded: guard != nil, limits: limits, name: strings.ToUpper(name),
		recent: [2]*list.List{list.New(), list.New()},
	}
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
	if wait := turn(u.rate, 1); wait > 0 {
		return c.over("RATE", "RATE", "requests a second", c.limits.Rate, wait)
	}
	if u.writes == nil || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	parts := 1 + r.ContentLength/writePart
	if r.ContentLength < 0 { // may be any
		parts = 8 << 20 / writePart
	}
	if wait := turn(u.writes, min(int(parts), c.limits.Writes)); wait > 0 {
		return c.over("WRITES", "WRITES", "requests in an hour that change something", c.limits.Writes, wait)
	}
	return nil
}

// turn takes n turns of a limiter, or returns the time until there are as many.
func turn(of *rate.Limiter, n int) (wait time.Duration) {
	turns := of.ReserveN(time.Now(), n)
	if wait = turns.Delay(); wait > 0 {
		turns.Cancel()
	}
	return wait
}

// begin counts a request, or a stream, of its caller until end is called.
//
// Connections bounds the requests and streams of all callers. A caller gets one more only while it has fewer than are free: one caller
// gets half of them at most, two get a third each, and however many flood the service, one that has none gets in. Where callers have keys
// or tokens, those without one count together as a caller, too: anybody may have thousands of addresses.
func (c *callers) begin(r *http.Request, stream bool) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.find(r)
	count, all, most, code, noun := &u.requests, &c.requests, c.limits.Requests, "REQUESTS", "requests at a time"
	free := c.limits.Connections - c.limits.Connections/reserved - c.requests - c.streams
	if stream {
		count, all, most, code, noun = &u.streams, &c.streams, c.limits.Streams, "STREAMS", "open streams"
		free = c.limits.Connections/2 - c.streams
		if access.From(r.Context()).User != "" {
			most = (most + userStreams - 1) / userStreams
		}
	}
	strangers := 0
	if c.guarded {
		strangers = 1 - u.named
	}
	switch {
	case most == 0:
	case *count >= most:
		return nil, c.over(code, code, noun, most, 2*time.Second)
	case c.limits.Connections > 0 && max(*count, strangers*c.strangers) >= free:
		return nil, c.over(code, "CONNECTIONS", noun+" beside those of others", free, 2*time.Second)
	}
	*count++
	*all++
	c.strangers += strangers
	c.settle(u)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*count--
		*all--
		c.strangers -= strangers
		c.settle(u)
	}, nil
}

// over returns the error of a request beyond a quota, which a variable of the service sets.
func (c *callers) over(code, variable, noun string, most int, after time.Duration) error {
	text := fmt.Sprintf("too many %s: a caller may have %d", noun, max(most, 0))
	if c.name != "" {
		text += " (" + c.name + "_" + variable + ")"
	}
	return &quotaError{after: after, code: "QUOTA_" + code, text: text}
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
		who := access.From(r.Context())
		if who.Name != "" {
			u.named = 1
		}
		if who.User != "" && c.limits.Writes > 0 {
			u.writes = rate.NewLimiter(rate.Limit(c.limits.Writes)/3600, c.limits.Writes)
		}
		c.all[caller] = u
	}
	return u
}

// settle puts a caller without a request under way behind the others, and forgets the first ones beyond maxCallers: no number of strangers
// has one with a name forgotten.
func (c *callers) settle(u *usage) {
	recent := c.recent[u.named]
	switch idle := u.requests+u.streams == 0; {
	case idle && u.place != nil:
		recent.MoveToBack(u.place)
	case idle:
		u.place = recent.PushBack(u)
	case u.place != nil:
		recent.Remove(u.place)
		u.place = nil
	}
	if recent.Len() > maxCallers {
		delete(c.all, recent.Remove(recent.Front()).(*usage).caller) //nolint:forcetypeassert // all are
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
	// beyond seven eighths of that number are answered 503. Where callers have quotas, half of it bounds the streams of all, and a caller gets
	// at most as many requests and streams as it leaves to others. Defaults to 16,384, and at most a quarter of the files that the process may
	// open.
	Connections int `env:"SERVICE_CONNECTIONS"`

	// Rate is the number of requests that a caller may begin in a second. Defaults to 500, and without Keys and OIDCIssuer to no bound.
	Rate int `env:"SERVICE_RATE"`

	// Requests is the number of requests of a caller that may be under way at a time, without streams. Defaults to 256, and without Keys and
	// OIDCIssuer to no bound.
	Requests int `env:"SERVICE_REQUESTS"`

	// Streams is the number of event streams and WebSockets that a caller may have open, of which one that is bound to a user gets a
	// sixteenth. Defaults to 1,000, and without Keys and OIDCIssuer to no bound.
	Streams int `env:"SERVICE_STREAMS"`

	// Writes is the number of requests in an hour of a caller that is bound to a user, other than GET, at this process: what a person does
	// adds little to the streams that all share. Each 256 KiB of a body count as another one. Defaults to 1,000, and without Keys and
	// OIDCIssuer to no bound.
	Writes int `env:"SERVICE_WRITES"`
}

const (
	// minConnections is enough for some connections with requests, and some that wait.
	minConnections = 16

	// reserved is the part of the connections, one of so many, that is left to those that wait.
	reserved = 8
)

// scrapes are the quotas for /metrics, whose answer costs more than most. They are apart, so that no other request uses them up.
var scrapes = LimitConfig{Rate: 10, Requests: 4}

// sparse lets lines into the log that clients cause: ten at once, and then one a second.
type sparse struct {
	left  atomic.Int64 // left out
	turns *rate.Limiter
}

func newSparse() *sparse { return &sparse{turns: rate.NewLimiter(1, 10)} }

// turn reports whether a line may be written, and how many were left out before it.
func (s *sparse) turn() (left int64, ok bool) {
	if !s.turns.Allow() {
		s.left.Add(1)
		return 0, false
	}
	return s.left.Swap(0), true
}

// limits returns the limits with their defaults, for callers that the guard knows.
func (cfg LimitConfig) limits(guard *access.Guard) LimitConfig {
	cfg.Connections = cmp.Or(cfg.Connections, max(minConnections, min(16_384, maxFiles()/4)))
	if guard != nil {
		cfg.Rate, cfg.Requests, cfg.Streams = cmp.Or(cfg.Rate, 500), cmp.Or(cfg.Requests, 256), cmp.Or(cfg.Streams, 1000)
		cfg.Writes = cmp.Or(cfg.Writes, 1000)
	}
	return cfg
}

// validate calls bad for every mistake.
func (cfg LimitConfig) validate(bad func(field, variable string, value any, want string)) {
	if cfg.Connections != 0 && cfg.Connections < minConnections {
		bad("Connections", "CONNECTIONS", cfg.Connections, "at least 16")
	}
	for field, n := range map[string]int{"Rate": cfg.Rate, "Requests": cfg.Requests, "Streams": cfg.Streams, "Writes": cfg.Writes} {
		if n < 0 {
			bad(field, strings.ToUpper(field), n, "a positive number")
		}
	}
}
