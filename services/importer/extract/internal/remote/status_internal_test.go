package remote

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "0", 0},
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "7.5", 0},
		{"Retry-After", "-7", 0},
		{"Retry-After", "99999999999999999999", 0},
		{"Retry-After", "86400", time.Hour},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:35 GMT", 30 * time.Second},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:00 GMT", 0},
		{"Retry-After", "Fri, 02 Jan 2099 03:04:00 GMT", time.Hour},
		{"Retry-After-Ms", "20", 20 * time.Millisecond},
		{"Retry-After-Ms", "soon", 0},
	} {
		header := http.Header{}
		header.Set(c.name, c.value)
		if got := retryAfter(header, now); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.name, c.value, got, c.want)
		}
	}
}
