package wolt

import (
	"net/http"
	"strconv"
	"strings"
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

// retryAfter reads the Retry-After header (RFC 9110, section 10.2.3: seconds, or a
// date), which it bounds to between one second and maxRetryAfter. It is 0 when the header
// is absent or unreadable.
func retryAfter(header http.Header) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return 0
	}

	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) { // err: out of range
			return maxRetryAfter
		}
		return bound(time.Duration(seconds)*time.Second, maxRetryAfter)
	}

	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return bound(time.Until(at), maxRetryAfter)
}

func bound(d, most time.Duration) time.Duration {
	return min(max(d, time.Second), most)
}
