package limit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Set holds the limits of one worker.
type Set struct {
	cfg      Config
	ctx      context.Context
	cancel   context.CancelFunc
	look     chan struct{} // wakes the loop
	parked   atomic.Int64  // jobs that wait without a slot
	renewing chan struct{} // one renewal at a time; a mutex would hide its wait for the server from fake time
	starved  atomic.Bool   // a limiter waits for a slot
	work     sync.WaitGroup

	mu       sync.Mutex // locked after the mu of a limiter
	closed   bool
	limiters map[string]*limiter
	gone     map[string]bool // the workers whose permits are void
	id       string          // the name under which permits are held now
	permits  map[*Permit]struct{}
	renewed  time.Time       // the time at which this worker last tried to renew the lease, zero when there is none
	lease    kvrecord.Record // the record of the lease as last written or read
	starving []*limiter
	swept    time.Time
	timer    *time.Timer // the end of the lease
	until    time.Time   // likewise
	watched  map[string]*watched
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
