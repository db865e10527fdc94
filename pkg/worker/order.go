package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/limit"
)

const (
	// firstLook and lastLook bound the wait between two looks for the end of a job that another worker has, or that waits for its
	// retry. The wait doubles from look to look while that one stays the first, so the end is seen after about twice its time at most.
	firstLook = 10 * time.Millisecond
	lastLook  = 2 * time.Second

	// soonest and latest bound the delay of a job that is given back since no more may wait. While no job of its subject ends here, it
	// is a fourth of that time at least, or rarest.
	soonest = 100 * time.Millisecond
	rarest  = 10 * time.Second
	latest  = time.Minute

	// maxStrays is how many keys with jobs that were given back are remembered.
	maxStrays = 100_000
)

// errDoubted is why an ordered job may not run.
var errDoubted = errors.New("worker: heartbeats were not confirmed, so another worker may have been given the job")

// order lets a job start when no job of its subject lies before it in the stream: then all of them have ended, in whatever worker,
// since a work queue keeps a job until then. That is certain when the first message of the subject is the job itself, as any
// replica has it: one that has the job has had all before it.
//
// To read that for each job would cost half of the throughput. So a worker follows what its consumer delivers. While no consumer
// sequence is missing, every job since the first of this chain came here, so it is known which jobs of a subject have not ended.
// Once everything before the chain is acknowledged, no job of it is read.
type order struct {
	mu     sync.Mutex
	chains map[string]*chain // by consumer
}

// chain is a row of deliveries without a gap.
type chain struct {
	base   uint64 // stream sequence of its first message
	clean  bool   // nothing is left before base
	floor  uint64 // up to here nothing is left
	keys   map[string]*keyed
	next   uint64 // consumer sequence of the next delivery
	number int    // rises with each gap
	strays int    // keys with a stray
}

// keyed are the jobs of a subject that this worker holds, or gave back.
type keyed struct {
	away  int           // jobs that went back for want of room, and did not come again here
	began time.Time     // when the job in runs started
	ended time.Time     // when a job last ended here
	every time.Duration // from one end to the next, when nothing held them up
	held  []*delivery   // by their sequences
	runs  *delivery     // the one that runs here, nil for none
	since uint64        // a sequence below which none was given back, of those that are left
	stray uint64        // the last one that was given back, 0 for none
}

// chain returns the chain of a consumer. The caller holds mu.
func (o *order) chain(consumer string) *chain {
	c := o.chains[consumer]
	if c == nil {
		c = &chain{keys: make(map[string]*keyed)}
		o.chains[consumer] = c
	}
	return c
}

// follow notes that a delivery has arrived, and whether its consumer has gone back. Every one must be noted, in the order of arrival.
func (o *order) follow(d *delivery, back bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.chain(d.info.Consumer)
	if back || d.count != c.next || c.strays > maxStrays {
		c.base, c.clean, c.strays = 0, false, 0
		c.number++
		for name, k := range c.keys {
			if k.stray = 0; len(k.held) == 0 {
				delete(c.keys, name)
			}
		}
	}
	c.next = d.count + 1
	if c.base == 0 && d.first <= 1 {
		c.base = d.info.Sequence
		c.clean = c.base == c.floor+1 // not less: that would be the floor of a former stream
	}
	d.chain = c.number
}

// add puts an ordered delivery into the line of its subject.
func (o *order) add(d *delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.chain(d.info.Consumer)
	k := c.keys[d.info.Subject]
	if k == nil {
		k = &keyed{ended: time.Now()}
		c.keys[d.info.Subject] = k
	}
	at, _ := slices.BinarySearchFunc(k.held, d.info.Sequence, func(d *delivery, sequence uint64) int {
		return cmp.Compare(d.info.Sequence, sequence)
	})
	k.held = slices.Insert(k.held, at, d)
	if d.first > 1 && k.away > 0 {
		k.away--
	}
}

// end takes a delivery out of its line. gone is true when the job has certainly left the stream.
func (o *order) end(d *delivery, gone bool) {
	if d.turn == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.chain(d.info.Consumer)
	k := c.keys[d.info.Subject]
	k.held = slices.DeleteFunc(k.held, func(other *delivery) bool { return other == d })
	if k.runs == d {
		k.runs = nil
	}
	switch {
	case gone:
		now := time.Now()
		// A job that went back for too long holds up all behind it: that must not send those back for even longer.
		k.every, k.ended = min(now.Sub(k.ended), max(2*k.every, soonest/10)), now
		c.settle(k, d.info.Sequence)
	case k.stray == 0:
		c.strays++
		k.since, k.stray = d.info.Sequence, d.info.Sequence
	default:
		k.since, k.stray = min(k.since, d.info.Sequence), max(k.stray, d.info.Sequence)
	}
	if len(k.held) > 0 {
		k.held[0].signal()
	} else if k.stray == 0 {
		delete(c.keys, d.info.Subject)
	}
}

// signal has an ordered job look whether it may run, or has to go back.
func (d *delivery) signal() {
	select {
	case d.turn <- struct{}{}:
	default:
	}
}

// crowd chooses a job of d's subject that goes back to the server since no more may wait: the last, so that those stay whose turn
// comes first. It comes back in half of the time in which all before it will have ended, by the pace of late.
func (o *order) crowd(d *delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k, last := o.chain(d.info.Consumer).keys[d.info.Subject], d
	for _, other := range k.held {
		if other.back == 0 && other.info.Sequence > last.info.Sequence {
			last = other
		}
	}
	now := time.Now()
	gap := k.every
	if k.runs != nil {
		gap = max(gap, now.Sub(k.began))
	}
	ahead := len(k.held)
	if sequence := last.info.Sequence; sequence > k.since {
		ahead += int(float64(k.away) * min(1, float64(sequence-k.since)/float64(k.stray-k.since+1)))
	}
	// Half of it, so that the job is here again when its turn comes. The one before all may be another worker's, and take hours.
	least := min(max(now.Sub(k.ended)/4, soonest), rarest)
	last.back = min(max(gap*time.Duration(ahead)/2, least), latest)
	k.away++
	last.signal()
}

// sentBack returns after how long a job that has to go back is to come again, 0 for one that stays.
func (o *order) sentBack(d *delivery) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return d.back
}

// settle notes that no job of a key up to a sequence is left.
func (c *chain) settle(k *keyed, sequence uint64) {
	if k.since = max(k.since, sequence+1); k.stray != 0 && k.stray <= sequence {
		k.stray = 0
		c.strays--
	}
}

// look reports whether a delivery is the first of its subject that this worker holds, whether it is certain that there is no other
// before it, and from where in the stream to look otherwise.
func (o *order) look(d *delivery) (first, sure bool, from uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.chain(d.info.Consumer)
	k := c.keys[d.info.Subject]
	stray := k.stray != 0 && k.since < d.info.Sequence
	if from = c.floor + 1; from > d.info.Sequence { // of a stream that was deleted and made again
		from = 1
	}
	return k.held[0] == d, c.clean && d.first <= 1 && d.chain == c.number && !stray, from
}

// isFirst notes that nothing lies before a delivery, which starts.
func (o *order) isFirst(d *delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.chain(d.info.Consumer)
	k := c.keys[d.info.Subject]
	k.began, k.runs = time.Now(), d
	c.settle(k, d.info.Sequence)
}

// acknowledged notes up to where a consumer has acknowledged everything.
func (o *order) acknowledged(info *jetstream.ConsumerInfo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.chain(info.Name)
	c.floor = info.AckFloor.Stream // it falls when the consumer was made again
	c.clean = c.clean || c.base != 0 && c.floor >= c.base-1
}

// awaitOrder waits until all jobs of the subject before d have ended. A job that waits leaves its slot. It costs no request in a
// worker that alone has worked the consumer for a while, and one for each look otherwise.
func (w *Worker) awaitOrder(d *delivery) error {
	s := &slot{delivery: d, worker: w}
	defer s.show(false)
	defer func() {
		if s.parked {
			w.deliveries.park(-1)
		}
	}()
	for wait, seen := firstLook, uint64(0); ; {
		if w.mayBeOthers(d) { // all of a line leave at once: one by one, as their turns come, each would wait for AckWait anew
			return errDoubted
		}
		first, sure, from := w.order.look(d)
		if first {
			next, err := w.nextOf(d, sure, from)
			if err != nil {
				return err
			}
			if next == d.info.Sequence {
				w.order.isFirst(d)
				return w.retake(s)
			}
			if next != seen { // jobs end: the next one may do so as soon
				wait, seen = firstLook, next
			}
		}
		if !s.parked && w.deliveries.waiting() >= w.cfg.MaxWaiting {
			w.order.crowd(d)
		}
		if back := w.order.sentBack(d); back > 0 {
			w.releaseSlot(d)
			return &limit.FullError{Delay: back}
		}
		s.Give()
		var again <-chan time.Time // another worker's job ends without a sign
		if first {
			again, wait = time.After(wait), min(2*wait, lastLook)
		}
		select {
		case <-d.turn:
			wait = firstLook
		case <-again:
		case <-w.stopping.Done():
			<-w.drained // as in acquireSlot
			return errNotStarted
		}
	}
}

// retake takes a slot for a job whose turn has come.
func (w *Worker) retake(s *slot) error {
	d := s.delivery
	if !d.hasSlot {
		if !w.slots.Acquire(int(w.classOf(d.info.Consumer).priority), w.stopping.Done(), 0) {
			<-w.drained
			return errNotStarted
		}
		s.parked, d.hasSlot = false, true
		w.deliveries.park(-1)
	}
	return nil
}

// nextOf returns the sequence of the first message of a job's subject, which is the job or one before it, or 0 for one that is left in
// another partition. One round trip, to the stream's leader, unless it is sure that none is before the job.
func (w *Worker) nextOf(d *delivery, sure bool, from uint64) (uint64, error) {
	if d.partition > 0 {
		if left, err := w.isLeft(d); err != nil || left {
			return 0, err
		}
	}
	if sure {
		return d.info.Sequence, nil
	}
	msg, found, err := w.api.Get(w.settling, d.info.Stream, jsapi.Query{NextBySubject: d.info.Subject, Sequence: from})
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errRecordUnknown, w.denial(err))
	case !found || msg.Sequence > d.info.Sequence:
		return 0, errGone
	default:
		return msg.Sequence, nil
	}
}

// interruptDoubted ends the contexts of ordered jobs that another worker may soon be given: before AckWait is over, so that no
// worker runs the job, or the next one, beside a handler whose context is live. Those that wait it has leave.
func (w *Worker) interruptDoubted(now time.Time) {
	const margins = 30 // in an AckWait: the next heartbeat would be too late by one
	after := w.doubtedAfter() - w.cfg.AckWait/margins
	w.deliveries.each(func(d *delivery) {
		if d.turn == nil || !d.doubted && !d.orphan && apart(d.known, now) <= after {
			return
		}
		d.doubted = true
		d.signal()
		if d.lost != nil && !d.permitLost.Swap(true) {
			d.lost(&LimitLostError{Cause: errDoubted})
		}
	})
}

// mayBeOthers reports whether another worker may have been given an ordered job.
func (w *Worker) mayBeOthers(d *delivery) bool {
	return d.turn != nil && w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter())
}

// prepareOrder makes sure that the stream is one in which the end of a job shows.
func (w *Worker) prepareOrder(ctx context.Context) error {
	asset := "stream " + w.cfg.Stream
	stream, err := w.js.Stream(ctx, w.cfg.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &MissingError{Asset: asset, Cause: err}
	case err != nil:
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy:
		return &DriftError{Asset: asset, Differences: []string{"retention must be workqueue for Policy.Ordered: there a job goes when it ends"}}
	}
	return nil
}
