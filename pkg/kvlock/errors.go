package kvlock

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned when the Flight was closed before or during the call.
	ErrClosed = errors.New("kvlock: flight is closed")

	// ErrFailed is returned to those who wait for a computation that failed in another process.
	// It is always wrapped in a [FailedError] that carries the reason.
	ErrFailed = errors.New("kvlock: computation failed")

	// ErrInvalidKey is returned when a key is empty, too long, or has a character that a NATS KV key may not have.
	ErrInvalidKey = errors.New("kvlock: invalid key")

	// ErrLost is returned when a claim is no longer held: it expired, was taken over, or its key was invalidated.
	// Nothing written under it from now on is accepted.
	ErrLost = errors.New("kvlock: claim lost")

	// ErrMismatch is returned when the key is in use for another input: its fingerprint differs from the caller's.
	// The value is withheld, because it answers another question.
	ErrMismatch = errors.New("kvlock: key is in use for another input")

	// ErrTaken is returned when a key cannot be claimed because it is pending, done or failed.
	// It is always wrapped in a [TakenError] that carries the slot.
	ErrTaken = errors.New("kvlock: key is taken")

	// ErrRecursive is returned when the function of Do asks for the key that it computes: it would wait for itself.
	ErrRecursive = errors.New("kvlock: function asks for the key that it computes")

	// ErrUnavailable is returned when JetStream could not be reached within the bound of the operation, or stores
	// nothing more because the bucket is full.
	// A write that returns it may nevertheless have been applied, unless the error says that it was not sent.
	ErrUnavailable = errors.New("kvlock: JetStream unavailable")

	// ErrVersion is returned when a key holds what a newer version of this package wrote. It is left as it is.
	ErrVersion = errors.New("kvlock: record of a newer version")
)

// FailedError says that the computation somebody else ran for Key failed, and why.
type FailedError struct {
	Key    string
	Reason string // the text that the owner gave to Fail
	Owner  string // who ran it
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
	Value any    // what was passed to panic
	Stack []byte // the stack of the goroutine that panicked
}

// Error names the key and the panic value; the stack is left to the field.
func (e *PanicError) Error() string {
	return fmt.Sprintf("kvlock: function for %q panicked: %v", e.Key, e.Value)
}

// TakenError says what a key holds that could not be claimed.
type TakenError struct {
	Slot Slot
}

// Error names the key, its state and its owner.
func (e *TakenError) Error() string {
	return fmt.Sprintf("kvlock: key %q is %s (owner %s, revision %d)", e.Slot.Key, e.Slot.State, e.Slot.Owner, e.Slot.Revision)
}

// Unwrap makes errors.Is(err, ErrTaken) true.
func (e *TakenError) Unwrap() error { return ErrTaken }
