package provider

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is the class of a failure. Its text is stable: it goes into logs, metrics and dead letters.
type Kind string

// The kinds of failure.
const (
	// KindBlocked is the provider refusing this client: a ban, a bot wall, a demand for a newer client, an answer emptied on
	// purpose.
	KindBlocked Kind = "blocked"
	// KindCanceled is the caller giving up before the provider answered.
	KindCanceled Kind = "canceled"
	// KindMalformed is an answer that does not have its documented shape, or more than the caller accepts.
	KindMalformed Kind = "malformed"
	// KindMisconfigured is a provider that cannot be asked at all as it is set up. An operator has to change the
	// configuration.
	KindMisconfigured Kind = "misconfigured"
	// KindRateLimited is the provider, or the limit set for it here, allowing no further call now.
	KindRateLimited Kind = "rate_limited"
	// KindTimeout is a provider that did not answer in time.
	KindTimeout Kind = "timeout"
	// KindUnavailable is a provider that cannot be reached, or says itself that it is out of order.
	KindUnavailable Kind = "unavailable"
	// KindUnsupported is a provider that can never answer for this place as it is described. It is not an answer: the place
	// may well be there.
	KindUnsupported Kind = "unsupported"
)

// Error is what a provider returns instead of an answer. It never means that the
// place is unknown to the provider.
type Error struct {
	// Cause is what lay below, or nil.
	Cause error

	// Detail says in words what was wrong, with which input, and what to do.
	Detail string

	// Kind sorts the failure.
	Kind Kind

	// Provider is the name of the provider that failed.
	Provider string

	// RetryAfter is how long to leave the provider alone, as the provider asked or as its own limits demand. Zero means that
	// the provider sent none.
	RetryAfter time.Duration

	// Status is the HTTP status of the answer, or 0 when there was none.
	Status int
}

// Error names the provider, the kind of the failure and the cause.
func (e *Error) Error() string {
	var b strings.Builder

	fmt.Fprintf(&b, "%s: %s", e.Provider, e.Kind)

	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	}

	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}

	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}

	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (retry after %s)", e.RetryAfter)
	}
	return b.String()
}

// Temporary reports whether the same search may succeed later although nobody
// changes the place or the configuration. A job that met a temporary error is to
// be tried again, not before RetryAfter; one that met another is to be given up.
func (e *Error) Temporary() bool {
	return e.Kind != KindMisconfigured && e.Kind != KindUnsupported
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf is the kind of an error that is an [*Error], and empty for others.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// Temporary reports whether a failed search is worth repeating. An error that is
// no [*Error] is, since nothing is known against it.
func Temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Temporary()
	}
	return err != nil
}
