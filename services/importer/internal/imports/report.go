package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/store"
)

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
			r.Code = contracts.CodeStoreFailed
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
		s.retried(ctx, operation)
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
		return worker.Cancel(fmt.Errorf("importer: the store has not received that job %q is %s: %w", a.id, r.Status, err))
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
			r.Code, r.Error = contracts.CodeCrashed, "The import's workers ended in the middle of it"
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
	key, err := contracts.ImportJobKey(jobID)
	return err == nil && strings.HasSuffix(subject, "."+key)
}

// progressed wakes the requests that follow a job whose progress was written.
func (h *hub) progressed(data []byte) {
	var p worker.Progress
	if json.Unmarshal(data, &p) == nil {
		h.changed(p.Subject[strings.LastIndexByte(p.Subject, '.')+1:])
	}
}
