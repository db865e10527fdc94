package ask

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The milliseconds that some services send take precedence; the header is read by package retryafter.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for millis, want := range map[string]time.Duration{"20": 20 * time.Millisecond, "86400000": time.Hour, "soon": 7 * time.Second} {
		header := http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {millis}}
		got := retryAfter(header)
		check.That(t, got == want, "%s is %s, want %s", millis, got, want)
	}
}
