package crash

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Network is the network between one process and all its servers.
type Network struct {
	// URLs are the addresses to which the process connects, in the form of the servers argument.
	URLs string

	mu        sync.Mutex
	closed    bool
	lose      [2]bool // by direction
	links     map[net.Conn]struct{}
	listeners []net.Listener
	work      sync.WaitGroup
}

// Direction is the way of data through a Network.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// SocketDir returns a folder for sockets, until the test ends: a path below t.TempDir() may be too long for one.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "expediter-") //nolint:usetesting // see above
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, os.RemoveAll(dir)) })
	return dir
}

// NewNetwork listens once for each server, until the test ends. Servers are separated by commas: URLs, addresses of TCP, or paths of
// sockets.
func NewNetwork(t testing.TB, servers string) *Network {
	t.Helper()
	n := &Network{links: map[net.Conn]struct{}{}}
	t.Cleanup(n.close)
	var urls []string
	for server := range strings.SplitSeq(servers, ",") {
		network, listen, scheme := "tcp", "127.0.0.1:0", ""
		if before, after, found := strings.Cut(server, "://"); found {
			scheme, server = before+"://", after
		} else if filepath.IsAbs(server) {
			network, listen = "unix", filepath.Join(SocketDir(t), filepath.Base(server))
		}
		l, err := net.Listen(network, listen) //nolint:noctx // on this machine
		if err != nil {
			t.Fatalf("listen for %s: %v", server, err)
		}
		n.listeners = append(n.listeners, l)
		urls = append(urls, scheme+l.Addr().String())
		n.work.Go(func() { n.accept(l, network, server) })
	}
	n.URLs = strings.Join(urls, ",")
	return n
}

func (n *Network) accept(l net.Listener, network, server string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial(network, server) //nolint:noctx // on this machine
		if err != nil {
			_ = client.Close() // nothing was sent
			continue
		}
		if !n.link(client, up) {
			continue
		}
		n.work.Go(func() { n.forward(client, up, ToServer) })
		n.work.Go(func() { n.forward(up, client, ToClient) })
	}
}

// link registers a connection, and reports whether it did. A closed network closes the connection instead.
func (n *Network) link(client, up net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_, _ = client.Close(), up.Close() // nothing was sent
		return false
	}
	n.links[client], n.links[up] = struct{}{}, struct{}{}
	return true
}

// forward passes on the data that is not to be lost. It reads lost data too, so that the sender does not notice.
func (n *Network) forward(from, to net.Conn, way Direction) {
	defer n.unlink(from)
	defer n.unlink(to)
	buf := make([]byte, 64<<10)
	for {
		size, err := from.Read(buf)
		if size > 0 && !n.loses(way) {
			if _, err := to.Write(buf[:size]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (n *Network) unlink(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, c)
	_ = c.Close() // it may be closed already
}

func (n *Network) loses(way Direction) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lose[way]
}

// Cut loses all bytes in the given directions from now on, on old connections and new ones.
func (n *Network) Cut(ways ...Direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, way := range ways {
		n.lose[way] = true
	}
}

// Heal closes the present connections, whose streams lack bytes, and loses no more bytes.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = [2]bool{}
	for c := range n.links {
		_ = c.Close() // it may be closed already
	}
}

func (n *Network) close() {
	n.Heal()
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	for _, l := range n.listeners {
		_ = l.Close() // it is not used any more
	}
	n.work.Wait()
}
