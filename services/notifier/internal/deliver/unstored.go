package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// Immediate reports whether a row may be given to [Sender.Deliver] before it is stored: it has no time, digest, throttle, condition or
// next channel, and is for no single address. A row of an event whose id looks like the id of a digest is always stored, so that its
// item cannot be taken for the digest's.
func (s *Sender) Immediate(n *contracts.Notification) bool {
	return s.cfg.Withhold != nil && n.Channel == s.Channel() && n.Address == "" && !n.Collected && n.Digest == nil && len(n.Fallback) == 0 &&
		n.FallbackOf == "" && n.NotBefore.IsZero() && n.Throttle == nil && !n.Unread &&
		!strings.HasPrefix(n.EventID, contracts.DigestIDPrefix)
}

// Deliver delivers an immediate row that is not stored, with the payload of its event, and reports whether the row is done: then its
// message takes the place of the row. It is not done when its user's preferences hold it, when it is cancelled, or when the channel
// does not take it now. Then the caller has to store the row, and a worker sends it. With again, another process may have delivered or
// stored the row, and Deliver only checks whether the message was delivered. After an error it is not known whether the message was
// delivered.
//
// One round trip, and a share of one for the profiles of many; one in all with again.
func (s *Sender) Deliver(ctx context.Context, n contracts.Notification, payload json.RawMessage, again bool) (done bool, err error) {
	key, err := n.Key()
	if err != nil {
		return false, err
	}
	if again {
		return s.cfg.Deliveries.Came(ctx, key)
	}
	r := &row{Notification: n, key: key}
	d := &deliveries.Delivery{State: deliveries.Pending}
	if held, err := s.isHeld(ctx, r, d); held || err != nil {
		return false, err
	}
	if r.Payload == nil {
		r.Payload = payload
	}
	d.Attempts = append(d.Attempts, deliveries.Attempt{At: time.Now().UTC(), Worker: s.cfg.Worker})
	call, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	call, measured := s.cfg.Telemetry.CallApart(call, r.Channel)
	receipt, kept, err := s.cfg.Claim(call, s.message(r, d), d.Attempts[0])
	s.cfg.Passed(PointSent)
	if err != nil {
		failure := channel.Of(r.Channel, err)
		measured.End(string(failure.Kind), failure)
		if failure.Temporary() {
			return false, failure
		}
		return false, nil // the worker of the stored row gets the same failure, and records it
	}
	measured.End(natsotel.OutcomeOK, nil)
	if !kept {
		return false, nil
	}
	d.State, d.ProviderID, d.Attempts[0].Outcome = deliveries.Delivered, receipt.ID, deliveries.OutcomeSent
	s.report(ctx, r, d, nil)
	return true, nil
}

// isHeld reports whether an immediate row is not delivered at once. The worker of the stored row determines the
// reason, and records it.
func (s *Sender) isHeld(ctx context.Context, r *row, d *deliveries.Delivery) (bool, error) {
	if subject, err := r.Subject(); err != nil || s.cfg.Paused(subject) {
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
	if len(r.profile.Endpoints[r.Channel]) > 0 {
		return true, nil
	}
	r.to = r.profile.Endpoint(r.Channel, "")
	if r.Priority == contracts.UrgencyCritical {
		return false, nil
	}
	return optedOut(r.profile.OptOut, r.Category, r.Channel) || s.muted(r) || s.digestOf(r, d) != nil || !s.quietUntil(ctx, r).IsZero(), nil
}
