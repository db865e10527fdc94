// Package gather brings goroutines together that are to be served by one call.
//
// A member joins and waits until its batch starts, then either runs it or leaves it. When
// every member of a started batch has done one of the two, the first that came to run it
// does so, for all that did.
package gather

import (
	"slices"
	"sync"
	"time"
)

// Group forms batches of members. Make it with New.
type Group[M any] struct {
	goexit error
	size   int
	wait   time.Duration

	mu   sync.Mutex
	open *batch[M] // that takes members; nil for none
}

type batch[M any] struct {
	done    chan struct{} // the work has been done
	err     error         // of the work
	first   M             // that joined
	pending int           // members that have neither come to run it nor left
	present []*Seat[M]
	ready   chan struct{} // nobody is waited for any more
	started chan struct{} // takes no more members
	timer   *time.Timer
}

// Seat is a place in a batch that has started.
type Seat[M any] struct {
	batch  *batch[M]
	group  *Group[M]
	member M
	passed bool // it has come to run the batch, or left it
}

// New returns a Group whose batches start with size members, or when the first has waited
// for wait. goexit is the error of work that calls runtime.Goexit.
func New[M any](size int, wait time.Duration, goexit error) *Group[M] {
	return &Group[M]{goexit: goexit, size: size, wait: wait}
}

// Join waits until a batch with the member starts. It returns nil when one of the channels
// is closed before; the batch then goes without it. Of a seat, Run or Leave must be called.
func (g *Group[M]) Join(member M, canceled, stopped <-chan struct{}) *Seat[M] {
	seat := g.enter(member)
	b := seat.batch

	select {
	case <-b.started:
		return seat
	case <-canceled:
	case <-stopped:
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	if g.open != b {
		return seat // it has started meanwhile
	}

	b.pending--
	if b.pending == 0 {
		b.timer.Stop()
		g.open = nil
	}

	return nil
}

func (g *Group[M]) enter(member M) *Seat[M] {
	g.mu.Lock()
	defer g.mu.Unlock()

	b := g.open
	if b == nil {
		b = &batch[M]{
			done: make(chan struct{}), err: g.goexit, first: member, ready: make(chan struct{}), started: make(chan struct{}),
		}
		b.timer = time.AfterFunc(g.wait, func() { g.expire(b) })
		g.open = b
	}

	b.pending++
	if b.pending == g.size {
		g.start(b)
	}

	return &Seat[M]{batch: b, group: g, member: member}
}

func (g *Group[M]) expire(b *batch[M]) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.open == b {
		g.start(b)
	}
}

// start closes a batch to more members. The lock is held.
func (g *Group[M]) start(b *batch[M]) {
	b.timer.Stop()
	g.open = nil
	close(b.started)
}

// First is the member that joined the batch first. It may have gone.
func (s *Seat[M]) First() M { return s.batch.first }

// Leave gives up the seat, unless Run has been called.
func (s *Seat[M]) Leave() { s.pass(false) }

// Run returns what work returned, which is called once for all members that came here.
func (s *Seat[M]) Run(work func(members []M) error) error {
	if s.pass(true) {
		<-s.batch.ready

		if s.batch.present[0] == s {
			s.batch.work(work)
		}
	}

	<-s.batch.done

	return s.batch.err
}

// pass reports false when the member had come or left before.
func (s *Seat[M]) pass(present bool) bool {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()

	if s.passed {
		return false
	}

	s.passed = true
	if present {
		s.batch.present = append(s.batch.present, s)
	}

	s.batch.pending--
	if s.batch.pending == 0 {
		close(s.batch.ready)
	}

	return true
}

func (b *batch[M]) work(work func(members []M) error) {
	defer close(b.done)

	members := slices.Collect(func(yield func(M) bool) {
		for _, s := range b.present {
			if !yield(s.member) {
				return
			}
		}
	})

	b.err = work(members)
}
