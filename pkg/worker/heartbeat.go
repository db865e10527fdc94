package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

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
		long := d.running && now.Sub(d.started) >= w.cfg.AckWait/beatsPerAckWait
		if long {
			running = append(running, d)
		}
		if !d.unique && d.cancel != nil && (long || !d.running) {
			others = append(others, d)
		}
	})
	for _, d := range running {
		if !d.shown.Load() && !w.silent.Load() && !w.show(d, StateRunning) {
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

func (w *Worker) reportStuck(now time.Time) {
	var stuck []*delivery
	cancelled := w.jobs.Err() != nil
	w.deliveries.each(func(d *delivery) {
		if !d.running || d.stuck {
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
			d.stuck = true
			stuck = append(stuck, d)
		}
	})
	dumps := dump(stuck)
	for _, d := range stuck {
		report := StuckHandler{Info: d.info, Ran: now.Sub(d.started), Stacks: dumps[d.label]}
		w.log.Error(EventJobStuck, append(d.attrs(), "ran", report.Ran, "stacks", report.Stacks)...)
		if w.cfg.Hooks.Stuck != nil {
			w.apart("Hooks.Stuck", func() { w.cfg.Hooks.Stuck(report) })
		}
	}
}

// Stuck returns the jobs whose handlers ignore their ended contexts, see [Config.StuckAfter], and keep their slots. No round trip.
func (w *Worker) Stuck() (jobs []Info) {
	w.deliveries.each(func(d *delivery) {
		if d.running && d.stuck {
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

// isFirst reports whether certainly no worker has had the message before.
func (w *Worker) isFirst(d *delivery) bool {
	return d.first <= 1 && w.contact.covers(d.info.EnqueuedAt)
}

// beginContact calls getContact at the start, with acknowledgements to repeat.
func (w *Worker) beginContact(acks map[string][]ack) {
	begin := w.contact.begin()
	w.contacting.Go(func() { w.getContact(begin, acks) })
}

// getContact asks the server about the worker's consumers, and repeats the last acknowledgements. Until the first answer no first delivery
// is certain. That only costs unique jobs and jobs with steps a read.
func (w *Worker) getContact(begin func(now time.Time), acks map[string][]ack) {
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
		w.follow(c, found)
		if i == 0 {
			begin(found.CachedInfo().TimeStamp)
		}
		w.repeatAcks(found.CachedInfo(), acks[c.consumer])
	}
}

// follow notes the consumer of a class, and its ack floor.
func (w *Worker) follow(c *class, found jetstream.Consumer) {
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

// errGone is the error of an attempt at a job that is no longer in its stream.
var errGone = &refusal{outcome{kind: OutcomeFenced}, "worker: the job is gone from its stream: it ended elsewhere, or was deleted"}

// doubtedAfter returns the time without a confirmed heartbeat after which another worker may have the job of a delivery: one heartbeat may
// be lost. The rest of AckWait is for a leader that confirms a heartbeat and dies before others know of it.
func (w *Worker) doubtedAfter() time.Duration {
	return w.cfg.AckWait * (beatsPerAckWait - 1) / beatsPerAckWait
}

// isDoubted reports whether another worker may have been given the job since d came: heartbeats were not confirmed in time,
// because the connection, a leader or this process was away, or the consumer was made again, or has lost count.
func (t *deliveries) isDoubted(d *delivery, now time.Time, after time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.doubted || d.orphan || apart(d.known, now) > after
}

// apart returns the time between two times, by the clock that shows more: the monotonic clock stands still while a machine sleeps.
func apart(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
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
	if !w.nc.IsConnected() {
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
		if d.beating && (all || d.line != nil) {
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
		case d.info.Consumer != consumer || !d.beating || d.known.After(beat.at) || !beat.all && d.line == nil:
		case apart(d.known, now) > w.doubtedAfter():
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
			w.follow(c, found)
		}
	}
}

// checkThere returns errGone when a job that another worker may have been given is no longer in its stream: the other worker has ended it.
// Only a work queue shows that; in other streams jobs stay. One round trip, to the stream's leader. A deposed leader that does not know of
// it may still have the job, as may a leader that applies an acknowledgement at this moment.
func (w *Worker) checkThere(ctx context.Context, d *delivery) error {
	switch msg, found, err := w.api.Get(ctx, d.info.Stream, jsapi.Query{Sequence: d.info.Sequence}); {
	case err != nil:
		return fmt.Errorf("%w: %w", errRecordUnknown, w.denial(err))
	case !found || !msg.Time.Equal(d.info.EnqueuedAt):
		return errGone
	default:
		return nil
	}
}

// checkHeld is checkThere for a job that is about to start. It reads only after a disturbance, or when a job that waited for a limit had
// been delivered before: the former worker may still have the job.
func (w *Worker) checkHeld(d *delivery) error {
	if w.mayBeOthers(d) {
		return errDoubted // the other worker may be working the job
	}
	if again := d.first > 1 && d.waited; !again && !w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter()) {
		return nil
	}
	return w.checkThere(w.settling, d)
}

// checkStep is checkThere for a step that is about to run. It reads only after a disturbance.
func (w *Worker) checkStep(ctx context.Context, d *delivery) (doubted bool, err error) {
	if !w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter()) {
		return false, nil
	}
	if err = w.checkThere(ctx, d); errors.Is(err, errGone) {
		err = journal.ErrGone
	}
	return true, err
}
