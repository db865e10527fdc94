package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// Kind is the kind of a message of the dead letter stream.
type Kind string

const (
	// KindFailed is the dead letter of a job that a worker gave up.
	KindFailed Kind = "failed"

	// KindStranded is an advisory of the server about a message that a consumer, other than a worker's, stopped delivering. The message may
	// still be in its stream.
	KindStranded Kind = "stranded"

	// KindUnreadable is any other message, such as another program's.
	KindUnreadable Kind = "unreadable"
)

// Reasons of stranded entries, beside those of worker.Reason.
const (
	// ReasonMaxDeliveries: the server delivered the message as often as the consumer allows (MaxDeliver), and delivers it no more.
	ReasonMaxDeliveries worker.Reason = "max_deliveries"

	// ReasonTerminated: a client terminated the message, or its stream may have dropped it before it was acknowledged.
	ReasonTerminated worker.Reason = "terminated"
)

// Subjects of the server's advisories; the stream and the consumer follow.
const (
	advisoryMaxDeliveries = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	advisoryTerminated    = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."
)

// removedReasons are the reasons for which the server itself terminates a message: it left the stream while the consumer's leader waited
// for its acknowledgement. A new leader may not know of an acknowledgement.
var removedReasons = []string{"Message deleted by stream limits", "Unacknowledged message was deleted"}

// Entry is one message of the dead letter stream.
type Entry struct {
	// Kind is the kind of the entry.
	Kind Kind `json:"kind"`

	// DeadLetter is the dead letter. For a stranded message it has the data of the advisory and, while the message exists, of the
	// message. For an unreadable entry it is empty.
	DeadLetter worker.DeadLetter `json:"dead_letter,omitzero"`

	// Problem is the reason that the entry cannot be replayed: [ErrGone] or [ErrUnreadable], wrapped. It is nil when no obstacle is known.
	// JSON leaves it out.
	Problem error `json:"-"`

	// Sequence is the position in the dead letter stream, which names the entry.
	Sequence uint64 `json:"sequence"`

	// Size is the length of the message's body in bytes.
	Size int `json:"size"`

	// StoredAt is the time at which the dead letter stream stored the message, by the server's clock.
	StoredAt time.Time `json:"storedAt"`

	// Subject is the message's subject in the dead letter stream.
	Subject string `json:"subject"`
}

// isInternal reports whether a message is a record of the store, or a part of a large letter, and so not an entry. Names of streams have
// no '$', so no letter has such a subject.
func (s *Store) isInternal(subject string) bool {
	rest, ok := strings.CutPrefix(subject, s.cfg.DeadSubject+".")
	if !ok {
		return false
	}
	_, rest, _ = strings.Cut(rest, ".")
	return strings.HasPrefix(rest, jobmsg.TokenReplay+".") || strings.HasPrefix(rest, jobmsg.TokenPart+".")
}

// classify reads from subject and headers the fields that filters and groups need. It returns false when the body is needed, too.
func (s *Store) classify(m *jsapi.Message) (*Entry, bool) {
	e := &Entry{Kind: KindUnreadable, Sequence: m.Sequence, Size: len(m.Data), StoredAt: m.Time, Subject: m.Subject}
	if reason, stream, consumer, ok := parseAdvisory(m.Subject); ok {
		e.Kind = KindStranded
		e.DeadLetter = worker.DeadLetter{
			Consumer: consumer, DeadAt: m.Time, Reason: reason, Signature: consumer + ": " + string(reason), Stream: stream,
		}
		return e, reason != ReasonTerminated // some terminated messages are not entries
	}
	rest, ok := strings.CutPrefix(m.Subject, s.cfg.DeadSubject+".")
	stream, subject, more := strings.Cut(rest, ".")
	if !ok || !more {
		return e, true
	}
	reason := m.Header.Get(worker.HeaderDeadReason)
	if reason == "" {
		return e, false
	}
	e.Kind = KindFailed
	e.DeadLetter = worker.DeadLetter{
		Reason: worker.Reason(reason), Signature: m.Header.Get(worker.HeaderDeadSignature), Stream: stream, Subject: subject,
		Worker: m.Header.Get(worker.HeaderDeadWorker),
	}
	return e, true
}

// parseAdvisory reads the subject of an advisory.
func parseAdvisory(subject string) (reason worker.Reason, stream, consumer string, ok bool) {
	rest, ok := strings.CutPrefix(subject, advisoryMaxDeliveries)
	reason = ReasonMaxDeliveries
	if !ok {
		rest, ok = strings.CutPrefix(subject, advisoryTerminated)
		reason = ReasonTerminated
	}
	stream, consumer, more := strings.Cut(rest, ".")
	return reason, stream, consumer, ok && more
}

// cutSubject is the length, in bytes, from which the subject of a letter's message may be cut. Only the letter has the job's whole subject.
const cutSubject = 3<<10 - utf8.UTFMax

// open returns the entry of a message, with the content of its body when there is one. It asks the server about stranded
// messages and about letters in parts. It returns nil for an advisory about a message that was not given up.
func (s *Store) open(ctx context.Context, m *jsapi.Message) (*Entry, error) {
	e, sure := s.classify(m)
	switch {
	case e.Kind == KindStranded:
		return s.openStranded(ctx, e, m.Data)
	case e.Kind == KindUnreadable && sure:
		e.Problem = fmt.Errorf("%w: its subject is not one of %s.<stream>.>", ErrUnreadable, s.cfg.DeadSubject)
		return e, nil
	}
	letter, err := worker.ParseDeadLetter(m.Data)
	if err == nil && len(letter.Parts) > 0 {
		letter, err = s.join(ctx, letter)
	}
	switch {
	case err == nil:
		e.Kind = KindFailed
		if sure { // filters and groups use the headers, so all the rest does too
			said := e.DeadLetter
			letter.Reason, letter.Signature, letter.Stream, letter.Worker = said.Reason, said.Signature, said.Stream, said.Worker
			if len(m.Subject) < cutSubject || !strings.HasPrefix(letter.Subject, e.DeadLetter.Subject) {
				letter.Subject = e.DeadLetter.Subject
			}
		}
		e.DeadLetter = letter
	case errors.Is(err, worker.ErrDeadLetter):
		e.Problem = fmt.Errorf("%w: %s", ErrUnreadable, strings.TrimPrefix(err.Error(), worker.ErrDeadLetter.Error()+": "))
	default:
		return nil, err
	}
	return e, nil
}

// join reads a letter that is stored in parts.
func (s *Store) join(ctx context.Context, stub worker.DeadLetter) (worker.DeadLetter, error) {
	var whole bytes.Buffer
	for _, seq := range stub.Parts {
		part, err := s.get(ctx, s.cfg.Stream, jsapi.Query{Sequence: seq})
		if err != nil {
			return stub, err
		}
		if part == nil || !s.isInternal(part.Subject) {
			return stub, fmt.Errorf("%w: part %d of it is gone", worker.ErrDeadLetter, seq)
		}
		whole.Write(part.Data)
	}
	letter, err := worker.ParseDeadLetter(whole.Bytes())
	letter.Parts = stub.Parts
	return letter, err
}

// advisory has the fields of the server's advisories that this package reads.
type advisory struct {
	Deliveries int    `json:"deliveries"`
	Reason     string `json:"reason"`
	Sequence   uint64 `json:"stream_seq"`
}

// openStranded completes an entry from its advisory and from the advisory's message.
func (s *Store) openStranded(ctx context.Context, e *Entry, body []byte) (*Entry, error) {
	var about advisory
	_ = json.Unmarshal(body, &about) // a body that is not an advisory has no sequence
	if about.Sequence == 0 {
		e.Problem = fmt.Errorf("%w: advisory: no stream_seq: %.100q", ErrUnreadable, body)
		return e, nil
	}
	l := &e.DeadLetter
	l.Attempts, l.Deliveries, l.MaxAttempts, l.Sequence = about.Deliveries, about.Deliveries, about.Deliveries, about.Sequence
	l.Error = fmt.Sprintf("consumer %s gave the message up after %d deliveries", l.Consumer, about.Deliveries)
	if l.Reason == ReasonTerminated {
		l.Error = fmt.Sprintf("a client of consumer %s terminated the message: %s", l.Consumer, about.Reason)
	}
	if l.Reason == ReasonTerminated && slices.Contains(removedReasons, about.Reason) {
		if info, err := s.info(ctx, l.Stream); err == nil && dropsNothing(info.Config) {
			return nil, nil
		}
		l.Error = fmt.Sprintf("the message left its stream before consumer %s knew of an acknowledgement: %s", l.Consumer, about.Reason)
	}
	found, err := s.get(ctx, l.Stream, jsapi.Query{Sequence: about.Sequence})
	switch {
	case jsapi.IsNoStream(err):
		e.Problem = fmt.Errorf("%w: stream %s does not exist", ErrGone, l.Stream)
	case err != nil:
		return nil, err
	case found == nil || found.Time.After(e.StoredAt):
		// A younger message belongs to a stream that was deleted and made again.
		e.Problem = fmt.Errorf("%w: message %d is not in stream %s: acknowledged late, removed or dropped", ErrGone, about.Sequence, l.Stream)
	default:
		l.EnqueuedAt, l.Header, l.Payload, l.Subject = found.Time, found.Header, found.Data, found.Subject
		l.ID = jobmsg.ID(found.Header, l.Stream, about.Sequence)
	}
	return e, nil
}

// dropsNothing reports whether messages leave a stream only by an acknowledgement, by their own TTL, or by deletion on purpose.
func dropsNothing(cfg jetstream.StreamConfig) bool {
	full := cfg.Discard == jetstream.DiscardOld && (cfg.MaxBytes > 0 || cfg.MaxMsgs > 0)
	crowded := cfg.MaxMsgsPerSubject > 0 && !cfg.DiscardNewPerSubject
	return cfg.Retention != jetstream.LimitsPolicy && cfg.MaxAge == 0 && !full && !crowded
}
