// Package subject implements the rules of NATS subjects and their wildcards, and turns any id into a token of a subject. Ids come from
// outside: without that an id with a dot, a wildcard or a space would name the data of another id.
package subject

import (
	"errors"
	"strings"
	"unicode/utf8"
)

var (
	// ErrEmptyToken is returned when a subject has no tokens, or a token without characters.
	ErrEmptyToken = errors.New("a token between dots is empty")

	// ErrSpace is returned when a subject has white space, a control character, or bytes that are not UTF-8. The server's answers in JSON
	// show such bytes as another subject.
	ErrSpace = errors.New("spaces, control characters and invalid UTF-8 are not allowed")

	// ErrWildcard is returned when a wildcard is not a whole token, or a '>' is not the last.
	ErrWildcard = errors.New("'*' must be a whole token, '>' a whole last token")
)

// CheckPattern returns an error for an invalid subject. Wildcards are allowed.
func CheckPattern(pattern string) error {
	if !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return ErrSpace
	}

	tokens := strings.Split(pattern, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return ErrEmptyToken
		case token == "*", token == ">" && i == len(tokens)-1:
		case strings.ContainsAny(token, "*>"):
			return ErrWildcard
		}
	}
	return nil
}

// CheckLiteral returns an error for an invalid subject, or one with wildcards.
func CheckLiteral(subject string) error {
	if strings.ContainsAny(subject, "*>") {
		return ErrWildcard
	}
	return CheckPattern(subject)
}

// Matches reports whether a literal subject falls under a valid pattern. It does not allocate.
func Matches(pattern, subject string) bool {
	for {
		token, patternRest, patternMore := strings.Cut(pattern, ".")
		if token == ">" {
			return subject != ""
		}

		have, subjectRest, subjectMore := strings.Cut(subject, ".")
		if token != "*" && token != have || patternMore != subjectMore {
			return false
		}

		if !patternMore {
			return have != ""
		}

		pattern, subject = patternRest, subjectRest
	}
}

// Overlap reports whether some subject falls under both valid patterns.
func Overlap(a, b string) bool {
	left, right := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(left), len(right)) {
		switch {
		case left[i] == ">" || right[i] == ">":
			return true
		case left[i] != "*" && right[i] != "*" && left[i] != right[i]:
			return false
		}
	}
	return len(left) == len(right)
}

// Covers reports whether every subject that falls under the valid pattern other falls under pattern, too.
func Covers(pattern, other string) bool {
	left, right := strings.Split(pattern, "."), strings.Split(other, ".")
	for i, token := range left {
		switch {
		case i == len(right):
			return false
		case token == ">":
			return true
		case right[i] == ">", token != "*" && token != right[i]:
			return false
		}
	}
	return len(left) == len(right)
}

// Tree finds the values of patterns under which a literal subject falls, in a time that grows with the tokens of the subject and not
// with the number of patterns. The zero value is empty.
type Tree[T any] struct {
	next map[string]*Tree[T] // by the next token, which may be "*" or ">"
	held bool                // a pattern ends here
	here T                   // its value
}

// Add adds a valid pattern. It replaces the value of a pattern that was added before.
func (t *Tree[T]) Add(pattern string, value T) {
	for token := range strings.SplitSeq(pattern, ".") {
		if t.next == nil {
			t.next = map[string]*Tree[T]{}
		}
		if t.next[token] == nil {
			t.next[token] = &Tree[T]{}
		}
		t = t.next[token]
	}
	t.held, t.here = true, value
}

// Find returns the value of the most literal pattern under which a literal subject falls. It does not allocate.
func (t *Tree[T]) Find(subject string) (value T, found bool) {
	token, rest, more := strings.Cut(subject, ".")
	for _, step := range [...]string{token, "*"} {
		next := t.next[step]
		switch {
		case next == nil:
		case !more && next.held && token != "":
			return next.here, true
		case more:
			if value, found = next.Find(rest); found {
				return value, true
			}
		}
	}
	if all := t.next[">"]; all != nil && subject != "" {
		return all.here, true
	}
	return value, false
}
