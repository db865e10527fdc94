package subject

import (
	"encoding/base64"
	"errors"
	"fmt"
)

var (
	// ErrEmpty is returned when an id is empty.
	ErrEmpty = errors.New("empty id")

	// ErrMalformed is returned when a token was not made by EncodeToken.
	ErrMalformed = errors.New("malformed token")

	// ErrTooLong is returned when an id is longer than MaxID bytes.
	ErrTooLong = errors.New("id too long")
)

const (
	// MaxID is the longest id, in bytes, that may become part of a subject or a key. Its encoded form has at most 428 bytes,
	// so that a subject of a few tokens stays far below the limit of the server's protocol line, 4,096 bytes.
	MaxID = 320

	// mark starts every encoded token. It is outside the safe alphabet, so an id that is used unchanged cannot equal the encoded form of
	// another.
	mark = '='
)

var encoding = base64.RawURLEncoding.Strict()

// EncodeToken turns any id into one NATS subject token that is also a valid part of a KV key.
//
// An id made only of A-Z, a-z, 0-9, '_' and '-' is returned unchanged; any other id becomes '=' followed by its bytes in base64url without
// padding (RFC 4648 §5). The mapping is injective and case-preserving, and DecodeToken undoes it. A result never holds a dot, a wildcard, a
// slash or a space and is never empty.
//
// It returns ErrEmpty for "" and ErrTooLong for more than MaxID bytes; the error has the length and never the id.
func EncodeToken(id string) (string, error) {
	switch {
	case id == "":
		return "", fmt.Errorf("%w: give at least one byte", ErrEmpty)
	case len(id) > MaxID:
		return "", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, len(id), MaxID)
	case IsSafeToken(id):
		return id, nil
	}
	return string(mark) + encoding.EncodeToString([]byte(id)), nil
}

// DecodeToken returns the id from which EncodeToken made the token. A token that EncodeToken would never have made (padding,
// another alphabet, the encoded form of an id that needs no encoding) is ErrMalformed.
func DecodeToken(token string) (string, error) {
	if IsSafeToken(token) {
		if len(token) > MaxID {
			return "", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, len(token), MaxID)
		}
		return token, nil
	}
	if token == "" || token[0] != mark {
		return "", fmt.Errorf("%w: want [A-Za-z0-9_-]+ or '=' and base64url", ErrMalformed)
	}
	if len(token) > 1+encoding.EncodedLen(MaxID) {
		return "", fmt.Errorf("%w: token of %d bytes", ErrTooLong, len(token))
	}
	// The decoder skips line breaks, which EncodeToken never writes.
	if !IsSafeToken(token[1:]) {
		return "", fmt.Errorf("%w: '=' must be followed by base64url", ErrMalformed)
	}
	id, err := encoding.DecodeString(token[1:])
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if IsSafeToken(string(id)) {
		return "", fmt.Errorf("%w: the id needs no encoding", ErrMalformed)
	}
	return string(id), nil
}

// IsSafeToken reports whether an id is itself a token: not empty, and made only of A-Z, a-z, 0-9, '_' and '-'.
func IsSafeToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		safe := c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !safe {
			return false
		}
	}
	return s != ""
}

// IsName reports whether a text is itself a token of at most the given number of bytes.
func IsName(s string, most int) bool { return len(s) <= most && IsSafeToken(s) }
