package caption

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestDetect(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]Format{
		"WEBVTT":                                    FormatWebVTT,
		"\ufeffWEBVTT\n":                            FormatWebVTT,
		"WEBVTT\n\n1\n00:00:00,000 --> x":           FormatWebVTT,
		"1\n00:00:00,000 --> 00:00:01,000\na":       FormatSRT,
		"1\n00:00:00.000 --> 00:00:01.000\na":       FormatSRT,
		"00:00:00,000 --> 00:00:01,000\na":          FormatSRT,
		"title\n\n00:00:00,000 --> 00:00:01,000\na": FormatSRT,
		"[0.00s] a\n[1.50s] b":                      FormatText,
		"[0.00s] 1\n00:00:00,000 --> 00:00:01,000":  FormatText,
		"Take two eggs.":                            FormatText,
		"1\n2\n3":                                   FormatText,
		"מערבבים":                                   FormatText,
		"a\x00b cannot be helped":                   FormatText,
		"[1.5s] not a stamp":                        FormatText,
	} {
		track, err := Parse([]byte(input), Options{})
		check.That(t, err == nil && track.Format == want, "%q: format %q, error %v; want %s", input, track.Format, err, want)
	}
}

// TestErrorsSayWhatToDo holds the messages: a person reads them.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	const (
		first   = `; the first line has to be "WEBVTT", in capitals, alone or followed by a space or a tab, with nothing before it`
		itself  = "; give the caption file itself, as UTF-8"
		again   = "; the file has to hold captions; fetch it once more"
		missing = `; put the line "WEBVTT" and an empty line before the first cue`
	)
	for input, want := range map[string]string{
		"":                                      "not captions: found nothing: the input is empty" + again,
		"\ufeff":                                "not captions: found nothing: the input is empty" + again,
		" \n\r\n\t":                             "not captions: found nothing but empty lines" + again,
		"WEBVTTx\n":                             `not captions: found "WEBVTTx"` + first,
		"WebVTT\n\n1\n" + at01:                  `not captions: found "WebVTT"` + first,
		"\nWEBVTT\n":                            `not captions: found "WEBVTT"` + first,
		"garbage\n\n" + at01 + "\ntext":         `not captions: found "garbage"` + missing,
		at01 + "\ntext":                         `not captions: found "00:00.000 --> 00:01.000"` + missing,
		"<!DOCTYPE html><title>Sign in":         "not captions: found an HTML page" + itself,
		"\n <HTML lang=en>":                     "not captions: found an HTML page" + itself,
		"<?xml version='1.0'?><tt/>":            "not captions: found XML" + itself,
		"<transcript><text start='0'>":          "not captions: found XML" + itself,
		`{"wireMagic":"pb3","events":[]}`:       "not captions: found JSON" + itself,
		"#EXTM3U\n#EXT-X-VERSION:3":             "not captions: found an HLS playlist" + itself,
		"[Script Info]\nTitle: x":               "not captions: found SubStation Alpha subtitles" + itself,
		"\x1f\x8b\x08\x00\x00":                  "not captions: found gzip data" + itself,
		"PK\x03\x04\x14\x00":                    "not captions: found a ZIP archive" + itself,
		"%PDF-1.7\n":                            "not captions: found a PDF" + itself,
		"\xff\xfeW\x00E\x00B\x00":               "not captions: found text in UTF-16" + itself,
		"W\x00E\x00B\x00V\x00T\x00T\x00":        "not captions: found binary data" + itself,
		"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR":   "not captions: found binary data" + itself,
		strings.Repeat("\x01\x02\xff", 3000):    "not captions: found binary data" + itself,
		"WEBVTT" + strings.Repeat("\u05d0", 60): `not captions: found "WEBVTT` + strings.Repeat(`\u05d0`, 17) + `"...` + first,
	} {
		_, err := Parse([]byte(input), Options{})
		wrong, ok := errors.AsType[*FormatError](err)
		if !ok || wrong.Found == "" {
			t.Errorf("%q: error %v", input, err)
			continue
		}
		diff := cmp.Diff(want, err.Error())
		check.That(t, diff == "", "%q (-want +got):\n%s", input, diff)
	}
	_, err := Parse([]byte("garbage"), Options{Timed: true})
	want := `not captions: found "garbage"; a WebVTT file begins with the line "WEBVTT"`
	check.That(t, err != nil && err.Error() == want, "got %v, want %s", err, want)
}

func TestTextWithoutTimesIsRefused(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]Format{
		"WEBVTT": FormatWebVTT, "[0.00s] a": FormatText, "1\n00:00:00,000 --> 00:00:01,000\na": FormatSRT, "garbage": "", "1\n2\n3": "",
	} {
		track, err := Parse([]byte(input), Options{Timed: true})
		_, refused := errors.AsType[*FormatError](err)
		check.That(t, refused == (want == "") && track.Format == want, "%q: format %q, error %v; want %q", input, track.Format, err, want)
	}
}

// TestPlainWebVTT has a case for each state of the tokenizer.
func TestPlainWebVTT(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/plain.tsv") {
		check.Same(t, row[0], (Cue{Format: FormatWebVTT, Text: unquote(t, row[0])}).Plain(), unquote(t, row[1]))
	}
}

// TestCharacterReferences follows "consume a character reference" of HTML, outside of attributes.
func TestCharacterReferences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": "\u00a0", "&lrm;": "\u200e", "&rlm;": "\u200f", "&quot;": `"`, "&apos;": "'",
		"&hellip;": "…", "&eacute;": "é", "&Eacute;": "É", "&frac12;": "½", "&rarr;": "→", "&NotEqualTilde;": "≂̸", "&fjlig;": "fj",
		"&CounterClockwiseContourIntegral;": "∳", "&CounterClockwiseContourIntegralx;": "&CounterClockwiseContourIntegralx;",

		// Without the semicolon, only some names count, and only the longest.
		"&amp": "&", "&ampx": "&x", "&amp x": "& x", "&lt3": "<3", "&copy2": "©2", "&notit;": "¬it;", "&notin;": "∉", "&notin": "¬in",
		"&hellip": "&hellip", "&apos": "&apos", "&AMP;": "&", "&Amp;": "&Amp;", "&ampamp;": "&amp;", "&amplt;": "&lt;", "&amp=": "&=",

		// Texts that are no references.
		"&": "&", "&&": "&&", "& amp;": "& amp;", "&;": "&;", "&unknown;": "&unknown;", "&amp&": "&&", "&a": "&a", "AT&T": "AT&T",
		"&-amp;": "&-amp;", "&é;": "&é;", "&lt&gt": "<>",

		// Numbers.
		"&#65;": "A", "&#x41;": "A", "&#X4a;": "J", "&#65": "A", "&#65x": "Ax", "&#6": "\x06", "&#9": "\t", "&#x9g": "\tg", "&#39;s": "'s",
		"&#": "&#", "&#;": "&#;", "&#x": "&#x", "&#x;": "&#x;", "&#xg;": "&#xg;", "&#-1;": "&#-1;", "&# 1;": "&# 1;", "&#x1F35E;": "🍞",
		"&#0;": "\ufffd", "&#x0": "\ufffd", "&#xD800;": "\ufffd", "&#xDFFF;": "\ufffd", "&#x110000;": "\ufffd", "&#4294967361;": "\ufffd",
		"&#99999999999999999999999;": "\ufffd", "&#x80;": "€", "&#146;": "’", "&#x9F": "Ÿ", "&#x81;": "\u0081", "&#x10FFFF;": "\U0010ffff",
		"&#00000000000000000065;": "A", "&#xFFFE;": "\ufffe",
	} {
		check.Same(t, fmt.Sprintf("%q gives", text), unescape(text), want)
		got := unescape("x" + text)
		check.That(t, got == "x"+want, "%q gives %q, want %q", "x"+text, got, "x"+want)
	}
}
