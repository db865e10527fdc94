package contracts

import (
	"encoding/base64"
	"fmt"
)

const (
	// MaxID is the longest id, in bytes, that may become part of a subject or a key. Its encoded form has at most
	// 428 bytes: a key of two ids and two names stays below the 1,024 bytes that kvlock allows, and every
	// subject far below the server's control line of 4,096.
	MaxID = 320

	// encodedMark starts every encoded token. It is outside the safe alphabet, so no id that is used as it is
	// can look like the encoded form of another.
	encodedMark = '='
)

var tokenEncoding = base64.RawURLEncoding.Strict()

// EncodeToken turns any id into one NATS subject token that is also a valid part of a KV key.
//
// An id made only of A-Z, a-z, 0-9, '_' and '-' is returned as it is; everything else becomes '=' followed by
// its bytes in base64url without padding (RFC 4648 §5). The mapping is injective and case-preserving, and
// DecodeToken undoes it. A result never holds a dot, a wildcard, a slash or a space and is never empty.
//
// It returns ErrEmptyToken for "" and ErrTokenTooLong for more than MaxID bytes; the error says the length
// and never repeats the id.
func EncodeToken(id string) (string, error) {
	switch {
	case id == "":
		return "", fmt.Errorf("%w: give at least one byte", ErrEmptyToken)
	case len(id) > MaxID:
		return "", fmt.Errorf("%w: %d bytes, at most %d", ErrTokenTooLong, len(id), MaxID)
	case isSafeToken(id):
		return id, nil
	}
	return string(encodedMark) + tokenEncoding.EncodeToString([]byte(id)), nil
}

// DecodeToken returns the id that EncodeToken made the token from. A token that EncodeToken would never have
// made (padding, another alphabet, the encoded form of an id that needs no encoding) is ErrTokenMalformed.
func DecodeToken(token string) (string, error) {
	if isSafeToken(token) {
		if len(token) > MaxID {
			return "", fmt.Errorf("%w: %d bytes, at most %d", ErrTokenTooLong, len(token), MaxID)
		}
		return token, nil
	}
	if token == "" || token[0] != encodedMark {
		return "", fmt.Errorf("%w: want [A-Za-z0-9_-]+ or '=' and base64url", ErrTokenMalformed)
	}
	if len(token) > 1+tokenEncoding.EncodedLen(MaxID) {
		return "", fmt.Errorf("%w: token of %d bytes", ErrTokenTooLong, len(token))
	}
	// The decoder skips line breaks, which EncodeToken never writes.
	if !isSafeToken(token[1:]) {
		return "", fmt.Errorf("%w: '=' must be followed by base64url", ErrTokenMalformed)
	}
	id, err := tokenEncoding.DecodeString(token[1:])
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTokenMalformed, err)
	}
	if isSafeToken(string(id)) {
		return "", fmt.Errorf("%w: the id needs no encoding", ErrTokenMalformed)
	}
	return string(id), nil
}

func isSafeToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		safe := c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !safe {
			return false
		}
	}
	return s != ""
}
