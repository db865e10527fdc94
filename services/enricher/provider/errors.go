package provider

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrBlocked is returned when the provider refuses this client: a ban, a bot
	// wall, a demand for a newer client, an answer emptied on purpose.
	ErrBlocked = errors.New("provider refuses this client")

	// ErrCanceled is returned when the caller gave up before the provider answered.
	ErrCanceled = errors.New("search was canceled by its caller")

	// ErrMalformed is returned when the provider answered with something that does
	// not have its documented shape, or with more than the caller accepts.
	ErrMalformed = errors.New("provider answered in a shape it does not document")

	// ErrMisconfigured is returned when the provider cannot be asked at all as it is set up. An operator has to change the
	// configuration.
	ErrMisconfigured = errors.New("provider is misconfigured")

	// ErrRateLimited is returned when the provider, or the limit set for it here,
	// allows no further call now.
	ErrRateLimited = errors.New("provider allows no further call now")

	// ErrTimeout is returned when the provider did not answer in time.
	ErrTimeout = errors.New("provider did not answer in time")

	// ErrUnavailable is returned when the provider cannot be reached, or says
	// itself that it is out of order.
	ErrUnavailable = errors.New("provider is unavailable")

	// ErrUnsupported is returned when the provider can never answer for this place
	// as it is described. It is not an answer: the place may well be there.
	ErrUnsupported = errors.New("provider cannot search for this place")
)

// Kind is the class of a failure. Its text is stable: it goes into logs, metrics and dead letters.
type Kind string

// The kinds of failure. Each has a sentinel of the same name for errors.Is.
const (
	KindBlocked       Kind = "blocked"
	KindCanceled      Kind = "canceled"
	KindMalformed     Kind = "malformed"
	KindMisconfigured Kind = "misconfigured"
	KindRateLimited   Kind = "rate_limited"
	KindTimeout       Kind = "timeout"
	KindUnavailable   Kind = "unavailable"
	KindUnsupported   Kind = "unsupported"
)

// sentinel is the error that errors.Is finds in an [Error] of this kind.
func (k Kind) sentinel() error {
	switch k {
	case KindBlocked:
		return ErrBlocked
	case KindCanceled:
		return ErrCanceled
	case KindMalformed:
		return ErrMalformed
	case KindMisconfigured:
		return ErrMisconfigured
	case KindRateLimited:
		return ErrRateLimited
	case KindTimeout:
		return ErrTimeout
	case KindUnavailable:
		return ErrUnavailable
	case KindUnsupported:
		return ErrUnsupported
	default:
		return nil
	}
}

// Error is what a provider returns instead of an answer. It never means that the
// place is unknown to the provider.
//
// errors.Is finds the sentinel of its Kind as well as its Cause.
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

// Is reports whether target is the sentinel of the error's kind.
func (e *Error) Is(target error) bool {
	sentinel := e.Kind.sentinel()
	return sentinel != nil && target == sentinel
}

// Temporary reports whether the same search may succeed later although nobody
// changes the place or the configuration. A job that met a temporary error is to
// be tried again, not before RetryAfter; one that met another is to be given up.
func (e *Error) Temporary() bool {
	return e.Kind != KindMisconfigured && e.Kind != KindUnsupported
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Temporary reports whether a failed search is worth repeating. An error that is
// no [*Error] is, since nothing is known against it.
func Temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Temporary()
	}
	return err != nil
}
