package contracts

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/pkg/worker/token"
)

var (
	// ErrInvalid is returned when a message, a header set or a value breaks its contract.
	// Every *ValidationError matches it with errors.Is.
	ErrInvalid = errors.New("contracts: invalid")

	// ErrTooLarge is returned when a body is longer than its type allows.
	// The error is a *ValidationError as well; nothing of the body was decoded.
	ErrTooLarge = errors.New("contracts: body too large")

	// ErrEventMismatch is returned when another event has been published under the same id. The earlier event stands: a
	// different event needs an id of its own.
	ErrEventMismatch = errors.New("contracts: another event was published under this id: one that differs needs an id of its own")

	// ErrEmptyToken is returned when an id that must become part of a subject or a key is empty.
	ErrEmptyToken = token.ErrEmpty

	// ErrTokenTooLong is returned when an id is longer than MaxID bytes.
	ErrTokenTooLong = token.ErrTooLong

	// ErrTokenMalformed is returned when a token was not made by EncodeToken, or when a name that a program
	// chose (a provider, a channel) is not a short token as it is.
	ErrTokenMalformed = token.ErrMalformed
)

// errorFields is how many fields ValidationError.Error spells out; all of them are in Fields.
const errorFields = 20

// FieldError is a problem with one field.
type FieldError struct {
	// Path is a JSON Pointer (RFC 6901) to the field, "" for the whole document. Names from the sender are cut after 64
	// bytes.
	Path string `json:"path"`
	// Problem is a phrase that follows the path in a sentence, such as "is required".
	Problem string `json:"problem"`
}

// ValidationError names every field of one message that breaks its contract. It matches ErrInvalid.
type ValidationError struct {
	// Type is the Go name of the message, such as "EnrichRequest".
	Type string `json:"type"`
	// Fields holds the failing fields in the order in which they were found, at most 1,000.
	Fields []FieldError `json:"fields"`

	cause error
}

// Error lists the failing fields in one line; more than 20 are counted instead.
func (e *ValidationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contracts: invalid %s:", e.Type)
	for i, field := range e.Fields {
		if i == errorFields {
			fmt.Fprintf(&b, "; and %d more", len(e.Fields)-i)
			break
		}
		if i > 0 {
			b.WriteByte(';')
		}
		path := field.Path
		path = cmp.Or(path, "body")
		b.WriteByte(' ')
		b.WriteString(path)
		b.WriteByte(' ')
		b.WriteString(field.Problem)
	}
	return b.String()
}

// Is reports whether target is ErrInvalid.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the sentinel behind the error, such as ErrTooLarge, or nil.
func (e *ValidationError) Unwrap() error { return e.cause }

// PublishError is returned for an event that the stream did not acknowledge.
type PublishError struct {
	// Attempts is the number of attempts.
	Attempts int
	// Cause is why the last attempt failed. It matches ErrEventMismatch, or the error of the context that has ended.
	Cause error
	// EventID is the id of the event.
	EventID string
	// Subject is the subject that it was published to.
	Subject string
	// Unsure reports whether the stream may have the event nevertheless.
	Unsure bool
}

// Error names the event, with a long id cut, the number of attempts and the cause.
func (e *PublishError) Error() string {
	text := fmt.Sprintf("contracts: event %.80q was not acknowledged in %d tries", e.EventID, e.Attempts)
	if e.Unsure {
		text += ", and may be in the stream all the same"
	}
	return text + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *PublishError) Unwrap() error { return e.Cause }
