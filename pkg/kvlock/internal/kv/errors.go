package kv

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Package kvlock publishes and explains these.
var (
	ErrClosed      = errors.New("kvlock: closed")
	ErrInvalidKey  = errors.New("kvlock: invalid key")
	ErrTooLarge    = errors.New("kvlock: value is too large")
	ErrUnavailable = errors.New("kvlock: JetStream unavailable")
)

// MaxKeyBytes bounds a key.
const MaxKeyBytes = 1024

// reservedPrefix begins the keys that are not for callers (ADR-8).
const reservedPrefix = "_kv"

// CheckKey refuses what is not a KV key as NATS has it (ADR-8), in particular the wildcards '*' and '>'.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %d bytes, the limit is %d: hash it", ErrInvalidKey, len(key), MaxKeyBytes)
	case strings.HasPrefix(key, reservedPrefix):
		return fmt.Errorf("%w %q: keys that begin with %q are reserved", ErrInvalidKey, key, reservedPrefix)
	case key[0] == '.' || key[len(key)-1] == '.' || strings.Contains(key, ".."):
		return fmt.Errorf("%w %q: a dot separates two parts, none of which is empty", ErrInvalidKey, key)
	}
	for i := range len(key) {
		if c := key[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-/_=.", c) >= 0) {
			return fmt.Errorf("%w %q: byte %d is %q, only letters, digits and -/_=. are allowed: encode or hash it", ErrInvalidKey, key, i, c)
		}
	}
	return nil
}

// CheckPrefix refuses what begins no key. The empty prefix is of all keys.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(prefix)
}

// Codes of the server that the client has no names for.
const (
	codeAccountFull     = 10002
	codeMemoryFull      = 10028
	codeStorageFull     = 10047
	codeMessageTooLarge = 10054
	codeInProcess       = 10158 // the same message was sent before, and is being stored
	codeStoreFailed     = 10077 // whatever the reason; the limits of the stream are among them
)

// isRefused reports whether the server compared revisions and found another one.
func isRefused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// IsPermanent reports whether sending the same again cannot help: the message itself, the bucket's settings or its limits
// are at fault. All that a change of leader can cause is left out.
func IsPermanent(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) {
		return true
	}
	var api *jetstream.APIError
	return isFull(err) || errors.As(err, &api) && api.Code >= 400 && api.Code < 500 && api.ErrorCode != codeInProcess && !isRefused(err)
}

// isTooLarge reports whether the server takes no message of this size.
func isTooLarge(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == codeMessageTooLarge
}

// isFull reports whether the bucket, the account or the server stores nothing more.
func isFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case codeAccountFull, codeMemoryFull, codeStorageFull:
		return true
	case codeStoreFailed:
		return strings.HasPrefix(api.Description, "maximum ")
	default:
		return false
	}
}
