package caption

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// got is the part of a cue that a conformance test compares.
type got struct {
	ID, Times, Text string
}

func readVTT(t testing.TB, input string) []got {
	t.Helper()
	track, err := Parse([]byte(input), Options{Timed: true})
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
	for _, row := range check.Rows(t, "testdata/structure.tsv") {
		t.Run(row[0], func(t *testing.T) {
			t.Parallel()
			check.Same(t, row[1], fmt.Sprintf("%q", readVTT(t, unquote(t, row[1]))), row[2])
		})
	}
}

// unquote returns the text of a cell.
func unquote(t testing.TB, cell string) string {
	t.Helper()
	return check.Must(strconv.Unquote(cell))(t)
}

func TestSignatureRefused(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		"", "\ufeff", "W", "WEBVT", "webvtt\n\n" + at01, "WEBVTTx", "WEBVTT\x00", "WEBVTT\ufffd", "WEBVTT\f\n", "WEBVTT-\n", "WEBVTT\u00a0",
		" WEBVTT\n", "\nWEBVTT\n", "\r\nWEBVTT\n", "\tWEBVTT", "\ufeff\ufeffWEBVTT\n", "WEB\nVTT\n", "garbage", "\x00WEBVTT", "\ufeff\tWEBVTT",
		"FOO\nWEBVTT\n", "\xfeWEBVTT\n", "W\x00E\x00B\x00V\x00T\x00T\x00",
	} {
		track, err := Parse([]byte(input), Options{Timed: true})
		_, ok := errors.AsType[*FormatError](err)
		check.That(t, ok && len(track.Cues) == 0, "%q: %d cues, error %v; want a FormatError", input, len(track.Cues), err)
	}
}

// TestTimings has a case for each way out of "collect a WebVTT timestamp" and "collect WebVTT cue timings and settings".
func TestTimings(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/timings.tsv") {
		want := []got{{"id", row[1], "text"}}
		if row[1] == "-" { // the cue is lost
			want = nil
		}
		check.Equal(t, want, readVTT(t, "WEBVTT\n\nid\n"+unquote(t, row[0])+"\ntext"))
	}
}

func TestSkippedCuesAreCounted(t *testing.T) {
	t.Parallel()
	track, err := Parse([]byte("WEBVTT\nKind: captions\nlanguage : en-GB \n\n0:1 --> 0:2\nlost\n\n"+at01+"\ntext\nx --> y\nlost"), Options{})
	check.OK(t, err)
	want := Track{
		Format: FormatWebVTT, Kind: "captions", Language: "en-GB", Skipped: 2, Timed: true,
		Cues: []Cue{{End: time.Second, Text: "text", Format: FormatWebVTT, Line: 8}},
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
	for _, row := range check.Rows(t, "testdata/subrip.tsv") {
		track, err := Parse([]byte(unquote(t, row[1])), Options{})
		check.Require(t, err == nil && track.Format == FormatSRT && track.Timed, "%s: %v, format %s", row[0], err, track.Format)
		check.Same(t, row[0], fmt.Sprint(track.Skipped), row[2])
		check.Same(t, row[0], fmt.Sprintf("%q", cuesOf(track)), row[3])
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
