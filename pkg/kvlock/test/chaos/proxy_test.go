package chaos_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// proxy is the network between one process and all its servers.
type proxy struct {
	urls string // where the process connects to

	mu        sync.Mutex
	closed    bool
	lose      [2]bool // what is sent towards the server, towards the client
	links     map[net.Conn]struct{}
	listeners []net.Listener
	work      sync.WaitGroup
}

const (
	toServer = iota
	toClient
)

// newProxy listens once for each server.
func newProxy(t *testing.T, servers string) *proxy {
	t.Helper()
	p := &proxy{links: map[net.Conn]struct{}{}}
	t.Cleanup(p.close)
	var urls []string
	for server := range strings.SplitSeq(servers, ",") {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check.OK(t, err)
		p.listeners = append(p.listeners, l)
		urls = append(urls, "nats://"+l.Addr().String())
		p.work.Go(func() { p.accept(l, strings.TrimPrefix(server, "nats://")) })
	}
	p.urls = strings.Join(urls, ",")
	return p
}

func (p *proxy) accept(l net.Listener, server string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", server)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.link(client, up) {
			continue
		}
		p.work.Go(func() { p.forward(client, up, toServer) })
		p.work.Go(func() { p.forward(up, client, toClient) })
	}
}

// link registers a connection, and reports whether it did. A closed proxy closes the connection instead.
func (p *proxy) link(client, up net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		_ = up.Close()
		return false
	}
	p.links[client], p.links[up] = struct{}{}, struct{}{}
	return true
}

// forward passes on the data that is not to be lost. It reads lost data too, so that the sender does not notice.
func (p *proxy) forward(from, to net.Conn, direction int) {
	defer p.unlink(from)
	defer p.unlink(to)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.loses(direction) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) unlink(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, c)
	_ = c.Close()
}

func (p *proxy) loses(direction int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose[direction]
}

// cut loses what is sent in the given directions from now on, on old connections and new ones.
func (p *proxy) cut(directions ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range directions {
		p.lose[d] = true
	}
}

// heal ends the connections there are, in whose streams something is missing, and loses nothing any more.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = [2]bool{}
	for c := range p.links {
		_ = c.Close()
	}
}

func (p *proxy) close() {
	p.heal()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.work.Wait()
}

// The proxy loses the chosen direction, and only that.
func TestProxyCutsOneDirection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer l.Close()
	var echo sync.WaitGroup
	echo.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			echo.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) //nolint:errcheck // until it is closed
			})
		}
	})
	p := newProxy(t, "nats://"+l.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.urls, "nats://"))
		check.OK(t, err)
		return c
	}
	c := dial()
	buf := make([]byte, 1)
	for _, want := range []byte("ab") {
		check.OK(t, check.Err(c.Write([]byte{want})))
		_, err := io.ReadFull(c, buf)
		check.Require(t, err == nil && buf[0] == want, "got %q, %v; want %q", buf, err, want)
	}
	p.cut(toClient)
	check.Is(t, check.Err(c.Write([]byte("c"))), nil)
	p.heal()
	if n, err := c.Read(buf); n > 0 || errors.Is(err, nil) {
		t.Errorf("read %q, %v through a cut", buf[:n], err)
	}
	_ = c.Close()
	_ = l.Close()
	p.close()
	echo.Wait()
}
