package kvlock

import "context"

// punctual is a context that ends on time for whoever asks it. The timer that ends it may be late: when a process goes on
// after it was frozen, what it did before may go on before its timers do, and somebody else has what it held by then.
type punctual struct {
	context.Context //nolint:containedctx // it is one

	end func() // ends it, if it is over
}

// Done returns a channel that is closed already when the context is over.
func (p punctual) Done() <-chan struct{} {
	if p.Context.Err() == nil {
		p.end()
	}
	return p.Context.Done()
}

// Err is nil only while the context is not over.
func (p punctual) Err() error {
	if err := p.Context.Err(); err != nil {
		return err
	}
	p.end()
	return p.Context.Err()
}
