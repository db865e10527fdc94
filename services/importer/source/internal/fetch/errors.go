package fetch

import (
	"fmt"
	"time"
)

// StatusError is returned when the far side answers anything but 200.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// RetryAfter is how long the far side asked to be left alone; zero when it did not say, and at most a day.
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
