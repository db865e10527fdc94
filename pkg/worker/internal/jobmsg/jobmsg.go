// Package jobmsg knows the messages of jobs in their stream: their subjects and IDs, their payloads, and how a list reads them.
//
// All messages of a job in its stream have the job's subject, except for the first token,
// which is the kind of message:
//
//	jobs.mail.u17         the job
//	jobs-later.mail.u17   the job, delayed: a schedule that becomes jobs.mail.u17
//	jobs-done.mail.u17    the record of the job, finished or given up
//
// So one expectation, about the last message under *.mail.u17, covers them all.
package jobmsg

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/subject"
)

// The suffixes of the first token of messages that are not jobs.
const (
	suffixDone  = "-done"
	suffixLater = "-later"
)

// MaxSubject is the longest subject of a job, in bytes. The server's limit for a line of its protocol, which holds a subject and
// a reply subject, is 4,096.
const MaxSubject = 1024

// HeaderID is the header with the ID of a job.
const HeaderID = "Job-Id"

// ID returns the ID of the job of a message.
func ID(header nats.Header, stream string, sequence uint64) string {
	for _, name := range []string{HeaderID, nats.MsgIdHdr} {
		if id := header.Get(name); id != "" {
			return id
		}
	}
	return stream + ":" + strconv.FormatUint(sequence, 10)
}

// Key is the subject of a job, as a whole and split behind the first token.
type Key struct{ job, first, rest string }

// Kind is the kind of a message of a key.
type Kind int

// The kinds of messages.
const (
	Job Kind = iota
	Later
	Done
)

// KeyOf returns the key of a job's subject.
func KeyOf(to string) (Key, error) {
	if len(to) > MaxSubject {
		return Key{}, fmt.Errorf("more than %d bytes", MaxSubject)
	}
	if err := subject.CheckLiteral(to); err != nil {
		return Key{}, err
	}
	first, rest, more := strings.Cut(to, ".")
	switch {
	case !more:
		return Key{}, errors.New("a job's subject has at least two tokens")
	case strings.HasSuffix(first, suffixDone), strings.HasSuffix(first, suffixLater):
		return Key{}, errors.New("a first token that ends in " + suffixDone + " or " + suffixLater + " is not for jobs")
	default:
		return Key{job: to, first: first, rest: rest}, nil
	}
}

// Any returns a pattern that matches all messages of the key. By this text the server also notices that two writes of a key are under way,
// so every write has to use it exactly.
func (k Key) Any() string { return "*." + k.rest }

// Job returns the subject of the job.
func (k Key) Job() string { return k.job }

// Later returns the subject of the schedule.
func (k Key) Later() string { return k.first + suffixLater + "." + k.rest }

// Done returns the subject of the record.
func (k Key) Done() string { return k.first + suffixDone + "." + k.rest }

// TokenEvery is the second token of schedules that repeat. They are outside of all keys: a schedule must not hold the key of its runs for
// ever.
const TokenEvery = "$every"

// AnyEvery matches all schedules that repeat.
const AnyEvery = "*." + TokenEvery + ".>"

// Every returns the subject of the schedule that inserts jobs of the key repeatedly.
func (k Key) Every() string { return k.first + suffixLater + "." + TokenEvery + "." + k.rest }

// KindOf returns the kind of a message by its subject.
func KindOf(to string) Kind {
	first, _, _ := strings.Cut(to, ".")
	switch {
	case strings.HasSuffix(first, suffixDone):
		return Done
	case strings.HasSuffix(first, suffixLater):
		return Later
	default:
		return Job
	}
}

// JobOf returns the subject of the job for any message of the job's key.
func JobOf(to string) string {
	first, rest, _ := strings.Cut(to, ".")
	return strings.TrimSuffix(strings.TrimSuffix(first, suffixDone), suffixLater) + "." + rest
}

// Subjects returns the subjects of a stream whose jobs have the given subject. That subject may have wildcards behind its first token.
func Subjects(jobs string) []string {
	first, rest, more := strings.Cut(jobs, ".")
	if more {
		rest = "." + rest
	}
	return []string{jobs, first + suffixLater + rest, first + suffixDone + rest}
}
