package channel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what sort of thing went wrong. Its text is stable: it goes into the record of the delivery, logs, metrics and dead letters.
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
	// Cause is what lay below, or nil.
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

// Error says what failed, how, and why.
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
