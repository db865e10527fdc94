package deliver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	rows "github.com/expediter-io/expediter/services/notifier/internal/row"
)

// never is when a row is given up that is tried as often as its channel is.
const never = 10 * 365 * 24 * time.Hour

// giveUpAt is when a row is given up in favour of the next channel: as long after its first try as it says.
func (r *row) giveUpAt(d *deliveries.Delivery) time.Time {
	if len(r.Fallback) == 0 || r.FallbackAfter == 0 || d.Tries() == 0 {
		return time.Now().Add(never)
	}
	return d.Attempts[d.AttemptsBefore].At.Add(time.Duration(r.FallbackAfter) * time.Second)
}

// fallBack notes in the record of a row that has ended which channel is next. One that the user does not want is followed too: the
// next channel asks for itself. What is not to be delivered at all is not.
func (r *row) fallBack(d *deliveries.Delivery) {
	if len(r.Fallback) > 0 && unheard(d) {
		d.FellBackTo = r.Fallback[0]
	}
}

// unheard reports whether a row has ended and the user is to be notified on another channel.
func unheard(d *deliveries.Delivery) bool {
	switch d.State {
	case deliveries.Failed, deliveries.Bounced:
		return true
	case deliveries.Suppressed:
		return d.Reason == string(channel.KindNoAddress) || d.Reason == deliveries.ReasonOptOut || d.Reason == deliveries.ReasonEndpointDisabled
	case deliveries.Pending, deliveries.Deferred, deliveries.Sending, deliveries.Sent, deliveries.Delivered, deliveries.Unreadable:
	}
	return false
}

// follow stores the row of the next channel when a row has ended without being sent, and returns the error for the worker.
// It is called after the end is written down and before the row is acknowledged, and again when it is delivered again: a
// crash in between loses nothing, and the stream takes the row once. A row that is followed is nobody's dead letter. One
// round trip.
func (s *Sender) follow(ctx context.Context, r *row, d *deliveries.Delivery, verdict error) error {
	if len(r.Fallback) == 0 || d.FellBackTo != r.Fallback[0] || !unheard(d) {
		return verdict
	}
	s.cfg.Passed(PointEnded)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	next := r.Notification
	next.Channel, next.Fallback, next.FallbackOf, next.Payload = r.Fallback[0], r.Fallback[1:], r.Channel, r.carried
	header, err := rows.Header(next.CreatedAt)
	if err != nil {
		return worker.Cancel(err)
	}
	msg, err := new(rows.Encoder).Message(next, header)
	if err != nil {
		return worker.Cancel(err)
	}
	_, err = s.cfg.Rows.Put(ctx, kvrecord.Write{Subject: msg.Subject, Header: msg.Header, Data: msg.Data})
	if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
		s.log(ctx, slog.LevelWarn, r, "the row of the next channel is not stored yet", "next", next.Channel, "error", err)
		return worker.Snooze(storeSnooze) // delivered again, it has ended, and comes here
	}
	s.cfg.Passed(PointFollowed)
	return nil
}
