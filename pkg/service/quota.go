package service

import (
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

// maxCallers is how many callers without a request under way a service remembers.
const maxCallers = 4096

// quotaError is returned for a request beyond one of the quotas of its caller.
type quotaError struct {
	after time.Duration // the wait until the next attempt
	code  string
	text  string
}

func (e *quotaError) Error() string { return e.text }

// retryAfter is the value of Retry-After.
func (e *quotaError) retryAfter() string { return strconv.Itoa(int(math.Ceil(e.after.Seconds()))) }

// callers counts what each caller uses.
type callers struct {
	limits LimitConfig
	name   string // of the service

	mu     sync.Mutex
	all    map[string]*usage
	recent *list.List // those without a request under way, the latest last
}

// usage is what a caller uses.
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
	count, most, code, what := &u.requests, c.limits.Requests, "REQUESTS", "requests at a time"
	if stream {
		count, most, code, what = &u.streams, c.limits.Streams, "STREAMS", "open streams"
	}
	if most > 0 && *count >= most {
		return nil, over(c.name, code, what, most, 2*time.Second)
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
func over(name, code, what string, most int, after time.Duration) error {
	return &quotaError{after: after, code: "QUOTA_" + code, text: fmt.Sprintf(
		"too many %s: a caller may have %d (%s_%s)", what, most, strings.ToUpper(name), code)}
}

// find returns what the caller of a request uses.
func (c *callers) find(r *http.Request) *usage {
	caller := caller(r)
	u := c.all[caller]
	if u == nil {
		u = &usage{caller: caller, rate: rate.NewLimiter(rate.Limit(c.limits.Rate), c.limits.Rate)}
		c.all[caller] = u
	}
	return u
}

// settle puts a caller without a request under way behind the others, and forgets the first beyond maxCallers.
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

// caller names the caller of a request: by its key or token, or by its address. An IPv6 network of 64 bits is one address.
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
		network, _ := addr.WithZone("").Prefix(64) //nolint:errcheck // 64 bits are not too many
		return network.String()
	}
	return addr.String()
}
