package kvlock

import (
	"context"
	"errors"
	"testing"
)

// A context whose time is over is told to be, and so are those made from it, before any timer has run.
func TestPunctual(t *testing.T) {
	t.Parallel()
	over, cause := false, errors.New("over")
	begin := func() (punctual, context.Context) {
		inner, cancel := context.WithCancelCause(t.Context())
		p := punctual{inner, func() {
			if over {
				cancel(cause)
			}
		}}
		derived, stop := context.WithCancel(p)
		t.Cleanup(stop)
		return p, derived
	}
	asks := map[string]func(context.Context) bool{
		"Err": func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
	}
	for name, ended := range asks {
		over = false
		p, derived := begin()
		if ended(p) {
			t.Errorf("%s: ended before it was over", name)
		}
		if over = true; !ended(p) {
			t.Errorf("%s: not ended when it was over", name)
		}
		if got := context.Cause(derived); derived.Err() == nil || !errors.Is(got, cause) {
			t.Errorf("%s: a derived context has the cause %v, want %v", name, got, cause)
		}
	}
}
