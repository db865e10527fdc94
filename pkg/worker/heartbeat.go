package worker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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
		case apart(d.known, now) > w.trust:
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
