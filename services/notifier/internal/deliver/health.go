package deliver

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// Health knows which endpoints do not answer. A [health.Store] is one.
type Health interface {
	// Gate says whether an endpoint may be called, and for how long that is to wait.
	Gate(name, address string, timeout time.Duration) (disabled bool, wait time.Duration)

	// Called reports the outcome of a call that Gate let through, nil for a success.
	Called(ctx context.Context, m channel.Message, name string, failure *channel.Error)

	// Left reports that a call that Gate let through was not made.
	Left(name, address string)
}

var _ Health = (*health.Store)(nil)

// unreachable ends a row whose endpoint is disabled, and puts one off whose endpoint is not there, without an attempt: the record is
// written once for that. It reports false when the endpoint is to be called.
func (s *Sender) unreachable(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	address := r.profile.Addresses[r.Channel]
	if s.cfg.Health == nil || address == "" {
		return false, nil
	}
	disabled, wait := s.cfg.Health.Gate(r.Channel, address, s.cfg.Timeout)
	switch {
	case disabled:
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonEndpointDisabled, nil)
	case wait <= 0:
		return false, nil
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

// called reports to the health of the endpoint what came of a call.
func (s *Sender) called(ctx context.Context, r *row, m channel.Message, failure *channel.Error) {
	if s.cfg.Health != nil && m.Address != "" {
		r.called = true
		s.cfg.Health.Called(ctx, m, s.cfg.Channel.Name(), failure)
	}
}

// left reports to the health of the endpoint that there was no call, if there was none: somebody else wrote the record meanwhile, or the
// store did not answer.
func (s *Sender) left(r *row) {
	if address := r.profile.Addresses[r.Channel]; s.cfg.Health != nil && address != "" && !r.called {
		s.cfg.Health.Left(r.Channel, address)
	}
}
