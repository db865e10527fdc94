package imports

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

// progressEvery is how often the progress within a step is written.
const progressEvery = 500 * time.Millisecond

// stepProgress is how much of a step is done: the value of the job's worker.Progress.
type stepProgress struct {
	Run   int     `json:"run"`
	Share float64 `json:"share"`
	Step  string  `json:"step"`
}

// progress returns what records how much of a step is done. It writes now and then, and never fails the step. One write.
func (a *attempt) progress(ctx context.Context, name string) func(string, float64) {
	var mu sync.Mutex
	var last time.Time
	var most float64
	return func(_ string, share float64) {
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

// view returns a job with the progress of its step, which is not in its record. One round trip for a job that runs, none for
// others.
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

// isSubjectOf reports whether a job has a subject, whatever its priority.
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
