package deliver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
)

// joinDigest puts a row into the digest of its window, or of the next open one, and reports whether it has; err is then the error for the
// worker. When when is nil, it only looks into a digest that was recorded before. It first records the digest, so that the next worker
// of the row looks into the same digest, even if the user has changed the windows meanwhile. Four round trips; one more for the first
// row of a window.
func (s *Sender) joinDigest(ctx context.Context, r *row, d *deliveries.Delivery, when *contracts.Digest) (held bool, err error) {
	n := r.Notification
	n.Digest = cmp.Or(when, n.Digest, &contracts.Digest{})
	if d.State != deliveries.Deferred || d.Reason != deliveries.ReasonDigest {
		if when == nil {
			return false, nil
		}
		if err := s.note(ctx, r, d, &n, time.Now()); err != nil {
			return true, err
		}
	}
	for {
		into := hold.DigestRow(&n, d.Until)
		joined, err := s.cfg.Digests.Join(ctx, into, &n)
		if errors.Is(err, hold.ErrForeign) {
			s.log(ctx, slog.LevelWarn, r, "an event is called like a digest", "digest", into.EventID, "error", err)
		} else if err != nil {
			return true, s.later(ctx, r, err)
		}
		if joined {
			s.cfg.Passed(PointJoined)
			return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonDigest, nil)
		}
		if when == nil {
			d.Digest = ""
			return false, nil
		}
		from := time.Now()
		if from.Before(d.Until) { // the digest is full
			from = d.Until
		}
		if err := s.note(ctx, r, d, &n, from); err != nil {
			return true, err
		}
	}
}

// note records the digest of a row: the digest of the window that contains from.
func (s *Sender) note(ctx context.Context, r *row, d *deliveries.Delivery, n *contracts.Notification, from time.Time) error {
	end, err := hold.DigestEnd(from, n.Digest, r.profile.TimeZone)
	if err != nil { // this machine does not know the zone; UTC is better than no delivery
		s.log(ctx, slog.LevelWarn, r, "the digest keeps to UTC", "error", err)
	}
	d.State, d.Reason, d.Until, d.Digest = deliveries.Deferred, deliveries.ReasonDigest, end, hold.DigestRow(n, end).EventID
	if err := s.write(ctx, r, d); err != nil {
		return err
	}
	s.cfg.Passed(PointNoted)
	return nil
}

// seal closes a digest to further events, and removes its cancelled events.
func (s *Sender) seal(ctx context.Context, n *contracts.Notification) (*hold.Digest, error) {
	cancelled, err := s.cfg.Cancelled.For(ctx, n.RecipientType, n.UserID)
	if err != nil {
		return nil, err
	}
	collected, err := s.cfg.Digests.Seal(ctx, n, cancelled)
	if err == nil {
		s.cfg.Passed(PointSealed)
	}
	return collected, err
}

// recall reads the fields of the user that a digest has in addition to the directory. One round trip.
func (s *Sender) recall(ctx context.Context, r *row) error {
	collected, err := s.cfg.Digests.Get(ctx, &r.Notification)
	if err != nil {
		return err
	}
	r.Locale, r.Recipient = collected.Locale, collected.Recipient
	if collected.Template != "" {
		r.Template = collected.Template
	}
	return nil
}

// sendDigest seals a digest and sends its events, which are the same each time. A single event is delivered as without a
// digest. Three round trips before those of sending.
func (s *Sender) sendDigest(ctx context.Context, r *row, d *deliveries.Delivery) error {
	collected, err := s.seal(ctx, &r.Notification)
	if err != nil {
		return s.later(ctx, r, err)
	}
	r.sealed = true
	switch count := collected.Count(); {
	case count == 0:
		return s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonEmpty, nil)
	case count == 1 && len(collected.Items) == 1:
		r.single = &collected.Items[0]
		if r.Payload = r.single.Payload; string(r.Payload) == "null" {
			r.Payload, err = s.cfg.Payload(ctx, r.single.EventID)
		}
	default:
		r.Payload, err = collected.Payload()
	}
	if err != nil {
		return s.later(ctx, r, err)
	}
	return s.send(ctx, r, d)
}

// throttle reports whether a throttle does not let a row through now. Then it puts the row off or suppresses it, by its rule, and
// err is the error for the worker. Two round trips for a row that is let through; each time that the row is put off takes one more
// write.
func (s *Sender) throttle(ctx context.Context, r *row, d *deliveries.Delivery) (over bool, err error) {
	promised := d.State == deliveries.Deferred && d.Reason == deliveries.ReasonThrottled
	if wait := time.Until(d.Until); promised && wait > 0 {
		return true, worker.Snooze(wait)
	}
	key := hold.ThrottleKey{Channel: r.Channel, Group: hold.Group(&r.Notification), UserID: r.UserID, RecipientType: r.RecipientType}
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
