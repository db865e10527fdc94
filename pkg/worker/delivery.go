package worker

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
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
	first    int // delivery count on arrival
	info     Info
	msg      *nats.Msg
	policy   Policy
	started  time.Time // of the handler
	deadline time.Time // of the handler, zero for none

	abandoned  bool      // handed back while its handler still ran
	beating    bool      // heartbeats keep it ours
	deliveries int       // delivery count of the latest arrival
	ended      time.Time // when the handler's context was seen to have ended
	reply      string    // where answers go: that of the latest arrival
	released   bool      // given back to the server, which may deliver it here again at once
	running    bool      // the handler has started and not returned
	stuck      bool      // reported as stuck
}

// table holds the deliveries of a worker, by stream sequence.
type table struct {
	mu     sync.Mutex
	closed bool // no more handlers start
	jobs   map[uint64]*delivery
}

// add takes a delivery in, and reports false when the message is here already: the server
// gave up waiting (it was away, or our heartbeats did not reach it) and chose this worker
// again. The running one then answers under the newest delivery, and none is started.
func (t *table) add(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if old := t.jobs[d.info.Sequence]; old != nil && !old.released {
		if d.deliveries > old.deliveries {
			old.deliveries, old.reply = d.deliveries, d.reply
		}

		return false
	}

	t.jobs[d.info.Sequence] = d

	return true
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

// release ends the heartbeats of d and returns where to answer and how many deliveries
// arrived beside the one that was worked. A heartbeat after a NAK would undo its delay,
// so no NAK is sent before this.
func (t *table) release(d *delivery) (reply string, extra int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	d.beating, d.released = false, true

	return d.reply, d.deliveries - d.first
}

// answer returns where to answer now.
func (t *table) answer(d *delivery) string {
	t.mu.Lock()
	defer t.mu.Unlock()

	return d.reply
}

// remove lets go of d and reports whether it was abandoned.
func (t *table) remove(d *delivery) (abandoned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.jobs[d.info.Sequence] == d {
		delete(t.jobs, d.info.Sequence)
	}

	return d.abandoned
}

func (t *table) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.jobs)
}

// each calls visit for every delivery, under the lock.
func (t *table) each(visit func(*delivery)) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, d := range t.jobs {
		visit(d)
	}
}
