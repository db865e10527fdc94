package kvlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/shown"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

const (
	// maxRuns bounds the queue in a lock's record. A waiter without a place waits in its own process until one is free.
	maxRuns = 1000

	// maxRun bounds the places of one run, so that no sum of them overflows.
	maxRun = 1 << 20

	// maxWaiterBytes is the largest part of an instance's name that is kept for each of its runs.
	maxWaiterBytes = 64
)

// run is a series of places in the queue of a lock that belong to one member. The member decides which of its callers gets a place: it
// serves them in the order in which they came. When a caller gives up, the member's last place becomes free.
type run struct {
	member   string
	instance string
	places   int
}

// queue has the waiters of a lock, the next first. It is never changed in place: other goroutines may be reading it.
type queue []run

// count returns the number of places of member.
func (q queue) count(member string) int {
	n := 0
	for _, r := range q {
		if r.member == member {
			n += r.places
		}
	}
	return n
}

// before returns the other members with a place before the first place of member; all other members if member has none.
func (q queue) before(member string) (others []string) {
	for _, r := range q {
		if r.member == member {
			break
		}
		if !slices.Contains(others, r.member) {
			others = append(others, r.member)
		}
	}
	return others
}

// fits reports whether fit would change nothing.
func (q queue) fits(member string, places int) bool {
	n := q.count(member)
	return n == places || n < places && !q.room(member)
}

// room reports whether member can have one more place.
func (q queue) room(member string) bool {
	if n := len(q); n > 0 && q[n-1].member == member && q[n-1].places < maxRun {
		return true
	}
	return len(q) < maxRuns
}

// fit gives member the number of places: it adds missing places at the end of the queue, if there is room, and removes the member's last
// places if there are too many.
func (q queue) fit(member, instance string, places int) queue {
	n := q.count(member)
	switch {
	case q.fits(member, places):
		return q
	case n < places:
		add := min(places-n, maxRun)
		if last := len(q) - 1; last >= 0 && q[last].member == member {
			next := slices.Clone(q)
			next[last].places = min(next[last].places+add, maxRun)
			return next
		}
		return append(slices.Clip(q), run{member: member, instance: redact.Clip(instance, maxWaiterBytes), places: add})
	}
	next := slices.Clone(q)
	for i := len(next) - 1; n > places; i-- {
		if next[i].member != member {
			continue
		}
		less := min(n-places, next[i].places)
		next[i].places -= less
		n -= less
	}
	return next.compact()
}

// leave returns the queue without the first place of member.
func (q queue) leave(member string) queue {
	i := slices.IndexFunc(q, func(r run) bool { return r.member == member })
	if i < 0 {
		return q
	}
	next := slices.Clone(q)
	next[i].places--
	return next.compact()
}

// without returns the queue without any place of members.
func (q queue) without(members ...string) queue {
	isTheirs := func(r run) bool { return slices.Contains(members, r.member) }
	if !slices.ContainsFunc(q, isTheirs) {
		return q
	}
	return slices.DeleteFunc(slices.Clone(q), isTheirs)
}

// compact removes empty runs, in place.
func (q queue) compact() queue {
	return slices.DeleteFunc(q, func(r run) bool { return r.places == 0 })
}

// append writes a line for each run.
func (q queue) append(b []byte) []byte {
	for _, r := range q {
		b = append(b, r.member...)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(r.places), 10)
		b = append(b, ' ')
		b = strconv.AppendQuote(b, r.instance)
		b = append(b, '\n')
	}
	return b
}

// lastQueue is the queue of the last pushed record, in its stored and in its decoded form. The next record of a lock mostly has the same
// queue, or lacks the first line or has one more. Then only the difference is decoded: where many wait, each of them receives every
// record. It may be nil. Its methods are safe for concurrent use.
type lastQueue struct{ of atomic.Pointer[writtenQueue] }

type writtenQueue struct {
	text  string
	queue queue
}

// parse is the inverse of append.
func (l *lastQueue) parse(text string) (queue, error) {
	if l == nil {
		return parseQueue(nil, text)
	}
	var q queue
	added := text
	if last := l.of.Load(); last != nil {
		const most = 2 // lines that may be missing at the beginning
		before := last.text
		for i := range min(len(last.queue), most+1) {
			if end, ok := strings.CutPrefix(text, before); ok {
				// A copy, so that a line does not keep the whole record in memory.
				q, added = last.queue[i:], strings.Clone(end)
				break
			}
			_, before, _ = strings.Cut(before, "\n")
		}
	}
	q, err := parseQueue(q, added)
	if err == nil {
		l.of.Store(&writtenQueue{text: text, queue: q})
	}
	return q, err
}

// parseQueue returns the runs of q, and after them the runs in text.
func parseQueue(q queue, text string) (queue, error) {
	if text == "" {
		return q, nil
	}
	q = append(make(queue, 0, len(q)+strings.Count(text, "\n")), q...)
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		member, more, _ := strings.Cut(line, " ")
		places, instance, _ := strings.Cut(more, " ")
		n, err := strconv.Atoi(places)
		name, quoteErr := strconv.Unquote(instance)
		if !ended || err != nil || quoteErr != nil || n < 1 || n > maxRun || !kv.IsID(member) || len(q) == maxRuns {
			return nil, fmt.Errorf("line %d of the queue is no place in it: %s", len(q)+1, shown.Quote(line))
		}
		q = append(q, run{member: member, instance: name, places: n})
		text = rest
	}
	return q, nil
}
