// Package pull feeds messages of a JetStream consumer to a worker, never more than it has
// room for.
//
// It keeps one long-lived subscription and at most one outstanding pull request. A request
// asks for as many messages as there are free slots at that moment, and the next one is
// sent when all of them have come: so no message waits in a buffer while its AckWait runs,
// an idle worker has a request waiting at the server, and a busy one asks once per many
// jobs. The clients of nats.go either make a subscription per request (Fetch) or ask
// ahead of need (Consume, Messages).
package pull

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Request timings. A request that hears nothing for two heartbeats is lost.
const (
	expires   = 30 * time.Second
	heartbeat = 2 * time.Second
	drainWait = 2 * time.Second
)

// ErrSilent is given to Lost when the server stopped answering a request.
var ErrSilent = errors.New("pull: no message and no heartbeat from the server")

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

// Puller pulls. Its fields are used by the goroutine in Run only, but for starved and
// freed.
type Puller struct {
	Config

	freed   chan struct{} // a slot was freed while starved
	starved atomic.Bool   // no request is out for want of a slot

	inbox    string         // prefix of the reply subjects, with the last dot
	lost     bool           // Lost has been called and not returned
	left     int            // messages that the outstanding request may still bring
	messages chan *nats.Msg // what the subscription receives
	number   uint64         // of the latest request
	offline  bool           // the connection is down
	quiet    int            // heartbeats without a sign of the server
	up       bool           // Up has been called since the last Down or Lost
	wary     bool           // Up waits for a sign of life
	sub      *nats.Subscription
	taken    int // messages received by sub
}

// New returns a Puller. Nothing happens before Run.
func New(cfg Config) *Puller {
	return &Puller{
		Config: cfg, freed: make(chan struct{}, 1),
		// Room for what one request brings, twice over, and for the server's notices.
		messages: make(chan *nats.Msg, 2*cfg.Slots+64),
	}
}

// Freed tells the Puller that Free may have grown. It never blocks and costs one atomic
// load unless a request waits for it.
func (p *Puller) Freed() {
	if !p.starved.Load() {
		return
	}

	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// Run pulls until ctx ends, then takes back the outstanding request, delivers what was
// already on its way and returns nil. It returns
// nats.ErrConnectionClosed when the connection was closed for good.
func (p *Puller) Run(ctx context.Context) error {
	status := p.Conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer p.Conn.RemoveStatusListener(status)

	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()

	ctx, cancel := context.WithCancel(ctx)
	found := make(chan struct{}, 1)

	err := p.subscribe()
	for err == nil && ctx.Err() == nil {
		p.request()

		select {
		case <-ctx.Done():
		case msg := <-p.messages:
			p.receive(ctx, msg, found)
		case <-p.freed:
		case s, open := <-status:
			if !open {
				s = nats.CLOSED
			}

			err = p.changed(s)
		case <-ticker.C:
			err = p.tick(ctx, found)
		case <-found:
			p.lost = false
			err = p.subscribe()
		}
	}

	cancel()
	p.drain()

	if p.lost {
		<-found // Lost returns since its context has ended
	}

	return err
}

// subscribe makes a new inbox. Requests made under an older one can bring no more.
func (p *Puller) subscribe() error {
	if p.sub != nil {
		_ = p.sub.Unsubscribe() //nolint:errcheck // already gone is as good
	}

	p.inbox, p.left, p.quiet, p.taken = p.Conn.NewInbox()+".", 0, 0, 0

	sub, err := p.Conn.ChanSubscribe(p.inbox+"*", p.messages)
	if err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}

	p.sub = sub

	return nil
}

// request sends the next pull request if none is out and there is room.
func (p *Puller) request() {
	if p.left > 0 || p.lost || p.offline {
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

	p.number++
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, free, expires, heartbeat)

	if err := p.Conn.PublishRequest(p.Subject, p.inbox+strconv.FormatUint(p.number, 10), body); err != nil {
		return // disconnected: a status change or the ticker brings the next try
	}

	p.left = free

	if !p.wary {
		p.isUp()
	}
}

func (p *Puller) isUp() {
	if !p.up {
		p.up, p.wary = true, false
		p.Up()
	}
}

// receive takes a job, or a notice about a request.
func (p *Puller) receive(ctx context.Context, msg *nats.Msg, found chan<- struct{}) {
	p.quiet = 0
	p.count(msg)

	if isJob(msg) {
		p.left = max(p.left-1, 0)
		p.isUp()
		p.Deliver(msg)

		return
	}

	number, ours := strings.CutPrefix(msg.Subject, p.inbox)
	if !ours || number != strconv.FormatUint(p.number, 10) {
		return // about an earlier request
	}

	switch code := msg.Header.Get("Status"); code {
	case "100": // heartbeat
		p.isUp()
	case "404", "408": // the request has expired
		p.isUp()

		p.left = 0
	default:
		p.seek(ctx, found, fmt.Errorf("pull: server answered %s %s", code, msg.Header.Get("Description")))
	}
}

func (p *Puller) count(msg *nats.Msg) {
	if msg.Sub == p.sub {
		p.taken++
	}
}

// isJob tells messages of the stream, which can be acknowledged, from the server's notices.
func isJob(msg *nats.Msg) bool { return msg.Reply != "" }

// seek calls Lost and pulls no more until it has returned.
func (p *Puller) seek(ctx context.Context, found chan<- struct{}, reason error) {
	if p.lost {
		return
	}

	p.lost, p.up, p.wary = true, false, true

	go func() {
		p.Lost(ctx, reason)
		found <- struct{}{}
	}()
}

// changed follows the state of the connection.
func (p *Puller) changed(status nats.Status) error {
	switch status {
	case nats.CONNECTED:
		p.offline, p.wary = false, false

		return p.subscribe()
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

// tick notices what nobody reports: a silent server, and a missed status change.
func (p *Puller) tick(ctx context.Context, found chan<- struct{}) error {
	switch {
	case p.Conn.IsClosed():
		return errClosed
	case p.offline && p.Conn.IsConnected():
		return p.changed(nats.CONNECTED)
	case p.left == 0 || p.offline:
		p.quiet = 0
	case p.quiet >= 2:
		p.quiet = 0
		p.seek(ctx, found, ErrSilent)
	default:
		p.quiet++
	}

	return nil
}
