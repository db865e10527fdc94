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
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// Outcome is the outcome of [Sender.Deliver].
type Outcome int

// The outcomes of Deliver.
const (
	Held  Outcome = iota // the row has to be stored, for its worker
	Sent                 // the item was delivered
	Known                // the row had ended before
)

// Immediate reports whether a row of a plan may be given to [Sender.Deliver] before it is stored: it has no time, digest, condition or
// next channel. A row of an event whose id looks like the id of a digest is always stored, so that its item cannot be taken for the
// digest's.
func (s *Sender) Immediate(n *contracts.Notification) bool {
	return n.Channel == s.Channel() && n.Digest == nil && len(n.Fallback) == 0 && n.NotBefore.IsZero() && !n.Unread &&
		!strings.HasPrefix(n.EventID, contracts.DigestIDPrefix)
}

// Deliver delivers an immediate row of the inbox that is not stored, with the payload of its event. It may be called again for the
// same row, by any process. Held means that a cancellation, a pause or the user holds the row, or that the inbox never takes it: its
// worker finds out, and records the reason. After an error the item may have been delivered.
//
// One round trip, and a share of one for the profiles of many.
func (s *Sender) Deliver(ctx context.Context, n contracts.Notification, payload json.RawMessage) (Outcome, error) {
	key, err := keys.Of(&n)
	if err != nil {
		return Held, err
	}
	r := &row{Notification: n, key: key}
	if held, err := s.isHeld(ctx, r); held || err != nil {
		return Held, err
	}
	if r.Payload == nil {
		r.Payload = payload
	}
	d := &deliveries.Delivery{AtOnce: true}
	failure, err := s.putItem(ctx, s.cfg.Telemetry.CallApart, r, d)
	taken, ok := errors.AsType[*deliveries.TakenError](err)
	switch {
	case ok && taken.There.State.Ended():
		return Known, nil
	case ok: // its row is stored
		return Held, nil
	case failure != nil:
		return Held, err
	}
	s.report(ctx, r, d, nil)
	return Sent, nil
}

// isHeld reports whether an immediate row is not delivered at once. The worker of the stored row determines the
// reason, and records it.
func (s *Sender) isHeld(ctx context.Context, r *row) (bool, error) {
	if subject, err := keys.Send(&r.Notification); err != nil || s.cfg.Paused(subject) {
		return true, err
	}
	if cancelled, err := s.cfg.Cancelled.Covers(ctx, &r.Notification, false); err != nil || cancelled {
		return true, err
	}
	var err error
	if r.profile, err = s.profile(ctx, &r.Notification); err != nil {
		if wrong, ok := errors.AsType[*recipient.Error](err); ok && wrong.Permanent { // also for an erased user
			err = nil
		}
		return true, err
	}
	return r.Priority != contracts.UrgencyCritical && recipient.OptedOut(r.profile.OptOut, r.Category, r.Channel), nil
}

// sendItem stores the item of a row, and its outcome with it. When the store is full or not there, the row is put off, and its
// attempt does not count.
func (s *Sender) sendItem(ctx context.Context, r *row, d *deliveries.Delivery) error {
	failure, err := s.putItem(ctx, s.cfg.Telemetry.Call, r, d)
	switch {
	case err != nil && failure == nil: // taken
		return err
	case err != nil:
		return s.later(ctx, r, err)
	case failure != nil:
		d.Item, d.ProviderID = nil, ""
		verdict := s.setOutcome(r, d, channel.Receipt{}, failure)
		if err := s.write(ctx, r, d); err != nil {
			return err
		}
		s.report(ctx, r, d, failure)
		return s.follow(ctx, r, d, verdict)
	}
	s.report(ctx, r, d, nil)
	return nil
}

// measure begins the measurement of a call.
type measure = func(ctx context.Context, side string) (context.Context, natsotel.Operation)

// putItem writes the item of a row, as delivered, over the row's record. The error is a [*deliveries.TakenError] when another process
// has written the record. For a message that the inbox never takes there is a failure and no error.
func (s *Sender) putItem(ctx context.Context, begin measure, r *row, d *deliveries.Delivery) (failure *channel.Error, err error) {
	ctx, measured := begin(ctx, r.Channel)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	d.Attempts = append(d.Attempts, deliveries.Attempt{At: time.Now().UTC(), Outcome: deliveries.OutcomeSent, Worker: s.cfg.Worker})
	m := s.message(r, d)
	d.State, d.Reason, d.Until, d.ProviderID = deliveries.Delivered, "", time.Time{}, m.ID
	item, err := s.inbox.Item(m)
	if err == nil && r.single != nil {
		err = s.putSingle(ctx, r, item)
	} else {
		d.Item = item
	}
	if err == nil {
		err = s.cfg.Deliveries.Put(ctx, r.key, d)
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

// putSingle stores the item of a digest with one event as the item of that event. It keeps the record of the event's row, which says
// that the row is in the digest. Two round trips.
func (s *Sender) putSingle(ctx context.Context, r *row, item json.RawMessage) error {
	of := r.Notification
	of.EventID = r.single.EventID
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
