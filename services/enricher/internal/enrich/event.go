package enrich

import (
	"context"
	"log/slog"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Event is the second part of a log event's name; the provider's name is the first, as in "wolt_cache_hit". It is the
// attribute "event" of a log line.
type Event string

// The log events of a request, and what they carry beside requestId, placeId and restaurantName.
const (
	EventCacheHit       Event = "cache_hit"       // status
	EventCacheMiss      Event = "cache_miss"      // cityText
	EventLockAcquired   Event = "lock_acquired"   // claim
	EventLockSkipped    Event = "lock_skipped"    // owner: another process has the claim
	EventLockFailed     Event = "lock_failed"     // lockError
	EventJobEnqueued    Event = "job_enqueued"    // name, cityText, statusSet, reason
	EventEnqueueSkipped Event = "enqueue_skipped" // reason: a SkipReason
)

// The log events of a job, and what they carry beside requestId, placeId and restaurantName.
const (
	EventMatched      Event = "matched"       // outcome, score, venueId, candidates
	EventJobSkipped   Event = "job_skipped"   // reason: the place needs no work any more, or not now
	EventProviderFail Event = "provider_fail" // attempt, error, kind: a provider.Kind, or "" for an error that is none
)

// SkipReason is why no job was queued for a place.
type SkipReason string

// The reasons, by the names that operators search for.
const (
	SkipFlagDisabled     SkipReason = "flag_disabled"            // enrichment is switched off
	SkipNoResults        SkipReason = "no_results"               // the request has no restaurants
	SkipStoreDown        SkipReason = contracts.SkippedStoreDown // the slots cannot be read
	SkipStoreFull        SkipReason = contracts.SkippedStoreFull // the request cannot be recorded
	SkipAlreadyCached    SkipReason = "already_cached"           // the slot holds an answer
	SkipLockHeld         SkipReason = "lock_held"                // another process has the claim, or the job is queued already
	SkipLockError        SkipReason = "lock_error"               // the claim could not be taken
	SkipQueueUnavailable SkipReason = "queue_unavailable"        // the job could not be queued
)

// log writes one event of a target.
func (s *Service) log(ctx context.Context, level slog.Level, event Event, t *target, attrs ...slog.Attr) {
	if !s.logger.Enabled(ctx, level) {
		return
	}
	name := t.job.Provider + "_" + string(event)
	all := append([]slog.Attr{
		slog.String("event", name), slog.String("requestId", t.job.RequestID), slog.String("placeId", t.job.PlaceID),
		slog.String("restaurantName", t.job.Name),
	}, attrs...)
	s.logger.LogAttrs(ctx, level, name, all...) //nolint:sloglint // names of events begin with the provider's
}

// skip logs that no job was queued for a target, and counts it.
func (s *Service) skip(ctx context.Context, t *target, reason SkipReason) {
	s.counters.skipped(reason)
	level := slog.LevelDebug
	if reason == SkipStoreDown || reason == SkipLockError || reason == SkipQueueUnavailable {
		level = slog.LevelWarn
	}
	s.log(ctx, level, EventEnqueueSkipped, t, slog.String("reason", string(reason)))
}

// skipAll logs, for each provider, that nothing at all was looked up.
func (s *Service) skipAll(ctx context.Context, requestID string, providers []string, reason SkipReason) {
	for _, p := range providers {
		s.skip(ctx, &target{job: contracts.EnrichJob{Provider: p, RequestID: requestID}}, reason)
	}
}
