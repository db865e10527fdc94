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

// joinDigest puts a notification into the digest of its window, or of the next open one, and reports whether it has; err is then the
// error for the worker. noted reports whether the record names a digest; without when it only looks into that one. It first records the
// digest, so that the next worker of the notification looks into the same digest, even if the user has changed the windows in the meantime.
// Four round trips; one more for the first notification of a window.
func (s *Sender) joinDigest(
	ctx context.Context, n *notification, d *deliveries.Delivery, when *contracts.Digest, noted bool,
) (held bool, err error) {
	of := n.Notification
	of.Digest = cmp.Or(when, n.Digest, &contracts.Digest{})
	if !noted {
		if err := s.note(ctx, n, d, &of, time.Now()); err != nil {
			return true, err
		}
	}
	for {
		into := hold.DigestNotification(&of, d.Until)
		joined, err := s.cfg.Digests.Join(ctx, into, &of)
		if errors.Is(err, hold.ErrForeign) {
			s.log(ctx, slog.LevelWarn, n, "an event is called like a digest", "digest", into.EventID, "error", err)
		} else if err != nil {
			return true, s.later(ctx, n, err)
		}
		if joined {
			s.cfg.Passed(PointJoined)
			return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonDigest, nil)
		}
		if when == nil {
			d.Digest = ""
			return false, nil
		}
		from := time.Now()
		if from.Before(d.Until) { // the digest is full
			from = d.Until
		}
		if err := s.note(ctx, n, d, &of, from); err != nil {
			return true, err
		}
	}
}

// note records the digest of a notification: the digest of the window that contains from.
func (s *Sender) note(ctx context.Context, n *notification, d *deliveries.Delivery, of *contracts.Notification, from time.Time) error {
	end, err := hold.DigestEnd(from, of.Digest, n.profile.TimeZone)
	if err != nil { // this machine does not know the zone; UTC is better than no delivery
		s.log(ctx, slog.LevelWarn, n, "the digest keeps to UTC", "error", err)
	}
	d.State, d.Reason, d.Until, d.Digest = deliveries.Deferred, deliveries.ReasonDigest, end, hold.DigestNotification(of, end).EventID
	if err := s.write(ctx, n, d); err != nil {
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
func (s *Sender) recall(ctx context.Context, n *notification) error {
	collected, err := s.cfg.Digests.Get(ctx, &n.Notification)
	if err != nil {
		return err
	}
	n.Locale, n.Recipient = collected.Locale, collected.Recipient
	if collected.Template != "" {
		n.Template = collected.Template
	}
	return nil
}

// sendDigest seals a digest and sends its events, which are the same each time. A single event is delivered as without a
// digest. Three round trips before those of sending.
func (s *Sender) sendDigest(ctx context.Context, n *notification, d *deliveries.Delivery) error {
	collected, err := s.seal(ctx, &n.Notification)
	if err != nil {
		return s.later(ctx, n, err)
	}
	n.sealed = true
	switch count := collected.Count(); {
	case count == 0:
		return s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonEmpty, nil)
	case count == 1 && len(collected.Items) == 1:
		n.single = &collected.Items[0]
		if n.Payload = n.single.Payload; string(n.Payload) == "null" {
			n.Payload, err = s.cfg.Payload(ctx, n.single.EventID)
		}
	default:
		n.Payload, err = collected.Payload()
	}
	if err != nil {
		return s.later(ctx, n, err)
	}
	return s.send(ctx, n, d)
}

// throttle reports whether a throttle does not let a notification through now. Then it puts the notification off or suppresses it, by
// its rule, and err is the error for the worker. Two round trips for a notification that is let through; each time that the
// notification is put off takes one more write.
func (s *Sender) throttle(ctx context.Context, n *notification, d *deliveries.Delivery) (over bool, err error) {
	promised := d.State == deliveries.Deferred && d.Reason == deliveries.ReasonThrottled
	if wait := time.Until(d.Until); promised && wait > 0 {
		return true, worker.Snooze(wait)
	}
	key := hold.ThrottleKey{Channel: n.Channel, Group: hold.Group(&n.Notification), UserID: n.UserID, RecipientType: n.RecipientType}
	until, err := s.cfg.Throttles.Ask(ctx, key, n.key, n.CreatedAt, *n.Throttle, promised)
	switch {
	case err != nil:
		return true, s.later(ctx, n, err)
	case until.IsZero():
		s.cfg.Passed(PointGranted)
		return false, nil
	case n.Throttle.Suppress:
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonThrottled, nil)
	}
	return true, s.wait(ctx, n, d, until, deliveries.ReasonThrottled)
}
