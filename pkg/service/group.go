package service

import (
	"context"
	"errors"
	"sync"
)

// Group is the goroutines of a service. A service stops when one of them ends by itself. Make it with [NewGroup].
type Group struct {
	ctx     context.Context //nolint:containedctx // the life of the goroutines, not of a call
	cancel  context.CancelFunc
	ended   chan struct{}
	once    sync.Once
	running sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

// NewGroup returns an empty group. The contexts of its goroutines have the values of ctx, and only Stop ends them.
func NewGroup(ctx context.Context) *Group {
	g := &Group{ended: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return g
}

// Go calls run in a goroutine, whose context ends with Stop. It must not be called after Stop.
func (g *Group) Go(run func(context.Context) error) {
	g.running.Go(func() {
		err := run(g.ctx)
		g.mu.Lock()
		defer g.mu.Unlock()
		if err != nil {
			g.errs = append(g.errs, err)
		}
		g.once.Do(func() { close(g.ended) })
	})
}

// Ended is closed when the first goroutine has ended.
func (g *Group) Ended() <-chan struct{} { return g.ended }

// Stop ends the contexts of all goroutines, waits for them, and returns their errors.
func (g *Group) Stop() error {
	g.cancel()
	g.running.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}
