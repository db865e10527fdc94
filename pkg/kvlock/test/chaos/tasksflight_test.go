package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// currentKey is the key that all processes work on, for a window of time, without having to agree on it.
func currentKey(prefix string, window time.Duration) (key string, ends time.Duration) {
	at := now()
	return fmt.Sprintf("%s%d", prefix, at/int64(window)), window - time.Duration(at%int64(window))
}

// compute is a turn with a key that all want: one computes it, and all get the same value.
func (w *worker) compute(ctx context.Context, t *task) {
	key, ends := currentKey("do", 250*time.Millisecond)
	pause := t.nap(20 * time.Millisecond)
	if t.r.IntN(20) == 0 {
		pause = w.TTL + t.nap(w.TTL)
	}
	runs := 0
	from := now()
	r, err := w.flight.Do(ctx, key, func(ctx context.Context) ([]byte, error) {
		runs++
		sleep(ctx, pause)
		return fmt.Appendf(nil, "%s run %d", t.unique(), runs), ctx.Err()
	}, flight.DoOptions{})
	e := event{Kind: got, By: t.by, Name: key, Value: string(r.Value), From: from, To: now()}
	if err != nil {
		e.Kind, e.Error = gaveUp, err.Error()
		if !errors.Is(err, kvlock.ErrUnavailable) && !errors.Is(err, flight.ErrFailed) && !errors.Is(err, kvlock.ErrLost) {
			e.Kind = failed
		}
	}
	w.say(e)
	sleep(ctx, ends)
}

// claim is a turn with a key that each wants to claim and complete with a value of its own. Every other time it is
// late: another worker may have claimed the key by then.
func (w *worker) claim(ctx context.Context, t *task) {
	key, _ := currentKey("claim", 2*w.TTL)
	defer sleep(ctx, 50*time.Millisecond)
	c, err := w.flight.Begin(ctx, key, flight.BeginOptions{})
	if err != nil {
		return // another worker has it, or no server answers
	}
	late := t.nap(20 * time.Millisecond)
	if t.r.IntN(2) == 0 {
		late += w.TTL + w.TTL/3
	}
	sleep(ctx, late)
	for range 2 { // the second time to be refused, or to find out what the first did not
		e := event{By: t.by, Lease: c.ID(), Name: key, Token: c.Token(), Value: t.unique()}
		from := now()
		_, err = c.Complete(ctx, []byte(e.Value), 0)
		switch {
		case err == nil:
			e.Answer = accepted
		case errors.Is(err, kvlock.ErrLost):
			e.Answer = refused
		default:
			e.Answer, e.Error = unknown, err.Error()
		}
		w.tell(e, completed, from, now())
	}
}
