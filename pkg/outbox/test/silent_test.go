package outbox_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/internal/probe"
)

// mute dials connections to the database that strike makes silent: they lose all bytes but are not closed, as when the machine of
// the database is gone.
type mute struct {
	mu    sync.Mutex
	conns []*mutable
}

type mutable struct {
	net.Conn

	gone chan struct{} // closed by strike
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

// Read loses all bytes after strike. It ends by its deadline, or by Close.
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

// Write loses all bytes after strike.
func (c *mutable) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// When a database neither answers nor closes its connections, each part of the relay uses a new connection after the bound of an
// answer. Rows that were in flight are published.
func TestADatabaseThatFallsSilentIsAskedOverOtherConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	silent := &mute{}
	config := p.pool.Config()
	config.ConnConfig.DialFunc = silent.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	check.OK(t, err)
	t.Cleanup(pool.Close)
	cfg := p.config()
	cfg.Pool, cfg.Poll = pool, 50*time.Millisecond
	r, err := outbox.New(probe.With(t.Context(), probe.Probe{AnswerTimeout: time.Second}), cfg)
	check.OK(t, err)
	run(t, r)
	all := events("e", 4, 30)
	for n := range 3 {
		p.insert(all[40*n : 40*(n+1)]...)
		await(t, "some are published", func() bool { return r.Stats().Published >= int64(40*n+20) })
		silent.strike()
	}
	await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
	checkOrder(t, p.stored(), all)
}
