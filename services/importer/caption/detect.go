package caption

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// detect determines the format by the beginning of the input. With withTimes, plain text is an error.
func detect(head []byte, withTimes bool) (Format, error) {
	if isWebVTT(head) {
		return FormatWebVTT, nil
	}
	first := firstLine(head)
	if _, _, stamped := stampedLine(first); stamped {
		return FormatText, nil
	}
	timed, srt := firstTimings(head)
	switch {
	case spoiled(first), len(first) == 0, foreign(head) != "":
		return "", notCaptions(head)
	case srt:
		return FormatSRT, nil
	case timed, withTimes:
		return "", notCaptions(head)
	}
	return FormatText, nil
}

// notCaptions returns the error for an input that has no format that can be read.
func notCaptions(head []byte) error {
	err := &FormatError{Found: found(head)}
	timed, _ := firstTimings(head)
	switch first := firstLine(head); {
	case len(bytes.TrimSpace(head)) == 0:
		err.Hint = "the file has to hold captions; fetch it once more"
	case foreign(head) != "":
		err.Hint = "give the caption file itself, as UTF-8"
	case spoiled(first):
		err.Hint = `the first line has to be "WEBVTT", in capitals, alone or followed by a space or a tab, with nothing before it`
	case timed:
		err.Hint = `put the line "WEBVTT" and an empty line before the first cue`
	default:
		err.Hint = `a WebVTT file begins with the line "WEBVTT"`
	}
	return err
}

// spoiled reports whether a line was meant to be the signature of WebVTT.
func spoiled(first []byte) bool {
	return len(first) >= len(signature) && strings.EqualFold(string(first[:len(signature)]), signature)
}

// firstTimings looks for a line of times. The line is SRT when it has the comma of SRT or stands below a number. Otherwise
// it is the head of a WebVTT file that lost its signature.
func firstTimings(head []byte) (timed, srt bool) {
	var before []byte
	for len(head) > 0 {
		end := bytes.IndexAny(head, "\r\n")
		if end < 0 {
			end = len(head)
		}
		line := bytes.TrimSpace(head[:end])
		head = head[min(end+1, len(head)):]
		if len(line) == 0 {
			continue
		}
		if srtLine.Match(line) {
			stamp, _, _ := bytes.Cut(line, arrow)
			numbered := len(before) > 0 && len(bytes.Trim(before, "0123456789")) == 0
			return true, numbered || bytes.IndexByte(stamp, ',') > 0
		}
		before = line
	}
	return false, false
}

// foreign names the format of an input that is known not to be captions.
func foreign(head []byte) string {
	for _, kind := range []struct{ prefix, name string }{
		{"\xff\xfe", "text in UTF-16"},
		{"\xfe\xff", "text in UTF-16"},
		{"PK\x03\x04", "a ZIP archive"},
		{"\x1f\x8b", "gzip data"},
		{"%PDF", "a PDF"},
		{"#EXTM3U", "an HLS playlist"},
		{"[Script Info]", "SubStation Alpha subtitles"},
		{"{\"", "JSON"},
		{"[{", "JSON"},
		{"{}", "JSON"},
	} {
		if bytes.HasPrefix(head, []byte(kind.prefix)) {
			return kind.name
		}
	}
	start := bytes.ToLower(bytes.TrimSpace(head)[:min(256, len(bytes.TrimSpace(head)))])
	for _, kind := range []struct{ prefix, name string }{
		{"<!doctype html", "an HTML page"},
		{"<html", "an HTML page"},
		{"<tt", "TTML subtitles"},
		{"<?xml", "XML"},
		{"<transcript", "XML"},
		{"<timedtext", "XML"},
		{"<!--", "HTML or XML"},
	} {
		if bytes.HasPrefix(start, []byte(kind.prefix)) {
			return kind.name
		}
	}
	if binary(head) {
		return "binary data"
	}
	return ""
}

// binary reports whether too many bytes cannot be text: control characters and invalid UTF-8.
func binary(head []byte) bool {
	bad, size := 0, len(head)
	for i := 0; i < len(head); {
		r, n := utf8.DecodeRune(head[i:])
		if r == utf8.RuneError && n == 1 && utf8.FullRune(head[i:]) || r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) {
			bad++
		}
		i += n
	}
	return bad*10 > size
}

// found describes the start of the input.
func found(head []byte) string {
	if len(head) == 0 {
		return "nothing: the input is empty"
	}
	first := firstLine(head)
	if len(first) == 0 {
		return "nothing but empty lines"
	}
	if name := foreign(head); name != "" {
		return name
	}
	const shown = 40
	if len(first) > shown {
		return strconv.QuoteToASCII(string(wholeRunes(first[:shown]))) + "..."
	}
	return strconv.QuoteToASCII(string(first))
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
	// FormatText is text: a transcript whose lines begin with a stamp such as [12.34s], or plain lines without times.
	FormatText Format = "text"
	// FormatWebVTT is WebVTT.
	FormatWebVTT Format = "webvtt"
)
