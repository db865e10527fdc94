package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// childRole is that of a worker of its own. It reads its task, as JSON.
const childRole = "worker"

// task is what such a worker is told.
type task struct {
	Contestant string
	Settings   settings
}

// childMain is the life of such a worker, if this process is to be one.
func childMain() { rig.ChildMain(childRole, serveTask) }

// serveTask works jobs that never end, and says of each that it has started.
func serveTask(ctx context.Context, t task) error {
	for _, who := range field() {
		if who.Name != t.Contestant {
			continue
		}
		c, err := who.open(ctx, t.Settings)
		if err != nil {
			return err
		}
		_, err = c.work(ctx, 1, func(ctx context.Context, _ string) error {
			fmt.Println("started")
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
	return fmt.Errorf("nobody is called %q", t.Contestant)
}

// restart is from the kill -9 of a worker in mid-job until the job starts on another.
func restart(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	t := task{Contestant: b.contestant.Name, Settings: b.settings}
	t.Settings.Old = true
	p, err := rig.StartTask(childRole, t)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	if err := c.insert(ctx, name(0)); err != nil {
		return nil, err
	}
	if _, err := p.Line(ctx); err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	stop, err := c.work(ctx, 1, func(context.Context, string) error {
		select {
		case started <- time.Now():
		default:
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	select { // in the middle between two signs of life, where there are some
	case <-time.After(b.contestant.lease / 2):
	case <-ctx.Done():
	}
	killed := time.Now()
	p.Kill()
	select {
	case at := <-started:
		taken := at.Sub(killed)
		return rig.Figures{
			"restart_ms": rig.In("ms", taken), "restart_over_ackwait": float64(taken) / float64(b.contestant.lease),
		}, stop()
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("the job did not start again: %w", ctx.Err()), stop())
	}
}
