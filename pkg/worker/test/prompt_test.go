package test

import (
	"context"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestRecoveryIsPrompt holds the quick ways to recover against the slow one, a request
// that stays unanswered for three seconds, which would hide that they are broken.
func TestRecoveryIsPrompt(t *testing.T) {
	t.Parallel()

	for name, disturb := range map[string]func(*testing.T, *bundle){
		"restart": func(t *testing.T, b *bundle) {
			t.Helper()

			if err := b.srv.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"deleted consumer": func(t *testing.T, b *bundle) {
			t.Helper()

			if err := b.js.DeleteConsumer(t.Context(), stream, durable); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				ready := make(chan bool, 10)
				jobs := make(chan time.Time, 1)
				cfg := b.config(t, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
				run(t, b.js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error {
					jobs <- time.Now()

					return nil
				})
				<-ready
				pass(500 * time.Millisecond) // the request is at the server
				disturb(t, b)

				disturbed := time.Now()
				b.publish(t, "jobs.1", `{}`)

				if waited := (<-jobs).Sub(disturbed); waited > time.Second {
					t.Errorf("the next job started %s after the disturbance, want at most 1s", waited)
				}
			})
		})
	}
}
