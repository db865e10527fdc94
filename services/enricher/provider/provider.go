// Package provider defines the interface of a source of delivery links.
//
// A provider gets a place and returns the venues that may be that place, as many
// as it likes and in any order; it does not decide. Deciding is the matcher's
// work, on every provider's venues alike. A new provider implements [Provider]
// and is handed to the enricher; nothing else changes.
//
// # Unknown is not absent
//
// ONLY an empty list together with a nil error says "the provider answered, and
// knows no such place". That one answer may be kept for a day, so it has to be
// earned: an outage, a ban, a bot wall that answers 200 with nothing in it, a
// broken body, a part of the pages missing, are all an [*Error] and never an
// empty list. A provider that is not sure returns an error.
//
// # Errors
//
// Every error of a provider is an [*Error]. Its Kind sorts it, Temporary says whether
// the job is worth repeating, and RetryAfter when at the earliest. Use [KindOf] and
// [Temporary] where an error of another type may come along.
package provider

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

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
	// An empty list with a nil error means that the provider answered and has no such place. Nothing else means that.
	// Any failure is an [*Error], also the end of ctx; then the list is nil. Every venue has an ID, unique in the list, a
	// name and a URL.
	//
	// Search is called from many goroutines at once.
	Search(ctx context.Context, place match.Place) ([]Venue, error)
}

// Limited is a Provider that may be asked only so much, by all processes together. The enricher keeps the searches to
// its Limits; the provider makes no call before its turn.
type Limited interface {
	Provider

	// Limits are the same in every process.
	Limits() Limits
}

// Limits bound the searches and calls of a provider.
type Limits struct {
	// Burst is how many calls may be made at once after a pause.
	Burst int

	// Gap is the time between two calls after that.
	Gap time.Duration

	// Searches is how many searches may be under way at a time.
	Searches int
}

// Venue is a place as a provider knows it.
type Venue struct {
	match.Place

	// ID is the provider's own identifier of the venue.
	ID string

	// Kind is the provider's product line, such as "restaurant", or empty when it
	// does not say.
	Kind string

	// URL is the venue's public page, where a customer orders.
	URL string
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

// maxText bounds what Words reads of a text, in bytes.
const maxText = 4096

// Words folds a text to its words of letters and digits, in lower case and without marks.
func Words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(text[:min(len(text), maxText)]))), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
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
	}
	return u, nil
}

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

// Error is returned by a provider instead of an answer. It never means that the place is unknown to the
// provider.
type Error struct {
	// Cause is the underlying error, or nil.
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
