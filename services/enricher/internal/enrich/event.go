package enrich

import (
	"context"
	"encoding/base64"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Event is the second part of a log event's name; the provider's name is the first, as in "wolt_cache_hit". It is the
// attribute "event" of a log line.
type Event string

// The log events of a request, with their attributes beside requestId, placeId and restaurantName.
const (
	EventCacheHit       Event = "cache_hit"       // status
	EventCacheMiss      Event = "cache_miss"      // cityText
	EventLockAcquired   Event = "lock_acquired"   // claim
	EventLockSkipped    Event = "lock_skipped"    // owner: another process has the claim
	EventLockFailed     Event = "lock_failed"     // lockError
	EventJobEnqueued    Event = "job_enqueued"    // name, cityText, statusSet, reason
	EventEnqueueSkipped Event = "enqueue_skipped" // reason: a SkipReason
)

// The log events of a job, with their attributes beside requestId, placeId and restaurantName.
const (
	EventMatched      Event = "matched"       // outcome, score, venueId, candidates
	EventJobSkipped   Event = "job_skipped"   // reason: the place needs no work any more, or not now
	EventProviderFail Event = "provider_fail" // attempt, error, kind: the provider.Kind, or "" for any other error
)

// SkipReason is the reason why no job was queued for a place.
type SkipReason string

// The reasons, by the names that operators search for.
const (
	SkipFlagDisabled     SkipReason = "flag_disabled"            // enrichment is switched off
	SkipNoResults        SkipReason = "no_results"               // the request has no restaurants
	SkipStoreDown        SkipReason = contracts.SkippedStoreDown // the entries cannot be read
	SkipStoreFull        SkipReason = contracts.SkippedStoreFull // the request cannot be recorded
	SkipAlreadyCached    SkipReason = "already_cached"           // the entry holds an answer
	SkipLockHeld         SkipReason = "lock_held"                // another process has the claim, or the job is queued already
	SkipLockError        SkipReason = "lock_error"               // the claim could not be taken
	SkipQueueUnavailable SkipReason = "queue_unavailable"        // the job could not be queued
)

// log writes one event of a lookup.
func (s *Service) log(ctx context.Context, level slog.Level, event Event, t *lookup, attrs ...slog.Attr) {
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

// skip logs that no job was queued for a lookup, and counts it.
func (s *Service) skip(ctx context.Context, t *lookup, reason SkipReason) {
	s.count(func(c *Stats) { c.Skipped[reason]++ })
	level := slog.LevelDebug
	if reason == SkipStoreDown || reason == SkipLockError || reason == SkipQueueUnavailable {
		level = slog.LevelWarn
	}
	s.log(ctx, level, EventEnqueueSkipped, t, slog.String("reason", string(reason)))
}

// Stats counts the work of a Service since it was made.
type Stats struct {
	Requests      int64                       `json:"requests"`       // answered
	Places        int64                       `json:"places"`         // asked for, each provider counted
	Hits          int64                       `json:"hits"`           // answered from an entry
	Jobs          int64                       `json:"jobs"`           // queued
	ProviderCalls int64                       `json:"provider_calls"` // searches made by jobs
	Outcomes      map[contracts.Outcome]int64 `json:"outcomes"`       // of the look-ups that ended
	Patches       int64                       `json:"patches"`        // handed to subscribers
	Skipped       map[SkipReason]int64        `json:"skipped"`
}

// counters are the Stats so far.
type counters struct {
	Stats

	mu sync.Mutex
}

// count adds to the Stats.
func (s *Service) count(add func(*Stats)) {
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	add(&s.counters.Stats)
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	now := s.counters.Stats
	now.Outcomes, now.Skipped = maps.Clone(now.Outcomes), maps.Clone(now.Skipped)
	return now
}

// published is the last state of a place that a subscriber has received: none, no answer for now, or the answer. It only
// grows.
type published uint8

const (
	publishedNothing published = iota
	publishedUnresolved
	publishedAnswer
)

// progress is the state that a subscriber has received of each place of a request. Event ids carry it: two bits for each
// place, in the order of the request's record, behind the record's nonce. So any process can continue exactly where another
// one stopped, in whatever order the answers came, and no state is kept for subscribers that may come back.
type progress struct {
	nonce     string
	published []published
}

// eventID returns the progress as the id of the event that brought it about.
func (p progress) eventID() string {
	bits := make([]byte, (len(p.published)+3)/4)
	for i, t := range p.published {
		bits[i/4] |= byte(t) << (i % 4 * 2)
	}
	return p.nonce + "." + base64.RawURLEncoding.EncodeToString(bits)
}

// resume applies the progress in an event id. The record may have more places since then: the subscriber has received
// nothing about the added ones. It reports false for an id of another request, of an earlier one under the same id, or one that was never
// issued.
func (p progress) resume(eventID string) bool {
	nonce, encoded, found := strings.Cut(eventID, ".")
	if !found || nonce != p.nonce {
		return false
	}
	bits, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(bits) > (len(p.published)+3)/4 {
		return false
	}
	for i := range p.published {
		if i/4 < len(bits) {
			p.published[i] = min(published(bits[i/4]>>(i%4*2)&3), publishedAnswer)
		}
	}
	return true
}

// complete reports whether the subscriber has received something about every place.
func (p progress) complete() bool {
	return !slices.Contains(p.published, publishedNothing)
}
