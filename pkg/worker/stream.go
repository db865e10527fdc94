package worker

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// StreamConfig returns what a stream of jobs should be: a work queue with the given
// subject, such as "jobs.>", and beside it the subjects "jobs-later.>" for delayed jobs
// and "jobs-done.>" for the records of unique ones, with the message TTLs, schedules and
// roll-ups that these need. Storage, replicas and limits are the caller's to set; a limit
// with the policy DiscardNew excludes schedules.
//
// Jobs of different first tokens do not belong in one stream: a key is what follows the
// first token, so jobs.mail.7 and tasks.mail.7 would stand in each other's way there.
func StreamConfig(name, subject string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: key.Subjects(subject), Retention: jetstream.WorkQueuePolicy,
		AllowDirect: true, AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true,
	}
}
