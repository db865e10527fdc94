package worker

import "time"

const (
	// copiesCome bounds how long after the acknowledgement of a job the server may send it
	// once more: elections take seconds. What is delivered later was asked for, by an
	// operator who has set the consumer back.
	copiesCome = time.Minute

	// endedKept is how many jobs a worker keeps in mind: 1.5 MiB, and two seconds of jobs
	// that are as short as jobs can be.
	endedKept = 1 << 16
)

// endings remembers which jobs of a stream this worker has acknowledged, with the server's
// confirmation. A copy of one may still come: it was on its way when the acknowledgement was
// confirmed, or a new leader sends it. Nothing on the server speaks against it then, so
// whoever gets it must know. Of another worker's, the record of a unique job and the fence of
// the steps know.
//
// A sequence has one place, where a later one takes over from it, so there is nothing to
// clear away.
type endings []ending

type ending struct {
	at       int64 // when it was confirmed, in Unix nanoseconds
	sequence uint64
	stored   int64 // Unix nanoseconds: tells a stream that was deleted and made again
}

func newEndings() endings { return make(endings, endedKept) }

func (e endings) add(sequence uint64, stored, now time.Time) {
	e[sequence%endedKept] = ending{at: now.UnixNano(), sequence: sequence, stored: stored.UnixNano()}
}

func (e endings) has(sequence uint64, stored, now time.Time) bool {
	is := e[sequence%endedKept]

	return is.sequence == sequence && is.stored == stored.UnixNano() && now.UnixNano()-is.at < int64(copiesCome)
}
