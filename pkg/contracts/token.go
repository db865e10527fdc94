package contracts

import "github.com/expediter-io/expediter/pkg/worker/token"

// MaxID is the longest id, in bytes, that may become part of a subject or a key. Its encoded form has at most
// 428 bytes: a key of two ids and two names stays below the 1,024 bytes that kvlock allows, and every
// subject far below the server's control line of 4,096.
const MaxID = token.MaxID

// EncodeToken turns any id into one NATS subject token that is also a valid part of a KV key.
//
// An id made only of A-Z, a-z, 0-9, '_' and '-' is returned as it is; everything else becomes '=' followed by
// its bytes in base64url without padding (RFC 4648 §5). The mapping is injective and case-preserving, and
// DecodeToken undoes it. A result never holds a dot, a wildcard, a slash or a space and is never empty.
//
// It returns ErrEmptyToken for "" and ErrTokenTooLong for more than MaxID bytes; the error says the length
// and never repeats the id.
func EncodeToken(id string) (string, error) {
	return token.Encode(id)
}

// DecodeToken returns the id that EncodeToken made the token from. A token that EncodeToken would never have
// made (padding, another alphabet, the encoded form of an id that needs no encoding) is ErrTokenMalformed.
func DecodeToken(encoded string) (string, error) {
	return token.Decode(encoded)
}
