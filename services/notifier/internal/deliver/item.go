package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// Outcome is the outcome of [Sender.Deliver].
type Outcome int

// The outcomes of Deliver.
const (
	Held  Outcome = iota // the notification has to be stored, for its worker
	Sent                 // the item was delivered
	Known                // the notification had ended before
)

// Immediate reports whether a notification of a plan may be given to [Sender.Deliver] before it is stored: it has no time, digest,
// condition or next channel. A notification of an event whose id looks like the id of a digest is always stored, so that its item
// cannot be taken for the digest's.
func (s *Sender) Immediate(n *contracts.Notification) bool {
	return n.Channel == s.Channel() && n.Digest == nil && len(n.Fallback) == 0 && n.NotBefore.IsZero() && !n.Unread &&
		!strings.HasPrefix(n.EventID, hold.DigestIDPrefix)
}

// Deliver delivers an immediate notification of the inbox that is not stored, with the payload of its event. It may be called again for
// the same notification, by any process. Held means that a cancellation, a pause or the user holds the notification, or that the inbox
// never takes it: its worker finds out, and records the reason. After an error the item may have been delivered.
//
// One round trip, and a share of one for the profiles of many.
func (s *Sender) Deliver(ctx context.Context, planned contracts.Notification, payload json.RawMessage) (Outcome, error) {
	key, err := keys.Of(&planned)
	if err != nil {
		return Held, err
	}
	n := &notification{Notification: planned, key: key}
	if held, err := s.isHeld(ctx, n); held || err != nil {
		return Held, err
	}
	if n.Payload == nil {
		n.Payload = payload
	}
	d := &deliveries.Delivery{AtOnce: true}
	failure, err := s.putItem(ctx, s.cfg.Telemetry.CallApart, n, d)
	taken, ok := errors.AsType[*deliveries.TakenError](err)
	switch {
	case ok && taken.There.State.Ended():
		return Known, nil
	case ok: // its notification is stored
		return Held, nil
	case failure != nil:
		return Held, err
	}
	s.report(ctx, n, d, nil)
	return Sent, nil
}

// isHeld reports whether an immediate notification is not delivered at once. The worker of the stored notification determines the
// reason, and records it.
func (s *Sender) isHeld(ctx context.Context, n *notification) (bool, error) {
	if subject, err := keys.Send(&n.Notification); err != nil || s.cfg.Paused(subject) {
		return true, err
	}
	if cancelled, err := s.cfg.Cancelled.Covers(ctx, &n.Notification, false); err != nil || cancelled {
		return true, err
	}
	var err error
	if n.profile, _, err = s.cfg.Profiles.Get(ctx, n.RecipientType, n.UserID); err != nil {
		if wrong, ok := errors.AsType[*recipient.Error](err); ok && wrong.Permanent { // also for an erased user
			err = nil
		}
		return true, err
	}
	if n.Recipient != nil {
		n.profile = withPlanned(n.profile, *n.Recipient)
	}
	return n.Priority != channel.UrgencyCritical && recipient.OptedOut(n.profile.OptOut, n.Category, n.Channel), nil
}

// sendItem stores the item of a notification, and its outcome with it. When the store is full or not there, the notification is put
// off, and its attempt does not count.
func (s *Sender) sendItem(ctx context.Context, n *notification, d *deliveries.Delivery) error {
	failure, err := s.putItem(ctx, s.cfg.Telemetry.Call, n, d)
	switch {
	case err != nil && failure == nil: // taken
		return err
	case err != nil:
		return s.later(ctx, n, err)
	case failure != nil:
		d.Item, d.ProviderID = nil, ""
		verdict := s.setOutcome(n, d, channel.Receipt{}, failure)
		if err := s.write(ctx, n, d); err != nil {
			return err
		}
		s.report(ctx, n, d, failure)
		return s.follow(ctx, n, d, verdict)
	}
	s.report(ctx, n, d, nil)
	return nil
}

// measure begins the measurement of a call.
type measure = func(ctx context.Context, side string) (context.Context, natsotel.Operation)

// putItem writes the item of a notification, as delivered, over the notification's record. The error is a [*deliveries.TakenError] when
// another process has written the record. For a message that the inbox never takes there is a failure and no error.
func (s *Sender) putItem(ctx context.Context, begin measure, n *notification, d *deliveries.Delivery) (failure *channel.Error, err error) {
	ctx, measured := begin(ctx, n.Channel)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	d.Attempts = append(d.Attempts, deliveries.Attempt{At: time.Now().UTC(), Outcome: deliveries.OutcomeSent, Worker: s.cfg.Worker})
	m := s.message(n, d)
	d.State, d.Reason, d.Until, d.ProviderID = deliveries.Delivered, "", time.Time{}, m.ID
	item, err := s.inbox.Item(m)
	if err == nil && n.single != nil {
		err = s.putSingle(ctx, n, item)
	} else {
		d.Item = item
	}
	if err == nil {
		err = s.cfg.Deliveries.Put(ctx, n.key, d)
	}
	s.cfg.Passed(PointSent)
	if _, taken := errors.AsType[*deliveries.TakenError](err); err == nil || taken {
		measured.End(natsotel.OutcomeOK, nil)
		return nil, err
	}
	failure = deliveries.ItemFailure(ctx, err)
	measured.End(string(failure.Kind), failure)
	if failure.Temporary() {
		return failure, err
	}
	return failure, nil
}

// putSingle stores the item of a digest with one event as the item of that event. It keeps the record of the event's notification,
// which says that the notification is in the digest. Two round trips.
func (s *Sender) putSingle(ctx context.Context, n *notification, item json.RawMessage) error {
	of := n.Notification
	of.EventID = n.single.EventID
	key, err := keys.Of(&of)
	if err != nil {
		return err
	}
	d, err := s.cfg.Deliveries.Get(ctx, key)
	for err == nil && len(d.Item) == 0 && d.State != deliveries.Delivered {
		d.Item = item
		err = s.cfg.Deliveries.Put(ctx, key, d)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			d, err = taken.There, nil
		}
	}
	return err
}
