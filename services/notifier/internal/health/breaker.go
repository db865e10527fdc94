package health

import (
	"sync"
	"time"

	"github.com/expediter-io/expediter/services/notifier/channel"
)

const (
	// strikes is how often in a row an endpoint is not reached before it is left alone.
	strikes = 3

	// firstPause and lastPause are for how long: twice as long each time.
	firstPause = 10 * time.Second
	lastPause  = 5 * time.Minute

	// probing is how soon others ask again while one tries whether the endpoint is back.
	probing = 5 * time.Second

	// slack is how much longer than its timeout a call may take before its caller counts as lost.
	slack = time.Minute

	// maxTroubled bounds how many endpoints are watched at a time. Those beyond are called as if they were well.
	maxTroubled = 10_000
)

// trouble is an endpoint that was not reached.
type trouble struct {
	missed int
	pause  time.Duration // the last one, 0 for none
	until  time.Time     // when it may be tried again, or when the caller that tries it counts as lost
	tried  bool          // a caller is trying it now
}

// breaker leaves endpoints alone that were not reached several times in a row. Afterwards one call at a time finds out whether
// they are back. It may be used by many at once; it is of this process alone.
type breaker struct {
	mu  sync.Mutex
	bad map[string]*trouble
}

// enter returns for how long a call is to wait, 0 when it may be made.
func (b *breaker) enter(key string, now time.Time, timeout time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.bad[key]
	switch {
	case t == nil || t.missed < strikes:
		return 0
	case now.Before(t.until) && t.tried:
		return min(probing, t.until.Sub(now))
	case now.Before(t.until):
		return t.until.Sub(now)
	}
	t.tried, t.until = true, now.Add(timeout+slack)
	return 0
}

// called records the outcome of a call, nil for a success. An answer, whatever it says, means that the endpoint is there.
func (b *breaker) called(key string, now time.Time, failure *channel.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if failure == nil || !missed(failure) && failure.Kind != channel.KindInterrupted {
		delete(b.bad, key)
		return
	}
	t := b.bad[key]
	if t == nil {
		if len(b.bad) >= maxTroubled || !missed(failure) {
			return
		}
		if b.bad == nil {
			b.bad = map[string]*trouble{}
		}
		t = &trouble{}
		b.bad[key] = t
	}
	if !missed(failure) {
		t.left(now)
		return
	}
	t.missed++
	if t.missed < strikes {
		return
	}
	if t.missed > strikes && !t.tried {
		return // one that was under way when the pause began
	}
	t.pause = min(max(firstPause, 2*t.pause), lastPause)
	t.tried, t.until = false, now.Add(t.pause)
}

// left records that a call was not made, or not to its end.
func (b *breaker) left(key string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.bad[key]; t != nil {
		t.left(now)
	}
}

// left lets the next caller try: the outcome of the call is unknown.
func (t *trouble) left(now time.Time) {
	if t.tried {
		t.tried, t.until = false, now
	}
}

func (b *breaker) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.bad, key)
}

// missed reports whether an endpoint was not reached, or did not answer in time.
func missed(failure *channel.Error) bool {
	return failure.Kind == channel.KindTimeout || failure.Kind == channel.KindUnavailable && failure.Status == 0
}
