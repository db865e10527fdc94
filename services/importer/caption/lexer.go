package caption

import (
	"strings"
	"time"
)

type tokenKind int

const (
	textToken tokenKind = iota
	startToken
	endToken
	timeToken
)

// token is a piece of cue text.
type token struct {
	kind       tokenKind
	at         time.Duration // timeToken
	annotation string        // startToken, as it is written
	classes    string        // startToken, as they are written, separated by full stops
	name       string        // startToken, endToken
	text       string        // textToken
}

// lexer takes the text of a WebVTT cue apart (section 6.4 of the rules, the "cue text tokenizer"). A tag goes from "<" to
// the next ">" whatever is between, or to the end.
type lexer struct {
	rest string
	work int // bytes looked at, for the tests
}

// next returns the next token, and false at the end. Tags that hold a bad timestamp are left out.
func (x *lexer) next() (token, bool) {
	for x.rest != "" {
		if x.rest[0] != '<' {
			text, rest := x.rest, ""
			if i := strings.IndexByte(text, '<'); i >= 0 {
				text, rest = text[:i], text[i:]
			}
			x.work += len(text)
			x.rest = rest
			return token{kind: textToken, text: unescape(text)}, true
		}
		body, rest, _ := strings.Cut(x.rest[1:], ">")
		x.work += len(x.rest) - len(rest)
		x.rest = rest
		if t, ok := tag(body); ok {
			return t, true
		}
	}
	return token{}, false
}

// tag reads what is between "<" and ">".
func tag(body string) (token, bool) {
	if body != "" && body[0] == '/' {
		return token{kind: endToken, name: body[1:]}, true
	}
	if body != "" && body[0] >= '0' && body[0] <= '9' {
		s := scanner{text: []byte(body)}
		at, ok := s.stamp()
		return token{kind: timeToken, at: at}, ok && s.pos == len(body)
	}
	t := token{kind: startToken, name: body}
	if i := strings.IndexAny(body, " \t\n\f"); i >= 0 {
		t.name, t.annotation = body[:i], body[i:]
	}
	t.name, t.classes, _ = strings.Cut(t.name, ".")
	return t, true
}
