package limit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Set holds the limits of one worker.
type Set struct {
	// Set at the start.
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc

	work     sync.WaitGroup
	look     chan struct{} // wakes the loop
	renewing chan struct{} // one renewal at a time; a mutex would hide its wait for the server from fake time
	parked   atomic.Int64  // jobs that wait without a slot
	starved  atomic.Bool   // a limiter waits for a slot

	mu     sync.Mutex // guards the fields below; locked after the mu of a limiter
	closed bool

	// The lease.
	id      string          // the name under which permits are held now
	lease   kvrecord.Record // its record, as last written or read
	renewed time.Time       // when this worker last tried to renew it, zero when there is none
	until   time.Time       // when it ends
	timer   *time.Timer     // fires then

	limiters map[string]*limiter
	permits  map[*Permit]struct{} // in use; nil when the set closes
	starving []*limiter           // those that wait for a slot

	// Other workers.
	watched map[string]*watched
	gone    map[string]bool // those whose permits are void
	swept   time.Time       // when those that nobody asks about were last forgotten
}

// New returns the limits of a worker. It sends no request before the first Enter.
func New(cfg Config) *Set {
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ends with Close
	s := &Set{
		cfg: cfg, ctx: ctx, cancel: cancel, look: make(chan struct{}, 1), renewing: make(chan struct{}, 1),
		limiters: make(map[string]*limiter), gone: make(map[string]bool), id: nuid.Next(), permits: make(map[*Permit]struct{}),
		swept: time.Now(), watched: make(map[string]*watched),
	}
	s.work.Go(s.loop)
	return s
}

// Close gives back all permits and the lease, and waits until the goroutines of the set have ended: for as long as two
// requests may take. No job may wait in Enter any more.
func (s *Set) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	permits := s.permits
	s.permits = nil
	s.mu.Unlock()
	for p := range permits { // permits of jobs that were given up
		p.drop()
	}
	end := time.Now().Add(s.cfg.Request)
	for _, l := range s.all() {
		l.settle(end)
	}
	s.resign()
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.cancel()
	for _, l := range s.all() {
		l.end()
	}
	s.work.Wait()
}

// spawn runs work in a goroutine that Close waits for, and reports whether it did: a closed set runs nothing.
func (s *Set) spawn(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(work)
	return true
}

func (s *Set) all() []*limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.limiters))
}

// limiter returns the limiter of a rule's key, and makes it if there is none.
func (s *Set) limiter(r Rule) *limiter {
	subject := r.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limiters[subject]
	if l == nil {
		l = &limiter{set: s, spec: r.Spec, subject: s.subject("keys." + subject), rec: record{Version: version}, pushed: -1, name: subject}
		s.limiters[subject] = l
	}
	return l
}

// keep records a Permit, and reports whether the Permit may be used: all its permits are still held, and the set is open.
func (s *Set) keep(p *Permit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range p.held {
		if held.limiter.spec.Concurrency > 0 && (held.owner != s.id || !s.live(time.Now())) {
			return false
		}
	}
	if s.permits == nil {
		return false
	}
	s.permits[p] = struct{}{}
	return true
}

// starve records that a limiter waits for a slot. The caller holds the limiter's mu.
func (s *Set) starve(l *limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starving = append(s.starving, l)
	s.starved.Store(true)
}

// Freed wakes the limiters that wait for a slot, after a slot became free. It costs one atomic load while none waits.
func (s *Set) Freed() {
	if s == nil || !s.starved.Load() {
		return
	}
	s.mu.Lock()
	starving := s.starving
	s.starving = nil
	s.starved.Store(false)
	s.mu.Unlock()
	// Not on this goroutine: the caller may be a limiter that holds its mu.
	s.spawn(func() {
		seen := make(map[*limiter]bool, len(starving))
		for _, l := range starving {
			if !seen[l] {
				seen[l] = true
				l.poke()
			}
		}
	})
}

// loop renews the lease of this worker and checks those of others.
func (s *Set) loop() {
	timer := time.NewTimer(s.cfg.Lease / beats)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.look:
		case <-timer.C:
		}
		if s.untilDue() <= 0 {
			s.renew()
		}
		next := s.lookAtOthers()
		if s.sweep() {
			continue
		}
		timer.Reset(min(next, s.untilDue()))
	}
}

// sweep removes limiters that no job has used for a while, and forgets workers. It reports whether it was time to do so.
func (s *Set) sweep() bool {
	now := time.Now()
	s.mu.Lock()
	due := now.Sub(s.swept) > emptyFor/2
	if due {
		s.swept = now
	}
	s.mu.Unlock()
	if !due {
		return false
	}
	for _, l := range s.all() {
		l.retire(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.watched {
		if now.Sub(w.wanted) > forgetAfter {
			delete(s.watched, id)
			delete(s.gone, id)
		}
	}
	s.again()
	return true
}

// again wakes the loop.
func (s *Set) again() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// pokeAll starts all limiters.
func (s *Set) pokeAll() {
	for _, l := range s.all() {
		l.poke()
	}
}

// report permits an error to Config.Failed, unless the set is closed.
func (s *Set) report(err error) {
	if s.ctx.Err() == nil && s.cfg.Failed != nil {
		s.cfg.Failed(err)
	}
}

const (
	// beats is the number of renewals of a lease in its TTL.
	beats = 3

	// margin divides a lease: by that part of its TTL it ends early for its holder, because clocks may differ in speed.
	margin = 10

	// forgetAfter is the time for which a set remembers whether another worker lives.
	forgetAfter = time.Hour
)

// member is the record of a worker.
type member struct {
	// Ended is true when the worker's permits are void.
	Ended bool `json:"ended,omitempty"`

	// TTL is the TTL of the worker's lease.
	TTL time.Duration `json:"ttl"`
}

// watched is another worker whose lease is checked.
type watched struct {
	next     time.Time // when to look again
	revision uint64
	seen     bool
	since    time.Time // the time at which that revision was first seen
	ttl      time.Duration
	wanted   time.Time // the time at which a limiter last called watch
}

// name returns the name under which permits are held now.
func (s *Set) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// live reports whether there is a lease. The caller holds mu.
func (s *Set) live(now time.Time) bool { return now.Before(s.until) }

func (s *Set) isLive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id == s.id && s.live(time.Now())
}

// ensure begins a lease unless one is live, and reports whether one is live then.
func (s *Set) ensure() bool {
	if s.isLive(s.name()) {
		return true
	}
	s.renew()
	return s.isLive(s.name())
}

// untilDue returns the time until the lease is to be renewed.
func (s *Set) untilDue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewed.IsZero() {
		return s.cfg.Lease / beats // no job has needed one
	}
	return time.Until(s.renewed.Add(s.cfg.Lease / beats))
}

// renew prolongs the lease, or begins one. A lease counts from the time at which the acknowledged write was sent.
func (s *Set) renew() {
	s.renewing <- struct{}{}
	defer func() { <-s.renewing }()
	for range 2 {
		s.mu.Lock()
		id, over := s.id, s.lease
		s.mu.Unlock()
		stored, err := s.put(s.member(id), member{TTL: s.cfg.Lease}, over, s.memberFor())
		if err == nil {
			s.extend(id, stored)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.report(err)
		if !s.reread(id, over) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The next try comes sooner than after a renewal that succeeded.
	s.renewed = time.Now().Add(-s.cfg.Lease/beats + s.cfg.Lease/20)
	s.again()
}

// extend applies an acknowledged renewal.
func (s *Set) extend(id string, stored kvrecord.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != s.id || s.closed {
		return
	}
	until := stored.Sent.Add(s.cfg.Lease - s.cfg.Lease/margin)
	s.renewed, s.lease, s.until = stored.Sent, stored, until
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(time.Until(until), func() { s.lapse(id, until) })
	s.again()
}

// reread reads the outcome of a renewal that was not acknowledged, and reports whether another one can succeed.
func (s *Set) reread(id string, over kvrecord.Record) bool {
	found, err := s.get(s.member(id))
	if err != nil {
		return false
	}
	var m member
	if found.Revision == 0 && over.Revision > 0 || json.Unmarshal(found.Data, &m) == nil && m.Ended {
		s.lose(id, fmt.Errorf("%w: it was ended by another worker, or deleted", ErrLost))
		return true // under another name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	later := found.Revision > over.Revision
	if id == s.id && later {
		s.lease = found
	}
	return later
}

// lapse ends a lease that was not renewed until its end.
func (s *Set) lapse(id string, until time.Time) {
	s.mu.Lock()
	over := s.until.Equal(until)
	s.mu.Unlock()
	if over {
		s.lose(id, fmt.Errorf("%w: it could not be renewed", ErrLost))
	}
}

// lose ends the jobs that run under permits of an ended lease. Later permits are held under another name.
func (s *Set) lose(id string, err error) {
	s.mu.Lock()
	if id != s.id {
		s.mu.Unlock()
		return
	}
	s.gone[id] = true
	s.id, s.lease, s.until = nuid.Next(), kvrecord.Record{}, time.Time{}
	var lost []*Permit
	for p := range s.permits {
		for _, held := range p.held {
			if held.limiter.spec.Concurrency > 0 && held.owner == id {
				lost = append(lost, p)
				break
			}
		}
	}
	s.mu.Unlock()
	for _, p := range lost {
		p.lost(err)
	}
	if len(lost) > 0 && s.cfg.Lost != nil {
		s.cfg.Lost(err)
	}
	s.pokeAll()
}

// resign ends the lease, so that no other worker waits for its end.
func (s *Set) resign() {
	s.mu.Lock()
	id, over := s.id, s.lease
	s.mu.Unlock()
	if over.Revision > 0 {
		_, _ = s.put(s.member(id), member{Ended: true, TTL: s.cfg.Lease}, over, s.memberFor()) // it ends by itself
	}
}

func (s *Set) memberFor() time.Duration { return max(forgetAfter, 4*s.cfg.Lease) }

func (s *Set) member(id string) string { return s.subject("workers." + id) }

// isGone reports whether a worker's permits are void.
func (s *Set) isGone(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[id]
}

// watch makes the loop check whether a worker lives.
func (s *Set) watch(id string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	w := s.watched[id]
	if w == nil {
		w = &watched{ttl: ttl}
		s.watched[id] = w
	}
	if now.Sub(w.wanted) > recheck {
		s.again()
	}
	w.ttl, w.wanted = max(w.ttl, ttl), now
}

// lookAtOthers checks the workers for whose permits jobs wait, and returns the time until the next check.
func (s *Set) lookAtOthers() time.Duration {
	next := time.Hour
	for {
		now := time.Now()
		id := ""
		s.mu.Lock()
		for other, w := range s.watched {
			switch {
			case s.gone[other] || now.Sub(w.wanted) > 2*recheck:
			case w.next.After(now):
				next = min(next, w.next.Sub(now))
			default:
				id = other
				w.next = now.Add(w.ttl/beats/2 + rand.N(w.ttl/beats/2+1))
			}
		}
		s.mu.Unlock()
		if id == "" || s.ctx.Err() != nil {
			return next
		}
		s.lookAt(id)
	}
}

// lookAt checks whether a worker lives. It ends the lease of a worker that has not renewed it for its whole TTL. The server refuses that
// write if the worker renews the lease at this moment.
func (s *Set) lookAt(id string) {
	found, err := s.get(s.member(id))
	if err != nil {
		s.report(err)
		return
	}
	now := time.Now() // it was written before
	var m member
	if json.Unmarshal(found.Data, &m) != nil {
		m = member{}
	}
	s.mu.Lock()
	w := s.watched[id]
	if w == nil {
		s.mu.Unlock()
		return
	}
	if !w.seen || w.revision != found.Revision {
		w.seen, w.revision, w.since = true, found.Revision, now
		w.ttl = min(max(w.ttl, m.TTL), maxLease)
	}
	over := now.Sub(w.since) >= w.ttl
	if end := w.since.Add(w.ttl); end.Before(w.next) && !over {
		w.next = end
	}
	ttl := w.ttl
	s.mu.Unlock()
	if !m.Ended && over {
		_, err = s.put(s.member(id), member{Ended: true, TTL: ttl}, found, max(forgetAfter, 4*ttl))
		m.Ended = err == nil
		if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
			s.report(err)
		}
	}
	if m.Ended {
		s.mu.Lock()
		s.gone[id] = true
		s.mu.Unlock()
		s.pokeAll()
	}
}
