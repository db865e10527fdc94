package caption

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

const (
	// readSize is the number of bytes read at a time.
	readSize = 64 << 10
	// headSize is the number of bytes of the input that decide the format.
	headSize = 4 << 10
	// maxEmptyReads is the number of times that a reader may return nothing before reading fails.
	maxEmptyReads = 100
)

// lines splits the input at CR, LF and CRLF. It returns each line as WebVTT requires: valid UTF-8 with U+FFFD in place
// of NUL. A line is valid until the next call.
type lines struct {
	buf      []byte // buf[lo:hi] has the bytes that were read and not consumed
	carried  []byte // the start of a line that began in an earlier buffer
	cuts     []Cut
	current  []byte // the line returned last
	err      error  // the error with which the reader ended, or io.EOF
	hi, lo   int
	maxBytes int64
	maxLine  int
	number   int  // of the current line, from 1
	over     bool // there is more than maxBytes
	read     int64
	repeat   bool // the current line is to be returned once more
	short    bool // the current line was cut
	skipLF   bool // the line before ended with CR
	source   io.Reader
	work     int // bytes looked at, for the tests
}

func newLines(r io.Reader, opts Options) *lines {
	return &lines{buf: make([]byte, readSize), maxBytes: opts.MaxBytes, maxLine: opts.MaxCueBytes, source: r}
}

// head returns the start of the input, without the byte order mark, before the first line is read. It blocks until enough
// was read.
func (l *lines) head() []byte {
	for l.hi-l.lo < headSize && l.err == nil {
		l.fill()
	}
	if bytes.HasPrefix(l.buf[l.lo:l.hi], []byte(byteOrderMark)) {
		l.lo += len(byteOrderMark)
	}
	return l.buf[l.lo:min(l.hi, l.lo+headSize)]
}

// next returns the next line, without its end. At the end of the input the error is io.EOF.
func (l *lines) next() ([]byte, error) {
	if l.repeat {
		l.repeat = false
		return l.current, nil
	}
	l.carried = l.carried[:0]
	l.number++
	began, cut := false, false
	for {
		if l.lo == l.hi {
			l.fill()
			if l.lo == l.hi {
				return l.last(began, cut)
			}
		}
		if l.skipLF {
			l.skipLF = false
			if l.buf[l.lo] == '\n' {
				l.lo++
				continue
			}
		}
		piece, ended := l.piece()
		began = true
		if ended && len(l.carried) == 0 && len(piece) <= l.maxLine {
			return l.done(piece, false), nil
		}
		if room := l.maxLine - len(l.carried); len(piece) > room {
			piece, cut = piece[:room], true
		}
		l.carried = append(l.carried, piece...)
		if ended {
			return l.done(l.carried, cut), nil
		}
	}
}

// unread makes next return the current line once more.
func (l *lines) unread() { l.repeat = true }

// piece consumes the buffered part of the current line, with the line end if it is buffered.
func (l *lines) piece() (text []byte, ended bool) {
	for i, c := range l.buf[l.lo:l.hi] {
		if c != '\n' && c != '\r' {
			continue
		}
		text = l.buf[l.lo : l.lo+i]
		l.work += i + 1
		l.lo += i + 1
		l.skipLF = c == '\r'
		return text, true
	}
	text = l.buf[l.lo:l.hi]
	l.work += len(text)
	l.lo = l.hi
	return text, false
}

// last returns the line at the end of the input that has no line end, if there is one.
func (l *lines) last(began, cut bool) ([]byte, error) {
	if l.err != io.EOF { //nolint:errorlint // fill stores it bare
		return nil, fmt.Errorf("reading line %d: %w", l.number, l.err)
	}
	if l.over {
		l.cut("MaxBytes", l.maxBytes, l.number)
	}
	if !began {
		return nil, io.EOF
	}
	text := l.done(l.carried, cut)
	l.short = l.short || l.over
	return text, nil
}

func (l *lines) done(text []byte, cut bool) []byte {
	l.short = cut
	if cut {
		text = wholeRunes(text)
		l.cut("MaxCueBytes", int64(l.maxLine), l.number)
	}
	l.current = repair(text)
	return l.current
}

// cut records that a limit cut a line, once per limit.
func (l *lines) cut(limit string, value int64, line int) {
	for _, c := range l.cuts {
		if c.Limit == limit {
			return
		}
	}
	l.cuts = append(l.cuts, Cut{Limit: limit, Max: value, Line: line})
}

// fill reads more of the input. Afterwards there are bytes in the buffer, or err is set.
func (l *lines) fill() {
	if l.err != nil {
		return
	}
	if l.lo > 0 {
		l.hi = copy(l.buf, l.buf[l.lo:l.hi])
		l.lo = 0
	}
	for range maxEmptyReads {
		n, err := l.source.Read(l.buf[l.hi:])
		l.hi += n
		l.read += int64(n)
		if over := l.read - l.maxBytes; over > 0 {
			l.hi = max(l.lo, l.hi-int(over))
			l.err, l.over = io.EOF, true
			return
		}
		if err != nil {
			l.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	l.err = io.ErrNoProgress
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
	valid, _ := unicode.UTF8.NewDecoder().Bytes(text) //nolint:errcheck // it takes any text
	return bytes.ReplaceAll(valid, []byte{0}, []byte(replacement))
}

// wholeRunes returns text without the character that was cut in two at its end.
func wholeRunes(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if c := text[len(text)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// plainText reads text: one cue per line, or, when the first line has a stamp as in a transcript, one per stamp.
type plainText struct {
	in     *lines
	track  *Track
	maxCue int

	cue     Cue // the cue whose text is being read
	cut     bool
	decided bool // track.Timed is known
	have    bool
	text    []byte
}

func (p *plainText) next() (Cue, error) {
	for {
		line, err := p.in.next()
		if err != nil {
			if err == io.EOF && p.have { //nolint:errorlint // lines returns it bare
				return p.finish(Cue{Start: p.cue.Start}, false), nil
			}
			return Cue{}, err
		}
		flat := squeeze(string(line))
		if flat == "" {
			continue
		}
		p.decide(flat)
		if !p.track.Timed {
			return Cue{Text: string(line), Format: FormatText, Line: p.in.number, Truncated: p.in.short}, nil
		}
		at, rest, stamped := stampedLine([]byte(flat))
		if p.have && !stamped {
			p.add([]byte(flat))
			continue
		}
		if !stamped {
			rest = []byte(flat)
		}
		complete := p.have
		cue := p.finish(Cue{Start: at, Format: FormatText, Line: p.in.number}, true)
		p.add(rest)
		if complete {
			return cue, nil
		}
	}
}

// decide determines from the first line with words whether there are stamps. It skips notes of sounds, because WriteText
// leaves them out, and the line after them is then the first line of the transcript.
func (p *plainText) decide(line string) {
	if p.decided {
		return
	}
	if said := withoutSounds(line); said != "" {
		_, _, p.track.Timed = stampedLine([]byte(said))
		p.decided = true
	}
}

func (p *plainText) add(line []byte) {
	var cut bool
	if p.text, cut = addLine(p.text, line, p.maxCue); cut {
		p.in.cut("MaxCueBytes", int64(p.maxCue), p.in.number)
	}
	p.cut = p.cut || cut || p.in.short
}

// finish returns the cue that was being read, which ends where the next one starts, and begins the next cue.
func (p *plainText) finish(next Cue, have bool) Cue {
	done := p.cue
	done.End, done.Text, done.Truncated = max(done.Start, next.Start), string(p.text), p.cut
	p.cue, p.have, p.cut, p.text = next, have, false, p.text[:0]
	return done
}

// stampedLine reads a stamp as Transcript.WriteText writes it: seconds without leading zeros and two decimals. Any
// other text is no stamp.
func stampedLine(line []byte) (at time.Duration, rest []byte, ok bool) {
	s := scanner{text: line}
	if !s.is('[') {
		return 0, nil, false
	}
	from := s.pos
	seconds, length := s.digits()
	if length == 0 || length > 10 || length > 1 && line[from] == '0' || !s.is('.') {
		return 0, nil, false
	}
	hundredths, length := s.digits()
	if length != 2 || !s.is('s') || !s.is(']') || s.pos < len(line) && line[s.pos] != ' ' {
		return 0, nil, false
	}
	return duration(0, 0, min(seconds, int64(maxStamp/time.Second)-1), 10*hundredths), bytes.TrimSpace(line[s.pos:]), true
}

// number matches a numeric character reference, and "&#" without a number.
var number = regexp.MustCompile(`&#(?:[xX][0-9a-fA-F]+|[0-9]+)?;?`)

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

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
