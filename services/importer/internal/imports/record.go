package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store"
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

	// WaitingFor is the remote service that does not work and for which a running job waits, for the reason in Error, or "importer memory".
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

// same reports whether the job was made from an equal request, or from another spelling of one. The ids of earlier versions, which a
// record may have, are other ids.
func (j *Job) same(req contracts.ImportJob, sourceID string) bool {
	equal := j.URL == req.URL && j.SourceType == req.SourceType && j.Language == req.Language && j.Encoding == req.Encoding
	return j.OwnerID == req.OwnerID && (equal || sourceID != "" && j.SourceID == sourceID)
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

	// Outage is the remote service for which the job was last put off, and OutageSince the time at which that began.
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
	key, err := jobKey(jobID)
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

// update applies edit to the record of a job, again each time another process has changed the record in the meantime. edit gets
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
	key, err := jobKey(r.JobID)
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

const (
	// untoldPause is the pause before another attempt to send the store the end of a job.
	untoldPause = 10 * time.Second

	// untoldFor is the time for which the end of a job is sent again.
	untoldFor = 24 * time.Hour
)

// checkStore asks the store whether the job has ended, so that finished work is not repeated, and sends it the state. It
// reports whether the job goes on.
func (a *attempt) checkStore(ctx context.Context) (bool, error) {
	if a.run == 1 && !a.replay {
		status, err := a.cfg.Store.Status(ctx, a.id)
		switch {
		case err != nil:
			a.logger.DebugContext(ctx, "importer: the store does not say where a job stands", "job_id", a.id, "error", err)
		case status != nil && status.Status.Final():
			return false, a.adopt(ctx, *status)
		}
	}
	err := a.reach(ctx, sideStatus, storeFailure("Status update failed: "), func(ctx context.Context) error {
		return a.retryStatus(ctx, a.record.ImportStatus)
	})
	return err == nil, err
}

// adopt records the end of the job that the store has.
func (a *attempt) adopt(ctx context.Context, status contracts.ImportStatus) error {
	a.log(ctx, slog.LevelInfo, EventSkipped, a.id, slog.String("status", string(status.Status)))
	_, err := a.update(ctx, a.id, func(r *record) (*record, error) {
		if a.takenBack(r) || r.Status.Final() {
			return nil, errKeep
		}
		r.enter(status.Status, a.job.Attempt)
		r.RecipeID, r.Code, r.Error, r.Step, r.Reported = status.RecipeID, status.Code, limit(status.Error), status.Step, true
		if r.Status == contracts.ImportFailed && r.Code == "" {
			r.Code = failure.StoreFailed
		}
		return r, nil
	})
	return err
}

// retryStatus sends the store a status, several times if necessary.
func (s *Service) retryStatus(ctx context.Context, status contracts.ImportStatus) error {
	return s.cfg.RetryStatus.Do(ctx, func(ctx context.Context) error {
		return s.cfg.Store.SetStatus(ctx, status.JobID, status)
	}, judge, s.onRetry(ctx, "status_update", status.JobID))
}

// judge reports whether an error of the store or of an extractor is temporary.
func judge(err error) verdict {
	v := verdict{Again: store.Retryable(err)}
	if failed, ok := errors.AsType[*store.Error](err); ok {
		v.Again, v.After = v.Again && !failed.Refused, failed.RetryAfter
	}
	return v
}

func (s *Service) onRetry(ctx context.Context, operation, jobID string) func(int, time.Duration, error) {
	return func(attempt int, pause time.Duration, err error) {
		s.meters.retries.Add(ctx, 1, metric.WithAttributes(attribute.String("operation", operation)))
		s.log(ctx, slog.LevelWarn, EventRetry, jobID, slog.String("operation", operation), slog.Int("attempt", attempt),
			slog.Duration("pause", pause), slog.String("error", limit(err.Error())))
	}
}

// report sends the store the end of a job, and records that the store has it. refused is the error of a store that will never
// take it.
//
// When one attempt has failed the job, another may have made it READY. READY is always sent last, whichever state the
// store received before.
func (s *Service) report(ctx context.Context, r *record) (refused, err error) {
	for reported := *r; !reported.Reported; {
		refused = s.retryStatus(ctx, reported.ImportStatus)
		unsure := refused != nil && store.Retryable(refused)
		now, err := s.update(ctx, reported.JobID, func(now *record) (*record, error) {
			switch {
			case now == nil:
				return nil, errKeep
			case now.endsOtherwise(&reported):
				now.Reported = false
			case unsure || now.Mark != reported.Mark: // another attempt asks to send the end again, or has begun another run
				return nil, errKeep
			default:
				now.Reported = true
			}
			return now, nil
		})
		switch {
		case unsure:
			return nil, errors.Join(refused, err)
		case err != nil || !now.endsOtherwise(&reported):
			return refused, err
		}
		reported = now
	}
	return refused, nil
}

// endsOtherwise reports whether the job has another end than before.
func (r *record) endsOtherwise(before *record) bool {
	return r.Status.Final() && (r.Status != before.Status || r.Run != before.Run)
}

// reportEnd sends the store the end of a job. If that fails, its error makes the worker deliver the job again.
func (a *attempt) reportEnd(ctx context.Context, r *record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	refused, err := a.report(ctx, r)
	if refused != nil {
		a.log(ctx, slog.LevelError, EventUntold, a.id, slog.String("status", string(r.Status)), slog.String("error", limit(refused.Error())))
	}
	if err == nil {
		return nil
	}
	a.log(ctx, slog.LevelWarn, EventUntold, a.id, slog.String("status", string(r.Status)), slog.String("error", limit(err.Error())))
	if time.Since(r.UpdatedAt) > untoldFor {
		return worker.Discard(fmt.Errorf("importer: the store has not received that job %q is %s: %w", a.id, r.Status, err))
	}
	return worker.Snooze(untoldPause)
}

// Settled is the worker's hook. It fails a job that was dead-lettered before its end, because its workers died.
func (s *Service) Settled(settled worker.Settlement) {
	s.passed(PointSettled)
	if settled.Outcome != worker.OutcomeDead {
		return
	}
	token := settled.Subject[strings.LastIndexByte(settled.Subject, '.')+1:]
	id, err := contracts.DecodeToken(token)
	if err != nil {
		return // not a job with an id of ours
	}
	s.background.Go(func() {
		ctx := context.Background() //nolint:forbidigo // bounded by the bucket, waited for by Close
		failed := false
		r, err := s.update(ctx, id, func(r *record) (*record, error) {
			failed = r != nil && r.Status == contracts.ImportRunning && settled.Attempt >= settled.MaxAttempts
			if !failed {
				return nil, errKeep
			}
			step := r.Step
			r.enter(contracts.ImportFailed, settled.Attempt)
			r.Code, r.Error = failure.Crashed, "The import's workers ended in the middle of it"
			r.Step, r.Retryable, r.Message = step, true, settled.Sequence
			return r, nil
		})
		if err != nil {
			s.logger.Warn("importer: the state of a dead-lettered job stays as it is", "job_id", id, "error", err)
		}
		if failed && err == nil {
			s.ended(ctx, &r, time.Now())
			if refused, err := s.report(ctx, &r); err != nil || refused != nil {
				s.logger.Warn("importer: the store does not know of a dead-lettered job", "job_id", id, "error", errors.Join(refused, err))
			}
		}
	})
}

// progressEvery is the time between two writes of the progress of a step.
const progressEvery = 500 * time.Millisecond

// stepProgress is the value of the job's worker.Progress: the share of a step that is done.
type stepProgress struct {
	Run   int     `json:"run"`
	Share float64 `json:"share"`
	Step  string  `json:"step"`
}

// progress returns a function that records the share of a step that is done. It does not write at each call, and never
// fails the step. One write.
func (a *attempt) progress(ctx context.Context, name string) func(float64) {
	var mu sync.Mutex
	var last time.Time
	var most float64
	return func(share float64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressEvery || !(share > most && share <= 1) {
			return
		}
		last, most = time.Now(), share
		if err := a.job.Progress(ctx, stepProgress{Run: a.run, Share: share, Step: name}); err != nil {
			a.logger.DebugContext(ctx, "importer: progress was not written", "job_id", a.id, "error", err)
		}
	}
}

// view returns a job with the progress of its step, which is not in its record. One round trip for a running job, none for
// other jobs.
func (s *Service) view(ctx context.Context, r *record) Job {
	job := r.Job
	if r.Status != contracts.ImportRunning || r.Message == 0 {
		return job
	}
	stored, err := s.progresses.Latest(ctx, worker.ProgressSubject(contracts.BucketJobs, contracts.StreamImportJobs, r.Message))
	if err != nil {
		s.log(ctx, slog.LevelDebug, EventNoProgress, r.JobID, slog.String("error", err.Error()))
		return job
	}
	var p worker.Progress
	var within stepProgress
	if json.Unmarshal(stored.Data, &p) != nil || json.Unmarshal(p.Value, &within) != nil {
		return job // none yet
	}
	if p.Attempt == r.Attempt && within.Run == r.Run && within.Step == r.Step && isSubjectOf(p.Subject, r.JobID) {
		job.Progress = max(job.Progress, within.Share)
	}
	return job
}

// isSubjectOf reports whether a job has a subject, with any priority.
func isSubjectOf(subject, jobID string) bool {
	key, err := jobKey(jobID)
	return err == nil && strings.HasSuffix(subject, "."+key)
}

// progressed wakes the requests that follow a job whose progress was written.
func (h *hub) progressed(data []byte) {
	var p worker.Progress
	if json.Unmarshal(data, &p) == nil {
		h.changed(p.Subject[strings.LastIndexByte(p.Subject, '.')+1:])
	}
}
