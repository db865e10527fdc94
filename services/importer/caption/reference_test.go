package caption

import (
	"html"
	"strings"
	"time"
)

// This file states the W3C's rules again, step by step over the whole text and one character at a time, as the document
// writes them. It is slow and knows no limits; the parser is compared with it.

// referenceParser is the state that the rules share: the input and a position in it.
type referenceParser struct {
	input []rune
	pos   int
}

func (p *referenceParser) atEnd() bool { return p.pos >= len(p.input) }
func (p *referenceParser) char() rune  { return p.input[p.pos] }

func (p *referenceParser) collect(in func(rune) bool) string {
	from := p.pos
	for !p.atEnd() && in(p.char()) {
		p.pos++
	}
	return string(p.input[from:p.pos])
}

func notLF(r rune) bool   { return r != '\n' }
func isLF(r rune) bool    { return r == '\n' }
func isDigit(r rune) bool { return r >= '0' && r <= '9' }
func isWhite(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\f' || r == '\r' }

// referenceCues is the "WebVTT parser algorithm". The text is valid UTF-8 without a byte order mark.
func referenceCues(text string) (cues []got, ok bool) {
	text = strings.ReplaceAll(text, "\x00", "\ufffd")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	p := &referenceParser{input: []rune(text)}
	if len(p.input) < 6 || string(p.input[:6]) != "WEBVTT" {
		return nil, false
	}
	if len(p.input) > 6 && p.input[6] != ' ' && p.input[6] != '\t' && p.input[6] != '\n' {
		return nil, false
	}
	p.collect(notLF)
	if p.atEnd() {
		return nil, true
	}
	p.pos++
	if p.atEnd() {
		return nil, true
	}
	if p.char() != '\n' {
		p.block(true)
	} else {
		p.pos++
	}
	p.collect(isLF)
	for !p.atEnd() {
		if cue := p.block(false); cue != nil {
			cues = append(cues, *cue)
		}
		p.collect(isLF)
	}
	return cues, true
}

// block is "collect a WebVTT block".
func (p *referenceParser) block(inHeader bool) *got {
	lineCount, previous := 0, p.pos
	buffer := ""
	seenEOF, seenArrow := false, false
	var cue *got
	for {
		line := p.collect(notLF)
		lineCount++
		if p.atEnd() {
			seenEOF = true
		} else {
			p.pos++
		}
		if line == "" {
			break
		}
		if strings.Contains(line, "-->") {
			if inHeader || lineCount != 1 && (lineCount != 2 || seenArrow) {
				p.pos = previous
				break
			}
			seenArrow = true
			previous = p.pos
			cue = &got{ID: buffer}
			timings := &referenceParser{input: []rune(line)}
			if cue.Times = timings.timings(); cue.Times == "" {
				cue = nil
			} else {
				buffer = ""
			}
		} else {
			if !inHeader && lineCount == 2 {
				for _, kind := range []string{"STYLE", "REGION"} {
					if rest, ok := strings.CutPrefix(buffer, kind); ok && cue == nil && strings.TrimFunc(rest, isWhite) == "" {
						buffer = ""
					}
				}
			}
			if buffer != "" {
				buffer += "\n"
			}
			buffer += line
			previous = p.pos
		}
		if seenEOF {
			break
		}
	}
	if cue != nil {
		cue.Text = buffer
	}
	return cue
}

// timings is "collect WebVTT cue timings and settings", without the settings.
func (p *referenceParser) timings() string {
	p.collect(isWhite)
	start, ok := p.timestamp()
	if !ok {
		return ""
	}
	p.collect(isWhite)
	for _, c := range "-->" {
		if p.atEnd() || p.char() != c {
			return ""
		}
		p.pos++
	}
	p.collect(isWhite)
	end, ok := p.timestamp()
	if !ok {
		return ""
	}
	return start.String() + "-" + end.String()
}

// timestamp is "collect a WebVTT timestamp".
func (p *referenceParser) timestamp() (time.Duration, bool) {
	units := "minutes"
	if p.atEnd() || !isDigit(p.char()) {
		return 0, false
	}
	text := p.collect(isDigit)
	value1 := referenceInt(text)
	if len(text) != 2 || value1 > 59 {
		units = "hours"
	}
	if p.atEnd() || p.char() != ':' {
		return 0, false
	}
	p.pos++
	text = p.collect(isDigit)
	if len(text) != 2 {
		return 0, false
	}
	value2 := referenceInt(text)
	var value3 int64
	if units == "hours" || !p.atEnd() && p.char() == ':' {
		if p.atEnd() || p.char() != ':' {
			return 0, false
		}
		p.pos++
		text = p.collect(isDigit)
		if len(text) != 2 {
			return 0, false
		}
		value3 = referenceInt(text)
	} else {
		value3, value2, value1 = value2, value1, 0
	}
	if p.atEnd() || p.char() != '.' {
		return 0, false
	}
	p.pos++
	text = p.collect(isDigit)
	if len(text) != 3 {
		return 0, false
	}
	value4 := referenceInt(text)
	if value2 > 59 || value3 > 59 {
		return 0, false
	}
	if value1 >= int64(maxStamp/time.Hour) {
		return maxStamp, true
	}
	return time.Duration(((value1*60+value2)*60+value3)*1000+value4) * time.Millisecond, true
}

// referenceInt reads digits. Numbers of more than 15 of them are all one here.
func referenceInt(text string) int64 {
	text = strings.TrimLeft(text, "0")
	if len(text) > 15 {
		return 1e15
	}
	n := int64(0)
	for _, c := range text {
		n = 10*n + int64(c-'0')
	}
	return n
}

// referenceText is the text that the "WebVTT cue text tokenizer" finds. What it does in the states "start tag", "class",
// "annotation", "end tag" and "timestamp tag" differs in what it makes of the tag; all leave it at ">" and at the end.
func referenceText(text string) string {
	all, result, state := "", "", "data"
	for _, c := range text {
		switch {
		case state == "data" && c == '<':
			all, result, state = all+unescape(result), "", "tag"
		case state == "data":
			result += string(c)
		case c == '>':
			state = "data"
		}
	}
	return all + unescape(result)
}

// referenceUnescape is the standard library's reader of character references. It is asked only where it is right: numbers
// of two to six digits that end with a semicolon, and names.
func referenceUnescape(text string) (value string, asked bool) {
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "&#")
		if !found {
			return html.UnescapeString(text), true
		}
		number, _, ended := strings.Cut(after, ";")
		if digits := strings.TrimLeft(number, "xX"); !ended || len(digits) < 2 || len(digits) > 6 || len(number)-len(digits) > 1 ||
			strings.Trim(digits, "0123456789") != "" || strings.HasPrefix(after, "&") {
			return "", false
		}
		rest = after
	}
}
