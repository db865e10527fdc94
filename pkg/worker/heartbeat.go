package worker

import (
	"context"
	"time"
)

// heartbeat tells the server, for all running jobs together, that they are being worked.
// One goroutine and one ticker serve every job. It also finds handlers that ignore their
// context.
func (w *Worker) heartbeat(ctx context.Context) {
	const perAckWait = 3 // two may be lost

	ticker := time.NewTicker(w.cfg.AckWait / perAckWait)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.beat()
			w.reportStuck(now)
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

	for _, d := range stuck {
		w.log.Error(EventJobStuck, append(d.attrs(), "ran", now.Sub(d.started))...)

		if w.cfg.Hooks.Stuck != nil {
			w.cfg.Hooks.Stuck(d.info)
		}
	}
}
