package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// An import that cannot go on says how to resume it, and then leaves out what is stored.
func TestAnImportIsResumed(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, _ := natstest.Connect(t, srv)
	var mu sync.Mutex // guards the next two
	stored, full := map[string]int{}, 1500
	answer := func(msg *nats.Msg) { // a notifier whose store is full after 1,500 users
		mu.Lock()
		defer mu.Unlock()
		var results strings.Builder
		for i, line := range strings.Split(strings.TrimSpace(string(msg.Data)), "\n") {
			status := "stored"
			if len(stored) >= full && stored[line] == 0 {
				status = "failed"
			} else {
				stored[line]++
			}
			fmt.Fprintf(&results, `{"line":%d,"status":%q,"detail":"a store is full"}`+"\n", i+1, status)
		}
		check.OK(t, msg.Respond([]byte(results.String())))
	}
	check.OK(t, check.Err(nc.Subscribe("notifier.v1.users.import", answer)))
	check.OK(t, nc.Flush())
	path := filepath.Join(t.TempDir(), "users.csv")
	text := bytes.NewBufferString("user_id,plan\n")
	for i := range 2500 {
		fmt.Fprintf(text, "u%d,gold\n", i)
	}
	check.OK(t, os.WriteFile(path, text.Bytes(), 0o600))
	run := func(args ...string) (int, string) {
		var stderr bytes.Buffer
		args = append([]string{"users", "import", path, "--type", "CUSTOMER", "--server", srv.URL()}, args...)
		code := Run(t.Context(), Config{Stderr: &stderr}, args)
		return code, stderr.String()
	}
	code, said := run()
	check.Same(t, "exit code", code, 5)
	check.Says(t, said, "1000 users stored", "a store is full", "resume with --skip 1000")
	mu.Lock()
	full = 1 << 20
	mu.Unlock()
	code, said = run("--skip", "1000")
	check.Same(t, "exit code", code, 0)
	check.Says(t, said, "1500 users stored")
	mu.Lock()
	defer mu.Unlock()
	check.Same(t, "users are stored", len(stored), 2500)
}
