package enrich

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const (
	// jobTimeout bounds one attempt at a job.
	jobTimeout = 30 * time.Second

	// searchAttempts is the number of attempts after which a failure of the provider is final.
	searchAttempts = 3

	// jobAttempts is the number of attempts at a job in all. It is larger than searchAttempts, because the death of a
	// worker uses an attempt too.
	jobAttempts = 10

	// maxRetryAfter bounds the pause that a provider can ask for.
	maxRetryAfter = 10 * time.Minute

	// limitedFor is the time after a job was queued during which waiting for the provider's limits uses no attempt: a
	// backlog is no failure of the job.
	limitedFor = 10 * time.Minute

	// storeSnooze is the pause after the store did not answer. It uses no attempt of the job.
	storeSnooze = time.Second

	// minHeldSnooze and maxHeldSnooze bound the pause before a place that another worker has claimed is looked at again.
	minHeldSnooze = 500 * time.Millisecond
	maxHeldSnooze = 5 * time.Second

	// reasonReplaced is the reason for skipping a job whose place another description has claimed in the meantime.
	reasonReplaced = "replaced"

	// unresolvedTTL is the time for which a place is not looked up again after a look-up without an answer: several venues could be the
	// place, or the provider failed for good.
	unresolvedTTL = time.Minute

	// expiryLate is the longest delay with which the server removes a lease that has expired.
	expiryLate = 350 * time.Millisecond
)

// Policy returns the policy by which the worker runs [Service.Work]: all instances together make no more calls and
// searches of a provider than its [provider.Limits] allow. A job that waits for a search uses no attempt, and no
// process holds its claim.
func (s *Service) Policy() worker.Policy {
	return worker.Policy{
		Backoff:     worker.Exponential(2*time.Second, time.Minute),
		Decode:      contracts.DecodeArgs[contracts.EnrichJob],
		Limits:      limits(s.cfg.Providers),
		MaxAttempts: jobAttempts,
		Timeout:     jobTimeout,
	}
}

// Work looks one place up. It resumes the claim that the job carries, asks the provider, lets the matcher decide, and turns
// the claim into the result. When another worker has stored a result already, Work does not ask the provider. When another
// worker has the claim, because the server delivered the job to both, Work puts the job off until there is a result, or the
// other worker no longer renews its claim.
//
// So the provider is asked once, and again only after a failure, or when a worker died between asking and storing. A search
// continues although its claim is lost in the meantime, and its result is stored if no other worker was faster. A temporary
// failure is tried again by the worker's policy, not before the provider allows it. After a permanent failure, or the last
// attempt, the job ends in the dead letters and its place has no answer for unresolvedTTL.
func (s *Service) Work(ctx context.Context, job *worker.Job[contracts.EnrichJob]) error {
	t, err := s.jobLookup(job.Args)
	if err != nil {
		return worker.Discard(err)
	}
	claim, err := s.flight.Resume(ctx, t.key(), job.Args.Claim, flight.ResumeOptions{
		Attempt: job.Attempt, Fingerprint: t.fingerprint, TTL: s.cfg.LeaseTTL, Yield: true,
	})
	var taken *flight.TakenError
	switch {
	case errors.As(err, &taken) && taken.Entry.State == flight.Pending:
		left := taken.Entry.TTL - taken.Entry.Age() + expiryLate
		return worker.Snooze(min(max(left, minHeldSnooze), maxHeldSnooze))
	case errors.As(err, &taken):
		s.log(ctx, slog.LevelDebug, EventJobSkipped, t, slog.String("reason", taken.Entry.State.String()))
		return nil
	case errors.Is(err, kvlock.ErrMismatch):
		s.log(ctx, slog.LevelDebug, EventJobSkipped, t, slog.String("reason", reasonReplaced))
		return nil
	case errors.Is(err, flight.ErrInvalidRef), errors.Is(err, kvlock.ErrInvalidKey): // no retry can fix the job
		return worker.Discard(err)
	case err != nil:
		return s.unstored(ctx, t, fmt.Errorf("enricher: resume the claim of %s: %w", t.key(), err))
	}

	_, stop := claim.AutoRenew(ctx, s.cfg.LeaseTTL)
	defer stop() // of a search that ends its goroutine
	result, err := s.search(ctx, t)
	stop()
	if err != nil {
		return s.failed(ctx, job, t, claim, err)
	}
	for { // the provider is not to be asked twice for one answer because the store does not answer
		err := s.complete(context.WithoutCancel(ctx), t, claim, result)
		if !errors.Is(err, kvlock.ErrUnavailable) || !retry.Sleep(ctx, storeSnooze) {
			return s.unstored(ctx, t, err)
		}
	}
}

// unstored puts off a job that failed because the store did not answer.
func (s *Service) unstored(ctx context.Context, t *lookup, err error) error {
	if !errors.Is(err, kvlock.ErrUnavailable) {
		return err
	}
	s.log(ctx, slog.LevelWarn, EventJobSkipped, t, slog.String("reason", string(SkipStoreDown)), slog.String("error", err.Error()))
	return worker.Snooze(storeSnooze)
}

func (s *Service) jobLookup(job contracts.EnrichJob) (*lookup, error) {
	if s.providers[job.Provider] == nil {
		return nil, fmt.Errorf("%w %q in a job: have %q", ErrUnknownProvider, job.Provider, s.names)
	}
	t := new(lookup)
	err := t.init(job)
	if err == nil && job.Variant > 0 {
		t.at = 1
	}
	return t, err
}

// search asks the provider and lets the matcher decide. A panic of either is returned as an error, so that the claim
// is put back.
func (s *Service) search(ctx context.Context, t *lookup) (result contracts.EnrichResult, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &worker.PanicError{Stack: debug.Stack(), Value: value}
		}
		s.count(func(c *Stats) { c.ProviderCalls++ })
	}()
	place := placeOf(t.job)
	asking, call := s.cfg.Telemetry.Call(ctx, t.job.Provider)
	venues, err := s.providers[t.job.Provider].Search(asking, place)
	call.End(outcomeOf(err), err)
	if err != nil {
		return contracts.EnrichResult{}, err
	}
	decision := match.Best(place, provider.Places(venues))
	if result, err = resultOf(decision, venues); err != nil {
		return contracts.EnrichResult{}, err
	}
	attrs := []slog.Attr{
		slog.String("outcome", string(result.Outcome)), slog.Float64("score", result.Score), slog.Int("candidates", len(venues)),
	}
	if result.Venue != nil {
		attrs = append(attrs, slog.String("venueId", result.Venue.ID))
	}
	s.log(ctx, slog.LevelInfo, EventMatched, t, attrs...)
	return result, nil
}

// outcomeOf returns the outcome of a search for the metrics.
func outcomeOf(err error) string {
	if err == nil {
		return natsotel.OutcomeOK
	}
	return cmp.Or(string(provider.KindOf(err)), "error")
}

// resultOf puts a decision into the stored form: the answer and its evidence.
func resultOf(d match.Decision, venues []provider.Venue) (contracts.EnrichResult, error) {
	outcome := contracts.Outcome(d.Outcome)
	result := contracts.EnrichResult{Status: outcome.Status(), UpdatedAt: time.Now().UTC(), Outcome: outcome, Matcher: match.ModelVersion}
	if d.Index < 0 {
		return result, nil
	}
	evidence, err := json.Marshal(d.Evidence)
	if err != nil {
		return result, fmt.Errorf("enricher: encode evidence: %w", err)
	}
	v := venues[d.Index]
	result.Score, result.Evidence = d.Score, evidence
	result.Venue = &contracts.Venue{ID: v.ID, Name: v.Name, Address: v.Address, City: v.City, URL: v.URL}
	if outcome == contracts.OutcomeFound {
		result.URL = &v.URL
	}
	return result, nil
}

// complete stores the result. If this process was paused or cut off and lost the claim, complete takes it again when no
// other process has it, so that the provider need not be asked again.
func (s *Service) complete(ctx context.Context, t *lookup, claim *flight.Claim, result contracts.EnrichResult) error {
	value, err := contracts.Encode(result)
	if err != nil {
		return worker.Discard(fmt.Errorf("enricher: result of %s: %w", t.key(), err))
	}
	ttl := s.ttl(result.Outcome)
	_, err = claim.Complete(ctx, value, ttl)
	if errors.Is(err, kvlock.ErrLost) {
		options := flight.ResumeOptions{Fingerprint: t.fingerprint, TTL: s.cfg.LeaseTTL, Yield: true}
		claim, err = s.flight.Resume(ctx, t.key(), claim.Ref(), options)
		if err == nil {
			_, err = claim.Complete(ctx, value, ttl)
		}
		if errors.Is(err, flight.ErrTaken) || errors.Is(err, kvlock.ErrMismatch) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("enricher: store the result of %s: %w", t.key(), err)
	}
	s.count(func(c *Stats) { c.Outcomes[result.Outcome]++ })
	return nil
}

// ttl returns the time for which to keep a result, ±10 %, so that results of the same moment do not expire together.
func (s *Service) ttl(o contracts.Outcome) time.Duration {
	var d time.Duration
	switch o {
	case contracts.OutcomeFound:
		d = s.cfg.FoundTTL
	case contracts.OutcomeNotFound:
		d = s.cfg.NotFoundTTL
	case contracts.OutcomeAmbiguous, contracts.OutcomeError:
		return unresolvedTTL
	}
	return max(retry.Spread(d, 0.1).Truncate(time.Second), time.Second)
}

// failed decides the outcome of a job whose look-up failed. The end of the worker or of the claim is no failure.
func (s *Service) failed(ctx context.Context, job *worker.Job[contracts.EnrichJob], t *lookup, claim *flight.Claim, cause error) error {
	if _, lost := errors.AsType[*worker.LimitLostError](context.Cause(ctx)); lost || errors.Is(context.Cause(ctx), worker.ErrShutdown) {
		return s.restore(ctx, claim, cause)
	}
	var after time.Duration
	var kind provider.Kind
	if failure, ok := errors.AsType[*provider.Error](cause); ok {
		after, kind = min(failure.RetryAfter, maxRetryAfter), failure.Kind
	}
	s.log(ctx, slog.LevelWarn, EventProviderFail, t, slog.Int("attempt", job.Attempt),
		slog.String("error", cause.Error()), slog.String("kind", string(kind)))
	if kind == provider.KindRateLimited && after > 0 && time.Since(job.EnqueuedAt) < limitedFor {
		return s.restore(ctx, claim, worker.Snooze(after))
	}
	if provider.Temporary(cause) && job.Attempt < searchAttempts {
		if after > 0 {
			return s.restore(ctx, claim, worker.Retry(after, cause))
		}
		return s.restore(ctx, claim, cause)
	}
	if err := s.complete(context.WithoutCancel(ctx), t, claim, errorResult()); err != nil {
		s.logger.WarnContext(ctx, "enricher: subscribers will receive the result by the expiry of the claim", "key", t.key(), "error", err)
	}
	return worker.Discard(cause)
}

// errorResult returns the result of a look-up that failed and is not tried again for now.
func errorResult() contracts.EnrichResult {
	return contracts.EnrichResult{
		Status: contracts.StatusPending, UpdatedAt: time.Now().UTC(), Outcome: contracts.OutcomeError, Matcher: match.ModelVersion,
	}
}

// Settled is the hook of the worker. When a job was dead-lettered unworked, because it could not be read or its workers
// died, Settled leaves its place without an answer for a while. Otherwise the processes of waiting subscribers would queue
// the job again, for ever.
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

// restore leaves the claim to the next attempt at the job, and returns the error for the worker.
func (s *Service) restore(ctx context.Context, claim *flight.Claim, outcome error) error {
	if err := claim.HandOff(context.WithoutCancel(ctx), 0); err != nil && !errors.Is(err, kvlock.ErrLost) {
		s.logger.WarnContext(ctx, "enricher: claim stays until it expires", "key", claim.Key(), "error", err)
	}
	return outcome
}

// abandon leaves a place without an answer after a job was dead-lettered. A claim that waits to be resumed belongs to that
// job. A claim that a worker holds for another job is left alone. abandon takes the claim over without giving it up first:
// in between, a process with a subscriber would claim the place and queue the job again.
func (s *Service) abandon(ctx context.Context, key, jobID string) error {
	entry, err := s.flight.Get(ctx, key)
	var claim *flight.Claim
	switch {
	case err != nil:
	case entry.State == flight.Pending && (entry.HandOff || contracts.MsgID(entry.Claim) == jobID):
		claim, err = s.flight.Resume(ctx, key, entry.Ref(), flight.ResumeOptions{Fingerprint: entry.Fingerprint, TTL: s.cfg.LeaseTTL})
	default:
		claim, err = s.flight.Begin(ctx, key, flight.BeginOptions{Fingerprint: entry.Fingerprint, TTL: s.cfg.LeaseTTL})
	}
	if err != nil {
		return fmt.Errorf("enricher: abandon %s: %w", key, err)
	}
	return s.complete(ctx, &lookup{fingerprint: entry.Fingerprint, first: key}, claim, errorResult())
}
