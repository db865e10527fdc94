package worker

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// HeaderID is the header that names a job. Without it the Nats-Msg-Id names it, which must differ between two publications of
// one job, and which a schedule drops when it fires.
const HeaderID = "Job-Id"

// Job is one job as its handler sees it. Handlers must not change Data or Header.
type Job[T any] struct {
	Info

	// Args is the decoded payload.
	Args T

	// Data is the payload as it was published.
	Data []byte

	// Header holds the headers of the message, nil when it has none.
	Header nats.Header
}

// Info identifies one attempt at one job.
type Info struct {
	// Attempt is 1 for the first attempt. README.md has a table of what uses one.
	Attempt int

	// Consumer is the durable name of the consumer that delivered the job.
	Consumer string

	// Deliveries is how often the server has delivered the message, this time included. It is at least Attempt; uncounted
	// deliveries make the difference.
	Deliveries int

	// EnqueuedAt is when the stream stored the message, by the server's clock.
	EnqueuedAt time.Time

	// ID is the header Job-Id of the message, else its Nats-Msg-Id, else "<stream>:<sequence>". It is the same in every attempt
	// and after a replay.
	ID string

	// MaxAttempts is the policy's: at Attempt == MaxAttempts an error is final.
	MaxAttempts int

	// Pattern is the pattern that the job's handler was registered for: a label for metrics, where subjects would be too
	// many. Empty when the job has no handler in this worker.
	Pattern string

	// Sequence is the position in the stream.
	Sequence uint64

	// Stream is the name of the stream.
	Stream string

	// Subject is the subject that the job was published to.
	Subject string
}

func jobID(header nats.Header, stream string, sequence uint64) string {
	for _, name := range []string{HeaderID, nats.MsgIdHdr} {
		if id := header.Get(name); id != "" {
			return id
		}
	}
	return stream + ":" + strconv.FormatUint(sequence, 10)
}
