// Package pull feeds messages of JetStream consumers to a worker, never more than it has free slots for.
//
// It keeps one long-lived subscription for each consumer and at most one outstanding pull request. With one consumer, a request asks for
// as many messages as there are free slots at that moment. The next request is sent when all messages have come or the request has
// expired. So no message waits in a buffer while its AckWait runs, an idle worker has a request waiting at the server, and a busy worker
// sends one request for many jobs. Several consumers share the slots, see share.go. The clients of nats.go either make a subscription per
// request (Fetch) or ask ahead of need (Consume, Messages).
package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// maxPatience bounds a request to a slow server, and so the time that a stop takes.
	maxPatience = 30 * time.Second

	// silence is the time after its end for which a request may be unanswered.
	silence = 2 * time.Second
)

var (
	// ErrSilent is the reason in the call of Lost when the server does not answer a request.
	ErrSilent = errors.New("pull: no answer from the server")

	// ErrUnserved is the reason in the call of Lost when nobody takes the requests of a consumer.
	ErrUnserved = errors.New("pull: no server takes the requests of the consumer (503)")
)

var errClosed = fmt.Errorf("pull: %w", nats.ErrConnectionClosed)

// Config configures a [Puller].
type Config struct {
	// Conn is the connection.
	Conn *nats.Conn

	// Deliver takes a message that the server has not sent before the time since: that may be long ago in a process that was stopped, or cut
	// off. It returns the number of messages that wait behind it, by the message's metadata. It must not block.
	Deliver func(msg *nats.Msg, since time.Time) (waiting uint64)

	// Expires ends a request. It is short because a request cannot be withdrawn: if the subscription ended while the server sends a job, the
	// job would be lost until its AckWait ends, and use an attempt. So a stop waits until the request has ended by itself, which the server
	// reports after all messages of the request.
	Expires time.Duration

	// Free returns the number of free slots.
	Free func() int

	// Down is called when the connection is lost.
	Down func(reason error)

	// Lost is called on a separate goroutine when a consumer cannot be pulled from. It returns when the consumer can be pulled from again,
	// or when ctx ends. The other consumers are pulled from in the meantime.
	Lost func(ctx context.Context, reason error)

	// Sources are the consumers, the most important first.
	Sources []Source

	// Up is called when pulling begins, at the start and after each Down and Lost. After Lost it waits for the server's first
	// sign of life.
	Up func()
}

// Source is a consumer.
type Source struct {
	// Paused reports whether the Puller must not pull from it now. Call Wake when that may have changed.
	Paused func() bool

	// Subject is the subject of its pull requests.
	Subject string

	// Weight is its share of the slots, relative to the other consumers that have messages.
	Weight int
}

// Puller pulls. The atomic fields and wake are shared with the subscriptions' callbacks and with Freed, the others belong to the
// goroutine in Run.
type Puller struct {
	Config

	starved atomic.Bool   // a request has not been sent for want of a slot
	wake    chan struct{} // look again

	clock   float64     // of the shares, see share
	endLost func()      // ends the ctx of Lost
	notices chan notice // the notices of the server about requests
	now     time.Time   // the time of the latest computation of the shares
	offline bool        // the connection is down
	pulling bool        // a request has been sent on this connection
	seeking bool        // Lost has been called and not returned
	sources []*source
	timer   *time.Timer // runs until an outstanding request may count as unanswered
	up      bool        // Up has been called since the last Down or Lost
}

// request is the kind of an outstanding pull request.
type request int

const (
	none request = iota

	// taking asks for present messages, and holds slots for them until the server has answered.
	taking

	// standing waits at the server for messages that may come, and holds no slot.
	standing
)

// source is one consumer: its subscription and its outstanding request. The atomic fields are shared with the subscription's
// callback, the others belong to the goroutine in Run.
type source struct {
	Source

	puller *Puller

	alive    atomic.Bool   // the server has answered since the latest request
	left     atomic.Int64  // messages that the outstanding request may still bring
	more     atomic.Bool   // the metadata of the latest message had others waiting
	patience atomic.Int64  // the duration of the next request; 0 while the server is not slow
	wary     atomic.Bool   // Up waits for a sign of life
	ended    chan struct{} // the subscription has ended and its callback returned

	asked   request       // the kind of the outstanding request
	batch   int64         // of the outstanding request
	charged int64         // of the batch, in finish
	emptied time.Time     // the time at which the source was last known to be empty
	finish  float64       // its virtual time, see share
	granted int           // the slots granted so far, while share runs
	lasts   time.Duration // the outstanding request
	inbox   string        // prefix of the reply subjects, with the last dot
	lost    bool          // it could not be pulled from, and Lost has not returned
	sub     *nats.Subscription

	mu     sync.Mutex // guards the fields below; Run writes number and sent, and reads them without the lock
	former time.Time  // the time at which requests were sent that the server did not end
	late   int        // the number of next messages that may be answers to those
	number uint64     // of the latest request
	sent   time.Time  // the latest request
}

// notice is a status message of the server about a request.
type notice struct {
	about *source
	msg   *nats.Msg
}

// New returns a Puller. It does nothing before Run.
func New(cfg Config) *Puller {
	const room = 64 // for notices
	p := &Puller{Config: cfg, notices: make(chan notice, room), wake: make(chan struct{}, 1)}
	for _, s := range cfg.Sources {
		p.sources = append(p.sources, &source{Source: s, puller: p, ended: make(chan struct{})})
	}
	return p
}

// Freed notifies the Puller that Free may have grown. It never blocks and costs one atomic load unless a request waits for
// it.
func (p *Puller) Freed() {
	if p.starved.Load() {
		p.look()
	}
}

// Wake makes the Puller check which sources are paused.
func (p *Puller) Wake() { p.look() }

func (p *Puller) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run pulls until ctx ends. Then it waits for the end of the outstanding requests, a second unless the server is away or slow, delivers
// their messages and returns nil. It returns nats.ErrConnectionClosed when the connection was closed for good. No message is delivered
// after its return.
func (p *Puller) Run(ctx context.Context) error {
	status := p.Conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer p.Conn.RemoveStatusListener(status)
	defer p.unsubscribe()
	for _, s := range p.sources {
		if err := p.subscribe(s); err != nil {
			return err
		}
	}
	p.timer = time.NewTimer(p.Expires + silence)
	defer p.timer.Stop()
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan struct{}, 1)
	var err error
	for err == nil && ctx.Err() == nil {
		p.request()
		err = p.step(ctx, ctx.Done(), status, found)
	}
	cancel()
	for err == nil && !p.offline && p.isWaiting() {
		err = p.step(ctx, nil, status, found)
	}
	if p.seeking {
		<-found // Lost returns because its context has ended
	}
	return err
}

// receive is the callback of a source's subscription. Jobs are delivered from here.
func (s *source) receive(msg *nats.Msg) {
	p := s.puller
	s.alive.Store(true)
	if msg.Reply == "" { // a notice of the server, which cannot be acknowledged
		s.ends(msg)
		select {
		case p.notices <- notice{about: s, msg: msg}:
		default: // only a server that comes and goes can send so many
		}
		return
	}
	s.patience.Store(0)
	s.more.Store(p.Deliver(msg, s.since()) > 0)
	// The last message of a request makes room for the next one; and the first after a break shows that the server serves the consumer.
	if s.left.Add(-1) <= 0 || s.wary.Load() {
		p.look()
	}
}

// since returns a time before which the server cannot have sent the next message: that of the request that it answers.
func (s *source) since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == 0 {
		return s.sent
	}
	s.late-- // it may answer a request that the server did not end
	return s.former
}

// isWaiting reports whether a request may still bring messages.
func (p *Puller) isWaiting() bool {
	return slices.ContainsFunc(p.sources, func(s *source) bool { return s.isOut() && !s.lost })
}

// step waits for one event.
func (p *Puller) step(ctx context.Context, done <-chan struct{}, status <-chan nats.Status, found chan struct{}) error {
	select {
	case <-done:
	case <-p.wake:
		p.noteAlive()
	case n := <-p.notices:
		p.noticed(ctx, n, found)
	case s, open := <-status:
		if !open {
			s = nats.CLOSED
		}
		return p.changed(s)
	case <-p.timer.C:
		return p.overdue(ctx, found)
	case <-found:
		p.seeking = false
		for _, s := range p.sources {
			if s.lost {
				s.lost = false
				s.alive.Store(false)
				p.drop(s)
			}
		}
	}
	return nil
}

// request sends the pull requests for which there is room.
func (p *Puller) request() {
	switch {
	case p.offline:
		return
	case len(p.sources) > 1:
		p.share()
	default:
		p.fill(p.sources[0])
	}
	p.isUp()
}

// fill asks the only source for as many messages as there are free slots.
func (p *Puller) fill(s *source) {
	if s.isOut() || s.lost {
		return
	}
	if s.Paused() {
		p.pulling = true // as far as it is to
		return
	}
	free := p.Free()
	if free <= 0 {
		// Check again after starved is set: a slot that was freed in between would not be reported.
		p.starved.Store(true)
		if free = p.Free(); free <= 0 {
			return
		}
	}
	p.starved.Store(false)
	p.send(s, standing, free)
}

// isUp calls Up when pulling has begun and the sources that were lost have given a sign of life.
func (p *Puller) isUp() {
	if p.up || p.offline || !p.pulling {
		return
	}
	for _, s := range p.sources {
		if s.lost || s.wary.Load() {
			return
		}
	}
	p.up = true
	p.Up()
}

// noteAlive ends the wait for a sign of life.
func (p *Puller) noteAlive() {
	for _, s := range p.sources {
		if s.alive.Load() && !s.lost {
			s.wary.Store(false)
		}
	}
	p.isUp()
}

// noticed handles a notice of the server about a request.
func (p *Puller) noticed(ctx context.Context, n notice, found chan<- struct{}) {
	s := n.about
	if n.msg.Subject != s.inbox+strconv.FormatUint(s.number, 10) {
		return // about an earlier request
	}
	switch code := n.msg.Header.Get("Status"); code {
	case "404", "408": // there is no message, or the request has expired
		s.adapt()
		p.noteAlive()
		p.returned(s)
	case "503":
		p.seek(ctx, s, found, ErrUnserved)
	default:
		p.seek(ctx, s, found, fmt.Errorf("pull: server answered %s %s", code, n.msg.Header.Get("Description")))
	}
}

// seek calls Lost and pulls no more from the source until Lost has returned.
func (p *Puller) seek(ctx context.Context, s *source, found chan<- struct{}, reason error) {
	if s.lost {
		return
	}
	s.lost, p.up = true, false
	s.alive.Store(false)
	s.wary.Store(true)
	if p.seeking {
		return // this source is tried again when Lost returns
	}
	p.seeking = true
	ctx, endLost := context.WithCancel(ctx)
	p.endLost = endLost
	go func() {
		defer endLost()
		p.Lost(ctx, reason)
		found <- struct{}{}
	}()
}

// changed follows the state of the connection.
func (p *Puller) changed(status nats.Status) error {
	switch status {
	case nats.CONNECTED:
		p.offline = false
		for _, s := range p.sources {
			s.wary.Store(false)
			p.drop(s) // the request was lost with the old connection
		}
		if p.seeking {
			p.endLost() // Lost may wait for an answer that was lost with it, too
		}
		return nil
	case nats.CLOSED:
		return errClosed
	default:
		if !p.offline {
			p.offline, p.pulling, p.up = true, false, false
			p.Down(nats.ErrDisconnected)
		}
		return nil
	}
}

// overdue notices failures that come without an event: a silent server, and a missed status change.
func (p *Puller) overdue(ctx context.Context, found chan<- struct{}) error {
	next := p.Expires + silence
	defer func() { p.timer.Reset(next) }()
	switch {
	case p.Conn.IsClosed():
		return errClosed
	case p.offline && p.Conn.IsConnected():
		return p.changed(nats.CONNECTED)
	case p.offline:
		return nil
	}
	for _, s := range p.sources {
		if !s.isOut() || s.lost {
			continue
		}
		if waits := s.lasts + silence - time.Since(s.sent); waits > 0 {
			next = min(next, waits)
			continue
		}
		s.adapt()
		p.seek(ctx, s, found, ErrSilent)
	}
	return nil
}

func (p *Puller) subscribe(s *source) error {
	s.inbox = p.Conn.NewInbox() + "."
	sub, err := p.Conn.Subscribe(s.inbox+"*", s.receive)
	if err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}
	s.sub = sub
	sub.SetClosedHandler(func(string) { close(s.ended) })
	// The requests bound the messages. The client's limit would drop large messages.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}
	return nil
}

// leave notes that the server did not end the latest request. Some of its messages may be pending, as in a process that was stopped. No
// more will come: the connection is a new one, or has brought an answer to a later question.
func (s *source) leave(pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == 0 {
		s.former = s.sent
	}
	s.late = max(pending, 0)
}

// ends takes a notice of the server. After a notice about the latest request no message of an earlier request comes.
func (s *source) ends(notice *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if notice.Subject == s.inbox+strconv.FormatUint(s.number, 10) {
		s.late = 0
	}
}

// send sends a request for n messages. No other bound is set.
func (p *Puller) send(s *source, kind request, n int) {
	s.asked, s.batch, s.charged = kind, int64(n), 0
	s.left.Store(s.batch)
	s.lasts = max(p.Expires, time.Duration(s.patience.Load()))
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, n, s.lasts)
	if kind == taking {
		body = fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, n)
	}
	s.mu.Lock()
	s.number, s.sent = s.number+1, time.Now()
	s.mu.Unlock()
	if err := p.Conn.PublishRequest(s.Subject, s.inbox+strconv.FormatUint(s.number, 10), body); err != nil {
		s.left.Store(0) // disconnected: a status change or the timer brings the next try
		return
	}
	p.pulling = true
}

// adapt makes the next request last longer, if the server was slow to end the latest and sent nothing. The server looks for the oldest
// message among all subjects of the stream, which takes seconds for millions. If the request has expired by then, it drops the message that
// it found.
func (s *source) adapt() {
	s.patience.Store(0)
	if s.left.Load() == s.batch && time.Since(s.sent) > s.lasts+s.lasts/10 {
		s.patience.Store(int64(min(2*s.lasts, maxPatience)))
	}
}

// isOut reports whether the server may still answer a request.
func (s *source) isOut() bool { return s.left.Load() > 0 }

// unsubscribe ends the subscriptions and waits for their callbacks to return.
func (p *Puller) unsubscribe() {
	for _, s := range p.sources {
		if s.sub != nil {
			_ = s.sub.Unsubscribe() // on a closed connection there is nothing to unsubscribe
			<-s.ended
		}
	}
}
