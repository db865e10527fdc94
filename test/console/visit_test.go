package console_test

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// lines is a log.
type lines struct {
	sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Builder.Write(p)
}

func (l *lines) String() string {
	l.Lock()
	defer l.Unlock()
	return l.Builder.String()
}

// A page for which the console's user lacks a permission says at once which, however the server denies it, and the log has it once: for a
// user whose account has no import, for one with a list of permissions, and for a bucket of the user's own account.
func TestDeniedPagesNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ user, path, denied string }{
		{"console", "/jobs/MINE", "$JS.API.CONSUMER.LIST.MINE"},
		{"console", "/keys?account=NOTIFIER&bucket=directory", "$JS.NOTIFIER.API.DIRECT.GET.KV_directory"},
		{"publisher", "/jobs/EVENTS", "$JS.API.STREAM.INFO.EVENTS"},
		{"publisher", "/dead", "$JS.API.STREAM.INFO.DEAD"},
		{"importer", "/jobs/IMPORT_JOBS", "$JS.API.DIRECT.GET.IMPORT_JOBS"},
		{"importer", "/dead", "$JS.API.STREAM.INFO.AUDIT"},
		{"importer", "/jobs", "$JS.API.STREAM.LIST"},
		{"importer", "/imports?id=job-1", "importer.v1.get"},
		{"notifier", "/keys", "$JS.API.STREAM.INFO.KV_locks"},
	} {
		t.Run(c.user+c.path, func(t *testing.T) {
			t.Parallel()
			log := &lines{}
			s, _ := consoletest.Deployed(t, c.user, func(cfg *console.Config) {
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				if c.user != "console" {
					cfg.Accounts = cfg.Accounts[3:] // its own
				}
			})
			own := check.Must(jetstream.New(s.Conn))(t)
			cfg := worker.StreamConfig("MINE", "mine.>")
			cfg.MaxBytes = 1 << 20
			check.OK(t, check.Err(own.CreateStream(t.Context(), cfg)))
			for range 2 {
				_, said, _ := strings.Cut(s.Get(c.path, http.StatusServiceUnavailable), `role="alert">`)
				check.Contains(t, said[:min(len(said), 300)], "NATS denies this console a request", c.denied)
			}
			check.Equal(t, strings.Count(log.String(), "subject="+c.denied+" "), 1, "lines of the log about "+c.denied)
		})
	}
}
