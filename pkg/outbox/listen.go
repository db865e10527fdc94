package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
)

// closeTimeout bounds the close of a connection.
const closeTimeout = time.Second

// listen wakes a batch when rows are committed. While it cannot listen, batches look for rows every Config.Poll.
func (r *Relay) listen(ctx context.Context) {
	wait := retryDelay{}
	for ctx.Err() == nil {
		err := r.listenOnce(ctx, &wait)
		if ctx.Err() != nil {
			return
		}
		delay := wait.next()
		r.counters.failed(err)
		r.cfg.Logger.WarnContext(ctx, EventListenFailed, "error", err, "delay", delay)
		backoff.Sleep(ctx, delay)
	}
}

// listenOnce listens on one connection until the connection fails. It pings the connection every Config.Poll.
func (r *Relay) listenOnce(ctx context.Context, wait *retryDelay) error {
	asking, answered := context.WithTimeout(ctx, r.cfg.answer)
	defer answered()
	pooled, err := r.cfg.Pool.Acquire(asking)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack() // a connection that listens does not go back to the pool
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		conn.Close(ctx) //nolint:errcheck,gosec // it holds nothing
	}()
	if _, err := conn.Exec(asking, "LISTEN event_outbox"); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	*wait = retryDelay{}
	for {
		r.notify() // also for rows that were committed before LISTEN
		if err := r.awaitNotification(ctx, conn); err != nil {
			return err
		}
	}
}

func (r *Relay) awaitNotification(ctx context.Context, conn *pgx.Conn) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, r.cfg.Poll)
		_, err := conn.WaitForNotification(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("wait for a notification: %w", err)
		}
		bounded, cancel = context.WithTimeout(ctx, min(r.cfg.Poll, r.cfg.answer))
		err = conn.Ping(bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("ask the connection: %w", err)
		}
	}
}
