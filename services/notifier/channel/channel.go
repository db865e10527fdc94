// Package channel defines how notifications leave: a [Channel] sends one message to one user, and returns the
// outcome.
//
// A message that was not sent is reported by an [*Error]. Its [Kind] says whether to try again, and whether the
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

	// Send sends one message to one user, once. A message with the same ID is the same message: when the first may have
	// arrived already, the provider is to be given the means to drop the second.
	//
	// A nil error means that the provider has accepted the message. Any failure is an [*Error], also the end of ctx; an
	// error of another type counts as a temporary failure after which the message may have been taken.
	//
	// Send is called from many goroutines at once.
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Message is one notification on its way to one user.
type Message struct {
	// Address is where the channel reaches the user, "" when nothing is known.
	Address string

	// Attempt counts the tries to send the message, from 1.
	Attempt int

	// Category is the group of messages that the user can switch off. "" is none.
	Category string

	// CreatedAt is when the row was planned.
	CreatedAt time.Time

	// Endpoint is the directory's record of the address, and EndpointID its id, "" for the plain one of the
	// channel.
	Endpoint   contracts.Endpoint
	EndpointID string

	// EventID is the event that the message is about.
	EventID string

	// EventType is the type of the event.
	EventType string

	// FirstAttempt is when the first attempt to send the message began: the same in every attempt.
	FirstAttempt time.Time

	// ID identifies the message: the same in every try, and another for each user, channel and event. It is safe in
	// headers, file names and URLs.
	ID string

	// Locale is the user's language, a BCP 47 tag. "" when nothing is known.
	Locale string

	// Payload is the event's, JSON or nothing.
	Payload json.RawMessage

	// Preferences is the URL of the page on which the user chooses what to get. "" is none.
	Preferences string

	// Priority is how urgent it is.
	Priority contracts.Urgency

	// RecipientType is the kind of recipient that the user is.
	RecipientType contracts.RecipientType

	// Template names the text.
	Template string

	// Test marks a message that shows a template, and is not for a user: its text says so.
	Test bool

	// TimeZone is the user's zone by its IANA name. "" when nothing is known.
	TimeZone string

	// UserID is the user.
	UserID string
}

// Receipt is the provider's answer to an accepted message.
type Receipt struct {
	// Delivered reports whether the user has the message, and not only a provider that forwards it.
	Delivered bool

	// ID is the provider's id of the message. "" when it does not say.
	ID string
}

// Kind classifies a failure. Its text is stable: it goes into the record of the delivery, logs, metrics and dead letters.
type Kind string

// The kinds of failure.
const (
	// KindBounced means: the address does not exist. It will not be tried again.
	KindBounced Kind = "bounced"
	// KindCancelled means: the message was withheld at the last moment. It has not come, and never will.
	KindCancelled Kind = "cancelled"
	// KindGone means: the address asks never to be used again.
	KindGone Kind = "gone"
	// KindInterrupted means: the call was ended from here. The provider may have taken the message.
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
	// KindUnavailable means: the provider could not be reached, or said that it is out of order. It has not taken the
	// message.
	KindUnavailable Kind = "unavailable"
	// KindUnknown means: the connection broke, or the answer made no sense. The provider may have taken the message.
	KindUnknown Kind = "unknown"
)

// Error is why a message was not sent, as far as is known.
type Error struct {
	// Cause is the underlying error, or nil.
	Cause error

	// Channel is the name of the channel.
	Channel string

	// Detail says in words what was wrong. It holds no secrets: it is kept in the record of the delivery.
	Detail string

	// Kind sorts the failure.
	Kind Kind

	// RetryAfter is the wait that the provider has asked for. Zero means that it did not say.
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

// Temporary reports whether the same message may be accepted later without a change of it, its address, or the channel.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case KindBounced, KindCancelled, KindGone, KindNoAddress, KindRejected:
		return false
	case KindInterrupted, KindMisconfigured, KindRateLimited, KindTimeout, KindUnavailable, KindUnknown:
	}
	return true
}

// Unsure reports whether the provider may have accepted the message nevertheless.
func (e *Error) Unsure() bool {
	return e.Kind == KindInterrupted || e.Kind == KindTimeout || e.Kind == KindUnknown
}

// Of returns the error of a Send as an [*Error]: one of another type is KindUnknown.
func Of(name string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Channel: name, Kind: KindUnknown, Cause: err}
}
