package imports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// FailedError is the failure of an attempt, with a message for a person and a code for a program.
type FailedError struct {
	Code    contracts.ImportCode `json:"code"`
	Message string               `json:"message"`

	// Retryable reports whether another attempt may succeed. RetryAfter is the wait before it, 0 for the usual wait.
	Retryable  bool          `json:"retryable,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`

	// Exhausted reports whether no attempts are left, so that the job fails.
	Exhausted bool `json:"exhausted,omitempty"`

	// Outage names the far side that works for no job; empty when the failure concerns this job only. Refused reports
	// whether the far side refuses our key.
	Outage  string `json:"outage,omitempty"`
	Refused bool   `json:"refused,omitempty"`

	// Alone reports that the far side works for other jobs.
	Alone bool `json:"alone,omitempty"`

	// Page reports that the site has answered with an error that says nothing about its other pages. Each attempt waits four times
	// as long as the one before.
	Page bool `json:"page,omitempty"`

	Err error `json:"-"`
}

// Error implements error.
func (f *FailedError) Error() string { return f.Message }

// Unwrap returns the cause.
func (f *FailedError) Unwrap() error { return f.Err }

// maxMessage bounds a message, which goes into a record, a log line and the reason of a claim.
const maxMessage = 500

// failureOf returns the failure for an error of a step.
func failureOf(err error) *FailedError {
	if f, ok := errors.AsType[*FailedError](err); ok {
		return f
	}
	if errors.Is(err, memory.ErrBusy) {
		return &FailedError{
			Code: contracts.CodeTimeout, Message: "The importer has no memory left for a source of this size", Retryable: true,
			Outage: sideMemory, Err: err,
		}
	}
	if e, ok := errors.AsType[*source.Error](err); ok {
		f := &FailedError{
			Code: e.Code, Message: limit(cmp.Or(e.Message, e.Error())), Retryable: e.Retryable, RetryAfter: e.RetryAfter, Err: err,
			Page: e.Page,
		}
		if e.Outage {
			f.Outage = sidePrefix + e.Site
		}
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &FailedError{Code: contracts.CodeTimeout, Message: "The import took too long", Retryable: true, Err: err}
	}
	return &FailedError{Code: contracts.CodeCrashed, Message: limit("The import failed: " + err.Error()), Retryable: true, Err: err}
}

// storeFailure returns a function that makes the failure for an error of the store.
func storeFailure(prefix string) func(error) *FailedError {
	return func(err error) *FailedError {
		f := &FailedError{
			Code: contracts.CodeStoreFailed, Message: limit(prefix + err.Error()), Retryable: store.Retryable(err), Exhausted: true, Err: err,
		}
		if failed, ok := errors.AsType[*store.Error](err); ok && f.Retryable && !errors.Is(err, kvrecord.ErrUnavailable) {
			f.Outage, f.Refused, f.RetryAfter = sideRecipes, failed.Refused, failed.RetryAfter
		}
		return f
	}
}

// limit makes a text fit for display: one bounded line of valid UTF-8.
func limit(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// carried is a failure that passes through a flight.Flight. Waiters in other processes get only its text, so the text
// has all fields.
type carried struct{ *FailedError }

// Error implements error.
func (c carried) Error() string {
	data, err := json.Marshal(c.FailedError)
	if err != nil {
		return c.Message
	}
	return string(data)
}

// Unwrap returns the failure.
func (c carried) Unwrap() error { return c.FailedError }

// arrived returns the carried failure, or the error of the Flight itself.
func arrived(err error) error {
	if c, ok := errors.AsType[carried](err); ok {
		return c.FailedError
	}
	if failed, ok := errors.AsType[*flight.FailedError](err); ok {
		f := &FailedError{Err: err}
		if json.Unmarshal([]byte(failed.Reason), f) == nil && f.Code != "" {
			return f
		}
	}
	return err
}

// finalTTL is the time for which a permanent failure is kept for other jobs of the same source.
const finalTTL = 30 * time.Second

func failureTTL(err error) time.Duration {
	if c, ok := errors.AsType[carried](err); ok && !c.Retryable {
		return finalTTL
	}
	return 0
}

// Problem maps an error of this service to the problem that a client gets. It is a [service.ErrorMapper].
func Problem(err error) service.Problem {
	unusable, ok := errors.AsType[*source.Error](err)
	switch {
	case ok:
		return service.Problem{Status: http.StatusUnprocessableEntity, Code: string(unusable.Code), Detail: unusable.Message}
	case errors.Is(err, ErrUnknownJob), errors.Is(err, store.ErrNotFound):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, ErrMismatch), errors.Is(err, ErrFinal), errors.Is(err, ErrNotFailed):
		return service.Problem{Status: http.StatusConflict}
	case errors.Is(err, kvrecord.ErrUnavailable):
		return service.Unavailable()
	case errors.Is(err, ErrClosed):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return service.Problem{}
}
