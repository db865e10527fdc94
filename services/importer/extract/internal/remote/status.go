package remote

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/importer/extract"
)

// StatusError is an answer that is not 200.
type StatusError struct {
	// Body is the beginning of what came with it. It is not part of the text of the error: a service may repeat in it what
	// it was sent.
	Body []byte
	// RetryAfter is how long the service asked to be left alone; zero when it did not say, and at most an hour.
	RetryAfter time.Duration
	// Status is the HTTP status.
	Status int
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d", e.Status) }

// statusError says what a status means.
func statusError(cause *StatusError) *extract.Error {
	retryable, out, reason := true, true, "it is out of order"
	switch status := cause.Status; {
	case status == http.StatusTooManyRequests:
		reason = "too many calls"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		reason = "it ran out of time"
	case status == http.StatusConflict, status == http.StatusTooEarly:
		out, reason = false, "the same call is still under way"
	case status >= http.StatusInternalServerError:
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		reason = "it refuses the token"
	case status == http.StatusRequestEntityTooLarge:
		retryable, reason = false, "the source is too long for it"
	case status >= http.StatusBadRequest:
		retryable, reason = false, "it does not take such a call"
	case status >= http.StatusMultipleChoices:
		retryable, reason = false, "it redirects, which is not followed"
	default:
		out, reason = false, "only 200 carries an answer"
	}
	failed := extract.Failed(retryable, cause, "%s (HTTP %d)", reason, cause.Status)
	failed.Outage = retryable && out
	failed.Refused = cause.Status == http.StatusUnauthorized || cause.Status == http.StatusForbidden
	failed.Status = cause.Status
	if retryable {
		failed.RetryAfter = cause.RetryAfter
	}
	return failed
}

func outage(failed *extract.Error) *extract.Error {
	failed.Outage = true
	return failed
}

// retryAfter reads how long to wait: the milliseconds that some send, or the header.
func retryAfter(header http.Header) time.Duration {
	if millis, err := strconv.ParseUint(header.Get("Retry-After-Ms"), 10, 31); err == nil {
		return min(time.Duration(millis)*time.Millisecond, maxRetryAfter)
	}
	return retryafter.Parse(header, 0, maxRetryAfter)
}
