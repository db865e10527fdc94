package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// failed decides the outcome of a job whose look-up failed. The end of the worker or of the claim is no failure.
func (s *Service) failed(ctx context.Context, job *worker.Job[contracts.EnrichJob], t *target, claim *flight.Claim, cause error) error {
	if _, lost := errors.AsType[*worker.LimitLostError](context.Cause(ctx)); lost || errors.Is(context.Cause(ctx), worker.ErrShutdown) {
		return s.putBack(ctx, claim, cause)
	}
	var after time.Duration
	var kind provider.Kind
	if failure, ok := errors.AsType[*provider.Error](cause); ok {
		after, kind = min(failure.RetryAfter, maxRetryAfter), failure.Kind
	}
	s.log(ctx, slog.LevelWarn, EventProviderFail, t, slog.Int("attempt", job.Attempt),
		slog.String("error", cause.Error()), slog.String("kind", string(kind)))
	if kind == provider.KindRateLimited && after > 0 && time.Since(job.EnqueuedAt) < limitedFor {
		return s.putBack(ctx, claim, worker.Snooze(after))
	}
	if provider.Temporary(cause) && job.Attempt < searchAttempts {
		if after > 0 {
			return s.putBack(ctx, claim, worker.Retry(after, cause))
		}
		return s.putBack(ctx, claim, cause)
	}
	if err := s.complete(context.WithoutCancel(ctx), t, claim, errorResult()); err != nil {
		s.logger.WarnContext(ctx, "enricher: those who wait will learn by the claim's expiry", "key", t.key(), "error", err)
	}
	return worker.Cancel(cause)
}

// errorResult is what a look-up came to that will not be tried again for now.
func errorResult() contracts.EnrichResult {
	return contracts.EnrichResult{
		Status: contracts.StatusPending, UpdatedAt: time.Now().UTC(), Outcome: contracts.OutcomeError, Matcher: match.ModelVersion,
	}
}

// Settled is the hook of the worker. When a job was dead-lettered without having been worked, because it could not be read
// or its workers died, Settled leaves its place without an answer for a while. Otherwise the processes of the waiting
// subscribers would queue the job again, for ever.
func (s *Service) Settled(settled worker.Settlement) {
	if settled.Outcome != worker.OutcomeDead {
		return
	}
	key, found := strings.CutPrefix(settled.Subject, strings.TrimSuffix(contracts.EnrichJobsSubjects, ">"))
	if !found {
		return
	}
	s.background.Go(func() {
		ctx := context.Background() //nolint:forbidigo // bounded by the Flight, waited for by Close
		if err := s.abandon(ctx, key, settled.ID); err != nil && !errors.Is(err, flight.ErrTaken) {
			s.logger.Warn("enricher: place of a dead-lettered job stays as it is", "key", key, "error", err)
		}
	})
}

// putBack leaves the claim to the next attempt at the job, and returns the error for the worker.
func (s *Service) putBack(ctx context.Context, claim *flight.Claim, outcome error) error {
	if err := claim.HandOff(context.WithoutCancel(ctx), 0); err != nil && !errors.Is(err, kvlock.ErrLost) {
		s.logger.WarnContext(ctx, "enricher: claim stays until it expires", "key", claim.Key(), "error", err)
	}
	return outcome
}

// abandon leaves a place without an answer after a job was dead-lettered. A claim that waits to be resumed was left to that
// job. A claim that a worker holds is left alone if it is another job's. abandon takes the claim over and does not give it
// up first: in between, a process with a subscriber would claim the place and queue the job again.
func (s *Service) abandon(ctx context.Context, key, jobID string) error {
	slot, err := s.flight.Get(ctx, key)
	var claim *flight.Claim
	switch {
	case err != nil:
	case slot.State == flight.Pending && (slot.Handoff || contracts.EnrichJobMsgID(slot.Claim) == jobID):
		claim, err = s.flight.Resume(ctx, key, slot.Ref(), flight.ResumeOptions{Fingerprint: slot.Fingerprint, TTL: s.cfg.LeaseTTL})
	default:
		claim, err = s.flight.Begin(ctx, key, flight.BeginOptions{Fingerprint: slot.Fingerprint, TTL: s.cfg.LeaseTTL})
	}
	if err != nil {
		return fmt.Errorf("enricher: abandon %s: %w", key, err)
	}
	return s.complete(ctx, &target{fingerprint: slot.Fingerprint, first: key}, claim, errorResult())
}
