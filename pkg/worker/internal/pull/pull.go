// Package pull feeds messages of a JetStream consumer to a worker, never more than it has
// room for.
//
// It keeps one long-lived subscription and at most one outstanding pull request. A request
// asks for as many messages as there are free slots at that moment, and the next one is
// sent when all of them have come or it has expired: so no message waits in a buffer while
// its AckWait runs, an idle worker has a request waiting at the server, and a busy one asks
// once per many jobs. The clients of nats.go either make a subscription per request (Fetch) or ask
// ahead of need (Consume, Messages).
package pull

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// expires ends a request. It is short because a request cannot be taken back: were its
	// subscription removed while the server sends a job, the job would be lost until its
	// AckWait ends, and an attempt with it. So a stop waits until the request has ended by
	// itself, which the server says after everything that it brings.
	expires = time.Second

	// silence is how long after its end a request may be unanswered.
	silence = 2 * time.Second
)

// ErrSilent is given to Lost when the server stopped answering a request.
var ErrSilent = errors.New("pull: no answer from the server")

var errClosed = fmt.Errorf("pull: %w", nats.ErrConnectionClosed)

// Config says where to pull from and what to do with it.
type Config struct {
	// Conn is the connection.
	Conn *nats.Conn

	// Deliver takes a message. It must not block.
	Deliver func(msg *nats.Msg)

	// Free returns the number of free slots.
	Free func() int

	// Down is called when the connection is lost.
	Down func(reason error)

	// Lost is called on a goroutine of its own when the consumer cannot be pulled from. It
	// returns when it can again, or when ctx ends.
	Lost func(ctx context.Context, reason error)

	// Slots is the largest number Free returns.
	Slots int

	// Subject is the subject of the consumer's pull requests.
	Subject string

	// Up is called when pulling begins, at the start and after each Down and Lost. After
	// Lost it waits for the server's first sign of life.
	Up func()
}

// Puller pulls. The atomic fields and wake are shared with the subscription's callback and
// with Freed, the others belong to the goroutine in Run.
type Puller struct {
	Config

	alive   atomic.Bool   // the server has been heard of since the latest request
	left    atomic.Int64  // messages that the outstanding request may still bring
	starved atomic.Bool   // no request is out for want of a slot
	wake    chan struct{} // look again
	wary    atomic.Bool   // Up waits for a sign of life

	give    func()         // ends the ctx of Lost
	closed  chan struct{}  // the subscription has ended and its callback returned
	inbox   string         // prefix of the reply subjects, with the last dot
	lost    bool           // Lost has been called and not returned
	notices chan *nats.Msg // what the server says about requests
	number  uint64         // of the latest request
	offline bool           // the connection is down
	sub     *nats.Subscription
	timer   *time.Timer // until the outstanding request counts as unanswered
	up      bool        // Up has been called since the last Down or Lost
}

// New returns a Puller. Nothing happens before Run.
func New(cfg Config) *Puller {
	return &Puller{
		Config: cfg, closed: make(chan struct{}), notices: make(chan *nats.Msg, 64), wake: make(chan struct{}, 1),
	}
}

// Freed tells the Puller that Free may have grown. It never blocks and costs one atomic
// load unless a request waits for it.
func (p *Puller) Freed() {
	if p.starved.Load() {
		p.look()
	}
}

func (p *Puller) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run pulls until ctx ends, then waits for the end of the outstanding request, a second
// unless the server is away, delivers what it brings and returns nil. It returns
// nats.ErrConnectionClosed when the connection was closed for good. After it has returned
// nothing is delivered.
func (p *Puller) Run(ctx context.Context) error {
	status := p.Conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer p.Conn.RemoveStatusListener(status)

	if err := p.subscribe(); err != nil {
		return err
	}

	p.timer = time.NewTimer(expires + silence)
	defer p.timer.Stop()

	ctx, cancel := context.WithCancel(ctx)
	found := make(chan struct{}, 1)

	var err error
	for err == nil && ctx.Err() == nil {
		p.request()

		err = p.step(ctx, ctx.Done(), status, found)
	}

	cancel()

	for err == nil && p.left.Load() > 0 && !p.offline && !p.lost {
		err = p.step(ctx, nil, status, found)
	}

	p.unsubscribe()

	if p.lost {
		<-found // Lost returns since its context has ended
	}

	return err
}

// step waits for one event.
func (p *Puller) step(ctx context.Context, done <-chan struct{}, status <-chan nats.Status, found chan struct{}) error {
	select {
	case <-done:
	case <-p.wake:
		p.noteAlive()
	case msg := <-p.notices:
		p.noticed(ctx, msg, found)
	case s, open := <-status:
		if !open {
			s = nats.CLOSED
		}

		return p.changed(s)
	case <-p.timer.C:
		return p.overdue(ctx, found)
	case <-found:
		p.lost = false
		p.alive.Store(false)
		p.left.Store(0)
	}

	return nil
}

func (p *Puller) subscribe() error {
	p.inbox = p.Conn.NewInbox() + "."

	sub, err := p.Conn.Subscribe(p.inbox+"*", p.receive)
	if err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}

	p.sub = sub
	sub.SetClosedHandler(func(string) { close(p.closed) })

	// The requests are the limit. That of the client would drop large messages.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}

	return nil
}

// receive is the subscription's callback. Jobs are delivered from here.
func (p *Puller) receive(msg *nats.Msg) {
	p.alive.Store(true)

	if !isJob(msg) {
		select {
		case p.notices <- msg:
		default: // so many can only be left from a server that comes and goes
		}

		return
	}

	p.Deliver(msg)

	if p.left.Add(-1) <= 0 || p.wary.Load() {
		p.look()
	}
}

// request sends the next pull request if none is out and there is room.
func (p *Puller) request() {
	if p.left.Load() > 0 || p.lost || p.offline {
		return
	}

	free := p.Free()
	if free <= 0 {
		// Look again after saying so: a slot freed in between would not be reported.
		p.starved.Store(true)

		if free = p.Free(); free <= 0 {
			return
		}
	}

	p.starved.Store(false)
	p.left.Store(int64(free))

	p.timer.Reset(expires + silence)

	p.number++
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, free, expires)

	if err := p.Conn.PublishRequest(p.Subject, p.inbox+strconv.FormatUint(p.number, 10), body); err != nil {
		p.left.Store(0)

		return // disconnected: a status change or the timer brings the next try
	}

	if !p.wary.Load() {
		p.isUp()
	}
}

func (p *Puller) isUp() {
	if !p.up {
		p.up = true
		p.wary.Store(false)
		p.Up()
	}
}

// noteAlive ends the wait for a sign of life.
func (p *Puller) noteAlive() {
	if p.alive.Load() && !p.lost && !p.offline {
		p.isUp()
	}
}

// noticed takes what the server says about a request.
func (p *Puller) noticed(ctx context.Context, msg *nats.Msg, found chan<- struct{}) {
	if msg.Subject != p.inbox+strconv.FormatUint(p.number, 10) {
		return // about an earlier request
	}

	switch code := msg.Header.Get("Status"); code {
	case "404", "408": // the request has expired
		p.isUp()
		p.left.Store(0)
	default:
		p.seek(ctx, found, fmt.Errorf("pull: server answered %s %s", code, msg.Header.Get("Description")))
	}
}

// isJob tells messages of the stream, which can be acknowledged, from the server's notices.
func isJob(msg *nats.Msg) bool { return msg.Reply != "" }

// seek calls Lost and pulls no more until it has returned.
func (p *Puller) seek(ctx context.Context, found chan<- struct{}, reason error) {
	if p.lost {
		return
	}

	p.lost, p.up = true, false
	p.alive.Store(false)
	p.wary.Store(true)

	ctx, give := context.WithCancel(ctx)
	p.give = give

	go func() {
		defer give()

		p.Lost(ctx, reason)
		found <- struct{}{}
	}()
}

// changed follows the state of the connection.
func (p *Puller) changed(status nats.Status) error {
	switch status {
	case nats.CONNECTED:
		p.offline = false
		p.wary.Store(false)
		p.left.Store(0) // the request went with the old connection

		if p.lost {
			p.give() // it may wait for an answer that went with it, too
		}

		return nil
	case nats.CLOSED:
		return errClosed
	default:
		if !p.offline {
			p.offline, p.up = true, false
			p.Down(nats.ErrDisconnected)
		}

		return nil
	}
}

// overdue notices what nobody reports: a silent server, and a missed status change.
func (p *Puller) overdue(ctx context.Context, found chan<- struct{}) error {
	p.timer.Reset(expires + silence)

	switch {
	case p.Conn.IsClosed():
		return errClosed
	case p.offline && p.Conn.IsConnected():
		return p.changed(nats.CONNECTED)
	case p.left.Load() > 0 && !p.offline:
		p.seek(ctx, found, ErrSilent)
	}

	return nil
}

// unsubscribe ends the subscription and waits for its callback to return.
func (p *Puller) unsubscribe() {
	_ = p.sub.Unsubscribe() //nolint:errcheck // with the connection gone there is nothing to unsubscribe

	<-p.closed
}
