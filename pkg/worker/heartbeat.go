package worker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

// beatsPerAckWait leaves room for two heartbeats to be lost.
const beatsPerAckWait = 3

// startBeats begins with heartbeats and their confirmations, until end.
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
		_ = confirmations.Unsubscribe() //nolint:errcheck // the connection is closed then
	}, nil
}

// heartbeat sends the server a heartbeat for every running job. One goroutine and one ticker serve all jobs. It also finds
// handlers that ignore the end of their context, and starts the search for cancelled jobs.
func (w *Worker) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.AckWait / beatsPerAckWait)
	defer ticker.Stop()
	looks, looked := make(chan time.Time, 1), make(chan struct{})
	go func() {
		defer close(looked)
		for now := range looks {
			w.followPauses(ctx)
			w.lookAtConsumers(ctx)
			w.checkRunning(ctx, now)
		}
	}()
	defer func() { close(looks); <-looked }()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.interruptDoubted(now)
			w.beat(now)
			w.reportStuck(now)
			select {
			case looks <- now:
			default: // the former look has not ended
			}
		}
	}
}

// checkRunning records jobs that have run since the former heartbeat as running, and ends the contexts of those that have
// been cancelled. It costs a read for each unique job that runs longer than from one heartbeat to the next, and one for all others,
// beside those that wait.
func (w *Worker) checkRunning(ctx context.Context, now time.Time) {
	var running, others []*delivery
	w.deliveries.each(func(d *delivery) {
		long := d.running && now.Sub(d.started) >= w.cfg.AckWait/beatsPerAckWait
		if long {
			running = append(running, d)
		}
		if _, unique := keepOf(d.msg.Header); !unique && d.cancel != nil && (long || !d.running) {
			others = append(others, d)
		}
	})
	for _, d := range running {
		w.showRunning(d)
		if _, unique := keepOf(d.msg.Header); unique && w.isCancelled(d) {
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
			w.cfg.Hooks.Stuck(report)
		}
	}
}

// dump returns the stacks of handlers, by their labels.
func dump(all []*delivery) map[stacks.Label]string {
	labels := make([]stacks.Label, 0, len(all))
	for _, d := range all {
		labels = append(labels, d.label)
	}
	return stacks.Of(maxStackText, labels...)
}

// contact records since when this worker has seen everything that its consumers delivered.
//
// The server counts deliveries, but a server without replicas may forget the latest of them when it crashes: a job that had
// been at work then comes as if for the first time. The count is certain only for a message that was stored after the worker
// got into contact with the server. Both times are the server's.
type contact struct {
	mu     sync.Mutex
	since  int64 // in Unix nanoseconds, math.MaxInt64 for not yet
	losses int   // so that an answer from before a loss says nothing after it
}

// lose records that the contact is lost.
func (c *contact) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = math.MaxInt64
	c.losses++
}

// covers reports whether a message that was stored at this time was stored during the contact.
func (c *contact) covers(stored time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stored.UnixNano() > c.since
}

// begin returns the function to call with the server's time of now.
func (c *contact) begin() func(now time.Time) {
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

// isFirst reports whether certainly no worker has had the message before.
func (w *Worker) isFirst(d *delivery) bool {
	return d.first <= 1 && w.contact.covers(d.info.EnqueuedAt)
}

// beginContact gets into contact with the server, and repeats acknowledgements.
func (w *Worker) beginContact(acks map[string][]confirmedAck) {
	begin := w.contact.begin()
	w.contacting.Go(func() { w.getContact(begin, acks) })
}

// renewContact is called when a consumer has gone back.
func (w *Worker) renewContact() {
	w.contact.lose()
	w.beginContact(nil)
}

// getContact asks the server about the worker's consumers, and repeats the last acknowledgements. Until the first answer no
// first delivery is certain, which costs unique jobs and jobs with steps a read and is right in any case.
func (w *Worker) getContact(begin func(now time.Time), acks map[string][]confirmedAck) {
	for i, c := range w.classes {
		if i > 0 && len(acks[c.consumer]) == 0 {
			continue
		}
		consumer := w.consumerInfo(c)
		if consumer == nil {
			return
		}
		w.noteConsumer(c, consumer)
		if w.ordered {
			w.order.acknowledged(consumer.CachedInfo())
		}
		if i == 0 {
			begin(consumer.CachedInfo().TimeStamp)
		}
		w.repeatAcks(consumer.CachedInfo(), acks[c.consumer])
	}
}

// consumerInfo asks the server about the consumer of a class until it answers. It returns nil when the worker stops first.
func (w *Worker) consumerInfo(c *class) jetstream.Consumer {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		once, cancel := context.WithTimeout(w.stopping, w.cfg.RequestTimeout)
		consumer, err := w.js.Consumer(once, w.cfg.Stream, c.consumer)
		cancel()
		if err == nil {
			return consumer
		}
		if !backoff.Sleep(w.stopping, wait) {
			return nil
		}
	}
}

// repeatAcks repeats acknowledgements of a consumer, unless the consumer was made again since: then they could settle jobs
// that it has delivered to another worker. It waits for no answer, because a server that has crashed and forgotten the
// delivery gives none. Acknowledgements that are lost with the connection are repeated when the connection is back.
func (w *Worker) repeatAcks(consumer *jetstream.ConsumerInfo, acks []confirmedAck) {
	for _, ack := range acks {
		if ack.created == consumer.Created.UnixNano() {
			_ = w.nc.Publish(ack.reply, []byte(ackDone)) //nolint:errcheck // see above
		}
	}
}

// lastAcks remembers the newest acknowledgements that the server has confirmed, so that the worker can repeat them when the
// server was away.
//
// A server without replicas that shuts down may confirm an acknowledgement and not remove the message: it notes the
// acknowledgement in the consumer, finds the stream closed, and answers all the same. From its restart on no consumer
// delivers the message and nothing removes it, so it holds its subject and its key for ever, unless the acknowledgement comes
// once more. Where the message is gone, repeating it changes nothing.
//
// That happens to the last acknowledgement of a consumer only, because none is confirmed after the stream was closed. This
// worker may note confirmations in another order than the server gave them, but only as many as it has deliveries at once,
// and as many again follow when the server is back, before they are repeated. So twice that number is remembered.
type lastAcks struct {
	mu   sync.Mutex
	next int // where the next one goes
	ring []confirmedAck
}

// confirmedAck is an acknowledgement that the server has confirmed.
type confirmedAck struct {
	consumer string
	created  int64  // when the consumer was made, in Unix nanoseconds
	reply    string // where it was sent, empty for none
}

func newLastAcks(deliveries int) *lastAcks {
	return &lastAcks{ring: make([]confirmedAck, 2*deliveries)}
}

func (l *lastAcks) add(ack confirmedAck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring[l.next] = ack
	l.next = (l.next + 1) % len(l.ring)
}

// byConsumer returns the acknowledgements that are remembered, the oldest first.
func (l *lastAcks) byConsumer() map[string][]confirmedAck {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]confirmedAck)
	for i := range l.ring {
		if ack := l.ring[(l.next+i)%len(l.ring)]; ack.reply != "" {
			all[ack.consumer] = append(all[ack.consumer], ack)
		}
	}
	return all
}

// maxDeliveries is how many deliveries the worker can acknowledge at once.
func (w *Worker) maxDeliveries() int {
	if w.limited || w.ordered {
		return w.cfg.Concurrency + w.cfg.MaxWaiting
	}
	return w.cfg.Concurrency
}
