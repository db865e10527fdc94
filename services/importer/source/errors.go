package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/guardeddial"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
)

// messageTooShort is a message that the importer's API documents.
const messageTooShort = "Transcript is too short (%d characters). Recipe videos typically have longer transcripts."

// ErrYouTube is returned by New when YouTube is turned on and yt-dlp is missing, too old, or does not work.
var ErrYouTube = errors.New("source: videos of YouTube cannot be fetched")

// Error is returned when a source cannot be fetched.
type Error struct {
	// Code is the class of the error.
	Code contracts.ImportCode
	// Outage reports whether the site does not work, or limits our calls, for all sources: a later attempt may succeed,
	// for this source or another.
	Outage bool
	// Page reports that the site answered with an error that says nothing about other sources (HTTP 500). It is no Outage.
	Page bool
	// Retryable reports whether a later attempt may succeed.
	Retryable bool
	// RetryAfter is the wait that the server has asked for; zero when it has asked for none.
	RetryAfter time.Duration
	// Site is the failed site, as [Site] names it, if a redirect or a page led from the request's site to another.
	Site string
	// Message is for a person. It holds no secrets, no paths and at most 500 bytes.
	Message string
	// Err is the cause, for the log; may be nil.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	text := "source: " + string(e.Code) + ": " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// retryable reports whether a later attempt may succeed after a failure with this code.
func retryable(code contracts.ImportCode) bool {
	switch code {
	case contracts.CodeBotCheck, contracts.CodeNetwork, contracts.CodeRateLimited, contracts.CodeTimeout:
		return true
	default:
		return false
	}
}

// failed makes the error of a code.
func failed(code contracts.ImportCode, err error, format string, args ...any) *Error {
	return &Error{Code: code, Retryable: retryable(code), Message: cut(fmt.Sprintf(format, args...), maxMessage), Err: err}
}

// fetchError returns the error for a file that could not be fetched over HTTP. subject names the file in messages:
// "The caption file".
func fetchError(ctx context.Context, subject string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("source: %w", context.Cause(ctx))
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	var status *fetch.StatusError
	var blocked *guardeddial.BlockedError
	var timeout *fetch.TimeoutError
	var name *net.DNSError
	switch {
	case errors.As(err, &status):
		return statusError(subject, status)
	case errors.As(err, &blocked):
		return failed(contracts.CodeUnavailable, err, "%s is at an address that may not be fetched: %s", subject, blocked.Reason)
	case errors.Is(err, fetch.ErrHollow):
		return failed(contracts.CodeUnavailable, err, "%s could not be read: it is longer in gzip than unpacked", subject)
	case errors.Is(err, fetch.ErrEncoding):
		return failed(contracts.CodeUnavailable, err, "%s is compressed in a form that was not asked for: only gzip is read", subject)
	case errors.As(err, &timeout):
		return outage(failed(contracts.CodeTimeout, err, "%s did not arrive within %s", subject, timeout.After))
	case errors.As(err, &name) && name.IsNotFound:
		return failed(contracts.CodeNetwork, err, "%s could not be fetched: its host has no address", subject)
	default:
		return outage(failed(contracts.CodeNetwork, err, "%s could not be fetched: the connection failed", subject))
	}
}

// outage marks an error as an outage of the site, unless no later attempt can succeed.
func outage(err *Error) *Error {
	if at := fetch.FailedAt(err.Err); err.Retryable && at != nil {
		err.Site = siteOf(at)
	}
	err.Outage = err.Retryable
	return err
}

func statusError(subject string, err *fetch.StatusError) *Error {
	var out *Error
	switch code := err.Status; {
	case code == http.StatusTooManyRequests:
		out = failed(contracts.CodeRateLimited, err, "%s is rate limited by its site (HTTP 429)", subject)
	case code == http.StatusRequestTimeout, code >= 500:
		out = failed(contracts.CodeNetwork, err, "%s could not be fetched: the site answered HTTP %d", subject, code)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		out = failed(contracts.CodePrivate, err, "%s is private: the site answered HTTP %d", subject, code)
	default:
		out = failed(contracts.CodeUnavailable, err, "%s is not there: the site answered HTTP %d", subject, code)
	}
	if out.Retryable {
		out.RetryAfter = err.RetryAfter
	}
	if out.Page = err.Status == http.StatusInternalServerError || err.Status == http.StatusNotImplemented; out.Page {
		return out
	}
	return outage(out)
}
