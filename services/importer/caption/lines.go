package caption

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// headSize is the number of bytes of the input that decide the format.
const headSize = 4 << 10

// lines splits a text at CR, LF and CRLF. It returns each line as WebVTT requires: valid UTF-8 with U+FFFD in place of NUL.
type lines struct {
	cuts    []Cut
	refused error  // the input has a line that cannot be read
	current []byte // the line returned last
	limits  Options
	number  int    // of the current line, from 1
	over    bool   // there is more than MaxBytes
	repeat  bool   // the current line is to be returned again
	rest    []byte // the text after the current line
	short   bool   // the current line was cut
	work    int    // bytes looked at, for the tests
}

// newLines skips the byte order mark.
func newLines(text []byte, opts Options) *lines {
	l := &lines{limits: opts, over: int64(len(text)) > opts.MaxBytes}
	l.rest = bytes.TrimPrefix(text[:min(int64(len(text)), opts.MaxBytes)], []byte(byteOrderMark))
	return l
}

// next returns the next line without its end, and false after the last line.
func (l *lines) next() (line []byte, ok bool) {
	if l.repeat {
		l.repeat = false
		l.work += len(l.current)
		return l.current, true
	}
	l.number++
	end := bytes.IndexAny(l.rest, "\r\n")
	if l.work += end + 1; end < 0 {
		l.work += len(l.rest)
	}
	if end < 0 && l.over { // MaxBytes ends this line, or the text before it
		l.cut("MaxBytes", l.limits.MaxBytes, l.number)
	}
	if len(l.rest) == 0 || l.refused != nil {
		return nil, false
	}
	if line, l.short = l.rest, end < 0 && l.over; end < 0 {
		l.rest = nil
	} else {
		line = line[:end]
		l.rest = bytes.TrimPrefix(l.rest[end:], []byte("\r"))
		l.rest = bytes.TrimPrefix(l.rest, []byte("\n"))
	}
	if most := l.limits.MaxCueBytes; len(line) > most {
		line, l.short = wholeRunes(line[:most]), true
		l.cut("MaxCueBytes", int64(most), l.number)
	}
	l.current = repair(line)
	return l.current, true
}

// unread makes next return the current line again.
func (l *lines) unread() { l.repeat = true }

// refuse records that the times of the current line cannot be read, unless MaxBytes has cut the line. Left out, the cue would be lost, and
// as text its times would be spoken.
func (l *lines) refuse(line []byte) {
	if l.over && len(l.rest) == 0 {
		return
	}
	l.refused = &FormatError{
		Found: fmt.Sprintf("times that cannot be read, or go back, in line %d: %s", l.number, quote(bytes.TrimSpace(line))), Line: l.number,
		Hint: "write them as 00:01:02,500 --> 00:01:05,000: hours, minutes and seconds below 60, milliseconds",
	}
}

// cut records that a limit cut a line, once per limit.
func (l *lines) cut(limit string, value int64, line int) {
	if !slices.ContainsFunc(l.cuts, func(c Cut) bool { return c.Limit == limit }) {
		l.cuts = append(l.cuts, Cut{Limit: limit, Max: value, Line: line})
	}
}

// unfinished is a cue whose text is being read.
type unfinished struct {
	Cue

	in   *lines
	have bool // there is such a cue
	text []byte
}

// add appends a line, up to MaxCueBytes. short reports whether a limit has cut the line itself.
func (u *unfinished) add(line []byte, number int, short bool) {
	most := u.in.limits.MaxCueBytes
	if len(u.text) > 0 && len(u.text) < most {
		u.text = append(u.text, '\n')
	} else if len(u.text) > 0 {
		line, short = nil, true
		u.in.cut("MaxCueBytes", int64(most), number)
	}
	if room := most - len(u.text); len(line) > room {
		line, short = wholeRunes(line[:room]), true
		u.in.cut("MaxCueBytes", int64(most), number)
	}
	u.text = append(u.text, line...)
	u.Truncated = u.Truncated || short
}

// finish returns the cue, and begins the next one, if there is one.
func (u *unfinished) finish(next Cue, have bool) Cue {
	done := u.Cue
	done.Text = string(u.text)
	u.Cue, u.have, u.text = next, have, u.text[:0]
	return done
}

const (
	byteOrderMark = "\ufeff"
	replacement   = "\ufffd"
)

// repair returns text with U+FFFD in place of NUL and of invalid UTF-8, one for each part that the Encoding Standard
// counts as one error (https://encoding.spec.whatwg.org/#utf-8-decoder). A text that needs no repair is returned as it is.
func repair(text []byte) []byte {
	if bytes.IndexByte(text, 0) < 0 && utf8.Valid(text) {
		return text
	}
	valid, _ := unicode.UTF8.NewDecoder().Bytes(text) // it takes any text
	return bytes.ReplaceAll(valid, []byte{0}, []byte(replacement))
}

// wholeRunes returns text without the character that was cut in two at its end.
func wholeRunes(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if end := text[len(text)-i:]; utf8.RuneStart(end[0]) && !utf8.FullRune(end) {
			return text[:len(text)-i]
		}
	}
	return text
}

// plainText reads text: one cue per line, or, in a transcript, one per stamp.
type plainText struct {
	unfinished

	clocks  bool // the stamps are as players show them
	decided bool // track.Timed is known
	track   *Track
}

func (p *plainText) next() (Cue, bool) {
	for {
		line, ok := p.in.next()
		if !ok {
			complete := p.have
			p.End = p.Start
			return p.finish(Cue{}, false), complete
		}
		flat := squeeze(string(line))
		if flat == "" {
			continue
		}
		at, rest, stamped := p.stamp(flat)
		if _, meant, _ := readTimes(line); meant && !p.track.Timed || p.clocks && stamped && at < p.Start {
			p.in.refuse(line)
			return Cue{}, false
		}
		if !p.track.Timed {
			return Cue{Text: string(line), Format: FormatText, Line: p.in.number, Truncated: p.in.short}, true
		}
		if p.have && !stamped {
			p.add([]byte(rest), p.in.number, p.in.short)
			continue
		}
		complete := p.have
		p.End = max(p.Start, at) // a cue ends where the next one starts
		cue := p.finish(Cue{Start: at, Format: FormatText, Line: p.in.number}, true)
		p.add([]byte(rest), p.in.number, p.in.short)
		if complete {
			return cue, true
		}
	}
}

// stamp reads the stamp of a line. The first line with words determines whether there are stamps such as [12.34s]. Notes of sounds are no
// such line, because WriteText leaves them out.
func (p *plainText) stamp(line string) (at time.Duration, rest string, ok bool) {
	if p.clocks {
		m := clockStamp.FindStringSubmatch(line)
		if m == nil {
			return 0, line, false
		}
		if at, _, ok = readClock([]byte(m[1])); !ok {
			at = -1 // before any other
		}
		return at, line[len(m[0]):], true
	}
	if said := withoutSounds(line); !p.decided && said != "" {
		p.track.Timed, p.decided = textStamp.MatchString(said), true
	}
	m := textStamp.FindSubmatch([]byte(line))
	if m == nil {
		return 0, line, false
	}
	return duration(m[1:]), strings.TrimSpace(line[len(m[0]):]), true
}

// number matches a numeric character reference, and "&#" without a number.
var number = lazyregexp.New(`&#(?:[xX][0-9a-fA-F]+|[0-9]+)?;?`)

// unescape replaces character references as HTML does outside attributes: after some names the semicolon may be
// missing. The standard library misreads references without a number, and numbers of one digit or of many, so unescape
// rewrites these first.
func unescape(text string) string {
	if strings.Contains(text, "&#") {
		text = number.ReplaceAllStringFunc(text, func(reference string) string {
			digits, base := strings.TrimSuffix(reference[2:], ";"), 10
			if digits == "" {
				return "&amp;" + reference[1:]
			}
			if hex := strings.TrimLeft(digits, "xX"); hex != digits {
				digits, base = hex, 16
			}
			code, err := strconv.ParseInt(digits, base, 32)
			if err != nil {
				code = utf8.MaxRune + 1 // as any other number that is no character
			}
			return "&#" + strconv.FormatInt(code, 10) + ";"
		})
	}
	return html.UnescapeString(text)
}
