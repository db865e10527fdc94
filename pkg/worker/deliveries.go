package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/order"
)

// The answers that a worker can give to a delivered message.
const (
	ackDone     = "+ACK"
	ackLater    = "-NAK"
	ackProgress = "+WPI"
)

// delivery is one message held by this worker, from its arrival to its settlement. The second group of fields may change
// while the handler runs, and is guarded by deliveries.mu.
type delivery struct {
	cancel     context.CancelCauseFunc
	cancelled  atomic.Bool // by a client, seen at a heartbeat
	created    int64       // the time at which its consumer was made, if known, in Unix nanoseconds
	deadline   time.Time   // the deadline of the handler, zero for none
	failed     string      // the error of its failed attempt, as shown to readers
	first      int         // delivery count on arrival
	hasSlot    bool
	info       Info
	journal    *journal.Journal // the journal of the job's steps; nil before the first step
	noted      *uncounted       // what is recorded of earlier deliveries; nil when they were not read
	keep       time.Duration    // of the record of a unique job
	label      label            // the label of the handler's goroutines
	line       *order.Job       // of an ordered job
	missed     time.Time        // the time at which the stream's leader first did not know the job
	msg        *nats.Msg
	opening    sync.Once   // of journal
	permitLost atomic.Bool // the context of its handler has ended
	policy     Policy
	route      *route      // the route of its handler, nil for none
	shown      atomic.Bool // recorded as running
	started    time.Time   // of the handler
	unique     bool
	waited     bool // it has waited for a limit, or for its turn

	abandoned bool      // handed back while its handler still ran
	acked     bool      // the server has confirmed its acknowledgement
	beating   bool      // heartbeats are sent for it
	count     uint64    // consumer sequence of the latest arrival
	ctxEnded  time.Time // the time at which the end of the handler's context was noticed
	doubted   bool      // another worker may have been given the job
	epoch     int       // the epoch of the consumer at the latest arrival
	known     time.Time // the time at which the delivery was last known to be this worker's
	latest    int       // delivery count of the latest arrival
	orphan    bool      // its consumer does not exist any more: an answer could settle another job
	released  bool      // given back to the server, which may deliver it here again at once
	reply     string    // the subject for answers, from the latest arrival
	running   bool      // the handler has started and not returned
	stuck     bool      // reported as stuck
}

// newDelivery returns a delivery, with room for an ordered job's place in line, in one allocation.
func newDelivery(isOrdered bool) *delivery {
	if !isOrdered {
		return new(delivery)
	}
	var both struct {
		delivery

		line order.Job
	}
	both.delivery.line = &both.line
	return &both.delivery
}

func (d *delivery) place() place {
	return place{stream: d.info.Stream, consumer: d.info.Consumer, sequence: d.info.Sequence, stored: d.info.EnqueuedAt}
}

func (d *delivery) attrs() []any {
	return []any{
		"job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence, "attempt", d.info.Attempt,
	}
}

// answerTo returns the subject for answers, "" for none. The caller holds deliveries.mu.
func (d *delivery) answerTo() string {
	if d.orphan {
		return ""
	}
	return d.reply
}

// deliveries has the deliveries that a worker holds, by their sequences.
type deliveries struct {
	mu     sync.Mutex
	acked  ackedSet
	bySeq  map[uint64]*delivery
	closed bool // no more handlers start
	counts map[string]counts
	parked atomic.Int64 // deliveries that wait for a limit, or for their turn, without a slot
}

func newDeliveries() deliveries {
	return deliveries{acked: make(ackedSet, ackedKept), bySeq: make(map[uint64]*delivery), counts: make(map[string]counts)}
}

// counts are the sequences of a consumer's latest delivery to this worker. Both sequences rise from one delivery to the next, unless the
// consumer was made again, or has a leader that does not know of the last deliveries.
type counts struct {
	delivery uint64 // consumer sequence of the latest delivery
	epoch    int    // rises when a sequence did not rise
	first    uint64 // stream sequence of the latest first delivery of a message
	noted    int    // the epoch in which the consumer was last known to be another
}

// follow notes that d has arrived. It reports whether the consumer has gone back: then each earlier delivery is in doubt.
func (t *deliveries) follow(d *delivery) (back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[d.info.Consumer]
	if back = d.count <= c.delivery || d.first <= 1 && d.info.Sequence <= c.first; back {
		c.epoch++
		for _, held := range t.bySeq {
			held.doubted = held.doubted || held.info.Consumer == d.info.Consumer
		}
	}
	if c.delivery = d.count; d.first <= 1 {
		c.first = d.info.Sequence
	}
	t.counts[d.info.Consumer], d.epoch = c, c.epoch
	return back
}

// arrival classifies a delivery on arrival.
type arrival int

const (
	fresh     arrival = iota // to be worked
	duplicate                // a copy of a job that this worker holds
	acked                    // a copy of a job that this worker has acknowledged
)

// add adds a delivery, unless it is a copy of one that this worker holds: the server was away, or got no heartbeats, and chose this worker
// again. The running handler's outcome is then sent as the answer to the newest delivery, and no second handler starts.
func (t *deliveries) add(d *delivery, now time.Time) arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch old := t.bySeq[d.info.Sequence]; {
	case old == nil && t.acked.has(d.info.Sequence, d.info.EnqueuedAt, now):
		return acked
	case old == nil || old.released:
	case !old.info.EnqueuedAt.Equal(d.info.EnqueuedAt):
		old.orphan, old.beating = true, false // the stream was deleted and made again
	case old.orphan:
		old.latest, old.reply, old.orphan, old.beating = max(d.latest, old.first), d.reply, false, true
		old.doubted, old.epoch, old.known = true, d.epoch, now
		return duplicate
	default:
		old.doubted, old.epoch, old.known = true, d.epoch, now
		if d.latest > old.latest {
			old.latest, old.reply = d.latest, d.reply
		}
		return duplicate
	}
	t.bySeq[d.info.Sequence] = d
	return fresh
}

// begin records that the handler of d starts, and reports whether it may: after close no more handlers start.
func (t *deliveries) begin(d *delivery, now time.Time) bool {
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

// cancellable registers the function that ends the context of a job when the job is cancelled.
func (t *deliveries) cancellable(d *delivery, cancel context.CancelCauseFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.cancel = cancel
}

// claim reports whether the goroutine of d may decide the job's outcome. It may not if the job was handed back meanwhile.
func (t *deliveries) claim(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.running = false
	return !d.abandoned
}

// close lets no more handlers start and returns the deliveries whose handlers run. They are abandoned from now on: the caller
// settles them.
func (t *deliveries) close() []*delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var running []*delivery
	for _, d := range t.bySeq {
		if d.running {
			d.abandoned = true
			running = append(running, d)
		}
	}
	return running
}

// orphan marks the deliveries of a consumer that has been made again, alone or with its stream, whose sequences then start over. The
// deliveries here came from the former consumer. Until the new consumer delivers a job as well, an acknowledgement of the job would be
// lost, or settle another job with that sequence. Jobs that the new consumer delivers are not copies of acknowledged ones: the operator
// who made it wants them worked once more.
func (t *deliveries) orphan(consumer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.acked)
	c := t.counts[consumer]
	if c.epoch == c.noted {
		c.epoch++
	}
	c.noted = c.epoch
	t.counts[consumer] = c
	for _, d := range t.bySeq {
		if d.info.Consumer == consumer && d.epoch < c.epoch {
			d.orphan, d.beating = true, false
		}
	}
}

// release ends the heartbeats of d. It returns the subject for the answer, and the number of deliveries that arrived beside the worked
// one. A heartbeat after a NAK would undo the NAK's delay, so no NAK is sent before release.
func (t *deliveries) release(d *delivery) (reply string, extra int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.beating, d.released = false, true
	return d.answerTo(), d.latest - d.first
}

// redelivered reports whether d was delivered to this worker again while the worker held it.
func (t *deliveries) redelivered(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.latest > d.first
}

// answerTo returns the subject for answers to d now, "" for none.
func (t *deliveries) answerTo(d *delivery) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.answerTo()
}

// remove removes d and reports whether it was abandoned.
func (t *deliveries) remove(d *delivery, now time.Time) (abandoned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bySeq[d.info.Sequence] == d {
		delete(t.bySeq, d.info.Sequence)
	}
	if d.acked && !d.orphan {
		t.acked.add(d.info.Sequence, d.info.EnqueuedAt, now)
	}
	return d.abandoned
}

// size returns the number of deliveries that have a slot or wait for one.
func (t *deliveries) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.bySeq) - int(t.parked.Load())
}

// each calls visit for every delivery, under the lock.
func (t *deliveries) each(visit func(*delivery)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.bySeq {
		visit(d)
	}
}

const (
	// copiesCome is the time after the acknowledgement of a job in which the server may send a copy of it: elections take seconds. A later
	// delivery is on purpose: an operator has set the consumer back.
	copiesCome = time.Minute

	// ackedKept is the number of acknowledged jobs that a worker remembers: 1.5 MiB, and two seconds of the shortest possible jobs.
	ackedKept = 1 << 16
)

// ackedSet remembers the jobs of a stream whose acknowledgements by this worker the server has confirmed. A copy of such a
// job may still come: it was on its way when the acknowledgement was confirmed, or a new leader sends it. The server has no sign then that
// it is a copy, so the worker must know. For jobs that another worker acknowledged, the record of a unique job and the fence of the steps
// are signs.
//
// Each sequence has one place, which a later sequence takes over, so no entry has to be removed.
type ackedSet []ackedJob

type ackedJob struct {
	at       int64 // the time at which the acknowledgement was confirmed, in Unix nanoseconds
	sequence uint64
	stored   int64 // in Unix nanoseconds: distinguishes a stream that was deleted and made again
}

func (s ackedSet) add(sequence uint64, stored, now time.Time) {
	s[sequence%ackedKept] = ackedJob{at: now.UnixNano(), sequence: sequence, stored: stored.UnixNano()}
}

func (s ackedSet) has(sequence uint64, stored, now time.Time) bool {
	job := s[sequence%ackedKept]
	return job.sequence == sequence && job.stored == stored.UnixNano() && now.UnixNano()-job.at < int64(copiesCome)
}
