// Package batcher brings goroutines together that are to be served by one call.
//
// A member joins and waits until its batch starts, then either runs the batch or leaves it. When every member of a started
// batch has done one of the two, the first that called Run runs it, for all that did.
package batcher

import (
	"sync"
	"time"
)

// Batcher forms batches of members. Make it with New.
type Batcher[M any] struct {
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
	pending int           // members that have called neither Run nor Leave
	present []M           // that called Run
	ready   chan struct{} // no member is pending
	started chan struct{} // takes no more members
	timer   *time.Timer
}

// Place is a member's place in a batch that has started.
type Place[M any] struct {
	batch   *batch[M]
	batcher *Batcher[M]
	member  M
	passed  bool // Run or Leave has been called
}

// New returns a Batcher whose batches start with size members, or when the first has waited for wait. goexit is the error of
// work that calls runtime.Goexit.
func New[M any](size int, wait time.Duration, goexit error) *Batcher[M] {
	return &Batcher[M]{goexit: goexit, size: size, wait: wait}
}

// Join waits until a batch with the member starts. It returns nil when one of the channels is closed before; the batch then
// goes without it. Run or Leave must be called on the place.
func (b *Batcher[M]) Join(member M, canceled, stopped <-chan struct{}) *Place[M] {
	place := b.enter(member)
	select {
	case <-place.batch.started:
		return place
	case <-canceled:
	case <-stopped:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != place.batch {
		return place // it has started meanwhile
	}
	b.open.pending--
	if b.open.pending == 0 {
		b.open.timer.Stop()
		b.open = nil
	}
	return nil
}

func (b *Batcher[M]) enter(member M) *Place[M] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		added := &batch[M]{
			done: make(chan struct{}), err: b.goexit, first: member, ready: make(chan struct{}), started: make(chan struct{}),
		}
		added.timer = time.AfterFunc(b.wait, func() { b.expire(added) })
		b.open = added
	}
	place := &Place[M]{batch: b.open, batcher: b, member: member}
	b.open.pending++
	if b.open.pending == b.size {
		b.start()
	}
	return place
}

func (b *Batcher[M]) expire(waiting *batch[M]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == waiting {
		b.start()
	}
}

// start closes the open batch to more members. The caller holds mu.
func (b *Batcher[M]) start() {
	b.open.timer.Stop()
	close(b.open.started)
	b.open = nil
}

// First is the member that joined the batch first. It may have left.
func (p *Place[M]) First() M { return p.batch.first }

// Leave gives up the place, unless Run has been called.
func (p *Place[M]) Leave() { p.pass(false) }

// Run returns the error of work, which is called once for all members that called Run.
func (p *Place[M]) Run(work func(members []M) error) error {
	if p.pass(true) {
		<-p.batch.ready
		p.batch.work(work)
	}
	<-p.batch.done
	return p.batch.err
}

// pass settles a place. It reports whether the member is the first of the batch that called Run.
func (p *Place[M]) pass(present bool) (first bool) {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.passed {
		return false
	}
	p.passed = true
	if present {
		first = len(p.batch.present) == 0
		p.batch.present = append(p.batch.present, p.member)
	}
	p.batch.pending--
	if p.batch.pending == 0 {
		close(p.batch.ready)
	}
	return first
}

func (b *batch[M]) work(work func(members []M) error) {
	defer close(b.done)
	b.err = work(b.present)
}
