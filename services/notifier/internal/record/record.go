package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// try bounds one request, so that one lost answer leaves time for another.
	try = 2 * time.Second

	firstWait = 10 * time.Millisecond
	lastWait  = time.Second
)

// Error codes of the server.
const (
	codeWrongSequence jetstream.ErrorCode = 10071
	codeInFlight      jetstream.ErrorCode = 10164 // another write to the subject is under way
	codeStoreFailed   jetstream.ErrorCode = 10077 // the subject, or the whole stream, is full: the text tells which
	codeTooLarge      jetstream.ErrorCode = 10054 // for the stream
)

var (
	// ErrNotFound is returned when there is no record.
	ErrNotFound = errors.New("there is no such record")

	// ErrTaken is returned when the subject has another record than the writer saw. The error is a [*TakenError].
	ErrTaken = errors.New("somebody else wrote the record")

	// ErrUnavailable is returned when the store did not answer, or takes nothing for now. That is not the record's fault.
	ErrUnavailable = errors.New("the store does not answer, or takes nothing for now")
)

// TakenError is what there is in place of what was to be written.
type TakenError struct {
	// Data is the record that is there.
	Data []byte

	// Revision is its position in the stream.
	Revision uint64

	// Subject is where.
	Subject string
}

// Error implements error.
func (e *TakenError) Error() string { return fmt.Sprintf("%s: %v", e.Subject, ErrTaken) }

// Is reports whether target is ErrTaken.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// Store writes records of one stream. It may be used by many at once.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// Open binds a stream. One round trip.
func Open(ctx context.Context, js jetstream.JetStream, stream string) (*Store, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", stream, err)
	}
	return &Store{js: js, stream: s}, nil
}

// Get reads a record, in one round trip. It may be one that has been replaced a moment ago: only a write decides.
func (s *Store) Get(ctx context.Context, subject string) (data []byte, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	msg, err := s.stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, 0, fmt.Errorf("%s: %w", subject, ErrNotFound)
	case err != nil:
		return nil, 0, fmt.Errorf("%w: read %s: %w", ErrUnavailable, subject, err)
	}
	return msg.Data, msg.Sequence, nil
}

// Read reads a record as Get does, and tries until the store answers or ctx ends: for whoever is in the midst of long work
// that a server may restart beneath.
func (s *Store) Read(ctx context.Context, subject string) (data []byte, revision uint64, err error) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		data, revision, err = s.Get(ctx, subject)
		if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
			return data, revision, err
		}
		if !pause(ctx, wait) {
			return nil, 0, errors.Join(context.Cause(ctx), err)
		}
	}
}

// Latest reads a record at the stream's leader, in one round trip, where Get asks any replica. A leader that has been deposed
// and does not know it yet may still answer with what has been replaced: only a write decides, here too.
func (s *Store) Latest(ctx context.Context, subject string) (data []byte, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	body, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", subject, err)
	}
	reply, err := s.js.Conn().RequestWithContext(ctx, s.api("STREAM.MSG.GET."+s.stream.CachedInfo().Config.Name), body)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: read %s at the leader: %w", ErrUnavailable, subject, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data     []byte `json:"data"`
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return nil, 0, fmt.Errorf("read %s at the leader: the answer is not JSON: %w", subject, err)
	case answer.Error == nil:
		return answer.Message.Data, answer.Message.Sequence, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, 0, fmt.Errorf("%s: %w", subject, ErrNotFound)
	}
	return nil, 0, fmt.Errorf("%w: read %s at the leader: %w", ErrUnavailable, subject, answer.Error)
}

// Put writes a record whose subject is at a revision, 0 for none, and returns the new one. It tries until the record is
// there, or ctx ends; [ErrTaken] says that another one is. Two records are the same when their bytes are: whoever has to
// tell its own from another's puts something into it that nobody else has. One round trip, as a rule.
func (s *Store) Put(ctx context.Context, subject string, header nats.Header, data []byte, revision uint64) (uint64, error) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		written, err := s.publish(ctx, subject, header, data, revision)
		if err == nil {
			return written, nil
		}
		switch {
		case tooLarge(err):
			return 0, fmt.Errorf("write %s: %w", subject, err)
		case !unsure(err):
			return 0, fmt.Errorf("%w: write %s: %w", ErrUnavailable, subject, err)
		}
		// Refused, or not answered: either way it may have been written. What is there tells.
		there, at, readErr := s.Get(ctx, subject)
		switch {
		case readErr == nil && at != revision && bytes.Equal(there, data):
			return at, nil
		case readErr == nil && at > revision:
			return 0, &TakenError{Data: there, Revision: at, Subject: subject}
		}
		if !pause(ctx, wait) {
			return 0, fmt.Errorf("%w: write %s: %w", ErrUnavailable, subject, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (s *Store) publish(ctx context.Context, subject string, header nats.Header, data []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	// The options write into the headers.
	msg := &nats.Msg{Subject: subject, Data: data, Header: maps.Clone(header)}
	ack, err := s.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision))
	if err != nil {
		return 0, err //nolint:wrapcheck // by the caller
	}
	return ack.Sequence, nil
}

// unsure says of the error of a write that the record may be there, or may come to be by another try.
func unsure(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return false
	case !ok: // no answer
		return true
	case api.ErrorCode == codeStoreFailed:
		return strings.Contains(api.Description, "per subject")
	}
	return api.ErrorCode == codeWrongSequence || api.ErrorCode == codeInFlight || api.Code >= 500
}

// tooLarge says of the error of a write that no other try can go better.
func tooLarge(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || ok && api.ErrorCode == codeTooLarge
}

// Exists says of the error of a write that expected no record that there certainly is one: the server names it.
func Exists(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != codeWrongSequence {
		return false
	}
	_, number, found := strings.Cut(api.Description, "wrong last sequence: ")
	last, parseErr := strconv.ParseUint(number, 10, 64)
	return found && parseErr == nil && last > 0
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
