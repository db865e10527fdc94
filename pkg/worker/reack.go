package worker

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lastAcks remembers the newest acknowledgements that the server has confirmed, so that the
// worker can repeat them when the server was away.
//
// A server without replicas that shuts down may confirm an acknowledgement and not remove
// the message: it notes the acknowledgement in the consumer, finds the stream closed, and
// answers all the same. From its restart on no consumer delivers the message and nothing
// removes it, so it holds its subject and its key for ever, unless the acknowledgement
// comes once more. Where the message is gone, repeating it changes nothing.
//
// That happens to the last acknowledgement of a consumer only, because none is confirmed
// after the stream was closed. This worker may note confirmations in another order than the
// server gave them, but only as many as it has deliveries at once, and as many again follow
// when the server is back, before they are repeated. So twice that number is remembered.
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

// byConsumer returns those that are remembered, the oldest first.
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

// most is how many deliveries the worker can acknowledge at once.
func (w *Worker) most() int {
	if w.limited {
		return w.cfg.Concurrency + w.cfg.MaxWaiting
	}

	return w.cfg.Concurrency
}

// contact asks the server about the worker's consumers, and repeats the last acknowledgements.
// Until the first answer no delivery counts as certain, which costs unique jobs and jobs with
// steps a read and is right in any case.
func (w *Worker) contact(begin func(now time.Time), acks map[string][]confirmedAck) {
	for i, c := range w.classes {
		if i > 0 && len(acks[c.consumer]) == 0 {
			continue
		}

		consumer := w.inform(c)
		if consumer == nil {
			return
		}

		if i == 0 {
			begin(consumer.TimeStamp)
		}

		w.reack(consumer, acks[c.consumer])
	}
}

// inform asks the server about the consumer of a class until it answers. It returns nil when
// the worker stops first.
func (w *Worker) inform(c *class) *jetstream.ConsumerInfo {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		once, cancel := context.WithTimeout(w.stopping, w.cfg.RequestTimeout)
		consumer, err := w.js.Consumer(once, w.cfg.Stream, c.consumer)

		cancel()

		if err == nil {
			return consumer.CachedInfo()
		}

		if !sleep(w.stopping, wait) {
			return nil
		}
	}
}

// reack repeats acknowledgements of a consumer, unless it was made again since: then they
// could settle what it has delivered to another worker. It waits for no answer, because a
// server that has crashed and forgotten the delivery gives none. Acknowledgements that are
// lost with the connection are repeated when it is back.
func (w *Worker) reack(consumer *jetstream.ConsumerInfo, acks []confirmedAck) {
	for _, ack := range acks {
		if ack.created == consumer.Created.UnixNano() {
			_ = w.nc.Publish(ack.reply, []byte(ackDone)) //nolint:errcheck // see above
		}
	}
}
