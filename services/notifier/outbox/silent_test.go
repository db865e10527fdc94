package outbox

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// mute is a way to the database on which nothing passes any more on the connections that there are, as when its machine is gone.
// They are not closed.
type mute struct {
	mu    sync.Mutex
	conns []*mutable
}

type mutable struct {
	net.Conn

	gone chan struct{} // closed when nothing passes any more
}

func (m *mute) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &mutable{Conn: conn, gone: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	return c, nil
}

func (m *mute) strike() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		close(c.gone)
	}
	m.conns = nil
}

// Read loses what comes once nothing passes: it ends by its deadline only, or by Close.
func (c *mutable) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.gone:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}

// Write loses what is sent once nothing passes.
func (c *mutable) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// A database that does not answer any more, and does not end its connections either, is asked over others within the bound of an
// answer, by each that asks. What was under way is published.
func TestADatabaseThatFallsSilentIsAskedOverOtherConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	silent := &mute{}
	config := p.pool.Config()
	config.ConnConfig.DialFunc = silent.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r, _ := p.relay(func(c *Config) {
		c.Pool, c.Poll, c.answer = pool, 50*time.Millisecond, time.Second
	})
	all := events("e", 4, 30)
	for n := range 3 {
		p.insert(all[40*n : 40*(n+1)]...)
		await(t, "some are published", func() bool { return r.Stats().Published >= int64(40*n+20) })
		silent.strike()
	}
	await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
	checkOrder(t, p.stored(), all)
}
