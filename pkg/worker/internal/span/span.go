// Package span bounds the time of requests that follow one another.
package span

import (
	"context"
	"time"
)

// Span makes contexts for one request after the other, each with a deadline of its own. As long as all end in time they share
// one context and timer, which context.WithTimeout would make anew for each. It belongs to one goroutine at a time.
type Span struct {
	limit  time.Duration
	now    *timed
	parent context.Context //nolint:containedctx // of all its contexts
}

// timed is a context that ends when its timer, which is set for each request, runs out.
type timed struct {
	context.Context //nolint:containedctx // is what it derives

	cancel context.CancelCauseFunc
	timer  *time.Timer
	until  time.Time
}

// New returns a Span for requests that end with parent, or each after limit.
func New(parent context.Context, limit time.Duration) *Span {
	return &Span{limit: limit, parent: parent}
}

// Begin returns a context like that of context.WithTimeout. It is valid until the call of Pause that must follow.
func (s *Span) Begin() context.Context {
	until := time.Now().Add(s.limit)

	if t := s.now; t != nil {
		t.until = until
		t.timer.Reset(s.limit)
		return t
	}

	ctx, cancel := context.WithCancelCause(s.parent)
	s.now = &timed{
		Context: ctx, cancel: cancel, until: until,
		timer: time.AfterFunc(s.limit, func() { cancel(context.DeadlineExceeded) }),
	}
	return s.now
}

// Pause ends a request.
func (s *Span) Pause() {
	if t := s.now; t != nil && (!t.timer.Stop() || t.Context.Err() != nil) {
		s.End() // its time has run out, or is about to
	}
}

// End releases the context and its timer. The Span can be used again. On a nil Span it does nothing.
func (s *Span) End() {
	if s == nil || s.now == nil {
		return
	}

	s.now.timer.Stop()
	s.now.cancel(nil)

	s.now = nil
}

// Deadline implements context.Context.
func (t *timed) Deadline() (time.Time, bool) {
	if d, ok := t.Context.Deadline(); ok && d.Before(t.until) {
		return d, true
	}
	return t.until, true
}

// Err implements context.Context.
func (t *timed) Err() error {
	err := t.Context.Err()
	if err != nil && context.Cause(t.Context) == context.DeadlineExceeded { //nolint:errorlint // the very error that the timer passes
		return context.DeadlineExceeded
	}
	return err
}
