package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/order"
)

// delivery is one message held by this worker, from its arrival to its settlement.
type delivery struct {
	// Set on arrival, and never changed.
	class   *class
	count   uint64 // consumer sequence
	created int64  // the time at which its consumer was created, if known, in Unix nanoseconds
	first   int    // delivery count on arrival
	keep    time.Duration
	line    *order.Job // of an ordered job
	msg     *nats.Msg
	route   *route // the route of its handler, nil for none
	unique  bool   // a record of its end is kept for keep

	// Owned by the goroutine that processes it. Heartbeats and inspectors read info, deadline, label and started only while the handler runs,
	// when these do not change.
	ackConfirmed bool      // the server has confirmed its acknowledgement
	deadline     time.Time // the deadline of the handler, zero for none
	failed       string    // the error of its failed attempt, as shown to readers
	hasSlot      bool
	info         Info
	label        label      // the label of the handler's goroutines
	missed       time.Time  // the time at which the stream's leader first did not know the job
	noted        *uncounted // what is recorded of earlier deliveries; nil when they were not read
	policy       Policy
	started      time.Time // of the handler, zero for none
	waited       bool      // it has waited for a limit, or for its turn

	// Shared by the handler's goroutines and the heartbeat, without a lock.
	cancelled   atomic.Bool      // by a client, seen at a heartbeat
	interrupted atomic.Bool      // its permit or its heartbeats are lost, and so the context of its handler has ended
	journal     *journal.Journal // the journal of the job's steps, set by opening; nil before the first step
	opening     sync.Once
	recorded    atomic.Bool // it is recorded as running

	// Guarded by deliveries.mu.
	abandoned bool // handed back while its handler still ran
	cancel    context.CancelCauseFunc
	ctxEnded  time.Time // the time at which the end of the handler's context was noticed
	doubted   bool      // another worker may have been given the job
	epoch     int       // the epoch of the consumer at the latest arrival
	known     time.Time // the time at which the delivery was last known to be this worker's
	latest    int       // delivery count of the latest arrival
	ownership ownership
	phase     phase
	reply     string // the subject for answers, from the latest arrival; empty for an orphaned delivery
}

// ownership is the state of a delivery at the server, as far as this worker has caused or noticed it.
type ownership int

const (
	owned    ownership = iota // heartbeats keep the job here
	orphaned                  // its consumer no longer exists: an answer could settle another job
	released                  // given back to the server, which may deliver it here again at once
)

// phase is how far the handler of a delivery is.
type phase int

const (
	phaseWaiting  phase = iota
	phaseRunning        // the handler has started and not returned
	phaseStuck          // running, and reported as stuck
	phaseReturned       // also of a delivery whose handler never started
)

// isRunning reports whether the handler has started and not returned. The caller holds deliveries.mu.
func (d *delivery) isRunning() bool { return d.phase == phaseRunning || d.phase == phaseStuck }

func (d *delivery) place() place {
	return place{stream: d.info.Stream, consumer: d.info.Consumer, sequence: d.info.Sequence, stored: d.info.EnqueuedAt}
}

func (d *delivery) attrs() []any {
	return []any{
		"job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence, "attempt", d.info.Attempt,
	}
}

// deliveries has the deliveries that a worker holds, by their sequences.
type deliveries struct {
	parked atomic.Int64 // deliveries that wait for a limit, or for their turn, without a slot

	mu         sync.Mutex // guards the fields below, and those of each delivery that say so
	bySeq      map[uint64]*delivery
	closed     bool // no more handlers start
	counts     map[string]counts
	recentAcks []ackedJob // see [ackedJob]
}

func newDeliveries() deliveries {
	return deliveries{recentAcks: make([]ackedJob, ackedKept), bySeq: make(map[uint64]*delivery), counts: make(map[string]counts)}
}

// counts are the sequences of a consumer's latest delivery to this worker. Both sequences rise from one delivery to the next, unless the
// consumer was made again, or has a leader that does not know of the last deliveries.
type counts struct {
	delivery uint64 // consumer sequence of the latest delivery
	epoch    int    // rises when a sequence did not rise
	first    uint64 // stream sequence of the latest first delivery of a message
	noted    int    // the epoch in which the consumer was last known to be another
}

// arrival classifies a delivery on arrival.
type arrival int

const (
	arrivedFresh arrival = iota // the worker did not have the job
	arrivedCopy                 // a copy of a job that this worker holds
	arrivedAcked                // a copy of a job that this worker has acknowledged
)

// arrive adds a delivery, unless it is a copy of one that this worker holds: the server was away, or got no heartbeats, and chose this
// worker again. The running handler's outcome is then sent as the answer to the newest delivery, and no second handler starts. wentBack
// reports that the consumer has lost count: then each earlier delivery is in doubt.
func (t *deliveries) arrive(d *delivery, now time.Time) (kind arrival, wentBack bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[d.info.Consumer]
	// Sequences of a consumer only rise, so one that did not is of another consumer, or of a leader that has forgotten deliveries.
	if wentBack = d.count <= c.delivery || d.first <= 1 && d.info.Sequence <= c.first; wentBack {
		c.epoch++
		for _, held := range t.bySeq {
			held.doubted = held.doubted || held.info.Consumer == d.info.Consumer
		}
	}
	if c.delivery = d.count; d.first <= 1 {
		c.first = d.info.Sequence
	}
	t.counts[d.info.Consumer], d.epoch = c, c.epoch
	last := t.recentAcks[d.info.Sequence%ackedKept]
	switch old := t.bySeq[d.info.Sequence]; {
	case old == nil && last.sequence == d.info.Sequence && last.stored == d.info.EnqueuedAt.UnixNano() &&
		now.UnixNano()-last.at < int64(copiesCome):
		return arrivedAcked, wentBack
	case old == nil || old.ownership == released:
		// Nobody here answers for the job any more.
	case !old.info.EnqueuedAt.Equal(d.info.EnqueuedAt):
		// The stream was deleted and recreated: this is another job, and the former one has no message left to answer.
		old.disown()
	default:
		// Somebody else may have had the job in between, so the attempt that runs is in doubt, but it stays the only one here.
		if old.ownership == orphaned || d.latest > old.latest {
			old.latest, old.reply = max(d.latest, old.first), d.reply
		}
		old.doubted, old.epoch, old.known, old.ownership = true, d.epoch, now, owned
		return arrivedCopy, wentBack
	}
	t.bySeq[d.info.Sequence] = d
	return arrivedFresh, wentBack
}

// disown ends the answers to a delivery whose consumer no longer exists. Another worker may get the job from the new consumer. The caller
// holds deliveries.mu.
func (d *delivery) disown() {
	if d.ownership == owned {
		d.ownership = orphaned
	}
	d.doubted, d.reply = true, ""
}

// startHandler records that the handler of d starts, and reports whether it may: after close no more handlers start.
func (t *deliveries) startHandler(d *delivery, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		// stop has already listed the handlers whose jobs it hands back, and would miss this one.
		return false
	}
	d.phase, d.started = phaseRunning, now
	if d.policy.Timeout > 0 {
		d.deadline = now.Add(d.policy.Timeout)
	}
	return true
}

// endHandler records that the handler of d has returned, or will not start, and reports whether the goroutine of d may decide the job's
// outcome. It may not if the job was handed back while the handler ran.
func (t *deliveries) endHandler(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.phase = phaseReturned
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
		if d.isRunning() {
			d.abandoned = true
			running = append(running, d)
		}
	}
	return running
}

// orphan marks the deliveries of a consumer that has been made again, alone or with its stream, whose sequences then start over. The
// deliveries here came from the former consumer. Until the new consumer delivers a job as well, an acknowledgement of the job would be
// lost, or settle another job with that sequence. Jobs that the new consumer delivers are not copies of acknowledged ones: the operator
// who made it wants them worked again.
func (t *deliveries) orphan(consumer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.recentAcks)
	c := t.counts[consumer]
	if c.epoch == c.noted {
		c.epoch++
	}
	c.noted = c.epoch
	t.counts[consumer] = c
	for _, d := range t.bySeq {
		if d.info.Consumer == consumer && d.epoch < c.epoch {
			d.disown()
		}
	}
}

// endBeats ends the heartbeats of d. It returns the subject for the answer, and the number of deliveries that arrived beside the
// processed one. A heartbeat after a NAK would undo the NAK's delay, so no NAK is sent before endBeats.
func (t *deliveries) endBeats(d *delivery) (reply string, extra int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.ownership = released
	return d.reply, d.latest - d.first
}

// redelivered reports whether d was delivered to this worker again while the worker held it.
func (t *deliveries) redelivered(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.latest > d.first
}

// remove removes d and reports whether it was abandoned.
func (t *deliveries) remove(d *delivery, now time.Time) (abandoned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A delivery that was given back may have been replaced by the next one.
	if t.bySeq[d.info.Sequence] == d {
		delete(t.bySeq, d.info.Sequence)
	}
	// An orphan's acknowledgement proves nothing about the message that has its sequence now.
	if d.ackConfirmed && d.ownership != orphaned {
		t.recentAcks[d.info.Sequence%ackedKept] = ackedJob{
			at: now.UnixNano(), sequence: d.info.Sequence, stored: d.info.EnqueuedAt.UnixNano(),
		}
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

// ackedJob is a job whose acknowledgement by this worker the server has confirmed. A copy of it may still come: it was on its way when the
// acknowledgement was confirmed, or a new leader sends it. The server has no sign then that it is a copy, so the worker must know. For jobs
// that another worker acknowledged, the record of a unique job and the fence of the steps are signs.
//
// Each sequence has one place in deliveries.recentAcks, which a later sequence takes over, so no entry has to be removed.
type ackedJob struct {
	at       int64 // the time at which the acknowledgement was confirmed, in Unix nanoseconds
	sequence uint64
	stored   int64 // in Unix nanoseconds: distinguishes a stream that was deleted and made again
}

// isFirst reports whether certainly no worker has had the message before.
func (w *Worker) isFirst(d *delivery) bool {
	return d.first <= 1 && w.contact.covers(d.info.EnqueuedAt)
}

// isDoubted reports whether another worker may have been given the job since d came: heartbeats were not confirmed in time,
// because the connection, a leader or this process was away, or the consumer was recreated, or has lost count.
func (w *Worker) isDoubted(d *delivery) bool {
	w.deliveries.mu.Lock()
	defer w.deliveries.mu.Unlock()
	return d.doubted || elapsed(d.known, time.Now()) > w.trust
}

// isTaken reports whether another worker may have been given an ordered job. It may then run the job, or the next one, so this worker may
// neither run nor answer it. Any other job goes on: a second run does no harm that idempotent handlers do not undo.
func (w *Worker) isTaken(d *delivery) bool { return d.line != nil && w.isDoubted(d) }

// elapsed returns the time between two times, by the clock that shows more: the monotonic clock stands still while a machine sleeps.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// contact records the time since when a worker has seen everything that its consumers delivered.
//
// The server counts deliveries, but a server without replicas may forget the latest of them when it crashes: a job that was being worked
// then seems to come for the first time. The count is certain only for a message that was stored after the worker got into contact with
// the server. Both times are the server's.
type contact struct {
	mu     sync.Mutex
	since  int64 // in Unix nanoseconds; math.MaxInt64 while there is no contact
	losses int   // the number of losses, so that an answer from before a loss does not count after it
}

// lose records that the contact is lost.
func (c *contact) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = math.MaxInt64
	c.losses++
}

// covers reports whether the time at which a message was stored is within the contact.
func (c *contact) covers(stored time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stored.UnixNano() > c.since
}

// resume returns the function to call with the server's present time.
func (c *contact) resume() func(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	losses := c.losses
	return func(now time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.losses == losses {
			c.since = now.UnixNano()
		}
	}
}

// acks remembers the newest acknowledgements that the server has confirmed, so that the worker can repeat them when the server
// was away.
//
// A server without replicas that shuts down may confirm an acknowledgement and not remove the message: it notes the acknowledgement in the
// consumer, finds the stream closed, and answers all the same. After its restart no consumer delivers the message and nothing removes it.
// The message holds its subject and its key for ever, unless the acknowledgement comes again. If the message is gone, a repetition changes
// nothing.
//
// That happens to the last acknowledgement of a consumer only, because none is confirmed after the stream was closed. This worker may note
// confirmations in another order than the server sent them, but at most as many as it has deliveries at once. As many again may follow
// when the server is back, before the repetition. So twice that number is remembered.
type acks struct {
	mu   sync.Mutex
	next int // where the next one goes
	ring []ack
}

// ack is an acknowledgement that the server has confirmed.
type ack struct {
	consumer string
	created  int64  // the time at which the consumer was made, in Unix nanoseconds
	reply    string // the subject to which it was sent, empty for none
}

// add remembers an acknowledgement.
func (l *acks) add(ack ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring[l.next] = ack
	l.next = (l.next + 1) % len(l.ring)
}

// byConsumer returns the remembered acknowledgements, the oldest first.
func (l *acks) byConsumer() map[string][]ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]ack)
	for i := range l.ring {
		if ack := l.ring[(l.next+i)%len(l.ring)]; ack.reply != "" {
			all[ack.consumer] = append(all[ack.consumer], ack)
		}
	}
	return all
}

// beginContact calls getContact at the start, with acknowledgements to repeat.
func (w *Worker) beginContact(acks map[string][]ack) {
	resume := w.contact.resume()
	w.contacting.Go(func() { w.getContact(resume, acks) })
}

// getContact asks the server about the worker's consumers, and repeats the last acknowledgements. Until the first answer no first delivery
// is certain. That only costs unique jobs and jobs with steps a read.
func (w *Worker) getContact(resume func(now time.Time), acks map[string][]ack) {
	for i, c := range w.classes {
		if i > 0 && len(acks[c.consumer]) == 0 {
			continue
		}
		var found jetstream.Consumer
		err := repeat(w.stopping, firstWait, func(error) bool { return true }, func() (err error) {
			found, err = w.consumer(w.stopping, c)
			return err
		})
		if err != nil { // it is stopping
			return
		}
		w.trackConsumer(c, found)
		if i == 0 {
			resume(found.CachedInfo().TimeStamp)
		}
		w.repeatAcks(found.CachedInfo(), acks[c.consumer])
	}
}

// trackConsumer notes the consumer of a class, and its ack floor.
func (w *Worker) trackConsumer(c *class, found jetstream.Consumer) {
	w.noteConsumer(c, found)
	if w.ordered {
		w.lines.Acknowledged(c.consumer, found.CachedInfo().AckFloor.Stream)
	}
}

// consumer asks the server once about the consumer of a class.
func (w *Worker) consumer(ctx context.Context, c *class) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	return w.js.Consumer(ctx, w.cfg.Stream, c.consumer)
}

// repeatAcks repeats acknowledgements of a consumer, unless the consumer was made again since: they could then settle jobs that it has
// delivered to another worker. It waits for no answer, because a server that has crashed and forgotten the delivery sends none.
// Acknowledgements that are lost with the connection are repeated when the connection is back.
func (w *Worker) repeatAcks(consumer *jetstream.ConsumerInfo, acks []ack) {
	for _, ack := range acks {
		if ack.created == consumer.Created.UnixNano() {
			_ = w.nc.Publish(ack.reply, []byte(ackDone)) // see above
		}
	}
}

const (
	// beatsPerAckWait is the number of heartbeats of a job per AckWait: two of them may be lost.
	beatsPerAckWait = 3

	// orderedBeats is the number of heartbeats of an ordered job for each heartbeat of another. So its confirmations may take half of AckWait
	// instead of a third.
	orderedBeats = 2

	// assetsChecked is the time between two looks at the stream and the consumers.
	assetsChecked = 30 * time.Second
)

// startBeats starts heartbeats and their confirmations, until end is called.
func (w *Worker) startBeats(ctx context.Context) (end func(), err error) {
	w.beats.inbox = w.nc.NewInbox() + "."
	confirmations, err := w.nc.Subscribe(w.beats.inbox+"*.*", w.confirmed)
	if err != nil {
		return nil, fmt.Errorf("worker: subscribe: %w", err)
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		w.heartbeat(ctx)
	}()
	return func() {
		cancel()
		<-ended
		_ = confirmations.Unsubscribe() // the connection is closed then
	}, nil
}

// heartbeat sends the server a heartbeat for every running job. One goroutine and one ticker serve all jobs. It also finds
// handlers that ignore the end of their context, and starts the search for cancelled jobs.
func (w *Worker) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.AckWait / (beatsPerAckWait * orderedBeats))
	defer ticker.Stop()
	looks, looked := make(chan time.Time, 1), make(chan struct{})
	go func() {
		defer close(looked)
		checked := time.Now()
		for now := range looks {
			_ = w.readPauses(ctx) // without an answer the former pauses stay in force; the next heartbeat is near
			w.puller.Wake()       // for handlers that are no longer paused
			w.lookAtConsumers(ctx)
			w.checkRunning(ctx, now)
			if now.Sub(checked) >= assetsChecked {
				checked = now
				w.checkAssets(ctx)
			}
		}
	}()
	defer func() { close(looks); <-looked }()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			all := n%orderedBeats == 0
			w.interruptDoubted(now)
			w.beat(now, all)
			if !all {
				continue
			}
			w.reportStuck(now)
			select {
			case looks <- now:
			default: // the last search has not ended
			}
		}
	}
}

// checkRunning records jobs that have run since the former heartbeat as running, and ends the contexts of those that have
// been cancelled. It costs a read for each unique job that runs longer than from one heartbeat to the next, and one read for all others,
// including those that wait.
func (w *Worker) checkRunning(ctx context.Context, now time.Time) {
	var running, others []*delivery
	w.deliveries.each(func(d *delivery) {
		long := d.isRunning() && now.Sub(d.started) >= w.cfg.AckWait/beatsPerAckWait
		if long {
			running = append(running, d)
		}
		if !d.unique && d.cancel != nil && (long || !d.isRunning()) {
			others = append(others, d)
		}
	})
	for _, d := range running {
		if !d.recorded.Load() && !w.silent.Load() && !w.recordState(d, StateRunning) {
			w.silent.Store(true) // it has no permission
		}
		if d.unique && w.isCancelled(d) {
			w.cancelHandler(d)
		}
	}
	if len(others) > 0 {
		w.checkCancelled(ctx, others)
	}
}

// checkCancelled ends the contexts of cancelled jobs that are not unique. One round trip for each 512 jobs.
func (w *Worker) checkCancelled(ctx context.Context, held []*delivery) {
	subjects := make([]string, 0, len(held))
	at := make(map[string]*delivery)
	for _, d := range held {
		to := cancelSubject(w.cfg.Bucket, d.info.Stream, d.info.Sequence)
		subjects, at[to] = append(subjects, to), d
	}
	records, err := w.bucket.GetMany(ctx, subjects)
	if err != nil {
		return // the next heartbeat tries again
	}
	for _, r := range records {
		var was cancellation
		d := at[r.Subject]
		if d != nil && json.Unmarshal(r.Data, &was) == nil && was.Stored.Equal(d.info.EnqueuedAt) {
			w.cancelHandler(d)
		}
	}
}

// cancelHandler ends the context of a job that was cancelled.
func (w *Worker) cancelHandler(d *delivery) {
	if !d.cancelled.Swap(true) {
		w.log.Info(EventJobCancelled, "job_id", d.info.ID, "subject", d.info.Subject, "sequence", d.info.Sequence) // attempt may be changing
		d.cancel(ErrCancelled)
	}
}

func (w *Worker) reportStuck(now time.Time) {
	var stuck []*delivery
	cancelled := w.jobs.Err() != nil
	w.deliveries.each(func(d *delivery) {
		if d.phase != phaseRunning {
			return
		}
		overdue := !d.deadline.IsZero() && now.After(d.deadline)
		if d.ctxEnded.IsZero() && (cancelled || overdue) {
			d.ctxEnded = now
			if overdue {
				d.ctxEnded = d.deadline
			}
		}
		if !d.ctxEnded.IsZero() && now.Sub(d.ctxEnded) >= w.cfg.StuckAfter {
			d.phase = phaseStuck
			stuck = append(stuck, d)
		}
	})
	dumps := dump(stuck)
	for _, d := range stuck {
		report := StuckHandler{Info: d.info, Ran: now.Sub(d.started), Stacks: dumps[d.label]}
		w.log.Error(EventJobStuck, append(d.attrs(), "ran", report.Ran, "stacks", report.Stacks)...)
		if w.cfg.Hooks.Stuck != nil {
			w.callApart("Hooks.Stuck", func() { w.cfg.Hooks.Stuck(report) })
		}
	}
}

// Stuck returns the jobs whose handlers ignore their ended contexts, see [Config.StuckAfter], and keep their slots. No round trip.
func (w *Worker) Stuck() (jobs []Info) {
	w.deliveries.each(func(d *delivery) {
		if d.phase == phaseStuck {
			jobs = append(jobs, d.info)
		}
	})
	return jobs
}

// dump returns the stacks of handlers, by their labels.
func dump(all []*delivery) map[label]string {
	labels := make([]label, 0, len(all))
	for _, d := range all {
		labels = append(labels, d.label)
	}
	return stacksOf(maxStacks, labels...)
}

// beats are the heartbeats that the worker sends.
type beats struct {
	inbox  string // the prefix of the confirmations' subjects, with its last dot
	latest [beatsPerAckWait * orderedBeats]sentBeat
	number uint64 // of the latest
}

type sentBeat struct {
	all      bool // heartbeats are also for jobs that are not ordered
	at       time.Time
	connects uint64 // of the connection
	number   uint64
}

// beat sends a heartbeat for each delivery, or for each ordered one. Behind them it sends, for one delivery of each consumer, another
// heartbeat that the consumer's leader confirms.
func (w *Worker) beat(now time.Time, all bool) {
	if w.inbox.Down() != nil {
		return // the client would buffer them, and they would arrive too late to be true
	}
	// Under the lock, so that no heartbeat can follow the NAK of its job.
	t := &w.deliveries
	t.mu.Lock()
	defer t.mu.Unlock()
	w.beats.number++
	w.beats.latest[w.beats.number%uint64(len(w.beats.latest))] = sentBeat{all, now, w.nc.Stats().Reconnects, w.beats.number}
	last := make(map[string]string)
	for _, d := range t.bySeq {
		if d.ownership == owned && (all || d.line != nil) {
			_ = w.nc.Publish(d.reply, []byte(ackProgress)) // the next one is near
			last[d.info.Consumer] = d.reply
		}
	}
	for consumer, reply := range last {
		inbox := fmt.Sprintf("%s%d.%s", w.beats.inbox, w.beats.number, consumer)
		_ = w.nc.PublishRequest(reply, inbox, []byte(ackProgress)) // the next one is near
	}
}

// confirmed takes the confirmation of a heartbeat. It proves that the deliveries were this worker's when the heartbeat was sent, however
// late it comes: the server took the heartbeat before the former one was two thirds of AckWait old. The confirmation of a heartbeat over a
// new connection proves nothing, since earlier heartbeats may have been lost with the old connection.
func (w *Worker) confirmed(msg *nats.Msg) {
	text, consumer, _ := strings.Cut(strings.TrimPrefix(msg.Subject, w.beats.inbox), ".")
	number, err := strconv.ParseUint(text, 10, 64)
	t, now := &w.deliveries, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	beat := w.beats.latest[number%uint64(len(w.beats.latest))]
	if len(msg.Header) > 0 || err != nil || number != beat.number || w.nc.Stats().Reconnects != beat.connects {
		return
	}
	for _, d := range t.bySeq {
		switch {
		case d.info.Consumer != consumer || d.ownership != owned || d.known.After(beat.at) || !beat.all && d.line == nil:
		case elapsed(d.known, now) > w.trust:
			d.doubted = true
		default:
			d.known = beat.at
		}
	}
}

// lookAtConsumers finds consumers that were made again while the worker held jobs of them and did not pull from them. One round trip for
// each, at each heartbeat.
func (w *Worker) lookAtConsumers(ctx context.Context) {
	held := make(map[string]bool)
	w.deliveries.each(func(d *delivery) { held[d.info.Consumer] = true })
	for _, c := range w.classes {
		if !held[c.consumer] {
			continue
		}
		if found, err := w.consumer(ctx, c); err == nil {
			w.trackConsumer(c, found)
		}
	}
}
