package caption

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func parse(t testing.TB, input string, opts Options) Track {
	t.Helper()
	track, err := Parse([]byte(input), opts)
	check.Require(t, err == nil, "%.60q: %v", input, err)
	return track
}

func TestEachLimitIsToldOf(t *testing.T) {
	t.Parallel()
	three := "WEBVTT\n\n" + strings.Repeat(at01+"\nfour\n\n", 3)
	for _, c := range []struct {
		name, input string
		opts        Options
		want        []cueFields
		cuts        []Cut
		cutCues     int
	}{
		{"two of three cues", three, Options{MaxCues: 2}, []cueFields{{"", span01, "four"}, {"", span01, "four"}}, []Cut{{"MaxCues", 2, 9}}, 0},
		{"text of two cues", three, Options{MaxTextBytes: 8}, []cueFields{{"", span01, "four"}, {"", span01, "four"}}, []Cut{{"MaxTextBytes", 8, 9}}, 0},
		{"in a line", "WEBVTT\n\n" + at01 + "\nfours", Options{MaxBytes: 8 + 24 + 3}, []cueFields{{"", span01, "fou"}}, []Cut{{"MaxBytes", 35, 4}}, 1},
		{"between lines", three, Options{MaxBytes: 8 + 24 + 5}, []cueFields{{"", span01, "four"}}, []Cut{{"MaxBytes", 37, 5}}, 0},
		{"the last byte", three, Options{MaxBytes: int64(len(three))}, []cueFields{{"", span01, "four"}, {"", span01, "four"}, {"", span01, "four"}}, nil, 0},
		{"a line of a text", "WEBVTT\n\n" + at01 + "\n" + strings.Repeat("x", 40), Options{MaxCueBytes: 30}, []cueFields{{"", span01, strings.Repeat("x", 30)}}, []Cut{{"MaxCueBytes", 30, 4}}, 1},
		{"a text of lines", "WEBVTT\n\n" + at01 + "\n" + strings.Repeat("x\n", 40) + "\n" + at01 + "\ny", Options{MaxCueBytes: 30}, []cueFields{{"", span01, strings.Repeat("x\n", 15)}, {"", span01, "y"}}, []Cut{{"MaxCueBytes", 30, 19}}, 1},
		{"no half characters", "WEBVTT\n\n" + at01 + "\n" + strings.Repeat("漢", 40), Options{MaxCueBytes: 31}, []cueFields{{"", span01, strings.Repeat("漢", 10)}}, []Cut{{"MaxCueBytes", 31, 4}}, 1},
		{"a comment", "WEBVTT\n\nNOTE " + strings.Repeat("x", 40) + "\n\n" + at01 + "\ny", Options{MaxCueBytes: 30}, []cueFields{{"", span01, "y"}}, []Cut{{"MaxCueBytes", 30, 3}}, 0},
		{"SRT: a line", "1\n00:00:00,000 --> 00:00:01,000\n" + strings.Repeat("x", 40), Options{MaxCueBytes: 32}, []cueFields{{"1", span01, strings.Repeat("x", 32)}}, []Cut{{"MaxCueBytes", 32, 3}}, 1},
		{"SRT: a text", "1\n00:00:00,000 --> 00:00:01,000\n" + strings.Repeat("x\n", 40), Options{MaxCueBytes: 31}, []cueFields{{"1", span01, strings.Repeat("x\n", 15) + "x"}}, []Cut{{"MaxCueBytes", 31, 19}}, 1},
		{"transcript: a text", "[0.00s] a\n" + strings.Repeat("x\n", 40), Options{MaxCueBytes: 11}, []cueFields{{"", "0s-0s", "a\nx\nx\nx\nx\nx"}}, []Cut{{"MaxCueBytes", 11, 7}}, 1},
		{"text: cues", "a\nb\nc\n", Options{MaxCues: 2}, []cueFields{{"", "0s-0s", "a"}, {"", "0s-0s", "b"}}, []Cut{{"MaxCues", 2, 3}}, 0},
		{"two limits", "abcdef\nb\n", Options{MaxCueBytes: 3, MaxCues: 1}, []cueFields{{"", "0s-0s", "abc"}}, []Cut{{"MaxCueBytes", 3, 1}, {"MaxCues", 1, 2}}, 1},
	} {
		track := parse(t, c.input, c.opts)
		cut := 0
		for _, cue := range track.Cues {
			if cue.Truncated {
				cut++
			}
		}
		diff := cmp.Diff(c.want, cuesOf(track))
		check.That(t, diff == "" && cut == c.cutCues, "%s: %d cues are cut, want %d (-want +got):\n%s", c.name, cut, c.cutCues, diff)
		if diff := cmp.Diff(c.cuts, track.Cuts); diff != "" || track.Truncated != (c.cuts != nil) || track.Transcript().Truncated != track.Truncated {
			t.Errorf("%s: truncated %t (-want +got):\n%s", c.name, track.Truncated, diff)
		}
	}
	got, want := (Cut{"MaxCues", 2, 10}).String(), "cut at line 10 by MaxCues (2)"
	check.That(t, got == want, "got %q, want %q", got, want)
}

// hostile are texts that are slow to read for a parser that looks at anything twice. Each is repeated.
var hostile = map[string]string{
	"ampersands": "&", "references": "&amp", "names": "&CounterClockwise", "numbers": "&#9", "open tags": "<b>", "open brackets": "<", "closed tags": "</b>",
	"ruby": "<ruby><rt>", "stamps": "<00:01.000>", "classes": "<c.a.b", "notes": "[", "notes with digits": "[1", "closed notes": "1]", "lines": "a\n", "spaces": " \n",
	"braces": "{\\", "arrows": "-->\n", "cues": "00:00.000 --> 00:01.000\na\n\n", "carriage returns": "\r", "NULs": "\x00", "bad bytes": "\xf0\x9f",
	"control characters": "\x1b", "annotations": "<v a b", "digits": "9", "rolling": "00:00.000 --> 00:01.000\na\nb\n\n00:01.000 --> 00:01.010\nb\n\n",
}

// TestWorkIsLinear counts the bytes that are looked at.
func TestWorkIsLinear(t *testing.T) {
	t.Parallel()
	for name, text := range hostile {
		work := func(times int) int {
			opts := Options{MaxCueBytes: 1 << 30, MaxCues: 1 << 30, MaxTextBytes: 1 << 40}.withDefaults()
			in := newLines([]byte("WEBVTT\n\n00:00.000 --> 00:01.000\n"+strings.Repeat(text, times)), opts)
			track := Track{Format: FormatWebVTT, Timed: true}
			track.read(in, open(in, &track))
			total := in.work
			for _, c := range track.Cues {
				total += len(c.Text)
			}
			return total
		}
		const times = 2000
		if once, twice := work(times), work(2*times); twice > 2*once+64 || once > 4*(len(text)*times+64) {
			t.Errorf("%s: %d steps for %d bytes, %d for twice as many", name, once, len(text)*times, twice)
		}
	}
}

// TestAllocationIsLinear reads everything and makes everything of it, of a text and of four times as much. What grows with the square of
// a text allocates sixteen times as much. It does not run beside other tests, whose memory would count as well. The garbage collector is
// off, since it empties pools, and there is one processor, since pools are by processor: the figures are then the same in each run.
func TestAllocationIsLinear(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30)) // reached only by what grows with the square
	for name, text := range hostile {
		for format, head := range map[Format]string{
			FormatWebVTT: "WEBVTT\n\n00:00.000 --> 00:01.000\n", FormatSRT: "1\n00:00:00,000 --> 00:00:01,000\n", FormatText: "[0.00s] ",
		} {
			allocated := func(times int) uint64 {
				input := head + strings.Repeat("x", headSize) + "\n" + strings.Repeat(text, times) // of which the format is decided by the head
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				track := makeEverything(t, input, Options{})
				runtime.ReadMemStats(&after)
				check.Equal(t, track.Format, format, name)
				return after.TotalAlloc - before.TotalAlloc
			}
			const times = 2000
			allocated(4 * times) // fills the pools
			once, four := allocated(times), allocated(4*times)
			check.That(t, four <= 6*once+64<<10, "%s as %s: %d bytes allocated for %d, %d for four times as many", name, format, once,
				len(text)*times, four)
			runtime.GC()
		}
	}
}

func makeEverything(t testing.TB, input string, opts Options) Track {
	t.Helper()
	track := parse(t, input, opts)
	for _, c := range track.Cues {
		c.Plain()
	}
	check.OK(t, track.Transcript().WriteText(io.Discard))
	return track
}

// TestRepair follows the UTF-8 decoder of the Encoding Standard: one U+FFFD for each part that could have begun a character.
func TestRepair(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "abc": "abc", "é漢🍞": "é漢🍞", "a\x00b": "a?b", "\x80": "?", "\xbf\xbf": "??", "\xff\xfe": "??", "a\xc3": "a?", "\xc3(": "?(",
		"\xc0\xaf": "??", "\xc1\x81": "??", "\xe2\x82": "?", "\xe2\x82a": "?a", "\xe2(\xa1": "?(?", "\xe0\x80\x80": "???", "\xe0\xa0": "?",
		"\xed\xa0\x80": "???", "\xed\x9f": "?", "\xf0\x9f\x8d": "?", "\xf0\x9f": "?", "\xf0\x80\x80\x80": "????", "\xf4\x90\x80\x80": "????",
		"\xf4\x8f\xbf": "?", "\xf5\x80": "??", "\xf1\x80\x80\xe1\x80\xc2b": "???b", "\ufffd": "?", "\xe2\x82\xe2\x82\xac": "?€",
	} {
		want = strings.ReplaceAll(want, "?", "\ufffd")
		got := repair([]byte(text))
		check.That(t, string(got) == want, "%q gives %q, want %q", text, got, want)
	}
}

// TestErrorsSayWhatToDo holds the messages: a person reads them.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	const (
		first   = `; the first line has to be "WEBVTT", in capitals, alone or followed by a space or a tab, with nothing before it`
		itself  = "; give the caption file itself, as WebVTT or SRT in UTF-8"
		again   = "; the file has to hold captions; fetch it again"
		missing = `; put the line "WEBVTT" and an empty line before the first cue`
	)
	for input, want := range map[string]string{
		"":                                "not captions: found nothing: the input is empty" + again,
		"\ufeff":                          "not captions: found nothing: the input is empty" + again,
		" \n\r\n\t":                       "not captions: found nothing but empty lines" + again,
		"WEBVTTx\n":                       `not captions: found "WEBVTTx"` + first,
		"WebVTT\n\n1\n" + at01:            `not captions: found "WebVTT"` + first,
		"\nWEBVTT\n":                      `not captions: found "WEBVTT"` + first,
		"garbage\n\n" + at01 + "\ntext":   `not captions: found "garbage"` + missing,
		at01 + "\ntext":                   `not captions: found "00:00.000 --> 00:01.000"` + missing,
		"<!DOCTYPE html><title>Sign in":   "not captions: found an HTML page" + itself,
		"\n <HTML lang=en>":               "not captions: found an HTML page" + itself,
		"<?xml version='1.0'?><tt/>":      "not captions: found TTML subtitles" + itself,
		"<transcript><text start='0'>":    "not captions: found XML" + itself,
		`{"wireMagic":"pb3","events":[]}`: "not captions: found YouTube's JSON3 captions" + itself,
		"{\n  \"events\": [ {":            "not captions: found YouTube's JSON3 captions" + itself,
		`{"subtitles":[]}`:                "not captions: found JSON" + itself,
		"<?xml version='1.0'?>\n<!-- <tt> -->\n<tt:tt xmlns:tt='http://www.w3.org/ns/ttml'>": "not captions: found TTML subtitles" + itself,
		"<?xml version='1.0'?>\n<!-- <tt> -->\n<subtitles>":                                  "not captions: found XML" + itself,
		"{0}{25}Add the eggs.|Stir.\n{30}{50}Bake.":                                          "not captions: found MicroDVD subtitles, whose times are numbers of frames" + itself,
		"{1}{1}25.000\n{30}{50}Rühren.":                                                      "not captions: found MicroDVD subtitles, whose times are numbers of frames" + itself,
		"[00:12.00]Add the eggs.\n[00:15.30]Stir.":                                           "not captions: found LRC lyrics" + itself,
		"[ti:Soup]\r\n[by: someone]\r\n\r\n[01:12.000] Rühren.":                              "not captions: found LRC lyrics" + itself,
		"[123][456] Add the eggs.\n[460][500]Stir.":                                          "not captions: found MPL2 subtitles, whose times are tenths of seconds" + itself,
		"00:00:50:Add the eggs.|Stir.\n00:00:53:Bake.":                                       "not captions: found TMPlayer subtitles" + itself,
		"<SAMI>\n<HEAD><TITLE></TITLE>":                                                      "not captions: found SAMI subtitles" + itself,
		"<window duration=\"30\">\n<time begin=\"1\"/>Stir.":                                 "not captions: found RealText" + itself,
		"{QTtext}{font:Tahoma}\n[00:00:00.11]\nStir.":                                        "not captions: found QuickTime's text" + itself,
		"Scenarist_SCC V1.0\n\n00:00:00:00\t9420 9420":                                       "not captions: found Scenarist captions" + itself,
		"start\tend\ttext\n0\t2000\tStir.":                                                   "not captions: found a table of times and texts" + itself,
		"0.000000\t2.500000\tStir.\n2.500000\t4.000000\tBake.":                               "not captions: found a table of times and texts" + itself,
		"#EXTM3U\n#EXT-X-VERSION:3":                                                          "not captions: found an HLS playlist" + itself,
		"[Script Info]\nTitle: x":                                                            "not captions: found SubStation Alpha subtitles" + itself,
		"\x1f\x8b\x08\x00\x00":                                                               "not captions: found gzip data" + itself,
		"PK\x03\x04\x14\x00":                                                                 "not captions: found a ZIP archive" + itself,
		"%PDF-1.7\n":                                                                         "not captions: found a PDF" + itself,
		"\xff\xfeW\x00E\x00B\x00":                                                            "not captions: found text in UTF-16" + itself,
		"W\x00E\x00B\x00V\x00T\x00T\x00":                                                     "not captions: found binary data" + itself,
		"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR":                                                "not captions: found binary data" + itself,
		strings.Repeat("\x01\x02\xff", 3000):                                                 "not captions: found binary data" + itself,
		"WEBVTT" + strings.Repeat("\u05d0", 60):                                              `not captions: found "WEBVTT` + strings.Repeat(`\u05d0`, 27) + `"...` + first,
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
	want := `not captions: found "garbage"; WebVTT begins with the line "WEBVTT", and each cue of SRT with a number and times such as ` +
		`00:01:02,500 --> 00:01:05,000`
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
		check.Equal(t, (Cue{Format: FormatWebVTT, Text: unquote(t, row[0])}).Plain(), unquote(t, row[1]), row[0])
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
		check.Equal(t, unescape(text), want, fmt.Sprintf("%q gives", text))
		got := unescape("x" + text)
		check.That(t, got == "x"+want, "%q gives %q, want %q", "x"+text, got, "x"+want)
	}
}
