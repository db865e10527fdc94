package kvlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Errors that locks and the results of package flight have in common.
var (
	// ErrClosed is returned when the Locker, Guard or Flight was closed before or during the call.
	ErrClosed = kv.ErrClosed

	// ErrInvalidKey is returned when a key is empty, too long, or has a character that a NATS KV key may not have.
	ErrInvalidKey = kv.ErrInvalidKey

	// ErrLost is returned when a lease or a claim is no longer held: it expired, was taken over, or its key was
	// invalidated. Nothing written under it from now on is accepted.
	ErrLost = errors.New("kvlock: claim lost")

	// ErrMismatch is returned when the key is in use for something else: for another kind of record, as a result where a
	// lock is wanted, or for the result of another input, whose fingerprint differs from the caller's. The value is
	// withheld, because it answers another question.
	ErrMismatch = kv.ErrMismatch

	// ErrTooLarge is returned when a value has more bytes than flight.Config.MaxValue, or than the server takes in one
	// message. Nothing was stored.
	ErrTooLarge = kv.ErrTooLarge

	// ErrUnavailable is returned when JetStream could not be reached within the bound of the operation, or stores
	// nothing more because the bucket is full.
	// A write that returns it may nevertheless have been applied, unless the error says that it was not sent.
	ErrUnavailable = kv.ErrUnavailable

	// ErrVersion is returned when a key holds a record of a newer version of this module. The record stays as it is.
	ErrVersion = kv.ErrVersion
)

// Errors of locks and guards.
var (
	// ErrFenced is returned when a holder with a greater token has written. It is always wrapped in a [FencedError].
	ErrFenced = errors.New("kvlock: fenced off")

	// ErrHeld is returned when another holder has the lock. It is always wrapped in a [HeldError] that names the
	// holder.
	ErrHeld = errors.New("kvlock: lock is held")

	// ErrReleased is the cause of the end of a [Lease]'s context when its holder releases it.
	ErrReleased = errors.New("kvlock: lock released")
)

// HeldError names the holder of a lock, and the queue of its waiters.
type HeldError struct {
	Lock Lock
}

// Error names the lock and its holder.
func (e *HeldError) Error() string {
	if !e.Lock.Held {
		return fmt.Sprintf("kvlock: lock %q is being taken", e.Lock.Name)
	}
	return fmt.Sprintf("kvlock: lock %q is held by %s since %s", e.Lock.Name, e.Lock.Holder, e.Lock.Since.Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Unwrap() error { return ErrHeld }

// FencedError is returned for a write that was refused because a holder with a greater token has written.
type FencedError struct {
	Key    string
	Token  Token // the token of the refused write
	Stored Token // the token of the write that was accepted before

	// Unknown reports whether the write may have been stored all the same, before that of the greater token. It is true if the
	// acknowledgement was lost, or the write was refused while the leader changed, and several other holders wrote before the key was read
	// back.
	Unknown bool
}

// Error names the key and both tokens.
func (e *FencedError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("kvlock: write of %q with token %s may have been stored: it was not acknowledged, and %s has written since",
			e.Key, e.Token, e.Stored)
	}
	return fmt.Sprintf("kvlock: write of %q with token %s is refused: %s has written", e.Key, e.Token, e.Stored)
}

// Unwrap makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Unwrap() error { return ErrFenced }
