package enrich

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

const (
	// orphanAge is how old a claim that waits for its job has to be before it may be suspected of having none. By then the
	// process that took the claim has queued the job or given the claim back, unless it died, or never learnt that it has
	// the claim.
	orphanAge = claimTimeout

	// orphanSpread bounds the random time that is added to orphanAge. The first process queues the job again, and the others
	// see that.
	orphanSpread = 3 * time.Second

	// requeueTimeout bounds one try to queue a job again: there will be others.
	requeueTimeout = 2 * publishTry

	// reasonOrphaned is why a job was queued for the claim of another process.
	reasonOrphaned = "orphaned_claim"
)

// isHandedOff reports whether a place waits for the worker of a job.
func isHandedOff(slot flight.Slot) bool { return slot.State == flight.Pending && slot.Handoff }

// requeues remembers for which claims this process has queued the job again, so that all requests and subscriptions that see
// the same claim do it once. An entry lives about as long as a claim that is not renewed.
type requeues struct {
	mu    sync.Mutex
	byKey map[string]requeued
	sweep time.Time
}

type requeued struct {
	claim string
	until time.Time
}

// begin reports whether the caller is to queue the job of a claim again: not when this process is doing it, tried it a
// moment ago, or knows that the job is queued.
func (r *requeues) begin(slot flight.Slot, ttl time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.byKey == nil {
		r.byKey = map[string]requeued{}
	}
	if !now.Before(r.sweep) {
		for key, e := range r.byKey {
			if !now.Before(e.until) {
				delete(r.byKey, key)
			}
		}
		r.sweep = now.Add(ttl)
	}
	if e, known := r.byKey[slot.Key]; known && e.claim == slot.Claim && now.Before(e.until) {
		return false
	}
	r.byKey[slot.Key] = requeued{claim: slot.Claim, until: now.Add(orphanAge)}
	return true
}

// done notes that the queue has the job of a claim.
func (r *requeues) done(slot flight.Slot, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byKey[slot.Key] = requeued{claim: slot.Claim, until: time.Now().Add(ttl)}
}

// requeue queues the jobs of claims again, in the background. It is for claims that have waited for long. Most have a job in
// a backlog, which the stream refuses a second time by the job's subject or its message id. A claim whose holder died before
// it queued the job gets a job now, with the name and address of t. One round trip for each claim and process, and again
// when the claim is renewed for longer than ClaimTTL.
func (s *Service) requeue(ctx context.Context, t *target, slot flight.Slot) {
	if !s.requeues.begin(slot, s.cfg.ClaimTTL) {
		return
	}
	own := *t // the request may be answered meanwhile
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
		defer cancel()
		sequence, err := s.insert(ctx, &own, slot.Claim, slot.Ref())
		switch {
		case err != nil:
			s.logger.WarnContext(ctx, "enricher: job of an old claim could not be queued", "placeId", own.job.PlaceID, "error", err)
			return
		case sequence > 0:
			s.enqueued(ctx, &own, reasonOrphaned)
		default:
			s.log(ctx, slog.LevelDebug, EventEnqueueSkipped, &own, slog.String("reason", string(SkipLockHeld)))
		}
		s.requeues.done(slot, s.cfg.ClaimTTL)
	})
}

// enqueued logs and counts a job that the queue has taken.
func (s *Service) enqueued(ctx context.Context, t *target, reason string) {
	s.counters.jobs.Add(1)
	s.log(ctx, slog.LevelInfo, EventJobEnqueued, t, slog.String("name", t.job.Name), slog.String("cityText", t.job.CityText),
		slog.String("statusSet", string(contracts.StatusPending)), slog.String("reason", reason))
}

// handedOff is a claim that a follower sees waiting for its job.
type handedOff struct {
	slot flight.Slot
	due  time.Time // when to queue the job again
}

// suspect notes a claim that waits for its job.
func (f *follower) suspect(t *target, slot flight.Slot) {
	due := time.Now().Add(max(0, orphanAge-slot.Age()) + chance(orphanSpread))
	f.handed[t] = handedOff{slot, due}
}

// requeue queues the jobs of the claims that have waited for long. They stay suspect until they change: the queue may
// not have answered.
func (f *follower) requeue(ctx context.Context) {
	now := time.Now()
	for t, h := range f.handed {
		if !now.Before(h.due) {
			f.service.requeue(ctx, t, h.slot)
			f.handed[t] = handedOff{h.slot, now.Add(orphanAge + chance(orphanSpread))}
		}
	}
}
