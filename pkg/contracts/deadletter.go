package contracts

import (
	"github.com/expediter-io/expediter/pkg/worker"
)

// DeadLetter is a job that a worker gave up, with all data that is needed to understand and to replay it.
type DeadLetter = worker.DeadLetter

// DecodeDeadLetter is Decode for DeadLetter, whose methods belong to another package. It unpacks a payload that was
// packed to fit into a message.
func DecodeDeadLetter(data []byte) (DeadLetter, error) {
	var letter DeadLetter
	if fields := decodeInto(data, &letter); len(fields.list) > 0 {
		if fields.fatal == nil {
			fields.merge(validateDeadLetter(letter))
		}
		return DeadLetter{}, &ValidationError{Type: "DeadLetter", Fields: fields.list, cause: fields.sentinel}
	}
	if err := validateDeadLetter(letter); err != nil {
		return DeadLetter{}, err
	}
	letter, err := worker.ParseDeadLetter(data)
	if err != nil {
		return DeadLetter{}, &ValidationError{
			Type: "DeadLetter", Fields: []FieldError{{Path: "/payload", Problem: "cannot be unpacked"}}, cause: err,
		}
	}
	return letter, nil
}

// validateDeadLetter is Validate for DeadLetter: its origin, its reason and the number of attempts are required.
func validateDeadLetter(letter DeadLetter) error {
	var c checks
	for _, required := range []struct{ path, value string }{
		{"/id", letter.ID},
		{"/reason", string(letter.Reason)},
		{"/stream", letter.Stream},
		{"/subject", letter.Subject},
	} {
		if required.value == "" {
			c.add(required.path, "is required")
		}
	}
	c.refuse(letter.Sequence == 0, "/sequence", "is required")
	c.refuse(letter.Attempts < 0, "/attempts", "must not be negative")
	c.refuse(letter.Deliveries < 0, "/deliveries", "must not be negative")
	c.timestamp("/enqueuedAt", letter.EnqueuedAt)
	c.timestamp("/deadAt", letter.DeadAt)
	return c.err("DeadLetter")
}
