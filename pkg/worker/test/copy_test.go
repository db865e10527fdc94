package test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestCopyBehindTheConfirmationIsNotWorked brings a job to its worker once more when its
// acknowledgement has been confirmed: it was on its way meanwhile.
func TestCopyBehindTheConfirmationIsNotWorked(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		p := natstest.NewProxy(t, srv)
		_, js := natstest.Connect(t, srv, p.Through())

		var (
			mu       sync.Mutex
			answered int    // acknowledgements of the job
			frame    []byte // the job as it was delivered
			reply    string
			repeat   bool
			worked   = make(chan string, 8)
			settled  = make(chan worker.Settlement, 8)
		)

		p.Change(func(f natstest.Frame) []byte {
			mu.Lock()
			defer mu.Unlock()

			switch {
			case f.FromClient && reply != "" && f.Subject == reply:
				answered++
			case !f.FromClient && f.Subject == "jobs.a" && frame == nil:
				frame, reply = bytes.Clone(f.Raw), f.Reply
			case !f.FromClient && repeat:
				repeat = false
				return append(bytes.Clone(frame), f.Raw...)
			}
			return nil
		})

		cfg := b.config(t, func(c *worker.Config) {
			c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
		})
		run(t, js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			worked <- job.Subject
			return nil
		})

		b.publish(t, "jobs.a", `{}`)
		receive(t, settled, "the first job")
		pass(time.Millisecond) // until then it may be here still, where its copy would be dropped without an answer

		mu.Lock()
		repeat = true
		mu.Unlock()

		b.publish(t, "jobs.b", `{}`)
		receive(t, settled, "the second job")
		pass(time.Second)

		check.Same(t, "runs of two jobs", len(worked), 2)

		mu.Lock()
		defer mu.Unlock()

		check.Same(t, "acknowledgements", answered, 2)
	})
}
