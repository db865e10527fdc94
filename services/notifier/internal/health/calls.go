package health

import (
	"net/netip"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

const (
	// strikes is the number of calls in a notification that do not reach an endpoint before it is left alone.
	strikes = 3

	// firstPause and lastPause bound the time for which an endpoint is left alone. It doubles with each pause.
	firstPause = 10 * time.Second
	lastPause  = 5 * time.Minute

	// probing is the wait of other calls while one call tests whether the endpoint is back.
	probing = 5 * time.Second

	// slack is the time beyond its timeout after which the caller of a call counts as lost.
	slack = time.Minute

	// maxKnown bounds the number of endpoints in memory. Any further ones are called as if they were new.
	maxKnown = 20_000

	// unused is the time after its last call after which an endpoint that was not reached may be forgotten, when there
	// is no room.
	unused = time.Hour
)

// The shares of the slots of a channel: one in so many.
const (
	slowShare     = 4  // for endpoints that are slow, or did not answer the last call
	othersShare   = 4  // left by the endpoints of one site to other sites, unless these endpoints work well
	endpointShare = 32 // for one endpoint
)

const (
	// slowCall is the time from which an answer counts as slow.
	slowCall = 2 * time.Second

	// An endpoint that is being called gets no further calls when it has not answered for stalled, or for patience times
	// its usual time if that is longer.
	stalled  = time.Second
	patience = 8

	// leastTimeout is the shortest timeout.
	leastTimeout = 5 * time.Second

	// firstTurn and lastTurn bound the wait of a call for a slot before it asks again.
	firstTurn = 100 * time.Millisecond
	lastTurn  = time.Minute
)

// Call is a call of an endpoint, from [Store.Admit] to [Store.Called] or [Store.Left].
type Call struct {
	// Address and Channel name the endpoint.
	Address, Channel string

	// RecipientType and UserID name the recipient.
	RecipientType contracts.RecipientType
	UserID        string

	// Again reports whether an attempt to send the message has failed.
	Again bool

	// Slots is the number of calls of the channel that this process makes at a time.
	Slots int

	// Timeout bounds the call. Admit shortens it for an endpoint that answers fast.
	Timeout time.Duration

	// Took is the duration of the call. It is set before Called.
	Took time.Duration

	key, site string
	slow      bool
}

// others stands for several recipients.
const others = "\x00"

func (c *Call) recipient() string { return string(c.RecipientType) + "\x00" + c.UserID }

// endpoint is the state of an endpoint that was called lately.
type endpoint struct {
	channel string

	calls  int           // under way
	heard  time.Time     // the time of the last answer, or of the start of the first of the calls under way
	took   time.Duration // a mean of the times of its answers in which slow ones weigh most; 0 without an answer
	turns  turns
	missed int
	only   string        // the one recipient whose calls were missed, others for more than one
	pause  time.Duration // the last one, 0 for none
	until  time.Time     // when it may be tried again, or when the caller that tests it counts as lost
	tried  bool          // a caller is testing it now
}

// lane has the slots of a channel.
type lane struct {
	calls, slow          int // under way
	sites                map[string]int
	slowTurns, siteTurns turns
}

// turns spreads the calls that wait for a slot over the time in which slots become free, so that each call asks again
// about once.
type turns struct{ next time.Time }

func (t *turns) wait(now time.Time, first, each time.Duration) time.Duration {
	if first = max(first, firstTurn); t.next.Before(now.Add(first)) {
		t.next = now.Add(first)
	}
	if wait := t.next.Add(each).Sub(now); wait <= lastTurn {
		t.next = t.next.Add(each)
	}
	return t.next.Sub(now)
}

// breaker decides when endpoints are called, so that endpoints that do not answer delay no others. It leaves an endpoint alone that
// was not reached several times in a notification; afterwards one call at a time tests whether the endpoint is back. An endpoint that has
// not answered yet, or stops answering, gets no further call while calls are under way. It is safe for concurrent use; each process
// has its own.
type breaker struct {
	mu    sync.Mutex
	known map[string]*endpoint
	lanes map[string]*lane
}

// enter returns the wait of a call, 0 when it may be made, and whether it waits because the endpoint is down.
func (b *breaker) enter(c *Call, now time.Time) (wait time.Duration, down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, l := b.endpoint(c, now), b.lane(c.Channel)
	switch {
	case e.missed < strikes || !now.Before(e.until) || e.only != others && e.only != c.recipient():
	case e.tried:
		return min(probing, e.until.Sub(now)), true
	default:
		return e.until.Sub(now), true
	}
	c.slow = e.missed > 0 || e.took > slowCall || c.Again && e.took == 0
	c.site = site(c.Address)
	if wait := l.full(c, e, now); wait > 0 {
		return wait, false
	}
	c.Timeout = c.bound(e, l)
	if e.missed >= strikes {
		e.tried, e.until = true, now.Add(c.Timeout+slack)
	}
	if e.calls == 0 {
		e.heard = now
	}
	e.calls++
	l.calls++
	l.sites[c.site]++
	if c.slow {
		l.slow++
	}
	return 0, false
}

// full returns the wait of a call whose endpoint or site, or the group of slow endpoints, has used its share of the
// slots.
func (l *lane) full(c *Call, e *endpoint, now time.Time) time.Duration {
	one, slow, site := max(1, c.Slots/endpointShare), max(1, c.Slots/slowShare), max(1, c.Slots-c.Slots/othersShare)
	if e.took == 0 { // the first call measures the time
		one = 1
	}
	switch {
	case e.calls >= one, e.calls > 0 && now.Sub(e.heard) > max(stalled, patience*e.took):
		return e.turns.wait(now, now.Sub(e.heard), max(e.took, firstTurn)/time.Duration(one))
	case c.slow && l.slow >= slow:
		return l.slowTurns.wait(now, 0, c.Timeout/time.Duration(slow))
	case (c.slow || e.took == 0) && l.sites[c.site] >= site:
		return l.siteTurns.wait(now, 0, firstTurn/endpointShare)
	}
	return 0
}

// bound returns the timeout of a call. An endpoint that was missed gets the whole time, so that it is reached if it has become
// slower. A new endpoint gets less when few slots are left.
func (c *Call) bound(e *endpoint, l *lane) time.Duration {
	least := min(leastTimeout, c.Timeout)
	switch free := c.Slots - l.calls; {
	case c.slow:
		return c.Timeout
	case e.took > 0:
		return min(c.Timeout, max(least, patience*e.took))
	case 2*free < c.Slots:
		return max(least, c.Timeout*time.Duration(2*max(free, 0))/time.Duration(c.Slots))
	}
	return c.Timeout
}

// called records the outcome of a call, nil for a success. Any answer means that the endpoint was reached.
func (b *breaker) called(c *Call, now time.Time, failure *channel.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.leave(c)
	switch {
	case e == nil:
	case failure == nil || !missed(failure) && failure.Kind != channel.KindInterrupted:
		took := max(c.Took, time.Millisecond)
		e.heard, e.took = now, max(took, e.took+(took-e.took)/8)
		e.missed, e.only, e.pause, e.tried = 0, "", 0, false
	case !missed(failure):
		e.left(now)
	default:
		if e.only == "" {
			e.only = c.recipient()
		} else if e.only != c.recipient() {
			e.only = others
		}
		e.miss(now)
	}
}

// miss records that an endpoint was not reached.
func (e *endpoint) miss(now time.Time) {
	e.missed++
	if e.missed < strikes {
		return
	}
	if e.missed > strikes && !e.tried {
		return // the call was under way when the pause began
	}
	e.pause = min(max(firstPause, 2*e.pause), lastPause)
	e.tried, e.until = false, now.Add(e.pause)
}

// left records that a call was not made, or not finished.
func (b *breaker) left(c *Call, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.leave(c); e != nil {
		e.left(now)
	}
}

// left lets the next caller test the endpoint, because the outcome of the call is unknown.
func (e *endpoint) left(now time.Time) {
	if e.tried {
		e.tried, e.until = false, now
	}
}

// leave gives back the slot of a call, and returns its endpoint, nil when it is no longer known.
func (b *breaker) leave(c *Call) *endpoint {
	l := b.lane(c.Channel)
	l.calls--
	l.sites[c.site]--
	if l.sites[c.site] <= 0 {
		delete(l.sites, c.site)
	}
	if c.slow {
		l.slow--
	}
	e := b.known[c.key]
	if e != nil && e.calls > 0 {
		e.calls--
	}
	return e
}

func (b *breaker) lane(name string) *lane {
	if b.lanes[name] == nil {
		if b.lanes == nil {
			b.lanes = map[string]*lane{}
		}
		b.lanes[name] = &lane{sites: map[string]int{}}
	}
	return b.lanes[name]
}

// endpoint returns the state of an endpoint. When too many are in memory, it forgets one that is healthy and idle, or was not
// called for long.
func (b *breaker) endpoint(c *Call, now time.Time) *endpoint {
	if e := b.known[c.key]; e != nil {
		return e
	}
	if b.known == nil {
		b.known = map[string]*endpoint{}
	}
	looks := 0
	for other, e := range b.known {
		looks++
		if len(b.known) < maxKnown || looks > strikes*endpointShare {
			break
		}
		if e.calls == 0 && (e.missed == 0 || now.Sub(e.heard) > unused) {
			delete(b.known, other)
		}
	}
	e := &endpoint{channel: c.Channel}
	if len(b.known) < maxKnown {
		b.known[c.key] = e
	}
	return e
}

// held returns the numbers of endpoints that are left alone now, by channel.
func (b *breaker) held(now time.Time) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for name := range b.lanes {
		counts[name] = 0
	}
	for _, e := range b.known {
		if e.missed >= strikes && now.Before(e.until) {
			counts[e.channel]++
		}
	}
	return counts
}

// missed reports whether an endpoint was not reached, or did not answer in time.
func missed(failure *channel.Error) bool {
	return failure.Kind == channel.KindTimeout || failure.Kind == channel.KindUnavailable && failure.Status == 0
}

// location matches the URL in an address, which may be JSON.
var location = lazyregexp.New(`https?://[^\s"\\]+`)

// site returns the site of an endpoint, by its address: the registered domain, or host and port.
func site(address string) string {
	u, err := url.Parse(location.FindString(address))
	if err != nil || u.Host == "" {
		return address
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return u.Host
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(u.Hostname())
	if err != nil {
		return u.Host
	}
	return domain
}
