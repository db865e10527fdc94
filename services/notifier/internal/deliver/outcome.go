package deliver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// maxDetail bounds the text of a channel's error that is kept, in bytes.
const maxDetail = 1024

// setOutcome sets the outcome of a call in the record, and returns the error for the worker.
func (s *Sender) setOutcome(r *row, d *deliveries.Delivery, receipt channel.Receipt, failure *channel.Error) error {
	defer func() { r.fallBack(d) }()
	attempt := &d.Attempts[len(d.Attempts)-1]
	d.Until = time.Time{}
	if failure == nil {
		attempt.Outcome, d.State, d.ProviderID = deliveries.OutcomeSent, deliveries.Sent, receipt.ID
		if receipt.Delivered {
			d.State = deliveries.Delivered
		}
		return nil
	}
	attempt.Outcome, attempt.Detail = string(failure.Kind), redact.Clip(failure.Error(), maxDetail)
	d.Reason = string(failure.Kind)
	switch {
	case failure.Kind == channel.KindNoAddress:
		d.State = deliveries.Suppressed
		return nil
	case failure.Kind == channel.KindBounced, failure.Kind == channel.KindGone:
		d.State = deliveries.Bounced
		return nil
	case failure.Unsure() && s.cfg.AtMostOnce:
		d.State, d.Reason = deliveries.Failed, deliveries.ReasonUnknownOutcome
		return worker.Cancel(errors.Join(ErrUnknownOutcome, failure))
	case !failure.Temporary():
		d.State = deliveries.Failed
		return worker.Cancel(failure)
	case d.Tries() > len(s.cfg.Retries):
		d.State, d.Reason = deliveries.Failed, deliveries.ReasonExhausted
		return worker.Cancel(failure)
	case failure.Kind == channel.KindInterrupted: // the worker gives the job back, and another continues at once
		d.State = deliveries.Pending
		return failure
	}
	d.State = deliveries.Pending
	wait := s.cfg.Retries[d.Failures()-1]
	wait += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(wait))
	return worker.Retry(min(max(wait, failure.RetryAfter), time.Until(r.giveUpAt(d))), failure)
}

// settle records the outcome of a call. Only the caller knows the outcome, so settle merges it into any record:
// another worker may have taken the caller for dead and written one.
func (s *Sender) settle(ctx context.Context, r *row, d *deliveries.Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	made, mine := *d, d.Attempts[len(d.Attempts)-1]
	for {
		err := s.cfg.Deliveries.Put(ctx, r.key, d)
		if isUnanswered(err) && ctx.Err() == nil {
			continue
		}
		taken, ok := errors.AsType[*deliveries.TakenError](err)
		if !ok {
			return err
		}
		there := taken.There
		sent := made.State == deliveries.Sent || made.State == deliveries.Delivered
		known := false // whether the record has this attempt
		last := false  // whether it is the record's present attempt: then only late callers of earlier attempts have written
		for i, attempt := range there.Attempts {
			switch {
			case attempt.At.Equal(mine.At) && attempt.Worker == mine.Worker:
				there.Attempts[i], known = mine, true
				last = i == len(there.Attempts)-1 && there.State == deliveries.Sending
			case sent && attempt.Outcome == "": // the caller of the attempt may be dead; if not, it writes the outcome itself
				there.Attempts[i].Outcome = deliveries.OutcomeUnknown
			}
		}
		if !known { // the record was removed: with its user, or by its TTL
			there.Attempts, last = append(there.Attempts, mine), true
		}
		switch {
		case sent && there.State != deliveries.Delivered:
			// The message was sent: that replaces any state that another worker inferred from the silence.
			there.State, there.Reason, there.Until, there.ProviderID = made.State, "", time.Time{}, made.ProviderID
		case last:
			there.State, there.Reason, there.Until, there.FellBackTo = made.State, made.Reason, made.Until, made.FellBackTo
		}
		*d = *there
	}
}

// isUnanswered reports whether the store did not answer in time. It may answer a later request.
func isUnanswered(err error) bool {
	return errors.Is(err, kvrecord.ErrUnavailable) && !errors.Is(err, kvrecord.ErrFull) && !errors.Is(err, nats.ErrConnectionClosed)
}

// write stores the record of a row before the next step with the row. When the store is full or not there, the row is put off and
// its attempt does not count. The error is a [*deliveries.TakenError] when another process has written the record.
func (s *Sender) write(ctx context.Context, r *row, d *deliveries.Delivery) error {
	err := s.cfg.Deliveries.Put(ctx, r.key, d)
	if _, taken := errors.AsType[*deliveries.TakenError](err); err == nil || taken {
		return err
	}
	return s.later(ctx, r, err)
}

// end writes the final state of a row, and returns the error for the worker after that. It seals a digest first, so that no
// later event is lost in it.
func (s *Sender) end(ctx context.Context, r *row, d *deliveries.Delivery, state deliveries.State, reason string, verdict error) error {
	if r.Collected && !r.sealed {
		if _, err := s.seal(ctx, &r.Notification); err != nil {
			return s.later(ctx, r, err)
		}
	}
	d.State, d.Reason, d.Until = state, reason, time.Time{}
	r.fallBack(d)
	if err := s.write(ctx, r, d); err != nil {
		return err
	}
	s.report(ctx, r, d, nil)
	return s.follow(ctx, r, d, verdict)
}

// wait defers a row without using an attempt. It writes the record once for each reason and time.
func (s *Sender) wait(ctx context.Context, r *row, d *deliveries.Delivery, until time.Time, reason string) error {
	if d.State != deliveries.Deferred || d.Reason != reason || !d.Until.Equal(until) {
		d.State, d.Reason, d.Until = deliveries.Deferred, reason, until.UTC()
		if err := s.write(ctx, r, d); err != nil {
			return err
		}
		s.report(ctx, r, d, nil)
	}
	return worker.Snooze(time.Until(until))
}

// report counts and logs the new state of a row.
func (s *Sender) report(ctx context.Context, r *row, d *deliveries.Delivery, failure *channel.Error) {
	s.mu.Lock()
	s.came[Standing{d.State, d.Reason}]++
	s.mu.Unlock()
	level := slog.LevelDebug
	if failure != nil || d.State == deliveries.Failed {
		level = slog.LevelWarn
	}
	attrs := []any{"state", d.State, "attempt", len(d.Attempts)}
	if d.Reason != "" {
		attrs = append(attrs, "reason", d.Reason)
	}
	if d.FellBackTo != "" {
		attrs = append(attrs, "fell_back_to", d.FellBackTo)
	}
	if failure != nil {
		attrs = append(attrs, "error", failure)
	}
	s.log(ctx, level, r, "row is "+string(d.State), attrs...)
}

// onDeadLetter is called by the worker before it dead-letters a row. When the row has not ended in its record, because it could
// not be read or its workers died again and again, onDeadLetter ends the row there, and stores the row that follows. The worker
// calls it again after a failure, or when it died before the row was acknowledged. One round trip for a row that has ended and
// that no row follows.
func (s *Sender) onDeadLetter(ctx context.Context, letter worker.DeadLetter) error {
	key, _, ok := keys.OfSubject(letter.Subject)
	if !ok {
		return nil
	}
	r := &row{key: key, late: true}
	if err := s.decode(letter.Header, letter.Payload, &r.Notification); err != nil { // the next channel is not known
		s.cfg.Logger.WarnContext(ctx, "notifier: a row that is dead-lettered cannot be read", "key", key, "error", err)
	}
	r.carried = r.Payload
	d, err := s.cfg.Deliveries.Get(ctx, key)
	if err == nil && r.Collected && !d.State.Ended() { // as in end
		_, err = s.seal(ctx, &r.Notification)
	}
	for err == nil && !d.State.Ended() {
		d.State, d.Reason, d.Until = deliveries.Failed, deliveries.ReasonExhausted, time.Time{}
		r.fallBack(d)
		err = s.cfg.Deliveries.Put(ctx, key, d)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			d, err = taken.There, nil
		}
	}
	if err != nil {
		return err
	}
	return s.follow(ctx, r, d, nil)
}

// Health knows the endpoints that do not answer. A [health.Store] is one.
type Health interface {
	// Admit returns whether an endpoint may be called, and the wait before its caller asks again. It may shorten c.Timeout.
	Admit(c *health.Call) (verdict health.Verdict, wait time.Duration)

	// Called reports the outcome of a call that Admit let through, nil for a success.
	Called(ctx context.Context, c *health.Call, m channel.Message, failure *channel.Error)

	// Left reports that a call that Admit let through was not made.
	Left(c *health.Call)
}

var _ Health = (*health.Store)(nil)

// unreachable ends a row whose endpoint is disabled, and puts off a row whose endpoint is down or has no free slot, without using an
// attempt. It writes the record once for an endpoint that is down, and not for a wait for a slot. held is false when the endpoint is
// to be called.
func (s *Sender) unreachable(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	address := r.to.Address
	if s.cfg.Health == nil || address == "" {
		return false, nil
	}
	call := &health.Call{
		Address: address, Channel: r.Channel, RecipientType: r.RecipientType, UserID: r.UserID, Again: d.Failures() > 0,
		Slots: s.cfg.Slots, Timeout: s.cfg.Timeout,
	}
	verdict, wait := s.cfg.Health.Admit(call)
	switch verdict {
	case health.Free:
		r.call = call
		return false, nil
	case health.Busy:
		return true, worker.Snooze(wait)
	case health.Off:
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonEndpointDisabled, nil)
	case health.Down:
	}
	if d.State != deliveries.Pending || d.Reason != deliveries.ReasonEndpointDown {
		d.State, d.Reason, d.Until = deliveries.Pending, deliveries.ReasonEndpointDown, time.Time{}
		if err := s.write(ctx, r, d); err != nil {
			return true, err
		}
		s.report(ctx, r, d, nil)
	}
	return true, worker.Snooze(wait)
}

// timeout returns the time limit of a row's call. A call that is never repeated gets the whole Config.Timeout.
func (s *Sender) timeout(r *row) time.Duration {
	if r.call == nil || s.cfg.AtMostOnce {
		return s.cfg.Timeout
	}
	return cmp.Or(r.call.Timeout, s.cfg.Timeout)
}

// left reports to the health of the endpoint if the admitted call was not made, because another process wrote the record meanwhile,
// or the store did not answer.
func (s *Sender) left(r *row) {
	if call := r.call; call != nil {
		r.call = nil
		s.cfg.Health.Left(call)
	}
}
