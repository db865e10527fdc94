package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// damaged is the property under which an object has the faults found within it.
const damaged = "\x00damaged"

// maxNesting bounds objects and lists within each other, as encoding/json does.
const maxNesting = 10_000

// maxFaults bounds the faults of a script that are described.
const maxFaults = 10

// lenient reads a script that is nearly JSON. Comments, commas after the last value, line breaks within strings, single
// quotes and names without quotes have one meaning, so they are no faults. A value that is no JSON, such as NaN, or that
// can be read in two ways, is left out as a fault. So a broken ingredient is missing, and never has a wrong amount.
type lenient struct {
	text   string
	at     int
	open   []byte              // the first characters of the values around the offset
	count  int                 // of faults
	faults []string            // the first maxFaults
	place  func(at int) string // returns the line and column of an offset
}

var (
	// spaces matches spaces, comments, and what hides data from old browsers and XML parsers.
	spaces = lazyregexp.New(`^(?:[\s\p{Z}\p{Cc}\x{feff}]|(?://|/\*)?\s*(?:<!--|-->|<!\[CDATA\[|\]\]>)\s*(?:\*/)?|//[^\n]*|` +
		`(?s:/\*.*?(?:\*/|$)))*`)

	// member matches the name of a field with its colon.
	member = lazyregexp.New(`^(?:"((?:[^"\\\n]|\\.){0,100})"|'([^'\n]{0,100})'|([@$\w]+))\s*:`)

	// follows matches the text after a comma that continues a list, and bare a value without quotes.
	follows = lazyregexp.New(`^(?:["'{\[\],]|-?\w[\w.+-]*\s*[,\]]|$)`)
	bare    = lazyregexp.New(`^[^\s,:"'{}\[\]]*`)

	// escape matches an escape of JSON, or of JavaScript alone.
	escape = lazyregexp.New(`^\\(?:["\\/bfnrt]|u[[:xdigit:]]{4}|x([[:xdigit:]]{2}))`)
)

// values reads the values of the script.
func (l *lenient) values() (out []any) {
	outside := false
	for l.space(); l.at < len(l.text); l.space() {
		if c := l.text[l.at]; c == '{' || c == '[' {
			value, _ := l.value("", false)
			out, outside = append(out, value), false
			continue
		} else if !outside && len(out) > 0 && strings.IndexByte(",;()", c) < 0 {
			outside = true
			l.faultf(l.at, "text outside of the data")
			if last, ok := out[len(out)-1].(map[string]any); ok {
				last[damaged] = l.faults[len(l.faults)-1]
			}
		}
		l.at++
	}
	return out
}

func (l *lenient) faultf(at int, format string, args ...any) {
	l.count++
	if l.count <= maxFaults {
		l.faults = append(l.faults, l.place(at)+": "+fmt.Sprintf(format, args...))
	}
}

// next returns the byte at the current offset, 0 at the end.
func (l *lenient) next() byte {
	if l.at < len(l.text) {
		return l.text[l.at]
	}
	return 0
}

// space skips spaces and comments.
func (l *lenient) space() { l.at += len(l.text[l.at:]) - len(unspaced(l.text[l.at:])) }

func unspaced(text string) string {
	if text != "" && text[0] > ' ' && text[0] < utf8.RuneSelf && strings.IndexByte("/<-]", text[0]) < 0 {
		return text
	}
	return text[len(spaces.FindString(text)):]
}

// value reads a value of a field, and what separates it from the next one. It is not ok when the value is left out.
func (l *lenient) value(field string, inObject bool) (value any, ok bool) {
	begin, faults := l.at, l.count
	l.open = append(l.open, l.next())
	defer func() { l.open = l.open[:len(l.open)-1] }()
	switch c := l.next(); {
	case len(l.open) > maxNesting:
		l.at = len(l.text)
	case c == '{':
		value, ok = l.object()
	case c == '[':
		value, ok = l.list(field), true
	case c == '"', c == '\'':
		if value, ok = l.string(c, inObject); !ok && member.MatchString(l.text[l.at:]) {
			l.faultf(begin, "a text of %q does not end", field)
			return nil, false
		}
	default:
		word := bare.FindString(l.text[l.at:])
		l.at += len(word)
		ok = l.at < len(l.text) && decodeInto(word, &value)
	}
	l.space()
	switch c := l.next(); {
	case c == 0 || c == ',' || c == '}' || c == ']':
	case inObject && member.MatchString(l.text[l.at:]), !inObject && len(l.open) > 1 && strings.IndexByte(`"'{[`, c) >= 0:
		l.faultf(l.at, "a comma is missing in %q", field)
	case len(l.open) > 1:
		ok = false
		l.skip()
	}
	if !ok && faults == l.count {
		l.faultf(begin, "%q has %.40q, which cannot be read as JSON", field, strings.TrimSpace(l.text[begin:l.at]))
	}
	return value, ok
}

// decodeInto decodes JSON, and reports whether it is valid.
func decodeInto(text string, value any) bool {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(value) == nil && !decoder.More()
}

// skip goes on to the comma or bracket that ends a value that cannot be read.
func (l *lenient) skip() {
	for nested := 0; l.at < len(l.text); l.at++ {
		switch c := l.text[l.at]; {
		case nested == 0 && (c == ',' || c == '}' || c == ']' || c == '"' && member.MatchString(l.text[l.at:])):
			return
		case c == '{' || c == '[':
			nested++
		case c == '}' || c == ']':
			nested--
		}
	}
}

func (l *lenient) object() (map[string]any, bool) {
	out, before, key := map[string]any{}, l.count, ""
	defer func() {
		if l.count > before {
			out[damaged] = strings.Join(l.faults[min(before, maxFaults-1):], "; ")
		}
	}()
	for l.at++; ; {
		l.space()
		switch l.next() {
		case 0:
			l.faultf(l.at, "the data ends in the middle")
			return out, true
		case ']':
			l.faultf(l.at, "a } is missing")
			return out, true
		case '}':
			l.at++
			return out, true
		case ',':
			l.at++
			continue
		}
		m := member.FindStringSubmatch(l.text[l.at:])
		if m == nil {
			if _, isNumber := out[key].(json.Number); isNumber && unicode.IsDigit(rune(l.next())) { // 1,5
				delete(out, key)
			}
			l.faultf(l.at, "the name of a field is missing after %q", key)
			l.skip()
			continue
		}
		if key = m[2] + m[3]; key == "" && !decodeInto(`"`+m[1]+`"`, &key) {
			key = m[1]
		}
		l.at += len(m[0])
		l.space()
		if value, ok := l.value(key, true); ok {
			out[key] = value
		}
	}
}

func (l *lenient) list(field string) []any {
	out := []any{}
	for l.at++; ; {
		l.space()
		switch c := l.next(); {
		case c == 0:
			l.faultf(l.at, "the data ends in the middle of %q", field)
			return out
		case c == '}' && l.mistyped():
			l.faultf(l.at, "a } is typed for the ] after %q", field)
			l.at++
			return out
		case c == '}', member.MatchString(l.text[l.at:]):
			l.faultf(l.at, "a ] is missing after %q", field)
			return out
		case c == ']':
			l.at++
			return out
		case c == ',':
			l.at++
			continue
		}
		if value, ok := l.value(field, false); ok {
			out = append(out, value)
		}
	}
}

// mistyped reports whether the } at the current offset can only end the list: the next field is one of the object around it,
// because nothing else around can have a field.
func (l *lenient) mistyped() bool {
	rest, comma := strings.CutPrefix(strings.TrimSpace(l.text[l.at+1:]), ",")
	n := len(l.open)
	return comma && n > 1 && l.open[n-2] == '{' && (n == 2 || l.open[n-3] == '[') && member.MatchString(strings.TrimSpace(rest))
}

// string reads a string. Quotes within it are a part of it when they stand in pairs or for inches. It is not ok when the
// quotes or a backslash have two readings, or when the string does not end.
func (l *lenient) string(quote byte, inObject bool) (text string, ok bool) {
	var b strings.Builder // the content as JSON
	begin, open, sound := l.at+1, false, true
	for l.at++; l.at < len(l.text); l.at++ {
		switch c := l.text[l.at]; {
		case c == quote && l.ends(inObject, open):
			l.at++
			ok = sound && !open && decodeInto(`"`+b.String()+`"`, &text)
			return text, ok
		case c == quote && member.MatchString(l.text[l.at:]):
			if !inObject || strings.ContainsAny(l.text[begin:l.at], "{}[]") { // nobody knows of what the field is
				l.at = len(l.text)
			}
			return "", false
		case c == quote:
			inner, good := l.inner(begin, open)
			if open, sound = inner, sound && good; c == '"' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		case c == '\\':
			sound = l.escaped(&b) && sound
		case c == '"':
			b.WriteString(`\"`)
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ':
			b.WriteByte(' ')
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// ends reports whether the quote at the current offset ends a string, because the text continues the list or object.
func (l *lenient) ends(inObject, open bool) bool {
	after := l.text[l.at+1:]
	rest := unspaced(after)
	if rest == "" || rest[0] == '}' || rest[0] == ']' {
		return true
	}
	tail, comma := strings.CutPrefix(rest, ",")
	switch tail = unspaced(tail); {
	case inObject:
		return comma && (tail == "" || strings.IndexByte("},", tail[0]) >= 0) || member.MatchString(tail)
	case comma:
		return follows.MatchString(tail)
	default: // a comma is missing, unless the quotes are a pair, or doubled as in CSV
		return !open && len(rest) < len(after) && rest[0] == l.text[l.at]
	}
}

// inner judges a quote within the string from begin on: whether it begins a pair, and whether it has one meaning.
func (l *lenient) inner(begin int, open bool) (opens, good bool) {
	before, _ := utf8.DecodeLastRuneInString(l.text[begin:l.at])
	after, _ := utf8.DecodeRuneInString(l.text[l.at+1:])
	switch {
	case l.text[l.at] == '\'' && unicode.IsLetter(before) && (!open || unicode.IsLetter(after)): // an apostrophe
		return open, true
	case open:
		return false, !unicode.IsSpace(before)
	case unicode.IsNumber(before): // inches
		return false, true
	default:
		return true, !unicode.IsLetter(before) && !unicode.IsSpace(after)
	}
}

// escaped reads the escape at the current offset. It is not sound when the characters have two readings, as in 1\2.
func (l *lenient) escaped(b *strings.Builder) (sound bool) {
	rest := l.text[l.at:]
	if m := escape.FindStringSubmatch(rest); m != nil {
		b.WriteString(strings.Replace(m[0], `\x`, `\u00`, len(m[1])))
		l.at += len(m[0]) - 1
		return true
	}
	after, _ := utf8.DecodeRuneInString(rest[1:])
	before, _ := utf8.DecodeLastRuneInString(l.text[:l.at])
	switch {
	case unicode.IsNumber(after), after == 'u', after == 'x', unicode.IsNumber(before) && unicode.IsSpace(after):
		return false
	case unicode.IsLetter(after):
		l.faultf(l.at, "a backslash that is no escape was kept")
		b.WriteString(`\\`)
	}
	return true // as JavaScript does, the character alone
}
