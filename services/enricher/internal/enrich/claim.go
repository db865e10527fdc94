package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	// cloudEventType is the CloudEvents type of a job.
	cloudEventType = "io.expediter.place.enrichment.requested.v1"

	// claimsAtOnce bounds the claims of one request that are under way at a time.
	claimsAtOnce = 64

	// claimTimeout bounds a claim together with its job. No caller waits for so long, but a claim without a job would
	// block its place until it expires.
	claimTimeout = 5 * time.Second
)

// claimCall is one attempt to claim a place and to queue its job. All requests of this process that want the place at
// the same moment share it.
type claimCall struct {
	done   chan struct{} // closed when the other fields are set
	taken  *flight.Entry // the entry of the place when it could not be claimed
	reason SkipReason    // why no job was queued, when the place was not taken
}

// claims are the calls under way, by the key of the entry and the description of the place.
type claims struct {
	mu    sync.Mutex
	calls map[string]*claimCall
}

// join returns the call for a key. end is nil when another request makes the call; otherwise the caller makes it, and ends it.
func (c *claims) join(key string) (call *claimCall, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call, ok := c.calls[key]; ok {
		return call, nil
	}
	if c.calls == nil {
		c.calls = map[string]*claimCall{}
	}
	call = &claimCall{done: make(chan struct{})}
	c.calls[key] = call
	return call, func() {
		// Removed first: whoever joins from now on needs a call of the entry as it is now.
		c.mu.Lock()
		delete(c.calls, key)
		c.mu.Unlock()
		close(call.done)
	}
}

// claimAll claims places and queues their jobs, for as long as ctx lasts. It sets unclaimed of each lookup for which
// that failed.
func (s *Service) claimAll(ctx context.Context, missing []*lookup) {
	limit := make(chan struct{}, claimsAtOnce)
	var wg sync.WaitGroup
	for _, t := range missing {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			t.unclaimed = !s.claim(ctx, t)
		})
	}
	wg.Wait()
}

// claim claims the entry of a place for the worker that will get its job, and queues the job. Of all callers at the same time
// one gets the claim; the others find it held. claim reports whether a process has claimed the place. Two round trips for each
// entry, in the background: they are finished although ctx ends.
func (s *Service) claim(ctx context.Context, t *lookup) (held bool) {
	// A place has two entries that may answer the lookup. Each try that finds one taken for another description goes on with the
	// other one, and each may be taken between its reading and its claim.
	for range 2 * len(t.entries) {
		call, end := s.claims.join(t.key() + "\n" + t.fingerprint)
		first := end != nil
		if first {
			// A copy, because the request may be answered before its claim is.
			own := *t
			s.background.Go(func() {
				defer end()
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
				defer cancel()
				call.taken, call.reason = s.take(ctx, &own)
			})
		}
		select {
		case <-call.done:
		case <-ctx.Done():
			// The call goes on, and logs its own outcome. Nobody knows yet whether the place will be claimed.
			if !first {
				s.logHeld(ctx, t)
			}
			return false
		}
		switch {
		case call.taken != nil:
			if again := s.record(ctx, t, call.taken); !again {
				return true
			}
			continue
		case first: // take has logged it
		case call.reason == "":
			s.logHeld(ctx, t)
		default:
			s.skip(ctx, t, call.reason)
		}
		return call.reason == "" || call.reason == SkipLockHeld
	}
	return false
}

// take claims the entry of a place, and queues the job of the claim. It removes an answer to another description first. taken is the
// entry of another process that has the claim. reason says why no job was queued, "" when one was.
func (s *Service) take(ctx context.Context, t *lookup) (taken *flight.Entry, reason SkipReason) {
	seen := *t.entries[t.at]
	var err error
	// Begin does not replace a result, whatever its description.
	if t.foreign() && seen.State == flight.Done {
		err = s.flight.Invalidate(ctx, t.key())
		seen = flight.Entry{}
	}
	var claim *flight.Claim
	if err == nil {
		claim, err = s.flight.Begin(ctx, t.key(), flight.BeginOptions{Fingerprint: t.fingerprint, HandOff: true, Seen: seen})
	}
	if errors.Is(err, kvlock.ErrMismatch) {
		// Another description was faster, or the same one in other words.
		var entry flight.Entry
		if entry, err = s.flight.Get(ctx, t.key()); err == nil {
			return &entry, ""
		}
	}
	var other *flight.TakenError
	switch {
	case errors.As(err, &other):
		return &other.Entry, ""
	case err != nil:
		s.log(ctx, slog.LevelWarn, EventLockFailed, t, slog.String("lockError", err.Error()))
		s.skip(ctx, t, SkipLockError)
		return nil, SkipLockError
	}
	s.log(ctx, slog.LevelInfo, EventLockAcquired, t, slog.String("claim", claim.ID()))

	// The stream takes one job for each entry at a time, so that a place whose claim expired while its job waits is not queued
	// twice: the worker of that job will hold this claim. A job that waits for another description of the place is dropped when
	// its turn comes, and the job of this claim is queued again after requeueAge.
	receipt, err := s.insert(ctx, t, claim.ID(), claim.Ref())
	switch {
	case receipt.Sequence > 0:
		s.enqueued(ctx, t, string(EventCacheMiss))
		return nil, ""
	case err == nil:
		reason = SkipLockHeld
	default:
		reason = SkipQueueUnavailable
		s.logger.WarnContext(ctx, "enricher: job could not be queued", "placeId", t.job.PlaceID, "error", err)
		// A claim without a job would block its place until it expires: the next request may try.
		if err := claim.Fail(context.WithoutCancel(ctx), string(reason), 0); err != nil {
			s.logger.WarnContext(ctx, "enricher: claim stays until it expires", "key", claim.Key(), "error", err)
		}
	}
	s.skip(ctx, t, reason)
	return nil, reason
}

// logHeld logs that another request of this process claims the place just now.
func (s *Service) logHeld(ctx context.Context, t *lookup) {
	s.log(ctx, slog.LevelDebug, EventLockSkipped, t, slog.String("owner", "another request of this instance"))
	s.skip(ctx, t, SkipLockHeld)
}

// publishTry bounds one attempt to queue a job, so that after a lost acknowledgement there is time for another
// attempt.
const publishTry = 600 * time.Millisecond

// insert stores the job of a claim. The receipt has no sequence when the stream already has a job of the place, or has had this
// job. One round trip. An insert without an acknowledgement is repeated for as long as ctx lasts.
func (s *Service) insert(ctx context.Context, t *lookup, claimID, ref string) (receipt worker.Receipt, err error) {
	job := t.job
	job.Claim, job.RequestedAt = ref, time.Now().UTC()
	if t.at == 1 {
		job.Variant = t.other()
	}
	subject, err := contracts.EnrichJobSubject(job.Provider, job.PlaceID)
	if err != nil {
		return receipt, err
	}
	subject = variantKey(subject, job.Variant)
	header, body, err := jobMessage(job, claimID)
	if err != nil {
		return receipt, err
	}
	// Unique by subject, and not recorded: the entry is the record, and the next claim of the place may queue its job at once.
	ctx, sending := s.cfg.Telemetry.Send(ctx, contracts.StreamEnrichJobs, header)
	receipt, err = s.client.Insert(ctx, worker.NewJob{
		Args: body, Header: header, ID: contracts.MsgID(claimID), Subject: subject, Unique: &worker.Unique{Unrecorded: true},
	})
	sending.EndSend(err)
	if err != nil {
		return receipt, fmt.Errorf("enricher: queue %s: %w", subject, err)
	}
	// The stream has a job of the place, or has had this one, so nothing was queued.
	if receipt.Duplicate {
		receipt.Sequence = 0
	}
	return receipt, nil
}

// jobMessage returns the headers and the body of a job: a CloudEvent in binary mode.
func jobMessage(job contracts.EnrichJob, claimID string) (nats.Header, []byte, error) {
	body, err := contracts.Encode(job)
	if err != nil {
		return nil, nil, err
	}
	// An attribute of an event must not contain every character that an id may have.
	place, err := contracts.EncodeToken(job.PlaceID)
	if err != nil {
		return nil, nil, fmt.Errorf("enricher: job %s: %w", claimID, err)
	}
	header, err := contracts.CloudEvent{
		ID: claimID, Source: "/enricher", Type: cloudEventType, Subject: job.Provider + "/" + place,
		Time: job.RequestedAt, DataContentType: "application/json",
	}.Header()
	if err != nil {
		return nil, nil, fmt.Errorf("enricher: job %s: %w", claimID, err)
	}
	header.Del(nats.MsgIdHdr) // the client sets it
	return header, body, nil
}
