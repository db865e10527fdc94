package wolt

import (
	"sync"
	"time"
)

// pause holds calls back until a time that Wolt has asked for.
type pause struct {
	mu    sync.Mutex
	until time.Time
}

// extend lets no call through for d from now. It never shortens a pause.
func (p *pause) extend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if until := time.Now().Add(d); until.After(p.until) {
		p.until = until
	}
}

// left is how long the pause still lasts, or 0.
func (p *pause) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, time.Until(p.until))
}

func bound(d, most time.Duration) time.Duration {
	return min(max(d, time.Second), most)
}
