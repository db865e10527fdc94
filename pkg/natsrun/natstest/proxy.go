package natstest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// Proxy is a proxy between clients and an in-process server, for tests in which messages are lost, repeated, delayed or changed, or
// connections break. It parses only as much of the protocol as separates messages.
//
//	p, js := natstest.Proxied(t, srv)
//	p.Hit(func(f natstest.Frame) bool { return f.Subject == "jobs.a" }, natstest.ReplyLost, 1)
//
// Its methods may be called at any time, by any goroutine. It also works in a Bubble.
type Proxy struct {
	server nats.InProcessConnProvider

	mu      sync.Mutex
	change  func(Frame) []byte
	delay   time.Duration // the delay of each message to a client
	down    bool          // refuses new connections
	filter  func(Frame) Verdict
	hanging chan struct{} // not nil: new connections get no answer, and the first one closes it
	hole    bool          // all messages are read, and none is passed on
	links   []net.Conn
	subs    int
	uses    func(line []byte) // called with each line of a client
	wg      sync.WaitGroup
}

// Verdict is the treatment of a message.
type Verdict int

const (
	// Relay passes the message on.
	Relay Verdict = iota
	// Lose drops the message.
	Lose
	// Twice passes the message on two times.
	Twice
	// Sever drops the message and, like Partition, all later ones.
	Sever
)

// NewProxy returns a Proxy that passes all messages on. It ends with the test.
func NewProxy(t testing.TB, server nats.InProcessConnProvider) *Proxy {
	t.Helper()
	p := &Proxy{server: server}
	t.Cleanup(func() {
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Proxied is Connect through a new Proxy.
func Proxied(t testing.TB, s *natsrun.Server, opts ...nats.Option) (*Proxy, jetstream.JetStream) {
	t.Helper()
	p := NewProxy(t, s)
	_, js := Connect(t, s, append(opts, p.Through())...)
	return p, js
}

// Through returns the option with which a connection goes through the proxy.
func (p *Proxy) Through() nats.Option { return nats.InProcessServer(p) }

// InProcessConn implements nats.InProcessConnProvider.
func (p *Proxy) InProcessConn() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, net.ErrClosed
	}
	if p.hanging != nil {
		client, near := net.Pipe()
		p.links = append(p.links, near)
		close(p.hanging)
		p.hanging = make(chan struct{})
		p.wg.Go(func() { _, _ = io.Copy(io.Discard, near) }) // until it is closed
		return client, nil
	}
	up, err := p.server.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	client, near := net.Pipe()
	p.links = append(p.links, near, up)
	var open atomic.Bool
	p.wg.Go(func() { p.forward(near, up, true, &open) })
	p.wg.Go(func() { p.forward(up, near, false, &open) })
	return client, nil
}

// Filter calls judge for every message from now on, one at a time; nil relays all. It replaces an earlier Filter or
// Hit.
func (p *Proxy) Filter(judge func(Frame) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filter = judge
}

// Losing returns a filter that loses the messages for which lost returns true.
func Losing(lost func(Frame) bool) func(Frame) Verdict {
	return func(f Frame) Verdict {
		if lost(f) {
			return Lose
		}
		return Relay
	}
}

// Change replaces every message from now on by the result of change, a whole message as on the wire (see Frame.With). A result of nil
// leaves the message as it is. Change(nil) ends that.
func (p *Proxy) Change(change func(Frame) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// Slow delays each message to a client, and the messages behind it, by d from now on.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Partition drops all messages on the open connections, without closing them, and refuses new ones. It closes a connection that the server
// has not accepted yet: nats.go waits for that under its lock, so that in a Bubble any use of the connection would stop the clock.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole, p.down = true, true
}

// Hang closes the open connections and accepts new ones, on which no server answers, until Heal or the end of the test. It returns a
// channel that is closed when the next client waits for an answer.
func (p *Proxy) Hang(t testing.TB) (waits <-chan struct{}) {
	t.Helper()
	t.Cleanup(p.Heal) // or Close of a connection would wait
	p.Cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging, p.down = make(chan struct{}), false
	return p.hanging
}

// Heal closes the open connections and accepts new ones.
func (p *Proxy) Heal() {
	p.Cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging, p.hole, p.down = nil, false, false
}

// Cut closes all connections, and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for _, c := range p.links {
		_ = c.Close() // it may be closed already
	}
	p.links = nil
}

// Subscriptions returns the number of subscriptions that the clients have made.
func (p *Proxy) Subscriptions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subs
}

// Fault is the kind of fault that hits a request.
type Fault string

const (
	// RefusedApplied applies the request and answers with a refusal: the request arrives twice, and the first answer is lost.
	RefusedApplied Fault = "applied, but refused"
	// ReplyLost applies the request and loses its answer.
	ReplyLost Fault = "applied, reply lost"
	// WriteLost loses the request.
	WriteLost Fault = "not applied, time-out"
)

// Hit applies the fault how to the next n messages from clients that which selects, and relays all others. It sets a Filter.
func (p *Proxy) Hit(which func(Frame) bool, how Fault, n int) {
	first := map[string]bool{} // replies to lose once
	p.Filter(func(f Frame) Verdict {
		switch {
		case n > 0 && f.FromClient && which(f):
			n--
			switch how {
			case WriteLost:
				return Lose
			case ReplyLost:
				first[f.Reply] = true
			case RefusedApplied:
				first[f.Reply] = true
				return Twice
			}
		case !f.FromClient && first[f.Subject]:
			delete(first, f.Subject)
			return Lose
		}
		return Relay
	})
}

// forward passes on messages from one side, until either side is closed. open says that the server has accepted the connection.
func (p *Proxy) forward(from, to net.Conn, fromClient bool, open *atomic.Bool) {
	defer func() { _, _ = from.Close(), to.Close() }() // they may be closed already
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		f, err := readFrame(r, fromClient)
		if err != nil {
			return
		}
		raw, late := p.pass(f)
		switch {
		case len(raw) == 0 && f.Subject == "" && !open.Load():
			return
		case !fromClient && bytes.HasPrefix(raw, []byte("PONG")): // to the PING after CONNECT
			open.Store(true)
		}
		if late > 0 {
			<-time.After(late)
		}
		if _, err := to.Write(raw); err != nil {
			return
		}
	}
}

// pass returns the bytes to send for a frame, and the delay.
func (p *Proxy) pass(f Frame) (raw []byte, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.subscribes {
		p.subs++
	}
	if f.FromClient && p.uses != nil {
		p.uses(f.Raw)
	}
	n := 1
	switch p.judge(f) {
	case Lose:
		n = 0
	case Sever:
		n, p.hole, p.down = 0, true, true
	case Twice:
		n = 2
	case Relay:
	}
	if f.Subject == "" {
		return bytes.Repeat(f.Raw, n), 0
	}
	if p.change != nil {
		if changed := p.change(f); changed != nil {
			f.Raw = changed
		}
	}
	if !f.FromClient {
		late = p.delay
	}
	return bytes.Repeat(f.Raw, n), late
}

func (p *Proxy) judge(f Frame) Verdict {
	switch {
	case p.hole:
		return Lose
	case p.filter == nil || f.Subject == "":
		return Relay
	default:
		return p.filter(f)
	}
}
