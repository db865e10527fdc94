package deliver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// never is the time after which a notification without a FallbackAfter is given up: longer than all its attempts take.
const never = 10 * 365 * 24 * time.Hour

// giveUpAt returns the time at which a notification is given up for the next channel: its FallbackAfter after its first
// attempt.
func (n *notification) giveUpAt(d *deliveries.Delivery) time.Time {
	if len(n.Fallback) == 0 || n.FallbackAfter == 0 || d.Tries() == 0 {
		return time.Now().Add(never)
	}
	return d.Attempts[d.AttemptsBefore].At.Add(time.Duration(n.FallbackAfter) * time.Second)
}

// fallBack records the next channel in the record of a notification that has ended. A notification that the user does not want on this
// channel is followed too, because the user's preferences for the next channel may differ. A notification that is not to be delivered
// at all is not followed.
func (n *notification) fallBack(d *deliveries.Delivery) {
	if len(n.Fallback) > 0 && n.Address == "" && unheard(d) {
		d.FellBackTo = n.Fallback[0]
	}
}

// unheard reports whether a notification has ended so that the user is to be notified on another channel.
func unheard(d *deliveries.Delivery) bool {
	switch d.State {
	case deliveries.Failed, deliveries.Bounced:
		return true
	case deliveries.Suppressed:
		return d.Reason == string(channel.KindNoAddress) || d.Reason == deliveries.ReasonOptOut || d.Reason == deliveries.ReasonMuted ||
			d.Reason == deliveries.ReasonEndpointDisabled
	case deliveries.Pending, deliveries.Deferred, deliveries.Sending, deliveries.Sent,
		deliveries.Delivered, deliveries.Split, deliveries.Unreadable:
	}
	return false
}

// follow stores the notifications of the addresses of a split notification, or the notification of the next channel after a
// notification that has ended without being sent, and returns the error for the worker. It is called after the end is recorded and
// before the notification is acknowledged, and again when the notification is delivered again. So a crash in between loses nothing, and
// the stream takes the new notification once. A notification that is followed becomes no dead letter. One round trip.
func (s *Sender) follow(ctx context.Context, n *notification, d *deliveries.Delivery, verdict error) error {
	// A shutdown must not end it: the end is recorded, and the notification that follows is not stored yet.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if n.Address == "" && len(d.Addresses) > 0 {
		return s.spread(ctx, n, d, verdict)
	}
	if len(n.Fallback) == 0 || !unheard(d) {
		return verdict
	}
	fellBackTo := d.FellBackTo
	if n.Address != "" {
		var err error
		if fellBackTo, err = s.siblings(ctx, n, d); err != nil {
			return s.later(ctx, n, err)
		}
	}
	// The record decides, not the message: another address may have reached the user, or a replay has changed the record.
	if fellBackTo != n.Fallback[0] {
		return verdict
	}
	s.cfg.Passed(PointEnded)
	next := n.Notification
	next.Address, next.Channel, next.Fallback, next.FallbackOf = "", n.Fallback[0], n.Fallback[1:], n.Channel
	if err := s.put(ctx, n, next); err != nil {
		return err
	}
	s.cfg.Passed(PointFollowed)
	return nil
}

// put stores a notification that follows another, once, and returns the error for the worker if that
// fails.
func (s *Sender) put(ctx context.Context, n *notification, next contracts.Notification) error {
	next.Payload = n.carried
	w, err := deliveries.Write(next)
	if err != nil {
		return worker.Discard(err)
	}
	_, err = s.cfg.Notifications.Put(ctx, w)
	if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
		s.log(ctx, slog.LevelWarn, n, "the next notification is not stored yet", "next", next.Channel, "address", next.Address, "error", err)
		return worker.Snooze(storeSnooze) // when it is delivered again, it has ended, and follow is called again
	}
	return nil
}

// split ends a notification, and stores a notification for each address in its place.
func (s *Sender) split(ctx context.Context, n *notification, d *deliveries.Delivery, ids []string) error {
	d.State, d.Reason, d.Until, d.Addresses = deliveries.Split, "", time.Time{}, ids
	if err := s.write(ctx, n, d); err != nil {
		return err
	}
	s.report(ctx, n, d, nil)
	return s.follow(ctx, n, d, nil)
}

// spread stores the missing notifications of the addresses that a notification was split into. These notifications skip digest and
// throttle, which the split notification has passed. One round trip for each.
func (s *Sender) spread(ctx context.Context, n *notification, d *deliveries.Delivery, verdict error) error {
	s.cfg.Passed(PointSplit)
	for _, id := range d.Addresses {
		child := n.Notification
		child.Address, child.Digest, child.Throttle = id, nil, nil
		if err := s.put(ctx, n, child); err != nil {
			return err
		}
		s.cfg.Passed(PointSpread)
	}
	return verdict
}

// lag is the time for which a replica may have the notifications of addresses but not the split of their notification.
const lag = time.Minute

// errStaleSplit is the reason for putting off the notification of an address when the split notification is not found.
var errStaleSplit = errors.New("the server that answered has not heard that the notification was split")

// siblings notes in the record of a split notification that the notification of one of its addresses, whose record is d, has not
// reached the user. It returns the next channel, "" while another address may reach the user, or has. Of two notifications that end at
// the same time, the last to write finds the note of the other. Two round trips, and one more for the last notification.
func (s *Sender) siblings(ctx context.Context, n *notification, d *deliveries.Delivery) (next string, err error) {
	s.cfg.Passed(PointUnheard)
	whole := n.Notification
	whole.Address = ""
	key, err := keys.Of(&whole)
	if err != nil {
		return "", err
	}
	split, err := s.cfg.Deliveries.Get(ctx, key)
	for err == nil {
		switch {
		case len(split.Addresses) == 0 && time.Since(d.UpdatedAt) < lag:
			return "", errStaleSplit
		case len(split.Addresses) == 0: // erased
			s.log(ctx, slog.LevelWarn, n, "nothing is known of the notification that was split")
			return "", nil
		case slices.Contains(split.Unheard, n.Address):
			return split.FellBackTo, nil
		}
		split.Unheard = append(split.Unheard, n.Address)
		if split.FellBackTo, err = s.nextOf(ctx, &whole, split); err != nil {
			break
		}
		err = s.cfg.Deliveries.Put(ctx, key, split)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			split, err = taken.There, nil
		}
	}
	return "", err
}

// nextOf returns the channel after a split notification, "" when one of its addresses may reach the user, or has.
func (s *Sender) nextOf(ctx context.Context, whole *contracts.Notification, split *deliveries.Delivery) (string, error) {
	var children []string
	for _, id := range split.Addresses {
		if !slices.Contains(split.Unheard, id) {
			return "", nil
		}
		child := *whole
		child.Address = id
		key, err := keys.Of(&child)
		if err != nil {
			return "", err
		}
		children = append(children, key)
	}
	known, err := s.cfg.Deliveries.GetMany(ctx, children)
	for _, d := range known { // changed by a replay, or by a late caller
		if d.State == deliveries.Sent || d.State == deliveries.Delivered {
			return "", err
		}
	}
	return whole.Fallback[0], err
}

// onDeadLetter is called by the worker before it dead-letters a notification. When the notification has not ended in its record,
// because it could not be read or its workers died again and again, onDeadLetter ends the notification there, and stores the
// notification that follows. The worker calls it again after a failure, or when it died before the notification was acknowledged. One
// round trip for a notification that has ended and that no notification follows.
func (s *Sender) onDeadLetter(ctx context.Context, dead worker.DeadLetter) error {
	key, _, ok := keys.OfSubject(dead.Subject)
	if !ok {
		return nil
	}
	n := &notification{key: key, late: true}
	if err := s.decoder.DecodeArgs(dead.Header, dead.Payload, &n.Notification); err != nil { // the next channel is not known
		s.cfg.Logger.WarnContext(ctx, "notifier: a notification that is dead-lettered cannot be read", "key", key, "error", err)
	}
	n.carried = n.Payload
	d, err := s.cfg.Deliveries.Get(ctx, key)
	if err == nil && n.Collected && !d.State.Ended() { // as in end
		_, err = s.seal(ctx, &n.Notification)
	}
	for err == nil && !d.State.Ended() {
		d.State, d.Reason, d.Until = deliveries.Failed, deliveries.ReasonExhausted, time.Time{}
		n.fallBack(d)
		err = s.cfg.Deliveries.Put(ctx, key, d)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			d, err = taken.There, nil
		}
	}
	if err != nil {
		return err
	}
	return s.follow(ctx, n, d, nil)
}

// drop removes an address that is gone. When that fails, the next message to the address tries again.
func (s *Sender) drop(ctx context.Context, n *notification) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	dropped, err := s.cfg.Profiles.Drop(ctx, n.RecipientType, n.UserID, n.Channel, n.to.Address)
	switch {
	case err != nil:
		s.log(ctx, slog.LevelWarn, n, "an address that is gone stays in the directory", "error", err)
	case dropped:
		s.log(ctx, slog.LevelInfo, n, "an address is gone")
	}
}
