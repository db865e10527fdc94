package subject

import "strings"

// Tree finds the values of patterns under which a literal subject falls, in a time that grows with the tokens of the subject and not
// with the number of patterns. The zero value is empty.
type Tree[T any] struct {
	next map[string]*Tree[T] // by the next token, "*" and ">" among them
	held bool                // a pattern ends here
	here T                   // its value
}

// Add adds a valid pattern. One that was added before gets the new value.
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

// Find returns the value of a pattern under which a literal subject falls, the more literal one of two. It does not allocate.
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
