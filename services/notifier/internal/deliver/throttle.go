package deliver

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/digest"
	"github.com/expediter-io/expediter/services/notifier/internal/throttle"
)

// throttle reports whether a user is notified too often for a row to be delivered now, and does what its rule says then: err is the
// error for the worker. Two round trips for a row that is let through, and for each time that it is put off one write more.
func (s *Sender) throttle(ctx context.Context, r *row, d *deliveries.Delivery) (over bool, err error) {
	promised := d.State == deliveries.Deferred && d.Reason == deliveries.ReasonThrottled
	if wait := time.Until(d.Until); promised && wait > 0 {
		return true, worker.Snooze(wait)
	}
	key := throttle.Key{Channel: r.Channel, Group: digest.Group(&r.Notification), UserID: r.UserID, RecipientType: r.RecipientType}
	until, err := s.cfg.Throttles.Ask(ctx, key, r.key, r.CreatedAt, *r.Throttle, promised)
	switch {
	case err != nil:
		return true, s.later(ctx, r, err)
	case until.IsZero():
		s.cfg.Passed(PointGranted)
		return false, nil
	case r.Throttle.Suppress:
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonThrottled, nil)
	}
	return true, s.wait(ctx, r, d, until, deliveries.ReasonThrottled)
}
