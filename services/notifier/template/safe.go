package template

import (
	"bytes"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	text "text/template"
	"text/template/parse"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// Link is an address, or a part of one, that is safe unchanged in a text.
type Link string

const (
	// breaker is invisible, and ends a text that mail programs take for a link.
	breaker = "\u200b"

	// mark stands in a text for the breaker or the space of its channel. It is a noncharacter that values cannot
	// contain.
	mark = '\ufdd0'
)

var (
	// hostDot is a dot, or a character that browsers take for one, before a possible label of a host.
	hostDot = lazyregexp.New(`(\S)([.\x{3002}\x{ff0e}\x{ff61}])([\p{L}\p{N}])`)

	// host finds a possible host in a word: a dot before a label that begins with a letter and has another character. So prices,
	// dates and "p.m." do not match.
	host = lazyregexp.New(`\S[.\x{3002}\x{ff0e}\x{ff61}]\p{L}[\p{L}\p{M}\p{N}\p{Cf}_-]`)

	// word matches a text that a program that looks for links takes as a whole.
	word = lazyregexp.New(`\S+`)
)

// inert returns the function that is applied to each value of events and users that a template prints. Its result contains
// separator, so that it cannot become a link by itself, and has no control characters except line breaks.
func inert(separator string) func(value any) (any, error) {
	return func(value any) (any, error) {
		switch value := value.(type) {
		case Link, Plain, bool:
			return value, nil
		case nil:
			return "", nil
		}
		shown, err := short(fmt.Sprint(value))
		if err != nil {
			return "", err
		}
		shown = strings.Map(func(r rune) rune {
			switch {
			case r == '\n', r == '\t':
				return r
			case r == '\u2028', r == '\u2029', unicode.IsControl(r):
				return ' '
			case r == mark, unicode.Is(unicode.Bidi_Control, r): // would change the shown order of the text
				return -1
			}
			return r
		}, strings.ToValidUTF8(shown, "\ufffd"))
		if separator == "" {
			return shown, nil
		}
		return word.ReplaceAllStringFunc(shown, func(word string) string { return breakLinks(word, separator) }), nil
	}
}

// breakLinks puts a separator into a word that could be a link.
func breakLinks(word, separator string) string {
	_, err := netip.ParseAddr(strings.Trim(word, ".,;:!?()"))
	isLink := strings.Contains(word, "://") || host.MatchString(word) || err == nil && strings.Contains(word, ".")
	if !isLink {
		return word
	}
	word = strings.ReplaceAll(word, "://", ":"+separator+"//")
	// Twice, because matches do not overlap: the label between two dots may be one character.
	for range 2 {
		word = hostDot.ReplaceAllString(word, "$1$2"+separator+"$3")
	}
	return word
}

// oneLine returns a text without line breaks, as headers require, cut after maxSubject characters.
func oneLine(lines string) string {
	lines = strings.Join(strings.FieldsFunc(lines, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}), " ")
	if runes := []rune(lines); len(runes) > maxSubject {
		lines = string(runes[:maxSubject-1]) + "…"
	}
	return lines
}

// linker returns the function that makes a Link of a value of a payload.
func linker(hosts []string) func(value any) Link {
	return func(value any) Link {
		address, ok := value.(string)
		u, err := url.Parse(address)
		if !ok || err != nil || u.Scheme != "https" || u.User != nil || u.Opaque != "" {
			return ""
		}
		host := strings.ToLower(u.Hostname())
		for _, allowed := range hosts {
			allowed = strings.ToLower(allowed)
			if host == allowed || strings.HasSuffix(host, "."+allowed) {
				return Link(u.String())
			}
		}
		return ""
	}
}

// path returns a value as exactly one segment of a path.
func path(value any) (Link, error) {
	segment, err := short(strings.NewReplacer(".", "%2E", ":", "%3A").Replace(url.PathEscape(fmt.Sprint(value))))
	return Link(segment), err
}

// bounded is the output of one execution, which fails when it is too long, has too many steps or takes too long.
type bounded struct {
	bytes.Buffer

	steps int
	until time.Time
}

func newBounded() *bounded { return &bounded{until: time.Now().Add(MaxTime)} }

// Write is called for each text and value, and, by way of stepped, for each turn of a loop and each template.
func (b *bounded) Write(data []byte) (int, error) {
	b.steps++
	switch {
	case b.steps > MaxSteps:
		return 0, ErrTooManySteps
	case b.Len()+len(data) > MaxText:
		return 0, ErrTooLong
	case time.Now().After(b.until):
		return 0, ErrTooSlow
	}
	return b.Buffer.Write(data)
}

// stepped puts an empty text, which is written like any other, before the nodes of a list.
func stepped(list *parse.ListNode) {
	if list != nil {
		list.Nodes = append([]parse.Node{&parse.TextNode{NodeType: parse.NodeText, Pos: list.Pos}}, list.Nodes...)
	}
}

// wide matches a verb whose width or precision is large, or is an argument.
var wide = lazyregexp.New(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

// boundedFunctions returns replacements of the functions of text/template that make texts of any length.
func boundedFunctions() map[string]any {
	return map[string]any{
		"html": within(text.HTMLEscaper), "js": within(text.JSEscaper), "urlquery": within(text.URLQueryEscaper),
		"print": within(fmt.Sprint), "println": within(fmt.Sprintln),
		"printf": func(format string, args ...any) (string, error) {
			total, err := sizeOf(args)
			if err != nil || wide.MatchString(format) || strings.Count(format, "%")*(total+1000) > 16*MaxText {
				return "", ErrTooLong
			}
			return short(fmt.Sprintf(format, args...))
		},
	}
}

// within bounds the arguments and the result of a function.
func within(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		if _, err := sizeOf(args); err != nil {
			return "", err
		}
		return short(f(args...))
	}
}

func short(made string) (string, error) {
	if len(made) > MaxText {
		return "", ErrTooLong
	}
	return made, nil
}

// sizeOf returns the length of values as text, and ErrTooLong when that is more than MaxText.
func sizeOf(values []any) (total int, err error) {
	for _, value := range values {
		if total += len(fmt.Sprint(value)); total > MaxText {
			return 0, ErrTooLong
		}
	}
	return total, nil
}
