package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/gather"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/span"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

// The answers a worker can give to a delivered message.
const (
	ackDone     = "+ACK"
	ackLater    = "-NAK"
	ackProgress = "+WPI"
)

// delivery is one message held by this worker, from its arrival to its settlement. Fields
// below mu may change while it runs and are guarded by the table's lock.
type delivery struct {
	asking   *span.Span              // of the one who settles it
	cancel   context.CancelCauseFunc // of a unique job
	first    int                     // delivery count on arrival
	info     Info
	journal  *journal.Journal // of the job's steps; nil before the handler starts
	last     uint64           // sequence of the mark that it runs, 0 for none
	mark     stacks.Mark      // of the handler's goroutines
	missed   time.Time        // when the stream's leader first knew nothing of it
	msg      *nats.Msg
	policy   Policy
	seat     *gather.Seat[*member]
	shown    atomic.Bool // as running, to those who ask
	started  time.Time   // of the handler
	deadline time.Time   // of the handler, zero for none
	lost     atomic.Bool // its permit; the context of its handler has ended
	seated   bool        // has a slot
	waited   bool        // for a limit

	abandoned  bool      // handed back while its handler still ran
	acked      bool      // the server has confirmed its acknowledgement
	beating    bool      // heartbeats keep it ours
	deliveries int       // delivery count of the latest arrival
	ended      time.Time // when the handler's context was seen to have ended
	gathered   time.Time // since when it waits for its batch, zero for not
	orphan     bool      // its consumer is gone: an answer could hit another job
	reply      string    // where answers go: that of the latest arrival
	released   bool      // given back to the server, which may deliver it here again at once
	running    bool      // the handler has started and not returned
	stuck      bool      // reported as stuck
}

// requests bounds those that settle the job, each by RequestTimeout.
func (d *delivery) requests(w *Worker) *span.Span {
	if d.asking == nil {
		d.asking = span.New(w.settling, w.cfg.RequestTimeout)
	}

	return d.asking
}

// table holds the deliveries of a worker, by stream sequence.
type table struct {
	mu     sync.Mutex
	closed bool // no more handlers start
	ended  endings
	jobs   map[uint64]*delivery
	parked int // deliveries that wait for a limit, without a slot
}

// arrival is what a delivery is.
type arrival int

const (
	fresh  arrival = iota // to be worked
	copied                // of a job that is here
	late                  // a copy of a job that has been acknowledged from here
)

// add takes a delivery in, unless it is a copy: the server gave up waiting (it was away, or
// our heartbeats did not reach it) and chose this worker again. The running one then answers
// under the newest delivery, and none is started.
func (t *table) add(d *delivery, now time.Time) arrival {
	t.mu.Lock()
	defer t.mu.Unlock()

	switch old := t.jobs[d.info.Sequence]; {
	case old == nil && t.ended.has(d.info.Sequence, d.info.EnqueuedAt, now):
		return late
	case old == nil || old.released:
	case !old.info.EnqueuedAt.Equal(d.info.EnqueuedAt):
		old.orphan, old.beating = true, false // the stream was deleted and made again
	case old.orphan:
		old.deliveries, old.reply, old.orphan, old.beating = max(d.deliveries, old.first), d.reply, false, true

		return copied
	default:
		if d.deliveries > old.deliveries {
			old.deliveries, old.reply = d.deliveries, d.reply
		}

		return copied
	}

	t.jobs[d.info.Sequence] = d

	return fresh
}

// begin records that the handler of d starts, unless the table is closed.
func (t *table) begin(d *delivery, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return false
	}

	d.running, d.started = true, now
	if d.policy.Timeout > 0 {
		d.deadline = now.Add(d.policy.Timeout)
	}

	return true
}

// gather records that d waits for its batch.
func (t *table) gather(d *delivery, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()

	d.gathered = now
}

// claim makes the goroutine of d the one who decides its outcome. It reports false when
// the job was handed back meanwhile.
func (t *table) claim(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	d.running = false

	return !d.abandoned
}

// close lets no more handlers start and returns the deliveries whose handlers run, which
// are abandoned from now on: the caller settles them.
func (t *table) close() []*delivery {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.closed = true

	var running []*delivery

	for _, d := range t.jobs {
		if d.running {
			d.abandoned = true

			running = append(running, d)
		}
	}

	return running
}

// orphan is called when a consumer has been made again: with the stream, whose sequences
// then start over, or without it. What is held of it was delivered by the former one, and until
// the new one delivers it as well, its acknowledgement would be lost, or take another job
// with that sequence. What the new one delivers of jobs that have ended is no copy: whoever
// made it wants them worked once more.
func (t *table) orphan(consumer string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	clear(t.ended)

	for _, d := range t.jobs {
		if d.info.Consumer == consumer {
			d.orphan, d.beating = true, false
		}
	}
}

// release ends the heartbeats of d and returns where to answer and how many deliveries
// arrived beside the one that was worked. A heartbeat after a NAK would undo its delay,
// so no NAK is sent before this.
func (t *table) release(d *delivery) (reply string, extra int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	d.beating, d.released = false, true

	if d.orphan {
		return "", d.deliveries - d.first
	}

	return d.reply, d.deliveries - d.first
}

// copied reports whether d was delivered to this worker again while it was here.
func (t *table) copied(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return d.deliveries > d.first
}

// answer returns where to answer now, "" for nowhere.
func (t *table) answer(d *delivery) string {
	t.mu.Lock()
	defer t.mu.Unlock()

	if d.orphan {
		return ""
	}

	return d.reply
}

// remove lets go of d and reports whether it was abandoned.
func (t *table) remove(d *delivery, now time.Time) (abandoned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.jobs[d.info.Sequence] == d {
		delete(t.jobs, d.info.Sequence)
	}

	if d.acked && !d.orphan {
		t.ended.add(d.info.Sequence, d.info.EnqueuedAt, now)
	}

	return d.abandoned
}

// size returns how many deliveries have a slot or wait for one.
func (t *table) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.jobs) - t.parked
}

// park counts one more, or less, that waits for a limit.
func (t *table) park(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.parked += n
}

// each calls visit for every delivery, under the lock.
func (t *table) each(visit func(*delivery)) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, d := range t.jobs {
		visit(d)
	}
}
