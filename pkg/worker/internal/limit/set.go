package limit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Set are the limits of one worker.
type Set struct {
	cfg      Config
	ctx      context.Context //nolint:containedctx // of every request
	cancel   context.CancelFunc
	look     chan struct{} // somebody is to be looked at
	parked   atomic.Int64  // who wait without a seat
	renewing sync.Mutex    // one renewal at a time
	starved  atomic.Bool   // some gates wait for a seat
	work     sync.WaitGroup

	mu       sync.Mutex // taken after that of a gate
	closed   bool
	gates    map[string]*gate
	gone     map[string]bool // whose permits are void
	id       string          // the name under which permits are held now
	passes   map[*Pass]struct{}
	renewed  time.Time       // when the lease was last tried to be renewed, zero when there is none
	lease    kvrecord.Record // as it was last written or read
	starving []*gate
	swept    time.Time
	timer    *time.Timer // the end of the lease
	until    time.Time   // likewise
	watched  map[string]*watched
}

// New returns the limits of a worker. Nothing is asked before the first Enter.
func New(cfg Config) *Set {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ends with Close
	s := &Set{
		cfg: cfg, ctx: ctx, cancel: cancel, look: make(chan struct{}, 1),
		gates: make(map[string]*gate), gone: make(map[string]bool), id: nuid.Next(), passes: make(map[*Pass]struct{}),
		swept: time.Now(), watched: make(map[string]*watched),
	}
	s.work.Go(s.loop)

	return s
}

// Close gives back what is held and waits for the end of everything, for as long as two
// requests may take. Nobody may wait any more.
func (s *Set) Close() {
	if s == nil {
		return
	}

	s.mu.Lock()
	passes := s.passes
	s.passes = nil
	s.mu.Unlock()

	for p := range passes { // of jobs that were given up
		p.drop()
	}

	end := time.Now().Add(s.cfg.Request)
	for _, g := range s.all() {
		g.settle(end)
	}

	s.resign()

	s.mu.Lock()
	s.closed = true

	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()

	s.cancel()

	for _, g := range s.all() {
		g.end()
	}

	s.work.Wait()
}

// hire has a goroutine work for the set, unless it is closed.
func (s *Set) hire(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return false
	}

	s.work.Go(work)

	return true
}

func (s *Set) all() []*gate {
	s.mu.Lock()
	defer s.mu.Unlock()

	all := make([]*gate, 0, len(s.gates))
	for _, g := range s.gates {
		all = append(all, g)
	}

	return all
}

// gate returns the gate of a key.
func (s *Set) gate(r Rule) *gate {
	subject := r.Spec.Name + "." + hash(r.Key)

	s.mu.Lock()
	defer s.mu.Unlock()

	g := s.gates[subject]
	if g == nil {
		g = &gate{set: s, spec: r.Spec, subject: s.subject("keys." + subject), rec: record{Version: version}, pushed: -1, name: subject}
		s.gates[subject] = g
	}

	return g
}

// keep notes a pass, and reports false when a permit of it is void already.
func (s *Set) keep(p *Pass) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, held := range p.held {
		if held.gate.spec.Concurrency > 0 && (held.owner != s.id || !s.live(time.Now())) {
			return false
		}
	}

	if s.passes == nil {
		return false
	}

	s.passes[p] = struct{}{}

	return true
}

func (s *Set) forget(p *Pass) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.passes, p)
}

// starve notes that a gate waits for a seat. It is called with the gate's mu held.
func (s *Set) starve(g *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.starving = append(s.starving, g)
	s.starved.Store(true)
}

// Freed says that there may be a seat. It costs one atomic load unless somebody waits for it.
func (s *Set) Freed() {
	if s == nil || !s.starved.Load() {
		return
	}

	s.mu.Lock()
	starving := s.starving
	s.starving = nil
	s.starved.Store(false)
	s.mu.Unlock()

	// Not here: who frees a seat may be a gate.
	s.hire(func() {
		seen := make(map[*gate]bool, len(starving))
		for _, g := range starving {
			if !seen[g] {
				seen[g] = true

				g.poke()
			}
		}
	})
}

// loop renews the lease and looks at others.
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

		if s.isDue() {
			s.renew()
		}

		next := s.lookAtOthers()

		if s.sweep() {
			continue
		}

		timer.Reset(min(next, s.untilDue()))
	}
}

// sweep lets go of the gates that nobody uses.
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

	for _, g := range s.all() {
		g.retire(now)
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

// again has the loop look once more.
func (s *Set) again() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// pokeAll has all gates look what is to be done.
func (s *Set) pokeAll() {
	for _, g := range s.all() {
		g.poke()
	}
}

// report passes on what went wrong.
func (s *Set) report(err error) {
	if s.ctx.Err() == nil && s.cfg.Failed != nil {
		s.cfg.Failed(err)
	}
}
