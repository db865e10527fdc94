package deliver

import (
	"cmp"
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// Health knows which endpoints do not answer. A [health.Store] is one.
type Health interface {
	// Gate returns whether an endpoint may be called, and the wait before its caller asks again. It may shorten c.Timeout.
	Gate(c *health.Call) (verdict health.Verdict, wait time.Duration)

	// Called reports the outcome of a call that Gate let through, nil for a success.
	Called(ctx context.Context, c *health.Call, m channel.Message, failure *channel.Error)

	// Left reports that a call that Gate let through was not made.
	Left(c *health.Call)
}

var _ Health = (*health.Store)(nil)

// unreachable ends a row whose endpoint is disabled, and puts one off whose endpoint is not there, without an attempt: the record is
// written once for that, and not for a row that waits for a slot. It reports false when the endpoint is to be called.
func (s *Sender) unreachable(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	address := r.to.Address
	if s.cfg.Health == nil || address == "" {
		return false, nil
	}
	call := &health.Call{
		Address: address, Channel: r.Channel, Again: d.Failures() > 0, Slots: s.cfg.Slots, Timeout: s.cfg.Timeout,
	}
	verdict, wait := s.cfg.Health.Gate(call)
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

// timeout returns how long the call of a row may take. A call that is not made again gets all the time.
func (s *Sender) timeout(r *row) time.Duration {
	if r.call == nil || s.cfg.AtMostOnce {
		return s.cfg.Timeout
	}
	return cmp.Or(r.call.Timeout, s.cfg.Timeout)
}

// called reports to the health of the endpoint what came of a call.
func (s *Sender) called(ctx context.Context, r *row, m channel.Message, took time.Duration, failure *channel.Error) {
	if call := r.call; call != nil {
		r.call, call.Took = nil, took
		s.cfg.Health.Called(ctx, call, m, failure)
	}
}

// left reports to the health of the endpoint that there was no call, if there was none: somebody else wrote the record meanwhile, or the
// store did not answer.
func (s *Sender) left(r *row) {
	if call := r.call; call != nil {
		r.call = nil
		s.cfg.Health.Left(call)
	}
}
