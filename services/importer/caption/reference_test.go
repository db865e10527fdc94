package caption

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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

// referenceText is the text that the "WebVTT cue text tokenizer" finds. The states "start tag", "class", "annotation",
// "end tag" and "timestamp tag" differ only in the tag that they produce; all end at ">" and at the end of the text.
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

var vttSeeds = []string{
	"WEBVTT", sampleVTT, "\ufeffWEBVTT\r\n\r\n1\r\n" + at01 + "\r\na\r\n", "WEBVTT\r\r" + at01 + " align:start\ra\r-->\r\r\r", "WEBVTT\n\nNOTE x\n\nSTYLE\n::cue{}\n\nREGION\nid:a\n\n" + at01,
	"WEBVTT\nx\n" + at01 + "\na\n" + at01 + "\nb\n\nid\n-->\n" + at01 + "\n \nc\x00\xff", "WEBVTT\n\n99:59:59.999 --> 1:00:00.000\nx", "WEBVTT\n\na\nb\n" + at01 + "\nx",
	"WEBVTT\n\n" + at01 + "\n<v.loud A &amp; B><c.a>one<00:00:01.000></c> two</v> &lt;&#x41;\n\n00:01.000 --> 00:01.010\none two\n \n\n00:01.010 --> 00:02.000\none two\nthree<00:00:01.500><c> four</c> [Music]",
}

// FuzzWebVTT compares the parser with the rules stated again.
func FuzzWebVTT(f *testing.F) {
	for _, row := range check.Rows(f, "testdata/structure.tsv") {
		f.Add(unquote(f, row[1]))
	}
	for _, seed := range vttSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		valid := repair([]byte(strings.TrimPrefix(input, byteOrderMark)))
		want, ok := referenceCues(string(valid))
		track, err := Parse([]byte(input), Options{Format: FormatWebVTT})
		_, refused := errors.AsType[*FormatError](err)
		check.Require(t, refused != ok && (err == nil || refused), "error %v, want one: %t", err, !ok)
		check.Equal(t, want, cuesOf(track))
	})
}

// FuzzPlain compares the reader of cue text with the rules stated again.
func FuzzPlain(f *testing.F) {
	f.Add("a&#x41;&notit;&amp&<00:01.000>a<99:00:00.000><1>")
	for _, row := range check.Rows(f, "testdata/plain.tsv") {
		f.Add(unquote(f, row[0]))
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = string([]rune(text)) // the text of a parsed cue is valid
		check.Same(t, text, textOf(text), referenceText(text))
		for _, tag := range pieces(text) {
			p := &referenceParser{input: []rune(tag)}
			_, stamp := p.timestamp()
			check.Same(t, tag, isStamp(tag), stamp && p.atEnd())
		}
		if want, asked := referenceUnescape(text); asked && unescape(text) != want {
			t.Errorf("%q gives %q, want %q", text, unescape(text), want)
		}
		unescaped := unescape(text)
		check.That(t, len(unescaped) <= 3*len(text), "%q grows to %q", text, unescaped)
	})
}

// FuzzTranscript reads anything as anything.
func FuzzTranscript(f *testing.F) {
	for i, seed := range append(vttSeeds,
		"1\n00:00:00,000 --> 00:00:01,000\n<i>a</i>\n\n2\n00:00:01,000 --> 00:00:02,000\na\nb\n", "[0.00s] a\n[1.50s] b\nc", "take\ntwo [Music] eggs.", "<html>", "{\\an8}",
	) {
		f.Add(seed, byte(i))
	}
	formats := []Format{FormatAuto, FormatText, FormatSRT, FormatWebVTT}
	f.Fuzz(func(t *testing.T, input string, mode byte) {
		track, err := Parse([]byte(input), Options{Format: formats[mode&3]})
		if err != nil {
			_, ok := errors.AsType[*FormatError](err)
			check.Require(t, ok, "untyped error: %v", err)
			return
		}
		check.That(t, !track.Truncated, "truncated, by which limit?")
		size := 0
		for _, c := range track.Cues {
			size += len(c.ID) + len(c.Text)
			if c.Start < 0 || c.End < 0 || c.Line < 1 || !utf8.ValidString(c.Text) || strings.ContainsAny(c.Text+c.ID, "\x00\r") || strings.Contains(c.ID, "\n") {
				t.Errorf("cue %+v", c)
			}
		}
		check.That(t, size <= 3*len(input), "%d bytes became %d", len(input), size)
		transcript := track.Transcript()
		checkTranscript(t, transcript, size)
		checkLimits(t, input, formats[mode&3])

		var text, again bytes.Buffer
		check.OK(t, transcript.WriteText(&text))
		reread := check.Must(Parse(text.Bytes(), Options{Format: FormatText}))(t)
		check.That(t, len(transcript.Segments) == 0 || !transcript.Timed || reread.Timed == transcript.Timed,
			"timed %t, read again %t", transcript.Timed, reread.Timed)
		check.OK(t, reread.Transcript().WriteText(&again))
		check.Equal(t, text.String(), again.String())
	})
}

func checkTranscript(t *testing.T, transcript Transcript, size int) {
	t.Helper()
	last, total := time.Duration(0), 0
	for _, s := range transcript.Segments {
		total += len(s.Text)
		check.That(t, (s.Start >= last || !transcript.Timed) && s.Dur >= 0 && s.Text != "" && squeeze(s.Text) == s.Text,
			"segment %+v after %v", s, last)
		last = s.Start
	}
	check.That(t, total <= 3*size, "%d bytes of text became %d", size, total)
	var out bytes.Buffer
	var again []Segment
	check.Is(t, errors.Join(transcript.WriteSegments(&out), json.Unmarshal(out.Bytes(), &again)), nil)
	check.Equal(t, transcript.Segments, again, cmpopts.EquateEmpty())
}

// checkLimits reads with small limits, which have to hold and to be told of.
func checkLimits(t *testing.T, input string, format Format) {
	t.Helper()
	opts := Options{Format: format, MaxBytes: int64(len(input)/2 + 16), MaxCueBytes: 8, MaxCues: 2, MaxTextBytes: 12}
	track, err := Parse([]byte(input), opts)
	if err != nil {
		return // the part that is read may be nothing
	}
	size := 0
	for _, c := range track.Cues {
		size += len(c.ID) + len(c.Text)
		check.That(t, len(c.Text) <= 3*opts.MaxCueBytes && len(c.ID) <= 3*opts.MaxCueBytes && (!c.Truncated || track.Truncated),
			"cue %+v, truncated %t", c, track.Truncated)
	}
	check.That(t, len(track.Cues) <= 2 && size <= 12 && track.Truncated == (len(track.Cuts) > 0),
		"%d cues of %d bytes, cuts %v", len(track.Cues), size, track.Cuts)
	if whole, err := Parse([]byte(input), Options{Format: format}); err == nil && !track.Truncated && !reflect.DeepEqual(whole, track) {
		t.Errorf("not truncated, but not the same (-want +got):\n%s", cmp.Diff(whole, track))
	}
}
