package natstest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Proxy stands between clients and a server that is reached in-process, for tests of
// what has to hold when messages are lost, repeated, late or not what was sent, or
// connections break. It understands as much of the protocol as it needs to tell one
// message from the next.
//
//	p := natstest.NewProxy(t, srv)
//	_, js := natstest.Connect(t, srv, p.Through())
//	p.Hit(func(f natstest.Frame) bool { return f.Subject == "jobs.a" }, natstest.ReplyLost, 1)
//
// Its methods may be called at any time, by any goroutine. It also works in a Bubble.
type Proxy struct {
	server nats.InProcessConnProvider

	mu     sync.Mutex
	change func(Frame) []byte
	delay  time.Duration // of each message to a client
	down   bool          // refuses new connections
	filter func(Frame) Verdict
	hole   bool // takes everything, and passes nothing on
	links  []net.Conn
	subs   int
	wg     sync.WaitGroup
}

// Verdict is what becomes of a message.
type Verdict int

const (
	// Relay passes it on.
	Relay Verdict = iota
	// Lose does not.
	Lose
	// Twice passes it on two times.
	Twice
	// Sever loses it and, as Partition does, all that comes after it.
	Sever
)

// NewProxy returns a Proxy that passes everything on. It ends with the test.
func NewProxy(t testing.TB, server nats.InProcessConnProvider) *Proxy {
	t.Helper()

	p := &Proxy{server: server}

	t.Cleanup(func() {
		p.Cut()
		p.wg.Wait()
	})

	return p
}

// Through makes a connection go through the proxy.
func (p *Proxy) Through() nats.Option { return nats.InProcessServer(p) }

// InProcessConn implements nats.InProcessConnProvider.
func (p *Proxy) InProcessConn() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.down {
		return nil, net.ErrClosed
	}

	up, err := p.server.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}

	client, near := net.Pipe()
	p.links = append(p.links, near, up)

	p.wg.Go(func() { p.forward(near, up, true) })
	p.wg.Go(func() { p.forward(up, near, false) })

	return client, nil
}

// Filter has every message from now on judged by judge, one at a time; nil relays
// all. It replaces what was set before, also by Hit.
func (p *Proxy) Filter(judge func(Frame) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.filter = judge
}

// Change has every message from now on replaced by what change returns, whole as on
// the wire (see Frame.With); nil leaves it as it is. A change of nil ends that.
func (p *Proxy) Change(change func(Frame) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.change = change
}

// Slow delays each message to a client, and all behind it, by d from now on.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.delay = d
}

// Partition loses everything on the connections there are, without closing them, and
// refuses new ones.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.hole, p.down = true, true
}

// Heal closes the connections there are and lets new ones in.
func (p *Proxy) Heal() {
	p.Cut()

	p.mu.Lock()
	defer p.mu.Unlock()

	p.hole, p.down = false, false
}

// Cut closes all connections, and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.down = true

	for _, c := range p.links {
		_ = c.Close() //nolint:errcheck // it may be closed already
	}

	p.links = nil
}

// Subscriptions is how many the clients have made.
func (p *Proxy) Subscriptions() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.subs
}

// Fault is what happens to a request.
type Fault string

const (
	// RefusedApplied has it applied, and answered by a refusal: it arrives twice, and
	// the first answer is lost.
	RefusedApplied Fault = "applied, but refused"
	// ReplyLost has it applied, and loses the answer.
	ReplyLost Fault = "applied, reply lost"
	// WriteLost loses it.
	WriteLost Fault = "not applied, time-out"
)

// Hit makes how happen to the next n messages from clients that are what which says,
// and relays all others. It is a Filter.
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

// forward passes on what comes from one side, until either is closed.
func (p *Proxy) forward(from, to net.Conn, fromClient bool) {
	defer func() { _, _ = from.Close(), to.Close() }() //nolint:errcheck // they may be closed already

	r := bufio.NewReaderSize(from, 64<<10)

	for {
		f, err := readFrame(r, fromClient)
		if err != nil {
			return
		}

		raw, late := p.pass(f)

		if late > 0 {
			<-time.After(late)
		}

		if _, err := to.Write(raw); err != nil {
			return
		}
	}
}

// pass is what becomes of a frame, and how much later.
func (p *Proxy) pass(f Frame) (raw []byte, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if f.subscribes {
		p.subs++
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
