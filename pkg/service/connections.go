package service

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
)

// ErrBusy is returned for a request beyond those that the service answers at a time. It becomes 503.
var ErrBusy = errors.New("the service answers as many requests as it can: ask again")

// connections is a listener with a bound of its connections. A new one beyond the bound takes the place of the one that has
// waited longest for a request as a whole, be it idle or slow. An eighth of the bound is left for connections that only wait.
type connections struct {
	net.Listener

	most int // connections

	mu       sync.Mutex
	open     int
	requests int        // that are being answered
	waiting  *list.List // the connections without such a request, that which waits longest first
}

// connection is a connection of a listener.
type connection struct {
	net.Conn

	of *connections

	closed   bool
	place    *list.Element // in waiting, nil while there is a request
	requests int           // more than one with HTTP/2
}

// bounded bounds the connections of a listener.
func bounded(l net.Listener, most int) *connections {
	return &connections{Listener: l, most: most, waiting: list.New()}
}

// Accept returns the next connection that has a place.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // net/http looks at it
		}
		added, instead := c.add(conn)
		if instead != nil {
			_ = instead.Close() //nolint:errcheck // its client has kept it without a request
		}
		if added != nil {
			return added, nil
		}
	}
}

// add gives a connection a place, and returns the one to close for it: that which waits longest, or the new one when none waits.
func (c *connections) add(conn net.Conn) (added *connection, instead net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most {
		longest := c.waiting.Front()
		if longest == nil {
			return nil, conn
		}
		left := longest.Value.(*connection) //nolint:forcetypeassert // all are
		left.leave()
		instead = left.Conn
	}
	c.open++
	added = &connection{Conn: conn, of: c}
	added.place = c.waiting.PushBack(added)
	return added, instead
}

// leave gives the place of a connection back. The caller holds the lock.
func (c *connection) leave() {
	if c.closed {
		return
	}
	c.closed = true
	c.of.open--
	if c.place != nil {
		c.of.waiting.Remove(c.place)
		c.place = nil
	}
}

// Close closes the connection, and gives its place back.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // net/http looks at it
}

// begin counts a request. It reports whether the request may be answered.
func (c *connections) begin(conn *connection, probe bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !probe && c.requests >= c.most-c.most/8 {
		return false
	}
	c.requests++
	conn.requests++
	if conn.place != nil {
		c.waiting.Remove(conn.place)
		conn.place = nil
	}
	return true
}

func (c *connections) end(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests--
	conn.requests--
	if conn.requests == 0 && !conn.closed {
		conn.place = c.waiting.PushBack(conn)
	}
}

// connectionKey is the key of a connection in the contexts of its requests.
type connectionKey struct{}

// connContext is that of [http.Server].
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// handler refuses the requests beyond the bound. Probes are answered all the same: a service with much to do is alive.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(*connection)
		if !c.begin(conn, quiet[r.URL.Path]) {
			if r.ProtoMajor == 1 { // others have more requests on it
				w.Header().Set("Connection", "close")
			}
			w.Header().Set("Retry-After", retryAfter)
			write(w, http.StatusServiceUnavailable, "application/problem+json", ErrorMapper(nil).Of(ErrBusy))
			return
		}
		defer c.end(conn)
		next.ServeHTTP(w, r)
	})
}
