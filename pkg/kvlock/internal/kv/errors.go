package kv

import (
	"errors"
	"fmt"
	"strings"
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

// CheckKey refuses a text that is no KV key of NATS (ADR-8), in particular the wildcards '*' and '>'.
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

// CheckPrefix refuses a prefix that begins no key. The empty prefix stands for all keys.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(prefix)
}
