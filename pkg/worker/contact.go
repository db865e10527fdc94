package worker

import (
	"math"
	"sync"
	"time"
)

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

// begin returns the function to call with the server's present time.
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
