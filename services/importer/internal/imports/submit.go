package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
)

// HeaderRun is the header of a job's message with the number of the job's run. Defaults to 1.
const HeaderRun = "Import-Run"

// Submit accepts a job, and reports whether the job is new. For a known id it returns the known job. The error wraps
// ErrMismatch when the known job has another owner, source or type. Errors of the request are *contracts.ValidationError
// or *source.Error. Three round trips.
func (s *Service) Submit(ctx context.Context, sub Submission) (job Job, created bool, err error) {
	sub.URL = source.Complete(sub.URL)
	if err := sub.Validate(); err != nil {
		return Job{}, false, err
	}
	switch {
	case sub.JobID != "":
	case sub.IdempotencyKey != "":
		sub.JobID = uuid.NewSHA1(namespace, []byte(sub.OwnerID+"\x00"+sub.IdempotencyKey)).String()
	default:
		sub.JobID = uuid.NewString()
	}
	sourceID, err := s.cfg.Fetcher.Identify(ctx, sourceOf(sub.ImportJob))
	if err != nil {
		return Job{}, false, err
	}
	if sub.RequestedAt.IsZero() {
		sub.RequestedAt = time.Now().UTC()
	}
	r, err := s.update(ctx, sub.JobID, func(known *record) (*record, error) {
		created = known == nil
		switch {
		case known == nil:
			fresh := newRecord(sub.ImportJob, sourceID, time.Now().UTC())
			return &fresh, nil
		case !known.same(sub.ImportJob, sourceID):
			return nil, fmt.Errorf("%w: %.64q", ErrMismatch, sub.JobID)
		default:
			return nil, errKeep
		}
	})
	if err != nil {
		return Job{}, false, err
	}
	if r.Status == contracts.ImportQueued { // also for a job that was accepted before and not queued
		if err := s.queue(ctx, &r); err != nil {
			return r.Job, created, err
		}
	}
	return r.Job, created, nil
}

// queue inserts the job of a run. The first run's job is unique: the stream takes it once, however long it waits there. At
// a later run the previous message may still be in the stream, so that run's job is unique by its ID alone, within the
// stream's duplicate window. A job that the stream takes twice is worked once. One round trip.
func (s *Service) queue(ctx context.Context, r *record) error {
	job, err := jobOf(r)
	if err != nil {
		return fmt.Errorf("importer: queue job %q: %w", r.JobID, err)
	}
	ctx, sending := s.cfg.Telemetry.Send(ctx, contracts.StreamImportJobs, job.Header)
	_, err = s.client.Insert(ctx, job)
	sending.EndSend(err)
	if err != nil {
		return fmt.Errorf("%w: queue job %q: %w", kvrecord.ErrUnavailable, r.JobID, err)
	}
	return nil
}

// jobOf returns the job to insert for a run: a CloudEvent in binary mode.
func jobOf(r *record) (worker.NewJob, error) {
	req := r.request()
	subject, err := contracts.ImportJobSubject(cmp.Or(req.Priority, contracts.PriorityNormal), req.JobID)
	if err != nil {
		return worker.NewJob{}, err
	}
	body, err := contracts.Encode(req)
	if err != nil {
		return worker.NewJob{}, err
	}
	token, err := contracts.EncodeToken(req.JobID) // an attribute of an event may not hold any character
	if err != nil {
		return worker.NewJob{}, err
	}
	header, err := contracts.CloudEvent{
		ID: token + "-" + strconv.Itoa(r.Run), Source: "/importer", Type: "io.expediter.recipe.import.requested.v1", Subject: token,
		Time: time.Now().UTC(), DataContentType: "application/json",
	}.Header()
	if err != nil {
		return worker.NewJob{}, err
	}
	header.Del(nats.MsgIdHdr) // the client sets it
	job := worker.NewJob{Args: body, Header: header, ID: contracts.MsgID(req.JobID), Subject: subject}
	if r.Run == 1 {
		job.Unique = &worker.Unique{Unrecorded: true}
		return job, nil
	}
	header.Set(HeaderRun, strconv.Itoa(r.Run))
	job.ID += "#" + strconv.Itoa(r.Run)
	return job, nil
}

// Cancel cancels a job that has not ended. Its worker stops within two seconds. Two round trips.
func (s *Service) Cancel(ctx context.Context, jobID string) (Job, error) {
	r, err := s.update(ctx, jobID, func(r *record) (*record, error) {
		switch {
		case r == nil:
			return nil, fmt.Errorf("%w: %.64q", ErrUnknownJob, jobID)
		case r.Code == failure.Cancelled:
			return nil, errKeep
		case r.Status.Final():
			return nil, fmt.Errorf("%w: it is %s", ErrFinal, r.Status)
		}
		step := r.Step
		r.enter(contracts.ImportFailed, r.Attempt)
		r.Code, r.Error, r.Step, r.Retryable = failure.Cancelled, "The import was cancelled", step, true
		return r, nil
	})
	return r.Job, err
}

// Retry starts another run of a job that failed. If a run was already asked for and has not begun, Retry queues it, because the earlier
// call may have ended before that. Three round trips.
func (s *Service) Retry(ctx context.Context, jobID string) (Job, error) {
	r, err := s.update(ctx, jobID, func(r *record) (*record, error) {
		switch {
		case r == nil:
			return nil, fmt.Errorf("%w: %.64q", ErrUnknownJob, jobID)
		case r.Status == contracts.ImportQueued && r.Run > 1:
			return nil, errKeep
		case r.Status != contracts.ImportFailed:
			return nil, fmt.Errorf("%w: it is %s", ErrNotFailed, r.Status)
		}
		r.enter(contracts.ImportQueued, 0)
		r.Run++
		return r, nil
	})
	if err != nil {
		return r.Job, err
	}
	return r.Job, s.queue(ctx, &r)
}

// Submission is a job as a client submits it.
type Submission struct {
	contracts.ImportJob

	// IdempotencyKey takes the place of an empty job id: the same key of the same owner is the same job.
	IdempotencyKey string `example:"soup-1" header:"Idempotency-Key" json:"-" jsonschema:"maxLength=320"`
}

// Validate checks all fields. The job id may be missing.
func (sub Submission) Validate() error {
	sub.JobID = cmp.Or(sub.JobID, "none")
	return sub.ImportJob.Validate()
}

// namespace makes ids of jobs out of idempotency keys (RFC 9562, version 5).
var namespace = uuid.MustParse("5a3f1a3c-8f5e-5d0e-8e0b-1c8b6d1f7a52")

// WarnPhoto is the code of the warning that the recipe was read from a photo.
const WarnPhoto = "read_from_photo"

// WarnTruncated is the code of the warning that a limit cut the source.
const WarnTruncated = "source_truncated"

// PublishedBy is the extractor named in a recipe that was data of its page.
const PublishedBy = "page"

// inputOf returns the input of an extractor for a source.
func inputOf(m *source.Material, sourceType string) extract.Input {
	return extract.Input{
		Chapters: m.Chapters, Description: m.Description, Duration: m.Duration, Language: m.Language,
		Segments: m.Transcript.Segments, Title: m.Title, Image: m.Image, ImageType: m.ImageType, Sure: m.Sure,
		Source: recipe.Source{Type: sourceType, Ref: m.URL}, Untimed: !m.Transcript.Timed,
	}
}

// published returns the recipe that the page has as data. There is no other source by which to verify it.
func published(m *source.Material, in extract.Input) (recipe.Recipe, error) {
	made := *m.Recipe
	made.Source = in.Source
	made.Source.Extractor = PublishedBy
	made.Language = cmp.Or(made.Language, m.Language)
	extract.Clean(&made)
	if err := made.Validate(); err != nil {
		return recipe.Recipe{}, &FailedError{
			Code: failure.InvalidRecipe, Message: limit("The page's recipe is not complete: " + err.Error()), Err: err,
		}
	}
	return made, nil
}

// judgeExtract reports whether an extractor's error is temporary.
func judgeExtract(err error) verdict {
	if failed := extract.Failure(err); failed != nil {
		return verdict{Again: failed.Retryable && !failed.Refused, After: failed.RetryAfter}
	}
	return verdict{Again: true} // a timeout
}

// extractFailure returns the failure of an extraction, with a documented message.
func extractFailure(err error) *FailedError {
	if errors.Is(err, memory.ErrBusy) {
		return failureOf(err)
	}
	failed := extract.Failure(err)
	if failed == nil {
		failed = extract.Failed(true, err, "it took too long")
	}
	f := &FailedError{
		Code: failed.Code, Message: limit(failed.Message), Retryable: failed.Retryable, RetryAfter: failed.RetryAfter,
		Exhausted: failed.Retryable, Refused: failed.Refused, Err: err,
	}
	if failed.Outage {
		f.Outage = sideExtractor
	}
	return f
}

// text returns the transcript of a source, with a line for each segment.
func text(m *source.Material) string {
	var b strings.Builder
	if err := m.Transcript.WriteText(&b); err != nil {
		return ""
	}
	return b.String()
}
