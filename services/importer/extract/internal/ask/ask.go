// Package ask makes of a source the text for a service that reads recipes, bounded and without sentences that speak to a model,
// asks the service, and classifies failures.
package ask

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/internal/remote"
)

const (
	maxAnswer     = 1 << 20
	maxErrorBody  = 16 << 10
	maxRetryAfter = time.Hour

	// costOfByte is the memory, in bytes, that one byte of an answer can take as a recipe: a list may have empty
	// ingredients.
	costOfByte = 100
)

// Post sends a question as JSON and returns the body of a 200. The same question has the same Idempotency-Key. The error is an
// [*extract.Error], which wraps a [*StatusError] where there was another answer; or it wraps the cause of ctx when that has ended.
func Post(ctx context.Context, client *remote.Client, path string, question any) ([]byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, extract.Failed(false, err, "the request cannot be made")
	}
	sum := sha256.Sum256(body)
	answer, err := client.Call(ctx, http.MethodPost, path, body, hex.EncodeToString(sum[:]), maxAnswer)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("extract: %w", context.Cause(ctx))
	case answer.Status != 0 && answer.Status != http.StatusOK:
		return nil, statusError(&StatusError{
			Body: answer.Body[:min(len(answer.Body), maxErrorBody)], RetryAfter: retryAfter(answer.Header), Status: answer.Status,
		})
	case err != nil:
		return nil, unanswered(err, client.Timeout())
	case len(answer.Body) > maxAnswer:
		return nil, extract.Failed(false, nil, "the answer is longer than %d bytes", maxAnswer)
	}
	if err := memory.More(ctx, costOfByte*int64(len(answer.Body))); err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// unanswered returns the error of a call without a whole answer.
func unanswered(err error, timeout time.Duration) *extract.Error {
	failed := extract.Failed(true, err, "the connection failed")
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		failed = extract.Failed(true, err, "no complete answer within %s", timeout)
	}
	failed.Outage = true
	return failed
}

// StatusError is an answer that is not 200.
type StatusError struct {
	// Body is the beginning of the body. It is not part of the text of the error: a service may repeat the request in it.
	Body []byte
	// RetryAfter is the wait that the service asked for, at most an hour; zero when it asked for none.
	RetryAfter time.Duration
	// Status is the HTTP status.
	Status int
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d", e.Status) }

// statusError returns the error of a status.
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
	if retryable {
		failed.RetryAfter = cause.RetryAfter
	}
	return failed
}

// retryAfter reads the wait that the service asks for: the milliseconds that some services send, or the header.
func retryAfter(header http.Header) time.Duration {
	if millis, err := strconv.ParseUint(header.Get("Retry-After-Ms"), 10, 31); err == nil {
		return min(time.Duration(millis)*time.Millisecond, maxRetryAfter)
	}
	return retryafter.Parse(header, 0, maxRetryAfter)
}
