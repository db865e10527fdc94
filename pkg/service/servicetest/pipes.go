package servicetest

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener whose connections stay in the process and have no buffers: they live under fake time, and what their
// other end does not read cannot be written. Make it with [NewPipes].
type Pipes struct {
	closed chan struct{}
	conns  chan net.Conn
	once   sync.Once
}

// NewPipes returns a listener.
func NewPipes() *Pipes { return &Pipes{closed: make(chan struct{}), conns: make(chan net.Conn)} }

// Accept implements [net.Listener].
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements [net.Listener]. It is a loopback address.
func (*Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Close implements [net.Listener].
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// DialContext returns a connection to the listener, whatever the address. It is for a [net/http.Transport].
func (p *Pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
