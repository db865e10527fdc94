package subject

import (
	"fmt"
	"strings"
)

// MaxName bounds, in bytes, the names that programs choose: providers, channels, types.
const MaxName = 64

// Part is one token of a subject or a key.
type Part struct {
	name, value string
	chosen      bool
}

// ID returns a part that comes from outside. Join encodes it.
func ID(name, value string) Part { return Part{name: name, value: value} }

// Name returns a part that a program chose. The value must itself be a token of at most MaxName bytes.
func Name(name, value string) Part { return Part{name: name, value: value, chosen: true} }

// Join appends the parts to the prefix, separated by dots. The error names the part.
func Join(prefix string, parts ...Part) (string, error) {
	var b strings.Builder
	room := len(prefix)
	for _, p := range parts {
		room += 1 + len(p.value)
	}
	b.Grow(room)
	b.WriteString(prefix)
	for _, p := range parts {
		text, err := EncodeToken(p.value)
		if err == nil && p.chosen && (text != p.value || len(text) > MaxName) {
			err = fmt.Errorf("%w: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", ErrMalformed, MaxName)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(text)
	}
	return b.String(), nil
}
