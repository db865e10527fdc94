package caption

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"testing"
	"testing/iotest"

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
		track, err := Parse(strings.NewReader(input), Options{})
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
		_, err := Parse(strings.NewReader(input), Options{})
		wrong, ok := errors.AsType[*FormatError](err)
		if !ok || wrong.Want != FormatAuto {
			t.Errorf("%q: error %v", input, err)
			continue
		}
		diff := cmp.Diff(want, err.Error())
		check.That(t, diff == "", "%q (-want +got):\n%s", input, diff)
	}
	_, err := Parse(strings.NewReader("garbage"), Options{Format: FormatWebVTT})
	want := `not a WebVTT file: found "garbage"; a WebVTT file begins with the line "WEBVTT"`
	check.That(t, err != nil && err.Error() == want, "got %v, want %s", err, want)
}

func TestTextWithoutTimesIsRefused(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]Format{
		"WEBVTT": FormatWebVTT, "[0.00s] a": FormatText, "1\n00:00:00,000 --> 00:00:01,000\na": FormatSRT, "garbage": "", "1\n2\n3": "",
	} {
		track, err := Parse(strings.NewReader(input), Options{Timed: true})
		_, refused := errors.AsType[*FormatError](err)
		check.That(t, refused == (want == "") && track.Format == want, "%q: format %q, error %v; want %q", input, track.Format, err, want)
	}
}

func TestTextIsAnything(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"", "\n\n", "<html>", "\x00\x01\x02", "WEBVTT\n\nx"} {
		track, err := Parse(strings.NewReader(input), Options{Format: FormatText})
		check.That(t, err == nil && track.Format == FormatText, "%q: format %q, error %v", input, track.Format, err)
	}
}

func TestReadersFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, text := range []string{"", "WEBVTT\n\n" + at01 + "\ntext\n", "1\n00:00:00,000 --> 00:00:01,000\na\n", "a\nb\n", "[0.00s] a\n", strings.Repeat("a\n", 5000)} {
		track, err := Parse(iotest.DataErrReader(&failing{text: text, err: broken}), Options{})
		check.That(t, errors.Is(err, broken) && track.Cues == nil, "%.20q: %d cues, error %v", text, len(track.Cues), err)
	}
	check.Failsf(t, check.Err(Parse(iotest.ErrReader(nil), Options{})), "a reader that returns nothing for ever: no error")
}

// failing is a reader that ends with an error.
type failing struct {
	text string
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.text == "" {
		return 0, f.err
	}
	n := copy(p, f.text)
	f.text = f.text[n:]
	return n, nil
}

// TestPlainWebVTT has a case for each state of the tokenizer.
func TestPlainWebVTT(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, plain string }{
		// Text.
		{"", ""},
		{"text", "text"},
		{"a\nb", "a b"},
		{"a > b", "a > b"},
		{" a  b\t", "a b"},

		// The tags there are.
		{"<b>x</b>", "x"},
		{"<i>x</i><u>y</u>", "xy"},
		{"<c>x</c>", "x"},
		{"<v Fred>x</v>", "x"},
		{"<lang en>x</lang>", "x"},
		{"<ruby>x<rt>y</rt></ruby>", "xy"},
		{"a<b>b<i>c</i>d</b>e", "abcde"},
		{"<b><b>x</b>y</b>z", "xyz"},

		// The tag state.
		{"a<", "a"},
		{"a<>b", "ab"},
		{"a< b>c", "ac"},
		{"a<\tb>c", "ac"},
		{"a<\nb>c", "ac"},
		{"a<.b>c", "ac"},
		{"a<-b>c", "ac"},
		{"a << b >c", "a c"},
		{"1 < 2 > 0", "1 0"},

		// The start tag state: other names are ignored, capitals are other names.
		{"<B>x</B>", "x"},
		{"<bold>x</bold>", "x"},
		{"<font color=red>x</font>", "x"},
		{"<br/>x", "x"},
		{"<b/>x", "x"},
		{"<b<i>x", "x"},
		{"<b&>x", "x"},
		{"<b", ""},
		{"x<i", "x"},
		{"<bx", ""},
		{"<b\n>x", "x"},
		{"<b\f>x", "x"},
		{"<b\v>x", "x"},
		{"<\u00a0b>x", "x"},

		// Classes.
		{"<c.a>x</c>", "x"},
		{"<c.a.b>x</c>", "x"},
		{"<i.a.b>x</i.a>y</i>", "xy"},
		{"<c.>x</c>", "x"},
		{"<c..a...b.>x</c>", "x"},
		{"<c.a", ""},
		{"<c.a b c>x</c>", "x"},
		{"<c.a\tb.c>x</c>", "x"},
		{"<c.a\nb.c>x</c>", "x"},
		{"<c.a&amp;b>x</c>", "x"},
		{"<c.colorE5E5E5>x</c>", "x"},
		{"<v.loud.slow  Fred  F. >x", "x"},

		// Annotations.
		{"<v   Fred \t Flint\nstone\f>x", "x"},
		{"<v>x", "x"},
		{"<v >x", "x"},
		{"<v\nFred>x", "x"},
		{"<v A&amp;B &lt;C&gt;>x", "x"},
		{"<v A&B>x", "x"},
		{"<v A&>x", "x"},
		{"<v A&nbsp;&nbsp;B>x", "x"},
		{"<v Fred", ""},
		{"<v <b>x", "x"},
		{"<b Fred>x", "x"},
		{"<c.a Fred>x", "x"},
		{"<lang  en-GB >x</lang>", "x"},
		{"<lang>x</lang>", "x"},
		{"<lang en>a<lang de>b</lang>c</lang>d", "abcd"},

		// End tags.
		{"x</b>y", "xy"},
		{"<b>x</>y", "xy"},
		{"<b>x</i>y</b>z", "xyz"},
		{"<b>x</b >y", "xy"},
		{"<b>x</ b>y", "xy"},
		{"<b>x</b", "x"},
		{"<b>x</b<i>y", "xy"},
		{"<b>x</", "x"},
		{"<b><i>x</b>y</i>z</b>", "xyz"},
		{"<v Fred>x</v Fred>y", "xy"},
		{"<c.a>x</c.a>y</c>z", "xyz"},
		{"<b>x", "x"},

		// Ruby.
		{"<rt>x</rt>", "x"},
		{"<ruby><b><rt>x</rt></b></ruby>", "x"},
		{"<ruby>a<rt>b</ruby>c", "abc"},
		{"<ruby>a<rt>b<rt>c</rt>d</rt>e", "abcde"},
		{"<ruby>a<rt>b</rt>c<rt>d</rt></ruby>", "abcd"},
		{"<ruby>a<rt>b<b>c</ruby>d", "abcd"},
		{"<ruby.x>a<rt.y>b", "ab"},
		{"<ruby><ruby>a</ruby>b</ruby>c", "abc"},

		// Timestamps.
		{"a<00:01.000>b", "ab"},
		{"a<01:00:01.500><c> b</c>", "a b"},
		{"a<00:01.000", "a"},
		{"<b>a<00:01.000>b</b>", "ab"},
		{"a<00:01.00>b", "ab"},
		{"a<00:61.000>b", "ab"},
		{"a<00:01.000 >b", "ab"},
		{"a<00:01.0000>b", "ab"},
		{"a<1>b", "ab"},
		{"a<5 eggs>b", "ab"},
		{"a< 00:01.000>b", "ab"},
		{"a<x00:01.000>b", "ab"},
		{"a</00:01.000>b", "ab"},

		// Character references, which only text and annotations have.
		{"a &amp; b &lt;b&gt;", "a & b <b>"},
		{"<b>&amp;amp;</b>", "&amp;"},
		{"&lt;b>x&lt;/b>", "<b>x</b>"},
		{"&<b>x</b>;", "&x;"},
		{"&am<b>p;", "&amp;"},
		{"<&lt;b>x", "x"},
	} {
		got := (Cue{Format: FormatWebVTT, Text: c.text}).Plain()
		check.That(t, got == c.plain, "%q reads %q, want %q", c.text, got, c.plain)
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

// TestNamesAgreeWithStandardLibrary compares with a reader of HTML wherever both follow the standard.
func TestNamesAgreeWithStandardLibrary(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq("AMP Aacute lt LT gt copy reg yen sup1 thorn ETH szlig zwnj deg times divide frac34 middot laquo euro") {
		for _, text := range []string{"&" + name, "&" + name + ";", "&" + name + "y", "a&" + name + ";b&" + name + " c"} {
			got, want := unescape(text), html.UnescapeString(text)
			check.That(t, got == want, "%q gives %q, want %q", text, got, want)
		}
	}
}
