package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestRefusedEndOfALeaseCountsForNothing has a worker end the lease of one that seems to be
// gone, at the very moment at which that one renews it. The server refuses the end, and the
// permit stays where it is for another lease.
func TestRefusedEndOfALeaseCountsForNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		nc, js := natstest.Connect(t, srv)
		started := make(chan struct{}, 1)
		first := run(t, js, b.config(t, stopAtOnce), oneAtATime, func(ctx context.Context, _ *worker.Job[order]) error {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})

		b.publish(t, "jobs.1", `{}`)
		receive(t, started, "the holder")

		p := natstest.NewProxy(t, srv)
		_, js = natstest.Connect(t, srv, p.Through())
		renewed, begun := make(chan time.Time, 1), make(chan time.Time, 2)
		tried := false

		p.Filter(func(f natstest.Frame) natstest.Verdict {
			if f.FromClient && strings.Contains(f.Subject, ".limits.workers.") &&
				strings.Contains(string(f.Payload()), `"ended":true`) && !tried {
				tried = true

				renew(t, b.js, f.Subject)
				renewed <- time.Now()
			}
			return natstest.Relay
		})

		run(t, js, b.config(t), oneAtATime, func(context.Context, *worker.Job[order]) error {
			begun <- time.Now()
			return nil
		})

		b.publish(t, "jobs.2", `{}`)
		pass(time.Minute)
		nc.Close()

		if err := first.wait(); err == nil {
			t.Error("the first worker ended without an error")
		}

		at := receive(t, begun, "the next job")

		const lease = 5 * time.Second // AckWait

		if since := at.Sub(receive(t, renewed, "the renewal")); since < lease {
			t.Errorf("the next job began %s after the holder had renewed its lease of %s", since, lease)
		}
	})
}

// renew writes once more what a worker has written about its lease.
func renew(t *testing.T, js jetstream.JetStream, subject string) {
	t.Helper()

	s, err := js.Stream(t.Context(), "KV_jobs")
	if err != nil {
		t.Error(err)
		return
	}

	last, err := s.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Error(err)
		return
	}

	check.Is(t, check.Err(js.Publish(t.Context(), subject, last.Data)), nil)
}
