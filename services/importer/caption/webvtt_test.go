package caption

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// got is the part of a cue that a conformance test compares.
type got struct {
	ID, Times, Text string
}

func readVTT(t testing.TB, input string) []got {
	t.Helper()
	track, err := Parse(strings.NewReader(input), Options{Format: FormatWebVTT})
	check.Require(t, err == nil, "%q: %v", input, err)
	return cuesOf(track)
}

func cuesOf(track Track) []got {
	var cues []got
	for _, c := range track.Cues {
		cues = append(cues, got{c.ID, c.Start.String() + "-" + c.End.String(), c.Text})
	}
	return cues
}

// The times of most cues below.
const (
	at01   = "00:00.000 --> 00:01.000"
	span01 = "0s-1s"
)

// TestFileStructure has a case or more for each step of "WebVTT parser algorithm" and "collect a WebVTT block".
func TestFileStructure(t *testing.T) {
	t.Parallel()
	one := []got{{"", span01, "text"}}
	for _, c := range []struct {
		name, input string
		want        []got
	}{
		// The signature and the text behind it.
		{"signature alone", "WEBVTT", nil},
		{"signature and line end", "WEBVTT\n", nil},
		{"signature and empty lines", "WEBVTT\n\n\n", nil},
		{"byte order mark", "\ufeffWEBVTT\n\n" + at01 + "\ntext", one},
		{"byte order mark alone", "\ufeffWEBVTT", nil},
		{"space", "WEBVTT \n\n" + at01 + "\ntext", one},
		{"space and no line end", "WEBVTT ", nil},
		{"tab", "WEBVTT\t\n\n" + at01 + "\ntext", one},
		{"tab and no line end", "WEBVTT\t", nil},
		{"text after the signature", "WEBVTT - a file\n\n" + at01 + "\ntext", one},
		{"arrow after the signature", "WEBVTT --> 00:00.000 --> 00:01.000\n\n" + at01 + "\ntext", one},
		{"timings after the signature", "WEBVTT " + at01 + "\ntext\n\n" + at01 + "\ntext", one},

		// The header.
		{"no empty line before the cue", "WEBVTT\n" + at01 + "\ntext", one},
		{"garbage in the header", "WEBVTT\ngarbage\nmore: garbage\n\n" + at01 + "\ntext", one},
		{"timings end the header", "WEBVTT\nKind: captions\n" + at01 + "\ntext", one},
		{"the header gives no identifier", "WEBVTT\nid\n" + at01 + "\ntext", one},
		{"bad timings end the header", "WEBVTT\ngarbage --> here\ntext\n\n" + at01 + "\ntext", one},
		{"a line with a space is part of the header", "WEBVTT\n \n" + at01 + "\ntext", one},
		{"a line with a tab is part of the header", "WEBVTT\n\t\n" + at01 + "\ntext", one},
		{"header goes on to the empty line", "WEBVTT\n\t\nid\n" + at01 + "\ntext", one},
		{"region in the header", "WEBVTT\nRegion: id=foo width=40%\n\n" + at01 + " region:foo\ntext", one},
		{"header at the end", "WEBVTT\nKind: captions", nil},

		// Line ends.
		{"CR", "WEBVTT\r\r" + at01 + "\ra\rb\r\r" + at01 + "\rtext", []got{{"", span01, "a\nb"}, {"", span01, "text"}}},
		{"CRLF", "WEBVTT\r\n\r\n" + at01 + "\r\na\r\nb\r\n\r\n" + at01 + "\r\ntext\r\n", []got{{"", span01, "a\nb"}, {"", span01, "text"}}},
		{"CR then CRLF", "WEBVTT\r\r\n" + at01 + "\ntext", one},
		{"LF CR are two", "WEBVTT\n\r" + at01 + "\ntext\n\rid\n" + at01 + "\n", []got{{"", span01, "text"}, {"id", span01, ""}}},
		{"mixed", "WEBVTT\r\n\n\r" + at01 + "\na\r\nb\rc\n", []got{{"", span01, "a\nb\nc"}}},
		{"CRLF is one in the text", "WEBVTT\n\n" + at01 + "\r\na\r\nb", []got{{"", span01, "a\nb"}}},
		{"other separators are text", "WEBVTT\n\n" + at01 + "\na\vb\fc\u0085d\u2028e", []got{{"", span01, "a\vb\fc\u0085d\u2028e"}}},

		// NUL and invalid UTF-8.
		{"NUL", "WEBVTT\n\ni\x00d\n" + at01 + "\nte\x00xt\x00", []got{{"i\ufffdd", span01, "te\ufffdxt\ufffd"}}},
		{"NUL alone on a line", "WEBVTT\n\n" + at01 + "\n\x00\nb", []got{{"", span01, "\ufffd\nb"}}},
		{"NUL in the header", "WEBVTT \x00\n\n" + at01 + "\ntext", one},
		{"NUL in the timings", "WEBVTT\n\n00:00.000\x00--> 00:01.000\nlost\n\n" + at01 + "\ntext", one},
		{"stray bytes", "WEBVTT\n\n" + at01 + "\na\xffb\xc3", []got{{"", span01, "a\ufffdb\ufffd"}}},

		// Blocks.
		{"text of several lines", "WEBVTT\n\n" + at01 + "\na\nb\nc", []got{{"", span01, "a\nb\nc"}}},
		{"empty text", "WEBVTT\n\n" + at01 + "\n\n" + at01 + "\ntext", []got{{"", span01, ""}, {"", span01, "text"}}},
		{"timings at the end of the file", "WEBVTT\n\n" + at01, []got{{"", span01, ""}}},
		{"timings and a line end at the end of the file", "WEBVTT\n\nid\n" + at01 + "\n", []got{{"id", span01, ""}}},
		{"a line of spaces is text", "WEBVTT\n\n" + at01 + "\n \na\n\t\nb\n \n\nlost", []got{{"", span01, " \na\n\t\nb\n "}}},
		{"the text ends at an empty line", "WEBVTT\n\n" + at01 + "\ntext\n\nlost\nlost", one},
		{"many empty lines", "WEBVTT\n\n\n\n\n" + at01 + "\ntext\n\n\n\n", one},
		{"space around the text stays", "WEBVTT\n\n" + at01 + "\n  a \t", []got{{"", span01, "  a \t"}}},

		// Identifiers.
		{"identifier", "WEBVTT\n\nid\n" + at01 + "\ntext", []got{{"id", span01, "text"}}},
		{"identifier verbatim", "WEBVTT\n\n  an  id \t<b>&amp;\n" + at01 + "\ntext", []got{{"  an  id \t<b>&amp;", span01, "text"}}},
		{"identifier of a space", "WEBVTT\n\n \n" + at01 + "\ntext", []got{{" ", span01, "text"}}},
		{"identifier of dashes", "WEBVTT\n\n-- >\n" + at01 + "\ntext", []got{{"-- >", span01, "text"}}},
		{"identifier twice", "WEBVTT\n\nx\n" + at01 + "\na\n\nx\n" + at01 + "\nb", []got{{"x", span01, "a"}, {"x", span01, "b"}}},
		{"two lines before the timings are none", "WEBVTT\n\nlost\nlost\n" + at01 + "\ntext", one},
		{"the last of three lines is none either", "WEBVTT\n\na\nb\nc\n" + at01 + "\ntext", one},
		{"identifier apart from its timings", "WEBVTT\n\nid\n\n" + at01 + "\ntext", one},
		{"digits", "WEBVTT\n\n1\n" + at01 + "\ntext\n\n2\n" + at01 + "\n3", []got{{"1", span01, "text"}, {"2", span01, "3"}}},

		// Arrows where they do not belong.
		{"timings in the text begin a cue", "WEBVTT\n\n" + at01 + "\na\n00:02.000 --> 00:03.000\nb", []got{{"", span01, "a"}, {"", "2s-3s", "b"}}},
		{"timings after timings", "WEBVTT\n\n" + at01 + "\n00:02.000 --> 00:03.000\nb", []got{{"", span01, ""}, {"", "2s-3s", "b"}}},
		{"timings after an identifier and timings", "WEBVTT\n\nid\n" + at01 + "\n00:02.000 --> 00:03.000\nb", []got{{"id", span01, ""}, {"", "2s-3s", "b"}}},
		{"an arrow ends the text and its block is lost", "WEBVTT\n\n" + at01 + "\na\nb-->c\nlost\n\n" + at01 + "\ntext", []got{{"", span01, "a"}, {"", span01, "text"}}},
		{"an arrow as the identifier", "WEBVTT\n\n-->\n" + at01 + "\ntext", one},
		{"two arrows as the identifier", "WEBVTT\n\n-->\n-->\n" + at01 + "\ntext", one},
		{"an arrow after an identifier", "WEBVTT\n\nid\n-->\n" + at01 + "\ntext", one},
		{"an arrow below the timings", "WEBVTT\n\n" + at01 + "\n-->\ntext\n\n" + at01 + "\ntext", []got{{"", span01, ""}, {"", span01, "text"}}},
		{"an arrow at the end", "WEBVTT\n\n" + at01 + "\ntext\n-->", one},
		{"a longer arrow", "WEBVTT\n\n00:00.000 ---> 00:01.000\nlost\n\n" + at01 + "\ntext", one},
		{"a spaced arrow is none", "WEBVTT\n\n00:00.000 -- > 00:01.000\n" + at01 + "\ntext", []got{{"00:00.000 -- > 00:01.000", span01, "text"}}},

		// Comments, styles, regions.
		{"comment", "WEBVTT\n\nNOTE a comment\nof two lines\n\n" + at01 + "\ntext", one},
		{"comment alone", "WEBVTT\n\nNOTE\n\n" + at01 + "\ntext", one},
		{"comment at the end", "WEBVTT\n\n" + at01 + "\ntext\n\nNOTE the end", one},
		{"timings in a comment make a cue", "WEBVTT\n\nNOTE\n" + at01 + "\ntext", []got{{"NOTE", span01, "text"}}},
		{"timings deeper in a comment do too", "WEBVTT\n\nNOTE\na comment\n" + at01 + "\ntext", one},
		{"style", "WEBVTT\n\nSTYLE\n::cue { color: red }\n\n" + at01 + "\ntext", one},
		{"style and space", "WEBVTT\n\nSTYLE \t\n::cue { color: red }\n\n" + at01 + "\ntext", one},
		{"style ends at an empty line", "WEBVTT\n\nSTYLE\n::cue {\n\nid\n" + at01 + "\ntext", []got{{"id", span01, "text"}}},
		{"style without a line", "WEBVTT\n\nSTYLE\n\n" + at01 + "\ntext", one},
		{"timings right below STYLE", "WEBVTT\n\nSTYLE\n" + at01 + "\ntext", []got{{"STYLE", span01, "text"}}},
		{"an arrow in a style", "WEBVTT\n\nSTYLE\n::cue{}\n" + at01 + "\ntext", one},
		{"style after a cue", "WEBVTT\n\n" + at01 + "\ntext\n\nSTYLE\n::cue{}\n\n" + at01 + "\ntext", []got{one[0], one[0]}},
		{"region", "WEBVTT\n\nREGION\nid:fred\nwidth:40%\n\n" + at01 + " region:fred\ntext", one},
		{"region without an id", "WEBVTT\n\nREGION\nlines:x\n\n" + at01 + "\ntext", one},
		{"timings right below REGION", "WEBVTT\n\nREGION\n" + at01 + "\ntext", []got{{"REGION", span01, "text"}}},
		{"a block of another kind", "WEBVTT\n\nCHAPTER\nx\ny\n\n" + at01 + "\ntext", one},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			diff := cmp.Diff(c.want, readVTT(t, c.input))
			check.That(t, diff == "", "%q (-want +got):\n%s", c.input, diff)
		})
	}
}

func TestSignatureRefused(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		"", "\ufeff", "W", "WEBVT", "webvtt\n\n" + at01, "WEBVTTx", "WEBVTT\x00", "WEBVTT\ufffd", "WEBVTT\f\n", "WEBVTT-\n", "WEBVTT\u00a0",
		" WEBVTT\n", "\nWEBVTT\n", "\r\nWEBVTT\n", "\tWEBVTT", "\ufeff\ufeffWEBVTT\n", "WEB\nVTT\n", "garbage", "\x00WEBVTT", "\ufeff\tWEBVTT",
		"FOO\nWEBVTT\n", "\xfeWEBVTT\n", "W\x00E\x00B\x00V\x00T\x00T\x00",
	} {
		track, err := Parse(strings.NewReader(input), Options{Format: FormatWebVTT})
		_, ok := errors.AsType[*FormatError](err)
		check.That(t, ok && len(track.Cues) == 0, "%q: %d cues, error %v; want a FormatError", input, len(track.Cues), err)
	}
}

// TestTimings has a case for each way out of "collect a WebVTT timestamp" and "collect WebVTT cue timings and settings".
func TestTimings(t *testing.T) {
	t.Parallel()
	const bad = ""
	for line, want := range map[string]string{
		// Stamps.
		"00:00.000 --> 00:00.001":                      "0s-1ms",
		"00:01.234 --> 59:59.999":                      "1.234s-59m59.999s",
		"00:00:01.000 --> 00:00:02.000":                "1s-2s",
		"01:02:03.004 --> 11:12:13.014":                "1h2m3.004s-11h12m13.014s",
		"0:00:01.000 --> 1:00:02.000":                  "1s-1h0m2s",
		"000:00:01.000 --> 123:00:02.000":              "1s-123h0m2s",
		"60:00:00.000 --> 99:00:00.000":                "60h0m0s-99h0m0s",
		"1234567:00:00.000 --> 1234567:00:00.001":      "1234567h0m0s-1234567h0m0.001s",
		"00:00.000 --> 01:00:00.000":                   "0s-1h0m0s",
		"00:05.000 --> 00:01.000":                      "5s-1s", // the end may be before the start
		"00:01.000 --> 00:01.000":                      "1s-1s",
		"60:00.000 --> 61:00.000":                      bad, // more than 59 are hours, and then the seconds are missing
		"00:60.000 --> 01:00.000":                      bad,
		"00:00.000 --> 00:60.000":                      bad,
		"00:60:00.000 --> 01:00:00.000":                bad,
		"00:00:60.000 --> 01:00:00.000":                bad,
		"00:00.000 --> 00:99:00.000":                   bad,
		"0:01.000 --> 00:02.000":                       bad,
		"000:01.000 --> 00:02.000":                     bad,
		"00:1.000 --> 00:02.000":                       bad,
		"00:001.000 --> 00:02.000":                     bad,
		"00:0:01.000 --> 00:02.000":                    bad,
		"00:00:1.000 --> 00:02.000":                    bad,
		"00:000:01.000 --> 00:02.000":                  bad,
		"00:00:001.000 --> 00:02.000":                  bad,
		"00:01.0 --> 00:02.000":                        bad,
		"00:01.00 --> 00:02.000":                       bad,
		"00:01.0000 --> 00:02.000":                     bad,
		"00:01. --> 00:02.000":                         bad,
		"00:01 --> 00:02.000":                          bad,
		"01.000 --> 00:02.000":                         bad,
		"00:01,000 --> 00:02,000":                      bad,
		"00:01:000 --> 00:02:000":                      bad,
		"00.01.000 --> 00:02.000":                      bad,
		"00:00:00:01.000 --> 00:02.000":                bad,
		"-00:01.000 --> 00:02.000":                     bad,
		"00:-1.000 --> 00:02.000":                      bad,
		"00:01.-00 --> 00:02.000":                      bad,
		"+00:01.000 --> 00:02.000":                     bad,
		"00:01.000 --> -00:02.000":                     bad,
		"aa:01.000 --> 00:02.000":                      bad,
		"00:aa.000 --> 00:02.000":                      bad,
		"00:01.aaa --> 00:02.000":                      bad,
		"00:01.00a --> 00:02.000":                      bad,
		"0a:00:01.000 --> 00:02.000":                   bad,
		"00: 01.000 --> 00:02.000":                     bad,
		"\u0660\u0660:01.000 --> 00:02.000":            bad, // digits of other scripts
		"\uff10\uff10:01.000 --> 00:02.000":            bad,
		"00\uff1a01.000 --> 00:02.000":                 bad,
		"0x00:01.000 --> 00:02.000":                    bad,
		"1e1:00:01.000 --> 00:02.000":                  bad,
		"00:00.000 --> 00:01.000 --> 00:02.000":        span01, // settings, and bad ones
		"00:00.000 --> 00:01.0001":                     bad,
		"00:00.000 --> 00:01.00":                       bad,
		"00:00.000 --> 00:01":                          bad,
		"00:00.000 --> 00:":                            bad,
		"00:00.000 --> ":                               bad,
		"00:00.000 -->":                                bad,
		" --> 00:01.000":                               bad,
		"-->":                                          bad,
		"00:00.000 --> text":                           bad,
		"text 00:00.000 --> 00:01.000":                 bad,
		"99999999999999999999:00:00.000 --> 00:01.000": maxStamp.String() + "-1s",

		"18446744073709551617:00:00.000 --> 00:01.000": maxStamp.String() + "-1s", // 2^64 + 1
		"18446744073709551616:60:00.000 --> 00:01.000": bad,

		// The arrow and the space around it.
		"00:00.000-->00:01.000":                   span01,
		"00:00.000 -->00:01.000":                  span01,
		"00:00.000--> 00:01.000":                  span01,
		"\t 00:00.000\t  -->\f00:01.000 ":         span01,
		"   00:00.000     -->     00:01.000     ": span01,
		"\f00:00.000\f-->\f00:01.000\f":           span01,
		"\v00:00.000 --> 00:01.000":               bad,
		"00:00.000\v--> 00:01.000":                bad,
		"00:00.000\u00a0--> 00:01.000":            bad,
		"00:00.000 -->\u200300:01.000":            bad,
		"00:00.000 ---> 00:01.000":                bad,
		"00:00.000 -->> 00:01.000":                bad,
		"00:00.000 x--> 00:01.000":                bad,
		"00:00.000 -->x 00:01.000":                bad,
		"00:00.000 - --> 00:01.000":               bad,
		"00:00.000 --\u2192 00:01.000 -->":        bad,
		"00:00.000 \u2014> --> 00:01.000":         bad,

		// Settings spoil nothing.
		"00:00.000 --> 00:01.000 align:start position:0%":       span01,
		"00:00.000 --> 00:01.000align:start":                    span01,
		"00:00.000 --> 00:01.000 align:nonsense position:-200%": span01,
		"00:00.000 --> 00:01.000 garbage : :: % \ufffd":         span01,
		"00:00.000 --> 00:01.000\u00a0align:start":              span01,
		"00:00.000 --> 00:01.000:00":                            span01,
		"00:00.000 --> 00:01.000,5":                             span01,
		"00:00.000 --> 00:01.000-":                              span01,
		"00:00.000 --> 00:01.000 region:fred line:1e9,end":      span01,
	} {
		want := []got{{"id", want, "text"}}
		if want[0].Times == bad {
			want = nil
		}
		diff := cmp.Diff(want, readVTT(t, "WEBVTT\n\nid\n"+line+"\ntext"))
		check.That(t, diff == "", "%q (-want +got):\n%s", line, diff)
	}
}

func TestSkippedCuesAreCounted(t *testing.T) {
	t.Parallel()
	track, err := Parse(strings.NewReader("WEBVTT\nKind: captions\nlanguage : en-GB \n\n0:1 --> 0:2\nlost\n\n"+at01+"\ntext\nx --> y\nlost"), Options{})
	check.OK(t, err)
	want := Track{
		Summary: Summary{Format: FormatWebVTT, Kind: "captions", Language: "en-GB", Skipped: 2, Timed: true},
		Cues:    []Cue{{End: time.Second, Text: "text", Format: FormatWebVTT, Line: 8}},
	}
	check.Equal(t, want, track)
}

// TestHeaderWords has headers that state the kind and the language, and lines that only look alike.
func TestHeaderWords(t *testing.T) {
	t.Parallel()
	for header, want := range map[string][2]string{
		"Kind: captions\nLanguage: pt-BR": {"captions", "pt-BR"}, "LANGUAGE:iw": {"", "iw"}, " kind :\tsubtitles ": {"subtitles", ""}, "Language": {"", ""},
		"Language: two words": {"", ""}, "Language: \x1b[31m": {"", ""}, "Kind: é": {"", ""}, "Language: " + strings.Repeat("x", 100): {"", ""}, "X-Language: en": {"", ""},
	} {
		track := parse(t, "WEBVTT\n"+header+"\n\n"+at01+"\nKind: text", Options{})
		check.Same(t, header, [2]string{track.Kind, track.Language}, want)
	}
}

func TestSubRip(t *testing.T) {
	t.Parallel()
	const at = "00:00:00,000 --> 00:00:01,000"
	for _, c := range []struct {
		name, input string
		want        []got
		skipped     int
	}{
		{"as it should be", "1\n" + at + "\na\nb\n\n2\n00:00:01,500 --> 01:00:02,250\nc\n", []got{{"1", span01, "a\nb"}, {"2", "1.5s-1h0m2.25s", "c"}}, 0},
		{"byte order mark and CRLF", "\ufeff1\r\n" + at + "\r\na\r\n\r\n2\r\n" + at + "\r\nb\r\n\r\n", []got{{"1", span01, "a"}, {"2", span01, "b"}}, 0},
		{"empty lines before", "\n\n1\n" + at + "\na", []got{{"1", span01, "a"}}, 0},
		{"full stop and colon", "1\n00:00:00.000 --> 00:00:01:000\na", []got{{"1", span01, "a"}}, 0},
		{"fewer digits", "1\n0:0:0,5 --> 0:00:1,25\na", []got{{"1", "500ms-1.25s", "a"}}, 0},
		{"more digits", "1\n00:00:00,0001 --> 00:00:00,123456\na", []got{{"1", "0s-123ms", "a"}}, 0},
		{"no fraction", "1\n00:00:00 --> 00:00:01,0\na", []got{{"1", span01, "a"}}, 0},
		{"no hours", "1\n00:00,000 --> 00:01,000\na", []got{{"1", span01, "a"}}, 0},
		{"long hours", "1\n00:00:00,000 --> 100:00:00,000\na", []got{{"1", "0s-100h0m0s", "a"}}, 0},
		{"no space", "1\n00:00:00,000-->00:00:01,000\na", []got{{"1", span01, "a"}}, 0},
		{"space around", "  1 \n\t" + at + "  \n  a \n", []got{{"1", span01, "a"}}, 0},
		{"coordinates", "1\n" + at + "  X1:100 X2:200 Y1:1 Y2:2\na", []got{{"1", span01, "a"}}, 0},
		{"no numbers", at + "\na\n\n" + at + "\nb", []got{{"", span01, "a"}, {"", span01, "b"}}, 0},
		{"no numbers but digits", at + "\na\n350\n" + at + "\nb", []got{{"", span01, "a\n350"}, {"", span01, "b"}}, 0},
		{"a number is missing", "1\n" + at + "\na\n\n" + at + "\nb\n\n3\n" + at + "\nc", []got{{"1", span01, "a"}, {"", span01, "b"}, {"3", span01, "c"}}, 0},
		{"no empty line", "1\n" + at + "\na\n2\n" + at + "\nb", []got{{"1", span01, "a"}, {"2", span01, "b"}}, 0},
		{"an empty line in the text", "1\n" + at + "\na\n\nb\n\n2\n" + at + "\nc", []got{{"1", span01, "a\nb"}, {"2", span01, "c"}}, 0},
		{"digits as text", "1\n" + at + "\n350\n\n2\n" + at + "\n1\n2", []got{{"1", span01, "350"}, {"2", span01, "1\n2"}}, 0},
		{"empty cues", "1\n" + at + "\n\n2\n" + at + "\n\n", []got{{"1", span01, ""}, {"2", span01, ""}}, 0},
		{"text before the first cue", "a film\n\n1\n" + at + "\na", []got{{"1", span01, "a"}}, 0},
		{"an arrow in the text", "1\n" + at + "\na --> b\n", []got{{"1", span01, "a --> b"}}, 0},
		{"bad times", "1\n" + at + "\na\n\n2\n00:00:xx,000 --> 00:00:01,000\nlost\n\n3\n" + at + "\nc", []got{{"1", span01, "a"}, {"3", span01, "c"}}, 1},
		{"minutes above 59", "1\n" + at + "\na\n\n2\n00:60:00,000 --> 00:61:01,000\nlost", []got{{"1", span01, "a"}}, 1},
		{"end of a stamp missing", "1\n" + at + "\na\n\n2\n00:00:01,000 --> 5\nlost", []got{{"1", span01, "a"}}, 1},
		{"fraction missing", "1\n" + at + "\na\n\n2\n00:00:01, --> 00:00:02,000\nlost", []got{{"1", span01, "a"}}, 1},
		{"NUL and stray bytes", "1\n" + at + "\na\x00\xff", []got{{"1", span01, "a\ufffd\ufffd"}}, 0},
	} {
		track, err := Parse(strings.NewReader(c.input), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, cuesOf(track)); diff != "" || track.Skipped != c.skipped || track.Format != FormatSRT || !track.Timed {
			t.Errorf("%s: %d skipped, want %d; format %s (-want +got):\n%s", c.name, track.Skipped, c.skipped, track.Format, diff)
		}
	}
}

func TestSubRipMarkup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"<i>a</i> <B>b</B> <u>c</u>": "a b c", `<font color="#ff0000">red</font>`: "red", `{\an8}top`: "top", `{\i1}a{\i0}b`: "ab",
		"3 < 4 and 5 > 2": "3 < 4 and 5 > 2", "a <b": "a <b", "<3 you": "<3 you", "{a}": "{a}", "{": "{", "<": "<", `{\an8`: `{\an8`,
		"<unknown>a": "<unknown>a", "a<br>b<br/>c": "abc", "&amp; &lt;b&gt;": "& <b>", "one\ntwo": "one two", "<>": "<>", "</>": "</>",
		"<font" + strings.Repeat(" ", 500) + ">": "<font >",
	} {
		check.Same(t, fmt.Sprintf("%q reads", text), (Cue{Format: FormatSRT, Text: text}).Plain(), want)
	}
}

func TestNotSubRip(t *testing.T) {
	t.Parallel()
	_, err := Parse(strings.NewReader("hello\nthere"), Options{Format: FormatSRT})
	wrong, ok := errors.AsType[*FormatError](err)
	check.That(t, ok && wrong.Want == FormatSRT && wrong.Found == `"hello"`, "got %v", err)
}
