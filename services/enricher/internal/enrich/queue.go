package enrich

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
)

// publishTry bounds one try to queue a job, so that one lost acknowledgement leaves time for another.
const publishTry = 600 * time.Millisecond

// newClient returns the client that inserts the jobs.
func newClient(js jetstream.JetStream) (*worker.Client, error) {
	client, err := worker.NewClient(js, worker.ClientConfig{
		RequestTimeout: publishTry, SettleTimeout: claimTimeout, Stream: contracts.StreamEnrichJobs,
	})
	if err != nil {
		return nil, fmt.Errorf("enricher: %w", err)
	}
	return client, nil
}

// queue queues the job of a claim. The stream takes one job for each slot at a time, so that a place whose claim expired
// while its job waits is not queued twice; the worker of that job then holds the claim. A job that waits for another description
// of the place is dropped when its turn comes, and that of the claim is queued again after orphanAge. If the queue cannot be reached the
// claim is given back, so that the next request may try. It returns why the job was not queued.
func (s *Service) queue(ctx context.Context, t *target, claim *flight.Claim) (reason SkipReason) {
	sequence, err := s.insert(ctx, t, claim.ID(), claim.Ref())
	switch {
	case sequence > 0:
		s.cfg.Backlog.Add(ctx, sequence)
		s.enqueued(ctx, t, string(EventCacheMiss))
		return ""
	case err == nil:
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

// insert stores the job of a claim, and returns its sequence, 0 when the stream has a job of the place, or has had this one. One
// round trip. An insert without an acknowledgement is repeated for as long as ctx lasts.
func (s *Service) insert(ctx context.Context, t *target, claimID, ref string) (sequence uint64, err error) {
	job := t.job
	job.Claim, job.RequestedAt, job.Variant = ref, time.Now().UTC(), t.variant()
	subject, err := contracts.EnrichJobSubject(job.Provider, job.PlaceID)
	if err != nil {
		return 0, err
	}
	subject = contracts.EnrichVariant(subject, job.Variant)
	header, body, err := jobMessage(job, claimID)
	if err != nil {
		return 0, err
	}
	ctx, sending := s.cfg.Telemetry.Send(ctx, contracts.StreamEnrichJobs, header)
	receipt, err := s.client.Insert(ctx, worker.NewJob{
		Args: body, Header: header, ID: contracts.EnrichJobMsgID(claimID), Subject: subject, Unique: &worker.Unique{Unrecorded: true},
	})
	sending.EndSend(err)
	if err != nil {
		return 0, fmt.Errorf("enricher: queue %s: %w", subject, err)
	}
	if receipt.Duplicate {
		return 0, nil
	}
	return receipt.Sequence, nil
}

// jobMessage returns the headers and the body of a job: a CloudEvent in binary mode.
func jobMessage(job contracts.EnrichJob, claimID string) (nats.Header, []byte, error) {
	body, err := contracts.Encode(job)
	if err != nil {
		return nil, nil, err
	}
	place, err := contracts.EncodeToken(job.PlaceID) // an attribute of an event may not hold any character
	if err != nil {
		return nil, nil, fmt.Errorf("enricher: job %s: %w", claimID, err)
	}
	header, err := contracts.CloudEvent{
		ID: claimID, Source: "/enricher", Type: contracts.CloudEventEnrichRequested, Subject: job.Provider + "/" + place,
		Time: job.RequestedAt, DataContentType: "application/json",
	}.Header()
	if err != nil {
		return nil, nil, fmt.Errorf("enricher: job %s: %w", claimID, err)
	}
	header.Del(nats.MsgIdHdr) // the client sets it
	return header, body, nil
}
