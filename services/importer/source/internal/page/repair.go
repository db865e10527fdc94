package page

import "strings"

// repair makes JSON of a script that is nearly so. It mends the mistakes that many pages have: line breaks, tabs and quotes
// in strings that are not escaped, escapes that JSON does not have, comments, and commas behind the last value. A script that
// is JSON stays what it means.
func repair(script string) string {
	var b strings.Builder
	inText := false
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case inText && c == '\\':
			if size := escape(script[i:]); size > 0 {
				b.WriteString(script[i : i+size])
				i += size - 1
			}
		case c == '"' && inText && !endsText(script[i+1:]):
			b.WriteString(`\"`)
		case c == '"':
			inText = !inText
			b.WriteByte(c)
		case inText && c == '\n':
			b.WriteString(`\n`)
		case c < ' ':
			b.WriteByte(' ')
		case inText:
			b.WriteByte(c)
		case c == '/' && comment(script[i:]) > 0:
			i += comment(script[i:]) - 1
		case c == ',' && endsList(script[i+1:]):
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escape returns the length of the escape at the start of a text, 0 for one that JSON does not have.
func escape(text string) int {
	switch {
	case len(text) < 2 || strings.IndexByte(`"\/bfnrtu`, text[1]) < 0:
		return 0
	case text[1] != 'u':
		return 2
	case len(text) >= 6 && strings.Trim(text[2:6], "0123456789abcdefABCDEF") == "":
		return 6
	default:
		return 0
	}
}

// endsText reports whether a quote that comes before the text ends a string: what follows goes on with the list.
func endsText(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	if after, ok := strings.CutPrefix(text, ","); ok {
		after = strings.TrimLeft(after, " \t\r\n")
		return after == "" || strings.IndexByte(`"{[]}-0123456789/`, after[0]) >= 0
	}
	return text == "" || strings.IndexByte(`:]}/`, text[0]) >= 0
}

// endsList reports whether a comma that comes before the text has no value behind it.
func endsList(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n,")
	return text == "" || text[0] == '}' || text[0] == ']'
}

// comment returns the length of the comment at the start of a text, 0 where there is none.
func comment(text string) int {
	end, size := "\n", 0
	switch {
	case strings.HasPrefix(text, "/*"):
		end, size = "*/", 2
	case !strings.HasPrefix(text, "//"):
		return 0
	}
	if i := strings.Index(text[size:], end); i >= 0 {
		return size + i + len(end)
	}
	return len(text)
}
