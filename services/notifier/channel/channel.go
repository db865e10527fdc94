// Package channel defines the interface for sending notifications: a [Channel] sends one message to one user, and
// returns the outcome.
//
// A message that was not sent is reported by an [*Error]. Its [Kind] decides whether to try again, and whether the
// provider may have taken the message nevertheless.
package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Channel sends messages to users in one way.
type Channel interface {
	// Name is the channel's name in rules, subjects, keys, logs and metrics, such as "email": letters, digits, '_' and
	// '-'. It never changes.
	Name() string

	// Send sends one message to one user, once. A message with the same ID is the same message. Because the first may
	// have arrived already, Send has to pass the ID on, so that the provider can drop the second.
	//
	// A nil error means that the provider has accepted the message. Any failure is an [*Error], also the end of ctx; an
	// error of another type counts as a temporary failure after which the message may have been taken.
	//
	// Send is called from many goroutines at once.
	Send(ctx context.Context, m Message) (Receipt, error)
}

// EventTypeDigest is the event type of a message that is a digest of others.
const EventTypeDigest = "DIGEST"

// The urgencies of messages.
const (
	// UrgencyCritical is for notifications that are sent in quiet hours too, and to recipients that opted out.
	UrgencyCritical = "critical"
	// UrgencyHigh is for channels that distinguish urgencies.
	UrgencyHigh = "high"
	// UrgencyLow is for channels that distinguish urgencies.
	UrgencyLow = "low"
	// UrgencyNormal is the default.
	UrgencyNormal = "normal"
)

// Message is one notification on its way to one user.
type Message struct {
	// Address is the user's address on the channel, "" when it is not known.
	Address string

	// Attempt is the number of the attempt to send the message, from 1.
	Attempt int

	// Category is the group of messages that the user can switch off. "" is none.
	Category string

	// CreatedAt is the time at which the notification was planned.
	CreatedAt time.Time

	// Endpoint is the directory's record of the address, and EndpointID its id, "" for the user's plain address on the
	// channel.
	Endpoint   contracts.Endpoint
	EndpointID string

	// EventID is the id of the event that the message is about.
	EventID string

	// EventType is the type of the event.
	EventType string

	// FirstAttempt is the time at which the first attempt to send the message began: the same in every attempt.
	FirstAttempt time.Time

	// ID identifies the message. It is the same in every attempt, and different for each user, channel and event. It is
	// safe in headers, file names and URLs.
	ID string

	// Locale is the user's language, a BCP 47 tag. "" when it is not known.
	Locale string

	// Payload is the event's, JSON or nothing.
	Payload json.RawMessage

	// Preferences is the URL of the page with the user's preferences. "" is none.
	Preferences string

	// Priority is the urgency, such as UrgencyCritical. Any other than the four is normal.
	Priority string

	// RecipientType is the kind of recipient that the user is.
	RecipientType contracts.RecipientType

	// Template names the text.
	Template string

	// Test reports whether the message shows a template and is not for a user. Its text then has a mark.
	Test bool

	// TimeZone is the IANA name of the user's time zone. "" when it is not known.
	TimeZone string

	// UserID is the id of the user.
	UserID string
}

// Receipt is the provider's answer to an accepted message.
type Receipt struct {
	// Delivered reports whether the user has the message, and not only a provider that forwards it.
	Delivered bool

	// ID is the provider's id of the message. "" when the answer has none.
	ID string
}

// Kind classifies a failure. Its text is stable: it goes into the record of the delivery, logs, metrics and dead letters.
type Kind string

// The kinds of failure.
const (
	// KindBounced means: the address does not exist. It will not be tried again.
	KindBounced Kind = "bounced"
	// KindGone means: the address asks never to be used again.
	KindGone Kind = "gone"
	// KindInterrupted means: the notifier ended the call. The provider may have taken the message.
	KindInterrupted Kind = "interrupted"
	// KindMisconfigured means: the channel cannot send anything as it is set up.
	KindMisconfigured Kind = "misconfigured"
	// KindNoAddress means: the channel has no address of the user.
	KindNoAddress Kind = "no_address"
	// KindRateLimited means: the provider takes no more for now.
	KindRateLimited Kind = "rate_limited"
	// KindRejected means: the provider will never take this message.
	KindRejected Kind = "rejected"
	// KindTimeout means: there was no answer in time. The provider may have taken the message.
	KindTimeout Kind = "timeout"
	// KindUnavailable means: the provider could not be reached, or reported that it is out of order. It has not taken
	// the message.
	KindUnavailable Kind = "unavailable"
	// KindUnknown means: the connection broke, or the answer was not understood. The provider may have taken the
	// message.
	KindUnknown Kind = "unknown"
)

// Error is the failure of sending a message, as far as it is known.
type Error struct {
	// Cause is the underlying error, or nil.
	Cause error

	// Channel is the name of the channel.
	Channel string

	// Detail describes the failure in words, without secrets: it is kept in the record of the delivery.
	Detail string

	// Kind sorts the failure.
	Kind Kind

	// RetryAfter is the wait that the provider has asked for. Zero means that it has asked for none.
	RetryAfter time.Duration

	// Status is the provider's code, such as an HTTP status, or 0.
	Status int
}

// Error names the channel, the kind of failure, and its cause.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Channel, e.Kind)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Temporary reports whether the same message may be accepted later without a change of the message, its address, or
// the channel.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case KindBounced, KindGone, KindNoAddress, KindRejected:
		return false
	case KindInterrupted, KindMisconfigured, KindRateLimited, KindTimeout, KindUnavailable, KindUnknown:
	}
	return true
}

// Unsure reports whether the provider may have accepted the message nevertheless.
func (e *Error) Unsure() bool {
	return e.Kind == KindInterrupted || e.Kind == KindTimeout || e.Kind == KindUnknown
}

// Of returns the error of a Send as an [*Error]. An error of another type becomes KindUnknown.
func Of(name string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Channel: name, Kind: KindUnknown, Cause: err}
}
