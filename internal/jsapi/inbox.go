package jsapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrClosed is returned by requests under way when the Inbox is closed, and by later requests.
var ErrClosed = errors.New("inbox is closed")

// Inbox is a [Sender] for callers that send very many requests: it has one subscription for their replies. Make one with [NewInbox]; it is
// safe for concurrent use. Its subjects begin with the connection's inbox prefix, so that no further permission to subscribe is needed.
//
// A request needs no separate context or timer for its time-out. It ends when the connection is lost or closed, for any reason. While it is
// lost, a request does not touch the connection: see [Inbox.Down].
type Inbox struct {
	nc     *nats.Conn
	prefix string // the prefix of the subjects of replies, with its final dot
	sub    *nats.Subscription
	status chan nats.Status
	done   chan struct{}             // closed when the goroutine that watches the connection has ended
	free   sync.Pool                 // calls that were answered, for reuse
	lost   atomic.Pointer[time.Time] // the last event of a lost connection, nil while the connection is up

	// lostFor is the time for which an event of a lost connection counts, longer than the time between two: nats.go drops events that nobody
	// reads, such as that of its return.
	lostFor time.Duration

	mu     sync.Mutex
	closed bool
	calls  map[string]*call // by the subject of the reply
	count  uint64           // of all requests so far
	timer  *time.Timer      // ends the calls whose time is over; one timer for all calls
	rings  time.Time        // when the timer fires; zero when it is not set
}

// lateness is how much later than planned an event of a lost connection may come.
const lateness = 10 * time.Second

// replySize is larger than the subject of a reply, as a rule.
const replySize = 64

// call is a request under way. The goroutine that removes a call from the calls ends the call, so that it ends once.
type call struct {
	by     time.Time
	answer chan answer
}

type answer struct {
	msg *nats.Msg
	err error
}

// NewInbox returns an Inbox on nc. No round trip: without the permission to subscribe, requests get no replies.
func NewInbox(nc *nats.Conn) (*Inbox, error) {
	// There is an event for each try that failed: the pause before it, and a time-out each for the connection and for the server's answer.
	// Field by field: the handlers, also fields of the options, change while the connection is in use.
	lostFor := nc.Opts.ReconnectWait + max(nc.Opts.ReconnectJitter, nc.Opts.ReconnectJitterTLS) + 2*nc.Opts.Timeout + lateness
	i := &Inbox{nc: nc, prefix: nc.NewInbox() + ".", done: make(chan struct{}), calls: map[string]*call{}, lostFor: lostFor}
	sub, err := nc.Subscribe(i.prefix+"*", i.receive)
	if err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	i.sub, i.status = sub, nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	go i.listen()
	return i, nil
}

// Close ends the subscription, and ends the requests under way with ErrClosed. It may be called once only.
func (i *Inbox) Close() error {
	i.mu.Lock()
	i.closed = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.mu.Unlock()
	i.endAll(ErrClosed)
	i.nc.RemoveStatusListener(i.status)
	<-i.done
	if err := i.sub.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe from replies: %w", err)
	}
	return nil
}

// Request sends m, whose Reply it sets, and returns the reply. It returns the error of ctx when ctx ends first, context.DeadlineExceeded
// when no reply came within the given time, nats.ErrNoResponders when no server takes requests on the subject, nats.ErrDisconnected when
// the connection was lost in the meantime, nats.ErrConnectionClosed when it was closed, and otherwise the connection's error for a message
// that it cannot send. Without a connection nothing is sent: the client would keep the message, and send it much later. After any other
// error the request may have been sent and processed. One round trip.
func (i *Inbox) Request(ctx context.Context, m *nats.Msg, within time.Duration) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, _ := i.free.Get().(*call)
	if c == nil {
		c = &call{answer: make(chan answer, 1)}
	}
	c.by = time.Now().Add(within)
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return nil, ErrClosed
	}
	i.count++
	m.Reply = string(strconv.AppendUint(append(make([]byte, 0, replySize), i.prefix...), i.count, 36))
	i.calls[m.Reply] = c
	// One timer serves all calls. It is set only for a call that ends before the others.
	if i.rings.IsZero() || c.by.Before(i.rings) {
		i.ringAt(c.by)
	}
	i.mu.Unlock()

	// Only now: from here on, listen ends the call when the connection is lost.
	err := i.Down()
	if err == nil {
		err = i.nc.PublishMsg(m)
	}
	if err != nil {
		i.take(m.Reply)
		return nil, err
	}
	select {
	case a := <-c.answer:
		i.free.Put(c) // no other goroutine has it any more
		return a.msg, a.err
	case <-ctx.Done():
		i.take(m.Reply)
		return nil, ctx.Err()
	}
}

// Down returns the error of a request that cannot be sent now because the connection is lost, and nil otherwise. It returns at once. The
// methods of a lost connection do not: nats.go holds its lock while it waits for a server, two seconds by default, again and again.
func (i *Inbox) Down() error {
	if at := i.lost.Load(); at != nil && time.Since(*at) < i.lostFor || !i.nc.IsConnected() && !i.nc.IsClosed() {
		return fmt.Errorf("not sent: %w", nats.ErrDisconnected)
	}
	return nil
}

// ringAt sets the timer. The caller holds mu.
func (i *Inbox) ringAt(at time.Time) {
	i.rings = at
	if i.timer == nil {
		i.timer = time.AfterFunc(time.Until(at), i.ring)
		return
	}
	i.timer.Reset(time.Until(at))
}

// ring ends the calls whose time is over, and sets the timer for the next. Mostly there are none: an answer does not stop the timer.
func (i *Inbox) ring() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for reply, c := range i.calls {
		switch {
		case !now.Before(c.by):
			delete(i.calls, reply)
			c.answer <- answer{err: context.DeadlineExceeded}
		case next.IsZero() || c.by.Before(next):
			next = c.by
		}
	}
	if i.rings = next; !next.IsZero() {
		i.ringAt(next)
	}
}

// take removes a call and returns it, nil when it has been answered.
func (i *Inbox) take(reply string) *call {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.calls[reply]
	delete(i.calls, reply)
	return c
}

// receive passes a reply to its call. It drops a reply that comes too late, or twice.
func (i *Inbox) receive(m *nats.Msg) {
	c := i.take(m.Subject)
	switch {
	case c == nil:
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		c.answer <- answer{err: nats.ErrNoResponders}
	default:
		c.answer <- answer{msg: m}
	}
}

// listen ends the requests under way when the connection is lost: the server sends their replies to the lost
// connection. It returns when the Inbox is closed, or when the connection is closed for good: later requests cannot be sent.
func (i *Inbox) listen() {
	defer close(i.done)
	for status := range i.status {
		switch status {
		case nats.CONNECTED:
			i.lost.Store(nil)
		case nats.CLOSED:
			i.lost.Store(nil) // it holds its lock no more
			i.endAll(nats.ErrConnectionClosed)
			return
		default: // also after each try that failed
			now := time.Now()
			i.lost.Store(&now)
			i.endAll(nats.ErrDisconnected)
		}
	}
}

func (i *Inbox) endAll(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.calls {
		c.answer <- answer{err: err}
	}
	clear(i.calls)
}
