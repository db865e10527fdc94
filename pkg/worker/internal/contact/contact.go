// Package contact records since when a worker can be certain of the server's deliveries and confirmations.
package contact

import (
	"math"
	"sync"
	"time"
)

// Contact records since when a worker has seen everything that its consumers delivered.
//
// The server counts deliveries, but a server without replicas may forget the latest of them when it crashes: a job that had
// been at work then comes as if for the first time. The count is certain only for a message that was stored after the worker
// got into contact with the server. Both times are the server's.
type Contact struct {
	mu     sync.Mutex
	since  int64 // in Unix nanoseconds, math.MaxInt64 for not yet
	losses int   // so that an answer from before a loss says nothing after it
}

// Lose records that the contact is lost.
func (c *Contact) Lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = math.MaxInt64
	c.losses++
}

// Covers reports whether a message that was stored at this time was stored during the contact.
func (c *Contact) Covers(stored time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stored.UnixNano() > c.since
}

// Begin returns the function to call with the server's time of now.
func (c *Contact) Begin() func(now time.Time) {
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

// Acks remembers the newest acknowledgements that the server has confirmed, so that the worker can repeat them when the server
// was away.
//
// A server without replicas that shuts down may confirm an acknowledgement and not remove the message: it notes the
// acknowledgement in the consumer, finds the stream closed, and answers all the same. From its restart on no consumer
// delivers the message and nothing removes it, so it holds its subject and its key for ever, unless the acknowledgement comes
// once more. Where the message is gone, repeating it changes nothing.
//
// That happens to the last acknowledgement of a consumer only, because none is confirmed after the stream was closed. This
// worker may note confirmations in another order than the server gave them, but only as many as it has deliveries at once,
// and as many again follow when the server is back, before they are repeated. So twice that number is remembered.
type Acks struct {
	mu   sync.Mutex
	next int // where the next one goes
	ring []Ack
}

// Ack is an acknowledgement that the server has confirmed.
type Ack struct {
	Consumer string
	Created  int64  // when the consumer was made, in Unix nanoseconds
	Reply    string // where it was sent, empty for none
}

// NewAcks returns one for a worker that can have so many deliveries at once.
func NewAcks(deliveries int) *Acks {
	return &Acks{ring: make([]Ack, 2*deliveries)}
}

// Add remembers an acknowledgement.
func (l *Acks) Add(ack Ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring[l.next] = ack
	l.next = (l.next + 1) % len(l.ring)
}

// ByConsumer returns the acknowledgements that are remembered, the oldest first.
func (l *Acks) ByConsumer() map[string][]Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]Ack)
	for i := range l.ring {
		if ack := l.ring[(l.next+i)%len(l.ring)]; ack.Reply != "" {
			all[ack.Consumer] = append(all[ack.Consumer], ack)
		}
	}
	return all
}
