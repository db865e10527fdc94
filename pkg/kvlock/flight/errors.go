package flight

import (
	"errors"
	"fmt"

	"github.com/expediter-io/expediter/internal/redact"
)

// Errors that results and locks have in common are in package kvlock: ErrClosed, ErrInvalidKey, ErrLost, ErrMismatch,
// ErrTooLarge, ErrUnavailable and ErrVersion.
var (
	// ErrFailed is returned to callers that wait for a computation that failed in another process. It is always wrapped
	// in a [FailedError] that has the reason.
	ErrFailed = errors.New("kvlock: computation failed")

	// ErrInvalidInputs is returned by [Work.Key] for inputs that have no canonical form. Trying again does not help.
	ErrInvalidInputs = errors.New("kvlock: inputs have no key")

	// ErrInvalidRef is returned by [Flight.Resume] for a text that is not the reference of a claim. Nothing was sent,
	// and trying again does not help.
	ErrInvalidRef = errors.New("kvlock: invalid reference of a claim")

	// ErrRecursive is returned when the function of Do asks for the key that it computes, or for a key whose function waits for that key. It
	// would wait for itself. The error names the keys of the circle.
	ErrRecursive = errors.New("kvlock: function asks for the key that it computes")

	// ErrTaken is returned when a key cannot be claimed because it is pending, done or failed. It is always wrapped in
	// a [TakenError] that has the entry.
	ErrTaken = errors.New("kvlock: key is taken")
)

// FailedError is returned when the computation for Key failed in another process.
type FailedError struct {
	Key    string
	Reason string // the text that the owner passed to Fail
	Owner  string // the instance that ran it
}

// Error names the key, the owner and the reason.
func (e *FailedError) Error() string {
	return fmt.Sprintf("kvlock: computation of %q by %s failed: %s", e.Key, e.Owner, e.Reason)
}

// Unwrap makes errors.Is(err, ErrFailed) true.
func (e *FailedError) Unwrap() error { return ErrFailed }

// PanicError is returned by [Flight.Do] to every caller in this process when the function panicked.
// Callers in other processes get a [FailedError] whose reason begins with "panic:".
type PanicError struct {
	Key   string
	Value any    // the argument of panic
	Stack []byte // the stack of the goroutine that panicked
}

// Error names the key and the panic value, without the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("kvlock: function for %q panicked: %s", e.Key, redact.Value(e.Value))
}

// TakenError has the entry of a key that could not be claimed.
type TakenError struct {
	Entry Entry
}

// Error names the key, its state and its owner.
func (e *TakenError) Error() string {
	return fmt.Sprintf("kvlock: key %q is %s (owner %s, revision %d)", e.Entry.Key, e.Entry.State, e.Entry.Owner, e.Entry.Revision)
}

// Unwrap makes errors.Is(err, ErrTaken) true.
func (e *TakenError) Unwrap() error { return ErrTaken }

// takenError returns the error for a key that cannot be claimed: the key belongs to another input, or is in use.
func takenError(entry Entry, fingerprint string) error {
	if err := entry.mismatch(fingerprint); err != nil {
		return err
	}
	return &TakenError{Entry: entry}
}
