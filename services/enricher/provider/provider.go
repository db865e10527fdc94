// Package provider defines the interface of a source of delivery links.
//
// A provider gets a place and returns the venues that may be that place, any number and in any order. It does not
// decide: the matcher decides, in the same way for every provider. A new provider implements [Provider] and is handed
// to the enricher; nothing else changes.
//
// # Unknown is not absent
//
// ONLY an empty list together with a nil error means "the provider answered, and has no such place". This answer may
// be kept for a day, so it has to be certain: an outage, a refused key, a broken body or a missing page are each an
// [*Error] and never an empty list. A provider that is not certain returns an error.
//
// # Errors
//
// Every error of a provider is an [*Error]. Kind classifies it, [Temporary] reports whether to repeat the job, and
// RetryAfter is the least wait before that.
//
// # Over HTTP
//
// A [Client] looks places up at a service that the operator names: it posts a place, and the service answers with the venues that may be
// that place. docs/provider.md is the contract, for those who write such a service.
//
// A Client makes no call before its Turn, none while a Retry-After lasts, and none for 30 seconds after failed calls for five places
// in a row, unless the service has answered within 30 seconds. A search that meets one of the latter fails at once with the time after
// which a retry is worthwhile. It makes one call for each search and leaves retries to the job. It follows no redirect, so it
// dials only the host that the operator named.
package provider

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// Provider is a source of delivery links.
type Provider interface {
	// Name is the provider's key in `providers.<name>`, in subjects, bucket keys,
	// logs and metrics: lower-case letters, digits and hyphens, a letter first. It
	// never changes.
	Name() string

	// Search returns the venues that may be the place: the candidates among which
	// the matcher decides.
	//
	// An empty list with a nil error means that the provider answered and has no such place. No other result means that.
	// Any failure, even the end of ctx, is an [*Error]; then the list is nil. Every venue has a name and a URL.
	//
	// Search is called from many goroutines at once.
	Search(ctx context.Context, place match.Place) ([]Venue, error)
}

// Limited is a Provider with limits for all processes together. The enricher keeps the searches to its Limits; the
// provider makes no call before its turn.
type Limited interface {
	Provider

	// Limits returns the limits, the same in every process.
	Limits() Limits
}

// Limits bound the searches and calls of a provider.
type Limits struct {
	// Burst is the number of calls that may be made at once after a pause.
	Burst int

	// Gap is the time between two calls after that.
	Gap time.Duration

	// Searches is the number of searches that may be under way at a time.
	Searches int
}

// Venue is a place as a provider knows it, and as package remote reads it.
type Venue struct {
	match.Place

	// ID is the provider's own identifier of the venue; empty when it has none.
	ID string `json:"id"`

	// URL is the venue's public page, where a customer orders.
	URL string `json:"url"`
}

// Places returns the places of the venues in the same order: the form in which
// the matcher takes its candidates.
func Places(venues []Venue) []match.Place {
	places := make([]match.Place, len(venues))
	for i := range venues {
		places[i] = venues[i].Place
	}
	return places
}

// ParseURL parses an http or https address with a host and no user. Its error does not repeat the text, which may hold a
// password.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it does not parse as a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("it does not start with https:// or http://")
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case u.User != nil:
		return nil, errors.New("it holds a user name: that does not belong into a URL")
	case strings.ContainsFunc(text, unicode.IsSpace):
		return nil, errors.New("it has a space: write %20")
	}
	return u, nil
}

// Kind is the class of a failure. Its text is stable: it goes into logs, metrics and dead letters.
type Kind string

// The kinds of failure.
const (
	// KindBlocked means that the provider refuses this client, such as for a wrong key.
	KindBlocked Kind = "blocked"
	// KindCanceled means that the caller gave up before the provider answered.
	KindCanceled Kind = "canceled"
	// KindMalformed means that an answer does not have its documented shape, or is larger than the caller accepts.
	KindMalformed Kind = "malformed"
	// KindMisconfigured means that the provider cannot be asked with its configuration, which an operator has to change.
	KindMisconfigured Kind = "misconfigured"
	// KindRateLimited means that the provider, or its limit here, allows no further call now.
	KindRateLimited Kind = "rate_limited"
	// KindTimeout means that the provider did not answer in time.
	KindTimeout Kind = "timeout"
	// KindUnavailable means that the provider cannot be reached, or reports that it is out of order.
	KindUnavailable Kind = "unavailable"
	// KindUnsupported means that the provider can never answer for this description of the place. It is not an answer: the
	// provider may have the place.
	KindUnsupported Kind = "unsupported"
)

// Error is returned by a provider instead of an answer. It never means that the place is unknown to the
// provider.
type Error struct {
	// Cause is the underlying error, or nil.
	Cause error

	// Detail describes the failure, the input, and the remedy in words.
	Detail string

	// Kind classifies the failure.
	Kind Kind

	// Provider is the name of the provider that failed.
	Provider string

	// RetryAfter is the wait that the provider asked for, or that its limits demand. Zero means that there is none.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of an error that is an [*Error], and "" for any other error.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// Temporary reports whether the same search may succeed later without a change of the place or the configuration, as after an error that
// is no [*Error]. After a temporary error the job is to be tried again, not before RetryAfter; after another error it is to be given up.
func Temporary(err error) bool {
	kind := KindOf(err)
	return err != nil && kind != KindMisconfigured && kind != KindUnsupported
}
