package email

import (
	"context"
	"sync"
	"time"
)

// pool keeps connections for the next mail, and bounds how many there are.
type pool struct {
	dial    func(ctx context.Context) (*conn, error)
	timeout time.Duration
	slots   chan struct{}

	mu     sync.Mutex
	closed bool
	idle   []*conn

	background sync.WaitGroup // the expiries
}

func (p *pool) open(size int, timeout time.Duration, dial func(ctx context.Context) (*conn, error)) {
	p.dial, p.timeout, p.slots = dial, timeout, make(chan struct{}, size)
}

// enter waits for leave to use a connection, and reports whether it came before the end of ctx.
func (p *pool) enter(ctx context.Context) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *pool) leave() { <-p.slots }

// take returns a connection: the one that was used last, or a new one.
func (p *pool) take(ctx context.Context, fresh bool) (*conn, error) {
	if !fresh {
		if c := p.kept(); c != nil {
			return c, nil
		}
	}
	return p.dial(ctx)
}

func (p *pool) kept() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		c := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if c.expiry.Stop() {
			p.background.Done()
			c.used = true
			return c
		}
	}
	return nil
}

// put keeps a connection for the next mail, for a while.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.drop()
		return
	}
	p.background.Add(1)
	c.expiry = time.AfterFunc(p.timeout, func() {
		defer p.background.Done()
		c.quit()
	})
	p.idle = append(p.idle, c)
}

// close takes leave of all connections that nobody uses; those in use are dropped when they come back.
func (p *pool) close() {
	for {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		c := p.kept()
		if c == nil {
			break
		}
		c.quit()
	}
	p.background.Wait()
}
