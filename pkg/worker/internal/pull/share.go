package pull

import (
	"time"
)

const (
	// trusted is the time for which a source that had no messages counts as empty while others take every slot. It bounds the cost of
	// requests in vain.
	trusted = 5 * time.Millisecond

	// maxStanding is the size of the largest standing request, and so the largest number of jobs that can come from one source without a free
	// slot.
	maxStanding = 16

	// standingShare divides the free slots: all standing requests together ask for that part of them.
	standingShare = 4
)

// share gives the free slots to several sources. A source that may have messages gets a request that the server answers at once, so that
// an empty source holds a slot for a round trip only. If it is the turn of a source that has more messages but has not answered yet, the
// slot waits for the answer: otherwise another source would get the slots of every round trip. A source that is known to be empty gets a
// small standing request, beside the slots, so that a new message starts at once.
//
// The turns follow from a virtual time, as in start-time fair queueing: each message increases its source's finish by 1/Weight, and the
// next slot goes to the source with the least finish. The clock is the least finish of the sources that have messages. A source that had
// none for a while starts at the clock, so it neither waits behind the others nor gets slots that it did not need before.
func (p *Puller) share() {
	held := 0
	p.now = time.Now()
	for _, s := range p.sources {
		p.account(s)
		if s.asked == taking {
			held += int(s.left.Load())
		}
	}
	p.starved.Store(false)
	free := p.Free() - held
	if free <= 0 {
		if held > 0 {
			return // its end is the next look
		}
		// Check again after starved is set: a slot that was freed in between would not be reported.
		p.starved.Store(true)
		if free = p.Free(); free <= 0 {
			return
		}
		p.starved.Store(false)
	}
	p.stand(p.take(free))
}

// account charges a source for the messages of its standing request, and notes the end of any request.
func (p *Puller) account(s *source) {
	if s.asked == none {
		return
	}
	left := s.left.Load()
	if s.asked == standing {
		p.charge(s, s.batch-max(left, 0)-s.charged)
	}
	if left > 0 {
		return
	}
	s.asked, s.emptied = none, time.Time{}
	if !s.more.Load() {
		s.emptied = p.now
	}
}

// charge increases the finish of a source, and sets the clock to the least finish of the sources that may have messages.
func (p *Puller) charge(s *source, n int64) {
	if n <= 0 || len(p.sources) == 1 { // the only source has all turns
		return
	}
	s.finish = max(p.clock, s.finish) + float64(n)/float64(s.Weight)
	s.charged += n
	least := s.finish
	for _, other := range p.sources {
		if other.isAsked() || p.mayHave(other) {
			least = min(least, other.finish)
		}
	}
	p.clock = max(p.clock, least)
}

// returned ends a request for which the server has no more messages.
func (p *Puller) returned(s *source) {
	switch left := max(s.left.Swap(0), 0); s.asked {
	case standing:
		p.charge(s, s.batch-left-s.charged)
	case taking:
		s.finish -= float64(left) / float64(s.Weight)
	case none:
	}
	s.asked, s.emptied = none, time.Now()
	s.more.Store(false)
}

// mayHave reports whether a source may have messages, so that it has to be asked.
func (p *Puller) mayHave(s *source) bool {
	return s.asked == none && !s.lost && !s.Paused() && p.now.Sub(s.emptied) >= trusted
}

// drop ends a request that will not be answered.
func (p *Puller) drop(s *source) {
	p.returned(s)
	pending, _, _ := s.sub.Pending() // a subscription that has ended has no more messages
	s.leave(pending)
	s.emptied = time.Time{}
}

// isAsked reports whether a source has a request for present messages, and is about to answer.
func (s *source) isAsked() bool { return s.asked == taking && !s.lost }

// take asks the sources that may have messages for as many as there are free slots, and returns the number of slots that no source may
// need.
func (p *Puller) take(free int) int {
	for ; free > 0; free-- {
		next := p.next()
		if next == nil {
			break
		}
		if next.isAsked() {
			free = 0 // its answer brings the next try
			break
		}
		p.charge(next, 1)
		next.granted++
	}
	for _, s := range p.sources {
		if s.granted > 0 {
			p.send(s, taking, s.granted)
			s.granted = 0
		}
	}
	return free
}

// next returns the source whose turn it is, nil when none may have messages. The source may have a request under way already.
func (p *Puller) next() *source {
	var next *source
	for _, s := range p.sources { // the most important first, which wins a tie
		if (p.mayHave(s) || s.isAsked() && s.more.Load()) && (next == nil || max(p.clock, s.finish) < max(p.clock, next.finish)) {
			next = s
		}
	}
	return next
}

// stand leaves a request at the server for each source that has none.
func (p *Puller) stand(free int) {
	if free <= 0 {
		return
	}
	n := min(max(free/len(p.sources)/standingShare, 1), maxStanding)
	for _, s := range p.sources {
		switch {
		case s.asked != none || s.lost:
		case s.Paused():
			p.pulling = true // as far as it is to
		default:
			p.send(s, standing, n)
		}
	}
}
