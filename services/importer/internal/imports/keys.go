package imports

import "github.com/expediter-io/expediter/internal/subject"

// jobKey returns the key, in bucket import-jobs, of the state of one import job.
func jobKey(jobID string) (string, error) {
	return subject.Join("", subject.ID("job_id", jobID))
}

// stepKey returns the key, in bucket import-steps, of one step of a job or of a computation that jobs share.
func stepKey(scope, step string) (string, error) {
	return subject.Join("", subject.ID("scope", scope), subject.Name("step", step))
}
