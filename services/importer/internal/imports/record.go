package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var (
	// ErrUnknownJob is returned when there is no state of a job.
	ErrUnknownJob = errors.New("importer: there is no such job")

	// ErrMismatch is returned for a job whose id belongs to a job with another owner, source, type, language or
	// encoding.
	ErrMismatch = errors.New("importer: another job has this id")

	// ErrFinal is returned when a job that has ended is cancelled.
	ErrFinal = errors.New("importer: the job has ended")

	// ErrNotFailed is returned when a job that did not fail is to be retried.
	ErrNotFailed = errors.New("importer: only a job that failed can be retried")
)

// Job is a job and its state.
type Job struct {
	contracts.ImportStatus

	OwnerID     string                   `json:"owner_id"`
	SourceType  string                   `json:"source_type,omitempty"`
	URL         string                   `json:"url"`
	Language    string                   `json:"language,omitempty"`
	Encoding    string                   `json:"encoding,omitempty"`
	Priority    contracts.ImportPriority `json:"priority,omitempty"`
	RequestedAt time.Time                `json:"requested_at,omitzero"`

	// SourceID identifies the source, whichever of its addresses was given.
	SourceID string `json:"source_id,omitempty"`

	// Retryable reports whether a retry of a failed job may succeed.
	Retryable bool `json:"retryable,omitempty"`

	// WaitingFor is the far side that does not work and for which a running job waits, for the reason in Error, or "importer memory".
	// It is empty when the job does not wait. WaitingSince is the time of the first failed call.
	WaitingFor   string    `json:"waiting_for,omitempty"`
	WaitingSince time.Time `json:"waiting_since,omitzero"`

	// Run is the number of times that a client or a replay has started the job, from 1.
	Run int `json:"run"`

	// Title is the title of the recipe, or of the source before there is a recipe.
	Title string `json:"title,omitempty"`

	// Warnings are the warnings of the recipe.
	Warnings []recipe.Warning `json:"warnings,omitempty"`

	CreatedAt time.Time `json:"created_at"`
}

func (j *Job) request() contracts.ImportJob {
	return contracts.ImportJob{
		JobID: j.JobID, OwnerID: j.OwnerID, SourceType: j.SourceType, URL: j.URL, Language: j.Language, Encoding: j.Encoding,
		Priority: j.Priority, RequestedAt: j.RequestedAt,
	}
}

// same reports whether the job was made from an equal request.
func (j *Job) same(req contracts.ImportJob) bool {
	return j.OwnerID == req.OwnerID && j.URL == req.URL && j.SourceType == req.SourceType && j.Language == req.Language &&
		j.Encoding == req.Encoding
}

// record is the stored state of a job.
type record struct {
	Job

	// Crashes counts the attempts of this run that died while they read the source.
	Crashes int `json:"crashes,omitempty"`

	// Reported reports whether the store has received the final state.
	Reported bool `json:"told,omitempty"`

	// Exhausted reports whether a failed job belongs into the dead letters.
	Exhausted bool `json:"exhausted,omitempty"`

	// Outage is the far side for which the job was last put off, and OutageSince the time at which that began.
	Outage      string    `json:"outage,omitempty"`
	OutageSince time.Time `json:"outage_since,omitzero"`

	// Alone counts the failures since then of which the remote service had none with other jobs.
	Alone int `json:"alone,omitempty"`

	// Message is the stream sequence of the message whose handling runs the job, or has ended it.
	Message uint64 `json:"message,omitempty"`

	// Changes counts the changes that followers of the job receive.
	Changes uint64 `json:"changes"`

	// Mark is unique to this write of the record.
	Mark string `json:"mark"`
}

func newRecord(req contracts.ImportJob, sourceID string, now time.Time) record {
	return record{Job: Job{
		ImportStatus: contracts.ImportStatus{JobID: req.JobID, Status: contracts.ImportQueued, UpdatedAt: now},
		OwnerID:      req.OwnerID, SourceType: req.SourceType, URL: req.URL, Language: req.Language, Encoding: req.Encoding,
		Priority: req.Priority, RequestedAt: req.RequestedAt,
		SourceID: sourceID, Run: 1, CreatedAt: now,
	}}
}

// enter sets the status and clears the fields of the previous status.
func (r *record) enter(status contracts.ImportState, attempt int) {
	r.ImportStatus = contracts.ImportStatus{JobID: r.JobID, Status: status, Attempt: attempt}
	r.Crashes = 0
	r.Retryable, r.Reported, r.Exhausted, r.Message = false, false, false, 0
	r.WaitingFor, r.WaitingSince = "", time.Time{}
	if status != contracts.ImportRunning {
		r.Outage, r.OutageSince, r.Alone = "", time.Time{}, 0
	}
}

// begin enters the first step of an attempt. A previous attempt without an outcome has died. If it was reading the source,
// its death counts as a crash by the source.
func (r *record) begin(attempt int) {
	crashes := 0
	if r.Status == contracts.ImportRunning {
		crashes = r.Crashes
		if reading := r.Step == stepTranscript || r.Step == stepExtract; reading && r.Attempt < attempt && r.Error == "" {
			crashes++
		}
	}
	r.enter(contracts.ImportRunning, attempt)
	r.Crashes = crashes
}

// errKeep ends an update without a write.
var errKeep = errors.New("the record stays as it is")

// read returns the state of a job, and the stored record. The error is ErrUnknownJob when there is none.
func (s *Service) read(ctx context.Context, jobID string) (record, kvrecord.Record, error) {
	key, err := contracts.ImportJobKey(jobID)
	if err != nil {
		return record{}, kvrecord.Record{}, fmt.Errorf("%w: %w", ErrUnknownJob, err)
	}
	stored, err := s.jobs.Latest(ctx, s.jobs.Key(key))
	if err != nil {
		return record{}, stored, fmt.Errorf("importer: read the record of job %q: %w", jobID, err)
	}
	if len(stored.Data) == 0 {
		return record{}, stored, fmt.Errorf("%w: %.64q", ErrUnknownJob, jobID)
	}
	var r record
	if err := json.Unmarshal(stored.Data, &r); err != nil {
		return record{}, stored, fmt.Errorf("importer: the record of job %q cannot be read: %w", jobID, err)
	}
	return r, stored, nil
}

// update applies edit to the record of a job, again each time another process has changed the record meanwhile. edit gets
// nil when there is no record. It returns the record to write, errKeep, or the error for the caller. update returns the
// record that is then stored. Two round trips.
func (s *Service) update(ctx context.Context, jobID string, edit func(*record) (*record, error)) (record, error) {
	for {
		r, stored, err := s.read(ctx, jobID)
		current := &r
		if errors.Is(err, ErrUnknownJob) {
			current = nil
		} else if err != nil {
			return r, err
		}
		before := r.Job
		next, err := edit(current)
		if errors.Is(err, errKeep) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if current == nil || !reflect.DeepEqual(before, next.Job) {
			next.UpdatedAt = time.Now().UTC()
			next.Changes++
		}
		err = s.write(ctx, next, stored)
		if errors.Is(err, kvrecord.ErrConflict) && ctx.Err() == nil {
			continue
		}
		return *next, err
	}
}

func (s *Service) write(ctx context.Context, r *record, over kvrecord.Record) error {
	key, err := contracts.ImportJobKey(r.JobID)
	if err != nil {
		return fmt.Errorf("importer: %w", err)
	}
	r.Mark = nuid.Next()
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("importer: encode the record of job %q: %w", r.JobID, err)
	}
	_, err = s.jobs.Put(ctx, kvrecord.Write{Subject: s.jobs.Key(key), Data: data, Over: over, TTL: s.cfg.StateTTL})
	return err
}
