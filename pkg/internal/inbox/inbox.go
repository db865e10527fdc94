// Package inbox sends requests that are answered once, over a subscription of its own.
//
// It is nats.Conn.RequestMsgWithContext for who sends very many: the bound of a request is no context and no timer of
// its own, nothing is looked up with the connection locked, which may be writing to its socket at that moment, and a
// request ends when the connection does, however that came about.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrClosed is returned by requests that are under way when the Inbox is closed, or that come after it.
var ErrClosed = errors.New("inbox is closed")

// Inbox sends requests and sorts their replies. Make one with [New]; it is safe for concurrent use. Its subjects begin
// with the connection's own prefix of inboxes, so that it needs no permission but that one.
type Inbox struct {
	nc     *nats.Conn
	prefix string // of the subjects of replies, with its final dot
	sub    *nats.Subscription
	status chan nats.Status
	done   chan struct{} // closed when the connection is not listened to any more

	mu     sync.Mutex
	closed bool
	calls  map[string]*call // by the subject of the reply
	count  uint64           // of all there were
	timer  *time.Timer      // ends those that are over; one for all
	rings  time.Time        // when the timer does; zero when it is not set
}

// call is a request under way. Whoever takes it out of the calls answers it: once.
type call struct {
	by     time.Time
	answer chan answer
}

type answer struct {
	msg *nats.Msg
	err error
}

// New returns an Inbox on nc. No round trip: whoever has no permission to subscribe gets no answers.
func New(nc *nats.Conn) (*Inbox, error) {
	i := &Inbox{nc: nc, prefix: nc.NewInbox() + ".", done: make(chan struct{}), calls: map[string]*call{}}
	sub, err := nc.Subscribe(i.prefix+"*", i.receive)
	if err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	i.sub, i.status = sub, nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go i.listen()
	return i, nil
}

// Close ends the subscription, and what is under way with ErrClosed. It is called once.
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

// Request sends m, whose Reply it sets, and returns the reply. It returns the error of ctx when that ends first,
// context.DeadlineExceeded when there was no reply within the given time, nats.ErrNoResponders when nobody takes such
// requests, nats.ErrDisconnected when the connection was lost meanwhile, nats.ErrConnectionClosed when it was closed, and
// otherwise what the connection says of a message that it cannot send. Nothing is sent while there is no connection: the
// client would keep it, and send it much later. After any other error it may have been sent, and taken. One round trip.
func (i *Inbox) Request(ctx context.Context, m *nats.Msg, within time.Duration) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := i.expect(m, within)
	if err != nil {
		return nil, err
	}
	if i.nc.IsConnected() || i.nc.IsClosed() { // only now: what is lost from here on ends the call
		err = i.nc.PublishMsg(m)
	} else {
		err = fmt.Errorf("not sent: %w", nats.ErrDisconnected)
	}
	if err != nil {
		i.take(m.Reply)
		return nil, err
	}
	select {
	case a := <-c.answer:
		return a.msg, a.err
	case <-ctx.Done():
		i.take(m.Reply)
		return nil, ctx.Err()
	}
}

// expect makes a call of m.
func (i *Inbox) expect(m *nats.Msg, within time.Duration) (*call, error) {
	c := &call{by: time.Now().Add(within), answer: make(chan answer, 1)}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, ErrClosed
	}
	i.count++
	m.Reply = i.prefix + strconv.FormatUint(i.count, 36)
	i.calls[m.Reply] = c
	if i.rings.IsZero() || c.by.Before(i.rings) {
		i.ringAt(c.by)
	}
	return c, nil
}

// ringAt sets the timer. It is called with mu held.
func (i *Inbox) ringAt(at time.Time) {
	i.rings = at
	if i.timer == nil {
		i.timer = time.AfterFunc(time.Until(at), i.ring)
		return
	}
	i.timer.Reset(time.Until(at))
}

// ring ends the calls that are over, and waits for the next that will be. Mostly it finds none: they were answered, and
// nobody stopped the timer for that.
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

// take takes a call out; nil when it has been answered.
func (i *Inbox) take(reply string) *call {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.calls[reply]
	delete(i.calls, reply)
	return c
}

// receive takes a reply. One that comes too late, or twice, is nobody's.
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

// listen ends what is under way when the connection is lost: its replies go to a connection that is not there any more.
// It ends with the Inbox, and when the connection is closed for good: what comes later cannot be sent.
func (i *Inbox) listen() {
	defer close(i.done)
	for status := range i.status {
		if status == nats.CLOSED {
			i.endAll(nats.ErrConnectionClosed)
			return
		}
		i.endAll(nats.ErrDisconnected)
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
