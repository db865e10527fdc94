package imports

import (
	"time"

	"github.com/google/uuid"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Submission is a job as a client hands it in.
type Submission struct {
	contracts.ImportJob

	// IdempotencyKey stands for the job id when that is empty: the same key of the same owner is the same job.
	IdempotencyKey string `json:"-"`

	// Unique imports the source once for this owner, see [Config.Unique].
	Unique bool `json:"unique,omitempty"`
}

// Validate checks all fields. The job id may be missing.
func (sub Submission) Validate() error {
	if sub.JobID == "" {
		sub.JobID = "none"
	}
	return sub.ImportJob.Validate()
}

// namespace makes ids of jobs out of idempotency keys (RFC 9562, version 5).
var namespace = uuid.MustParse("5a3f1a3c-8f5e-5d0e-8e0b-1c8b6d1f7a52")

// identify gives a submission its job id, when it brings none.
func (sub *Submission) identify() {
	switch {
	case sub.JobID != "":
	case sub.IdempotencyKey != "":
		sub.JobID = uuid.NewSHA1(namespace, []byte(sub.OwnerID+"\x00"+sub.IdempotencyKey)).String()
	default:
		sub.JobID = uuid.NewString()
	}
}

// body is a submission on the wire: an ImportJob whose id may be missing, and one member more.
type body struct {
	JobID       string                   `json:"job_id"`
	OwnerID     string                   `json:"owner_id"`
	SourceType  string                   `json:"source_type"`
	URL         string                   `json:"url"`
	Language    string                   `json:"language"`
	Encoding    string                   `json:"encoding"`
	Priority    contracts.ImportPriority `json:"priority"`
	RequestedAt time.Time                `json:"requested_at"`
	Unique      bool                     `json:"unique"`
}

func (b body) submission() Submission {
	return Submission{Unique: b.Unique, ImportJob: contracts.ImportJob{
		JobID: b.JobID, OwnerID: b.OwnerID, SourceType: b.SourceType, URL: b.URL, Language: b.Language, Encoding: b.Encoding,
		Priority: b.Priority, RequestedAt: b.RequestedAt,
	}}
}

// Validate implements contracts.Message.
func (b body) Validate() error { return b.submission().Validate() }

// DecodeSubmission reads a submission as strictly as package contracts reads what travels, and validates it.
func DecodeSubmission(data []byte) (Submission, error) {
	b, err := contracts.Decode[body](data)
	return b.submission(), err
}
