// Package api asks the leader of a stream, where nats.go would ask any replica or needs
// two requests.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server's error codes that mean something here.
const (
	codeInProcess     = 10158 // a message with this ID is under way
	codeDeleteFailed  = 10057 // what it answers to a second deletion
	codeNoMessage     = 10037
	codeNoSequence    = 10043
	codeStoreFailed   = 10077 // the stream, or the subject, is full, or the disk
	codeWrongLast     = 10071
	codeWrongLastBusy = 10164 // in a cluster, while another write of the subject is under way
)

// Message is a stored message.
type Message struct {
	Data     []byte
	Header   nats.Header
	Sequence uint64
	Subject  string
	Time     time.Time
}

// Prefix is what a JetStream context puts before its requests, with the last dot.
func Prefix(js jetstream.JetStream) string {
	switch opts := js.Options(); {
	case opts.Domain != "":
		return "$JS." + opts.Domain + ".API."
	case opts.APIPrefix != "":
		return strings.TrimSuffix(opts.APIPrefix, ".") + "."
	default:
		return jetstream.DefaultAPIPrefix
	}
}

// Last returns the last message of a stream under a subject, which may have wildcards, and
// whether there is one. One round trip.
func Last(ctx context.Context, js jetstream.JetStream, stream, subject string) (Message, bool, error) {
	var answer struct {
		Message struct {
			Data    []byte    `json:"data"`
			Header  []byte    `json:"hdrs"`
			Seq     uint64    `json:"seq"`
			Subject string    `json:"subject"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}

	err := ask(ctx, js, "STREAM.MSG.GET."+stream, map[string]string{"last_by_subj": subject}, &answer)

	switch {
	case missing(err):
		return Message{}, false, nil
	case err != nil:
		return Message{}, false, fmt.Errorf("last message of %s on %s: %w", stream, subject, err)
	}

	found := Message{
		Data: answer.Message.Data, Sequence: answer.Message.Seq, Subject: answer.Message.Subject, Time: answer.Message.Time,
	}

	if len(answer.Message.Header) > 0 {
		if found.Header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return Message{}, false, fmt.Errorf("headers of message %d of %s: %w", found.Sequence, stream, err)
		}
	}

	return found, true, nil
}

// Delete removes a message, if it is there. One round trip.
func Delete(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64) error {
	err := ask(ctx, js, "STREAM.MSG.DELETE."+stream, map[string]any{"seq": sequence, "no_erase": true}, nil)

	if err != nil && !missing(err) {
		return fmt.Errorf("delete message %d of %s: %w", sequence, stream, err)
	}

	return nil
}

// ask sends a request and decodes the answer into it, unless that is nil.
func ask(ctx context.Context, js jetstream.JetStream, method string, query, answer any) error {
	body, err := json.Marshal(query)
	if err != nil {
		return err //nolint:wrapcheck // cannot happen
	}

	reply, err := js.Conn().RequestWithContext(ctx, Prefix(js)+method, body)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it asked
	}

	var failure struct {
		Error *jetstream.APIError `json:"error"`
	}

	if err := json.Unmarshal(reply.Data, &failure); err != nil {
		return fmt.Errorf("answer to %s: %w", method, err)
	}

	if failure.Error != nil {
		return failure.Error
	}

	if answer == nil {
		return nil
	}

	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("answer to %s: %w", method, err)
	}

	return nil
}

func missing(err error) bool { return hasCode(err, codeDeleteFailed, codeNoMessage, codeNoSequence) }

// Conflict reports whether the server refused a write because of what is there, or under
// way, already.
func Conflict(err error) bool { return hasCode(err, codeWrongLast, codeWrongLastBusy) }

// UnderWay reports whether the server refused a write because another that it checks against
// is not stored yet.
func UnderWay(err error) bool { return hasCode(err, codeWrongLastBusy) }

// Full reports whether the server refused a message because of a limit of the stream. Only the
// text tells that from a store that fails.
func Full(err error) bool {
	var failure *jetstream.APIError

	return errors.As(err, &failure) && failure.ErrorCode == codeStoreFailed && strings.Contains(failure.Description, "maximum")
}

// SubjectFull reports whether that limit is the one of the message's subject.
func SubjectFull(err error) bool { return Full(err) && strings.Contains(err.Error(), "per subject") }

// Unknown reports whether a request may have been carried out, or may be if repeated: no
// answer came, or one that speaks of the server and not of the request.
func Unknown(err error) bool {
	var failure *jetstream.APIError
	if !errors.As(err, &failure) {
		return !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrMaxPayload)
	}

	const unavailable = 503

	return failure.Code == unavailable || failure.ErrorCode == codeInProcess
}

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var failure *jetstream.APIError

	return errors.As(err, &failure) && slices.Contains(codes, failure.ErrorCode)
}
