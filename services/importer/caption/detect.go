package caption

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// detect determines the format by the beginning of the input.
func detect(head []byte, opts Options) (Format, error) {
	first, name := firstLine(head), foreign(head)
	timed, srt := firstTimings(head)
	refuse := func(found, hint string) (Format, error) { return "", &FormatError{Found: found, Hint: hint} }
	const again = "the file has to hold captions; fetch it again"
	switch {
	case isWebVTT(head):
		return FormatWebVTT, nil
	case textStamp.Match(first):
		return FormatText, nil
	case len(head) == 0:
		return refuse("nothing: the input is empty", again)
	case len(first) == 0:
		return refuse("nothing but empty lines", again)
	case name != "":
		return refuse(name, "give the caption file itself, as WebVTT or SRT in UTF-8")
	case spoiled(first):
		return refuse(quote(first),
			`the first line has to be "WEBVTT", in capitals, alone or followed by a space or a tab, with nothing before it`)
	case srt, timed && opts.Lenient:
		return FormatSRT, nil
	case timed:
		return refuse(quote(first), `put the line "WEBVTT" and an empty line before the first cue`)
	case opts.Timed && !transcribed(head):
		return refuse(quote(first),
			`WebVTT begins with the line "WEBVTT", and each cue of SRT with a number and times such as 00:01:02,500 --> 00:01:05,000`)
	}
	return FormatText, nil
}

// spoiled reports whether a line was meant to be the signature of WebVTT.
func spoiled(first []byte) bool {
	return len(first) >= len(signature) && strings.EqualFold(string(first[:len(signature)]), signature)
}

// firstTimings looks for a line of times. The line is SRT unless it could be of a WebVTT file that lost its signature: with the full stop
// of WebVTT, and not below a number.
func firstTimings(head []byte) (timed, srt bool) {
	var before []byte
	for line := range bytes.FieldsFuncSeq(head, isLineEnd) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if _, meant, _ := readTimes(line); meant {
			return true, numberLine.Match(before) || !vttLine.Match(line)
		}
		before = bytes.TrimFunc(line, isMargin)
	}
	return false, false
}

func isLineEnd(r rune) bool { return r == '\r' || r == '\n' }

// transcribed reports whether text is a transcript as it is copied from a player: with a time before its lines, or above them. A recipe
// has fewer times.
func transcribed(head []byte) bool {
	all, stamps := 0, 0
	for line := range bytes.FieldsFuncSeq(head, isLineEnd) {
		line = []byte(squeeze(string(line)))
		if all == 0 && textStamp.Match(line) {
			return false
		}
		if clockStamp.Match(line) {
			stamps++
		}
		if len(line) > 0 {
			all++
		}
	}
	return stamps > 1 && 4*stamps >= all
}

// prolog is what may stand before the root of XML.
const prolog = `(?:<\?[^>]*>|<!--.*?-->|<!doctype[^>]*>)*`

// foreignFormats are the formats that are known not to be captions, by the start of the input without its space, each byte a character.
var foreignFormats = []struct {
	name  string
	start *lazyregexp.Regexp
}{
	{"text in UTF-16", lazyregexp.New(`^(?:\xff\xfe|\xfe\xff)`)},
	{"a ZIP archive", lazyregexp.New(`^PK\x03\x04`)},
	{"gzip data", lazyregexp.New(`^\x1f\x8b`)},
	{"a PDF", lazyregexp.New(`^%PDF`)},
	{"an HLS playlist", lazyregexp.New(`^#EXTM3U`)},
	{"SubStation Alpha subtitles", lazyregexp.New(`(?i)^\[ScriptInfo\]`)},
	{"MicroDVD subtitles, whose times are numbers of frames", lazyregexp.New(`^\{\d+\}\{\d*\}`)},
	{"MPL2 subtitles, whose times are tenths of seconds", lazyregexp.New(`^\[\d+\]\[\d*\]`)},
	{"TMPlayer subtitles", lazyregexp.New(`^\d+:\d\d:\d\d:\D`)},
	{"SAMI subtitles", lazyregexp.New(`(?i)^<sami`)},
	{"RealText", lazyregexp.New(`(?i)^<window`)},
	{"QuickTime's text", lazyregexp.New(`^\{QTtext\}`)},
	{"Scenarist captions", lazyregexp.New(`^Scenarist_SCC`)},
	{"a table of times and texts", lazyregexp.New(`^(?:startendtext\d|\d+\.\d{6}\d+\.\d{6})`)},
	{"LRC lyrics", lazyregexp.New(`^(?:\[[A-Za-z#]+:[^\]]*\])*\[\d+:\d\d\.\d+\]`)},
	{"YouTube's JSON3 captions", lazyregexp.New(`^\{"(?:wireMagic|events)":`)},
	{"JSON", lazyregexp.New(`^(?:\{["}]|\[\{)`)},
	{"an HTML page", lazyregexp.New(`(?is)^` + prolog + `<(?:!doctypehtml|html)`)},
	{"TTML subtitles", lazyregexp.New(`(?is)^` + prolog + `<tt`)},
	{"XML", lazyregexp.New(`(?is)^` + prolog + `<(?:\?xml|transcript|timedtext)`)},
	{"HTML or XML", lazyregexp.New(`^<!--`)},
}

// foreign names the format of an input that is known not to be captions.
func foreign(head []byte) string {
	var start []rune
	for _, c := range head {
		if c > ' ' || !unicode.IsSpace(rune(c)) {
			start = append(start, rune(c))
		}
	}
	for _, format := range foreignFormats {
		if format.start.MatchString(string(start)) {
			return format.name
		}
	}
	if binary(head) {
		return "binary data"
	}
	return ""
}

// binary reports whether too many bytes cannot be text: control characters and invalid UTF-8.
func binary(head []byte) bool {
	bad := 0
	for i, r := range string(head) {
		if r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) || r == utf8.RuneError && head[i] != "\ufffd"[0] {
			bad++
		}
	}
	return bad*10 > len(head)
}

// quote returns the start of a line in quotes.
func quote(line []byte) string {
	const shown = 60
	if len(line) > shown {
		return strconv.QuoteToASCII(string(wholeRunes(line[:shown]))) + "..."
	}
	return strconv.QuoteToASCII(string(line))
}

// firstLine returns the first line that is not blank, without the space around it.
func firstLine(head []byte) []byte {
	head = bytes.TrimSpace(head)
	if end := bytes.IndexAny(head, "\r\n"); end >= 0 {
		head = head[:end]
	}
	return bytes.TrimSpace(head)
}

// Format is a form that captions come in.
type Format string

// The formats.
const (
	// FormatSRT is SubRip: numbered cues, a comma before the milliseconds.
	FormatSRT Format = "srt"
	// FormatText is text: a transcript whose lines begin with a stamp such as [12.34s], or with or below one such as 0:12, or plain
	// lines without times.
	FormatText Format = "text"
	// FormatWebVTT is WebVTT.
	FormatWebVTT Format = "webvtt"
)
