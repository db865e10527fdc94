package enrich

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// publishTry bounds one try to queue a job, so that one lost acknowledgement leaves time for another.
const publishTry = 600 * time.Millisecond

// errQueued is returned when the stream already has a job for the place.
var errQueued = errors.New("a job for the place is queued already")

// queue queues the job of a claim. The stream takes one job for each place at a time, so that a place whose claim
// expired while its job waits is not queued twice; the claim then belongs to whoever works that job. If the queue
// cannot be reached the claim is given back, so that the next request may try. It returns why the job was not queued.
func (s *Service) queue(ctx context.Context, t *target, claim *flight.Claim) (reason SkipReason) {
	_, err := s.publish(ctx, t, claim.ID(), claim.Ref())
	switch {
	case err == nil:
		s.enqueued(ctx, t, string(EventCacheMiss))
		return ""
	case errors.Is(err, errQueued):
		reason = SkipLockHeld
	default:
		reason = SkipQueueUnavailable
		s.logger.WarnContext(ctx, "enricher: job could not be queued", "placeId", t.job.PlaceID, "error", err)
		if err := claim.Fail(context.WithoutCancel(ctx), string(reason), 0); err != nil {
			s.logger.WarnContext(ctx, "enricher: claim stays until it expires", "key", claim.Key(), "error", err)
		}
	}
	s.skip(ctx, t, reason)
	return reason
}

// publish sends the job of a claim until the stream has it. A try without an acknowledgement may have been stored: the
// next one then finds the place queued, or its own message id. stored is false when the stream had that id already.
func (s *Service) publish(ctx context.Context, t *target, claimID, ref string) (stored bool, err error) {
	job := t.job
	job.Claim, job.RequestedAt = ref, time.Now().UTC()
	subject, err := contracts.EnrichJobSubject(job.Provider, job.PlaceID)
	if err != nil {
		return false, err
	}
	body, err := contracts.Encode(job)
	if err != nil {
		return false, err
	}
	for {
		msg, err := jobMessage(subject, job, claimID, body)
		if err != nil {
			return false, err
		}
		s.cfg.Inject(ctx, msg.Header)
		try, cancel := context.WithTimeout(ctx, publishTry)
		ack, err := s.js.PublishMsg(try, msg)
		cancel()
		var api *jetstream.APIError
		switch {
		case err == nil:
			return !ack.Duplicate, nil
		case isSubjectFull(err):
			return false, errQueued
		case errors.As(err, &api) && api.ErrorCode == codeInProcess && pause(ctx, inProcessPause):
		case api != nil, ctx.Err() != nil, errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, jetstream.ErrNoStreamResponse):
			return false, fmt.Errorf("enricher: queue %s: %w", subject, err)
		}
	}
}

const (
	// codeStoreFailed is the server's error for a message that a stream does not take (JSStreamStoreFailedF): because
	// its subject is full, or the whole stream. Only the text tells which.
	codeStoreFailed jetstream.ErrorCode = 10077

	// codeInProcess is the answer of a replicated stream to a message id that it is storing just now.
	codeInProcess jetstream.ErrorCode = 10158

	// inProcessPause is after how long that is tried again.
	inProcessPause = 20 * time.Millisecond
)

// isSubjectFull says that the stream has a message on the subject already.
func isSubjectFull(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeStoreFailed && strings.Contains(api.Description, "per subject")
}

// pause waits, and reports whether ctx is still there after it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func jobMessage(subject string, job contracts.EnrichJob, claimID string, body []byte) (*nats.Msg, error) {
	place, err := contracts.EncodeToken(job.PlaceID) // an attribute of an event may not hold any character
	if err != nil {
		return nil, fmt.Errorf("enricher: job %s: %w", claimID, err)
	}
	event := contracts.CloudEvent{
		ID: claimID, Source: "/enricher", Type: contracts.CloudEventEnrichRequested, Subject: job.Provider + "/" + place,
		Time: job.RequestedAt, DataContentType: "application/json", Data: body,
	}
	msg, err := event.Msg(subject)
	if err != nil {
		return nil, fmt.Errorf("enricher: job %s: %w", claimID, err)
	}
	msg.Header.Set(nats.MsgIdHdr, contracts.EnrichJobMsgID(claimID))
	return msg, nil
}
