package fetch

import (
	"fmt"
	"time"
)

// StatusError is returned when the server answers with another status than 200.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// RetryAfter is the wait that the server has asked for, at most a day; zero when it has asked for none.
	RetryAfter time.Duration
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("fetch: the site answered HTTP %d", e.Status)
}

// TimeoutError is returned when the answer is not complete in time.
type TimeoutError struct {
	// After is the limit.
	After time.Duration
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("fetch: no complete answer within %s", e.After)
}
