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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// HeaderKeep is the header that makes a job unique, with the time for which the record of its completion is kept.
const HeaderKeep = "Job-Keep"

// MaxKeep is the longest such time.
const MaxKeep = 366 * 24 * time.Hour

// KeepOf returns the time for which the record of a job's completion is kept, and reports whether the job is unique.
func KeepOf(header nats.Header) (keep time.Duration, unique bool) {
	text := header.Get(HeaderKeep)
	if text == "" {
		return 0, false
	}
	keep, err := time.ParseDuration(text)
	if err != nil || keep < 0 || keep > MaxKeep {
		keep = 0 // an invalid header set by hand: free the key rather than hold it for ever
	}
	return WholeSeconds(keep), true
}

// WholeSeconds rounds up: the server drops fractions.
func WholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

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

// Encode returns the bytes of a job's arguments or a step's result: JSON, and a []byte as it is. A json.RawMessage that is JSON keeps its
// spaces.
func Encode(value any) ([]byte, error) {
	switch data := value.(type) {
	case []byte:
		return data, nil
	case *[]byte:
		if data != nil {
			return *data, nil
		}
	case json.RawMessage:
		if json.Valid(data) {
			return data, nil
		}
	}
	return json.Marshal(value)
}

// Decode stores the value of bytes that Encode returned in what into points to. It is the default of worker.Policy.Decode, and reads no
// header.
func Decode(_ nats.Header, data []byte, into any) error {
	switch to := into.(type) {
	case *[]byte:
		*to = bytes.Clone(data)
		return nil
	case **[]byte:
		*to = new(bytes.Clone(data))
		return nil
	}
	return json.Unmarshal(data, into)
}
