package kvlock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

var (
	// ErrClosed is returned when the Flight was closed before or during the call.
	ErrClosed = errors.New("kvlock: flight is closed")

	// ErrFailed is returned to those who wait for a computation that failed in another process.
	// It is always wrapped in a [FailedError] that carries the reason.
	ErrFailed = errors.New("kvlock: computation failed")

	// ErrFenced is returned when somebody with a greater token has written. It is always wrapped in a [FencedError].
	ErrFenced = errors.New("kvlock: fenced off")

	// ErrHeld is returned when a lock is held by somebody else. It is always wrapped in a [HeldError] that says by whom.
	ErrHeld = errors.New("kvlock: lock is held")

	// ErrInvalidInputs is returned by [Work.Key] for inputs that have no canonical form. No later try will do better.
	ErrInvalidInputs = errors.New("kvlock: inputs have no key")

	// ErrInvalidKey is returned when a key is empty, too long, or has a character that a NATS KV key may not have.
	ErrInvalidKey = errors.New("kvlock: invalid key")

	// ErrInvalidRef is returned by [Flight.Resume] for a text that is not the reference of a claim. Nothing was sent, and
	// no later try will do better.
	ErrInvalidRef = errors.New("kvlock: invalid reference of a claim")

	// ErrLost is returned when a claim is no longer held: it expired, was taken over, or its key was invalidated.
	// Nothing written under it from now on is accepted.
	ErrLost = errors.New("kvlock: claim lost")

	// ErrMismatch is returned when the key is in use for another input: its fingerprint differs from the caller's.
	// The value is withheld, because it answers another question.
	ErrMismatch = errors.New("kvlock: key is in use for another input")

	// ErrNoValue is returned for a key that the function of [Flight.DoMany] was asked for and left out.
	ErrNoValue = errors.New("kvlock: function returned no value for the key")

	// ErrReleased is the cause with which the context of a [Lease] ends that its holder released.
	ErrReleased = errors.New("kvlock: lock released")

	// ErrTaken is returned when a key cannot be claimed because it is pending, done or failed.
	// It is always wrapped in a [TakenError] that carries the slot.
	ErrTaken = errors.New("kvlock: key is taken")

	// ErrNotFound is returned by the function of [Flight.Do], wrapped or not, to say that there is nothing to be had.
	// That is an answer, and no failure: it is kept for DoOptions.NegativeTTL, and all callers get it, in whatever
	// process, in a [NotFoundError].
	ErrNotFound = errors.New("kvlock: there is nothing")

	// ErrRecursive is returned when the function of Do asks for the key that it computes: it would wait for itself.
	ErrRecursive = errors.New("kvlock: function asks for the key that it computes")

	// ErrTooLarge is returned when a value has more bytes than Config.MaxValue, or than the server takes in one message.
	// Nothing was stored.
	ErrTooLarge = errors.New("kvlock: value is too large")

	// ErrUnavailable is returned when JetStream could not be reached within the bound of the operation, or stores
	// nothing more because the bucket is full.
	// A write that returns it may nevertheless have been applied, unless the error says that it was not sent.
	ErrUnavailable = errors.New("kvlock: JetStream unavailable")

	// ErrVersion is returned when a key holds what a newer version of this package wrote. It is left as it is.
	ErrVersion = errors.New("kvlock: record of a newer version")
)

// KeysError says for which keys a call for many failed, and why. errors.Is and errors.As look at all of them.
type KeysError map[string]error

// Error names how many keys failed, and the first few of them.
func (e KeysError) Error() string {
	const shown = 3
	keys := slices.Sorted(maps.Keys(e))
	var text strings.Builder
	fmt.Fprintf(&text, "kvlock: %d keys failed", len(keys))
	for i, key := range keys[:min(len(keys), shown)] {
		fmt.Fprintf(&text, "%s %q: %v", []string{":", ";"}[min(i, 1)], key, e[key])
	}
	if len(keys) > shown {
		text.WriteString("; ...")
	}
	return text.String()
}

// Unwrap returns the errors, by their keys in order.
func (e KeysError) Unwrap() []error {
	all := make([]error, 0, len(e))
	for _, key := range slices.Sorted(maps.Keys(e)) {
		all = append(all, e[key])
	}
	return all
}

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

// HeldError says who holds a lock, and who waits for it.
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

// NotFoundError says that the function for Key found that there is nothing.
type NotFoundError struct {
	Key    string
	Reason string // the text of the function's error
	Owner  string // who ran it

	err error // of the function, where it ran
}

// Error names the key and the reason.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("kvlock: nothing for %q: %s", e.Key, e.Reason)
}

// Unwrap makes errors.Is(err, ErrNotFound) true, and leads to the function's error in the process where it ran.
func (e *NotFoundError) Unwrap() error {
	if e.err != nil {
		return e.err
	}
	return ErrNotFound
}

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
