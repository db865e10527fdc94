package service

import (
	"context"
	"errors"
	"sync"
)

// Parts are the goroutines of a service. When one of them ends by itself, the whole is over. Make it with [NewParts].
type Parts struct {
	ctx     context.Context //nolint:containedctx // the life of the parts, not of a call
	cancel  context.CancelFunc
	ended   chan struct{}
	once    sync.Once
	running sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

// NewParts returns no parts yet. Their contexts have the values of ctx, and end with Stop only.
func NewParts(ctx context.Context) *Parts {
	p := &Parts{ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// Go runs a part until Stop ends its context, or it ends by itself. It must not be called after Stop.
func (p *Parts) Go(run func(context.Context) error) {
	p.running.Go(func() {
		err := run(p.ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.errs = append(p.errs, err)
		}
		p.once.Do(func() { close(p.ended) })
	})
}

// Ended is closed when a part has ended.
func (p *Parts) Ended() <-chan struct{} { return p.ended }

// Stop ends the contexts of all parts, waits for them, and returns what any of them returned.
func (p *Parts) Stop() error {
	p.cancel()
	p.running.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}
