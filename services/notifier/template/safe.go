package template

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"text/template/parse"
	"unicode"
)

// Link is an address, or a part of one, that may stand in a text as it is.
type Link string

// breaker is invisible, and ends what mail programs take for a link.
const breaker = "\u200b"

var (
	// hostDot is a dot, or what browsers take for one, before what could be a label of a host.
	hostDot = regexp.MustCompile(`(\S)([.\x{3002}\x{ff0e}\x{ff61}])([\p{L}\p{N}])`)

	// number is what has dots and is no host.
	number = regexp.MustCompile(`^[+-]?[0-9]+([.,][0-9]+)*([eE][+-]?[0-9]+)?$`)
)

// inert is put behind everything that a template prints: what it gets cannot become a link by itself, and has no control
// characters but line breaks.
func inert(value any) any {
	if link, ok := value.(Link); ok {
		return link
	}
	if value == nil {
		return ""
	}
	if reflect.TypeOf(value).Kind() == reflect.Bool {
		return value
	}
	text := fmt.Sprint(value)
	if number.MatchString(text) && strings.Count(text, ".") < 2 {
		return text
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r == '\u2028', r == '\u2029', unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Bidi_Control, r): // would show the text in another order than it is read
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	text = strings.ReplaceAll(text, "://", ":"+breaker+"//")
	// Twice, because matches do not overlap: the label between two dots may be one character.
	for range 2 {
		text = hostDot.ReplaceAllString(text, "$1$2"+breaker+"$3")
	}
	return text
}

// oneLine is a text without line breaks, as headers want it, and without an end that nobody sees.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}), " ")
	if runes := []rune(text); len(runes) > maxSubject {
		text = string(runes[:maxSubject-1]) + "…"
	}
	return text
}

// linker returns the function that makes links of what payloads hold.
func linker(hosts []string) func(value any) Link {
	return func(value any) Link {
		text, ok := value.(string)
		u, err := url.Parse(text)
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

// path returns one segment of a path, and nothing that could be more than that.
func path(value any) Link {
	return Link(strings.ReplaceAll(url.PathEscape(fmt.Sprint(value)), ".", "%2E"))
}

// guard puts the function behind every pipeline that prints.
func guard(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			guard(child)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			name := parse.NewIdentifier(inertName).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{name}})
		}
	case *parse.IfNode:
		guard(n.List)
		guard(n.ElseList)
	case *parse.RangeNode:
		guard(n.List)
		guard(n.ElseList)
	case *parse.WithNode:
		guard(n.List)
		guard(n.ElseList)
	}
}
