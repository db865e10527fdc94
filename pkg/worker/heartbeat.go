package worker

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

// beatsPerAckWait leaves room for two heartbeats to be lost.
const beatsPerAckWait = 3

// heartbeat tells the server, for all running jobs together, that they are being worked.
// One goroutine and one ticker serve every job. It also finds handlers that ignore their
// context.
func (w *Worker) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.AckWait / beatsPerAckWait)
	defer ticker.Stop()

	looks, looked := make(chan time.Time, 1), make(chan struct{})

	go func() {
		defer close(looked)
		w.lookForCancelled(looks)
	}()

	defer func() { close(looks); <-looked }()

	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.beat()
			w.reportStuck(now)

			select {
			case looks <- now:
			default: // still looking
			}
		}
	}
}

func (w *Worker) beat() {
	if !w.nc.IsConnected() {
		return // in the client's buffer they would arrive as news of the past
	}

	// Under the lock, so that none can follow the NAK of its job.
	w.table.each(func(d *delivery) {
		if d.beating {
			_ = w.nc.Publish(d.reply, []byte(ackProgress)) //nolint:errcheck // the next one is near
		}
	})
}

func (w *Worker) reportStuck(now time.Time) {
	var stuck []*delivery

	cancelled := w.jobs.Err() != nil

	w.table.each(func(d *delivery) {
		if !d.running || d.stuck {
			return
		}

		overdue := !d.deadline.IsZero() && now.After(d.deadline)
		if d.ended.IsZero() && (cancelled || overdue) {
			d.ended = now
			if overdue {
				d.ended = d.deadline
			}
		}

		if !d.ended.IsZero() && now.Sub(d.ended) >= w.cfg.StuckAfter {
			d.stuck = true

			stuck = append(stuck, d)
		}
	})

	dumps := dump(stuck)

	for _, d := range stuck {
		report := StuckHandler{Info: d.info, Ran: now.Sub(d.started), Stacks: dumps[d.mark]}

		w.log.Error(EventJobStuck, append(d.attrs(), "ran", report.Ran, "stacks", report.Stacks)...)

		if w.cfg.Hooks.Stuck != nil {
			w.cfg.Hooks.Stuck(report)
		}
	}
}

// dump returns the stacks of handlers, by their marks.
func dump(all []*delivery) map[stacks.Mark]string {
	marks := make([]stacks.Mark, 0, len(all))
	for _, d := range all {
		marks = append(marks, d.mark)
	}

	return stacks.Of(maxStackText, marks...)
}
