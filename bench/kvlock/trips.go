package main

import (
	"context"
	"net"
	"sync/atomic"
)

// trips counts round trips: how often something was sent after something had been received.
type trips struct{ n atomic.Int64 }

// Dial implements nats.CustomDialer.
func (t *trips) Dial(network, address string) (net.Conn, error) {
	return t.dial(context.Background(), network, address)
}

func (t *trips) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // the client's dialer, as it knows it
	}
	return &tripConn{Conn: conn, trips: t}, nil
}

type tripConn struct {
	net.Conn

	trips *trips
	sent  atomic.Bool // and nothing received since
}

func (c *tripConn) Write(p []byte) (int, error) {
	if !c.sent.Swap(true) {
		c.trips.n.Add(1)
	}
	return c.Conn.Write(p) //nolint:wrapcheck // it is the connection
}

func (c *tripConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sent.Store(false)
	}
	return n, err //nolint:wrapcheck // it is the connection
}
