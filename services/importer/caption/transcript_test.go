package caption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// vtt makes a WebVTT file of cues "start end text", the times in milliseconds.
func vtt(cues ...string) string {
	var b strings.Builder
	b.WriteString("WEBVTT\n")
	for _, c := range cues {
		var start, end int
		n, err := fmt.Sscanf(c, "%d %d", &start, &end)
		if err != nil || n != 2 {
			panic(c)
		}
		text := strings.SplitN(c, " ", 3)[2]
		fmt.Fprintf(&b, "\n%s --> %s\n%s\n", clock(start), clock(end), text)
	}
	return b.String()
}

func clock(millis int) string {
	return fmt.Sprintf("%02d:%02d:%02d.%03d", millis/3600000, millis/60000%60, millis/1000%60, millis%1000)
}

// linesOf returns a transcript as lines "start+dur text", the times in milliseconds.
func linesOf(t testing.TB, input string) []string {
	t.Helper()
	track, err := Parse([]byte(input), Options{})
	check.Require(t, err == nil, "%q: %v", input, err)
	var got []string
	for _, s := range track.Transcript().Segments {
		got = append(got, fmt.Sprintf("%d+%d %s", s.Start.Milliseconds(), s.Dur.Milliseconds(), s.Text))
	}
	return got
}

func TestRollingCaptions(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/rolling.tsv") {
		check.Equal(t, strings.Join(linesOf(t, vtt(strings.Split(unquote(t, row[1]), "|")...)), "|"), row[2], row[0])
	}
}

func TestRollingSubRip(t *testing.T) {
	t.Parallel()
	input := "1\n00:00:00,000 --> 00:00:02,000\n<i>a b</i>\n\n2\n00:00:02,000 --> 00:00:04,000\na b\nc &amp; d\n\n3\n00:00:04,000 --> 00:00:06,000\nc & d\ne\n"
	check.Equal(t, linesOf(t, input), []string{"0+2000 a b", "2000+2000 c & d", "4000+2000 e"})
}

func TestSounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[Music]": "", "[Music] hello": "hello", "hello [Applause]": "hello", "a [Music] b": "a b", "a [ __ ] b": "a b", "[موسيقى]": "", "[]": "",
		"[upbeat music playing]": "", "♪": "", "♪ la la ♪": "la la", "♪♪ [Music] ♪♪": "", "a[Music]b": "ab", "two[br]eggs [br] and milk": "two eggs and milk",
		"[add 2 cups of flour]": "[add 2 cups of flour]", "[stir it well and then some more]": "[stir it well and then some more]",
		"(Music)": "", "a (upbeat music) b": "a b", "(Lachen) a": "a", "(смех)": "", "（笑い）a": "a", "(chopped)": "(chopped)", "a (2 bells)": "a (2 bells)",
		"(optional)": "(optional)", "onion (finely diced)": "onion (finely diced)", "(": "(", "[": "[", "]": "]", "a ] b [ c": "a ] b [ c", "[[Music]": "[", "[[Music] x]": "", "[1 [Music] x]": "[1 x]",
		"[" + strings.Repeat("x", 100) + "]": "[" + strings.Repeat("x", 100) + "]",
	} {
		check.Equal(t, withoutSounds(text), want, fmt.Sprintf("%q gives", text))
		check.Equal(t, withoutSounds(want), want, "gives the second time")
	}
	input := vtt("0 1000 [Music]", "1000 2000 hello", "2000 3000 [upbeat\nmusic]")
	check.Equal(t, linesOf(t, input), []string{"1000+1000 hello"})
}

func TestSegmentsAreOrdered(t *testing.T) {
	t.Parallel()
	input := vtt("5000 6000 c", "0 1000 a", "7000 6000 d", "0 500 b", "8000 9000  \n<b></b>")
	want := []string{"0+1000 a", "0+500 b", "5000+1000 c", "7000+0 d"} // one that ends before it starts lasts no time
	check.Equal(t, linesOf(t, input), want)
}

func TestPlainHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{FormatWebVTT, FormatSRT, FormatText} {
		got, want := (Cue{Format: format, Text: "a\x1b[31mb\x07\u0085\u2028c\td\n e"}).Plain(), "a [31mb c d e"
		check.That(t, got == want, "%s: got %q, want %q", format, got, want)
	}
	got, want := (Cue{Format: FormatWebVTT, Text: "a&#27;b&#10;c&nbsp;&shy;d"}).Plain(), "a b c \u00add"
	check.That(t, got == want, "got %q, want %q", got, want)
}

var vttSeeds = []string{
	"WEBVTT", sampleVTT, "\ufeffWEBVTT\r\n\r\n1\r\n" + at01 + "\r\na\r\n", "WEBVTT\r\r" + at01 + " align:start\ra\r-->\r\r\r", "WEBVTT\n\nNOTE x\n\nSTYLE\n::cue{}\n\nREGION\nid:a\n\n" + at01,
	"WEBVTT\nx\n" + at01 + "\na\n" + at01 + "\nb\n\nid\n-->\n" + at01 + "\n \nc\x00\xff", "WEBVTT\n\n99:59:59.999 --> 1:00:00.000\nx", "WEBVTT\n\na\nb\n" + at01 + "\nx",
	"WEBVTT\n\n" + at01 + "\n<v.loud A &amp; B><c.a>one<00:00:01.000></c> two</v> &lt;&#x41;\n\n00:01.000 --> 00:01.010\none two\n \n\n00:01.010 --> 00:02.000\none two\nthree<00:00:01.500><c> four</c> [Music]",
}

// FuzzTranscript reads anything.
func FuzzTranscript(f *testing.F) {
	for i, seed := range append(vttSeeds,
		"1\n00:00:00,000 --> 00:00:01,000\n<i>a</i>\n\n2\n00:00:01,000 --> 00:00:02,000\na\nb\n", "[0.00s] a\n[1.50s] b\nc", "take\ntwo [Music] eggs.", "<html>", "{\\an8}",
	) {
		f.Add(seed, byte(i))
	}
	for _, table := range []string{"testdata/structure.tsv", "testdata/subrip.tsv"} {
		for _, row := range check.Rows(f, table) {
			f.Add(unquote(f, row[1]), byte(0))
		}
	}
	f.Fuzz(func(t *testing.T, input string, mode byte) {
		opts := Options{Timed: mode%2 == 1, Lenient: mode%4 > 1}
		track, err := Parse([]byte(input), opts)
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
		checkLimits(t, input, opts)

		var text, again bytes.Buffer
		check.OK(t, transcript.WriteText(&text))
		if !transcript.Timed || len(transcript.Segments) == 0 {
			return // lines without stamps may look like another format
		}
		reread := check.Must(Parse(text.Bytes(), Options{}))(t)
		check.That(t, reread.Timed, "the stamps were not read again")
		check.OK(t, reread.Transcript().WriteText(&again))
		check.Equal(t, again.String(), text.String())
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
}

// checkLimits reads with small limits, which have to hold and to be told of.
func checkLimits(t *testing.T, input string, unlimited Options) {
	t.Helper()
	opts := Options{
		Timed: unlimited.Timed, Lenient: unlimited.Lenient, MaxBytes: int64(len(input)/2 + 16), MaxCueBytes: 8, MaxCues: 2, MaxTextBytes: 12,
	}
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
	if whole, err := Parse([]byte(input), unlimited); err == nil && !track.Truncated && !reflect.DeepEqual(whole, track) {
		t.Errorf("not truncated, but not the same (-want +got):\n%s", cmp.Diff(whole, track))
	}
}

const sampleVTT = `WEBVTT
Kind: captions
Language: en

intro
00:00.000 --> 00:05.500
Hello &amp; <b>welcome</b>

00:05.500 --> 00:10.000
First, we need
2 cups "flour"

x --> y
lost

01:00:12.345 --> 01:00:13.000
[Music]
`

// The Recipe Service gets segments so, and results that are kept have them.
func TestTranscriptJSON(t *testing.T) {
	t.Parallel()
	want := Transcript{Language: "en", Timed: true, Truncated: true, Segments: []Segment{{time.Second, time.Millisecond, "a"}, {maxStamp, 0, "b"}}}
	data := check.Must(json.Marshal(want))(t)
	golden := `{"language":"en","timed":true,"truncated":true,"segments":[{"start":1,"dur":0.001,"text":"a"},{"start":9223372036.854,"dur":0,"text":"b"}]}`
	check.That(t, string(data) == golden, "got %s, want %s", data, golden)
	var got Transcript
	check.OK(t, json.Unmarshal(data, &got))
	check.Equal(t, got, want)
	for _, bad := range []string{`{"start":"1"}`, `{"start":1e300}`, `{"dur":-1e12}`, `{"text":1}`, `[]`} {
		check.That(t, json.Unmarshal([]byte(bad), new(Segment)) != nil, "%s: no error", bad)
	}
}

func TestStampsAreRounded(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Duration]string{
		0: "[0.00s] ", 4 * time.Millisecond: "[0.00s] ", 5 * time.Millisecond: "[0.01s] ", 999 * time.Millisecond: "[1.00s] ", 12340 * time.Millisecond: "[12.34s] ",
		12345 * time.Millisecond: "[12.35s] ", 10 * time.Hour: "[36000.00s] ", -time.Second: "[0.00s] ",
	} {
		check.Equal(t, string(appendStamp(nil, at)), want, fmt.Sprintf("%v gives", at))
	}
}

// TestTextIsReadAgain holds that a transcript survives being stored as text.
func TestTextIsReadAgain(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		sampleVTT: "[0.00s] Hello & welcome\n[5.50s] First, we need 2 cups \"flour\"\n",
		"[0.00s] a\n[1.50s] b\nc\n\n[9.00s]\n[3.25s] d": "[0.00s] a\n[1.50s] b c\n[3.25s] d\n",
		"take\n\n  two   eggs\n":                        "take\ntwo eggs\n",
		"take\n[1.00s] two\n[01.00s] eggs":              "take\n[1.00s] two\n[01.00s] eggs\n",
		"[Music]\n[1.00s] a\nb":                         "[1.00s] a b\n",
		"[Music] [1.00s] a\nb":                          "[0.00s] [1.00s] a b\n",
		"\v[1.00s]\u00a0a\nb":                           "[1.00s] a b\n",
		"[9999999999.00s] a":                            "[9223372036.85s] a\n",
		"[01.00s] a":                                    "[01.00s] a\n",
		"[0.00s] [1.00s] a &amp; <b>":                   "[0.00s] [1.00s] a &amp; <b>\n",
	} {
		for range 2 {
			track, err := Parse([]byte(input), Options{})
			check.Require(t, err == nil, "%q: %v", input, err)
			var text bytes.Buffer
			check.OK(t, track.Transcript().WriteText(&text))
			diff := cmp.Diff(want, text.String())
			check.That(t, diff == "", "%q (-want +got):\n%s", input, diff)
			input = text.String()
		}
	}
}

func TestWriterFails(t *testing.T) {
	t.Parallel()
	track, broken := parse(t, sampleVTT, Options{}), errors.New("broken")
	read, write := io.Pipe()
	check.OK(t, read.CloseWithError(broken))
	check.ErrorIs(t, track.Transcript().WriteText(write), broken)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cueFields is the part of a cue that a conformance test compares.
type cueFields struct {
	ID, Times, Text string
}

func readVTT(t testing.TB, input string) []cueFields {
	t.Helper()
	track, err := Parse([]byte(input), Options{Timed: true})
	check.Require(t, err == nil, "%q: %v", input, err)
	return cuesOf(track)
}

func cuesOf(track Track) []cueFields {
	var cues []cueFields
	for _, c := range track.Cues {
		cues = append(cues, cueFields{c.ID, c.Start.String() + "-" + c.End.String(), c.Text})
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
		check.Equal(t, fmt.Sprintf("%q", readVTT(t, unquote(t, row[1]))), row[2], row[1])
	}
}

// unquote returns the text of a cell.
func unquote(t testing.TB, cell string) string {
	t.Helper()
	return check.Must(strconv.Unquote(cell))(t)
}

// TestTimings has a case for each way out of "collect a WebVTT timestamp" and "collect WebVTT cue timings and settings".
func TestTimings(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/timings.tsv") {
		want := []cueFields{{"id", row[1], "text"}}
		if row[1] == "-" { // the cue is lost
			want = nil
		}
		check.Equal(t, readVTT(t, "WEBVTT\n\nid\n"+unquote(t, row[0])+"\ntext"), want)
	}
}

func TestSkippedCuesAreCounted(t *testing.T) {
	t.Parallel()
	track, err := Parse([]byte("WEBVTT\nKind: captions\nlanguage : en-GB \n\n0:1 --> 0:2\nlost\n\n"+at01+"\ntext\nx --> y\nlost"), Options{})
	check.OK(t, err)
	want := Track{
		Format: FormatWebVTT, Language: "en-GB", Skipped: 2, Timed: true,
		Cues: []Cue{{End: time.Second, Text: "text", Format: FormatWebVTT, Line: 8}},
	}
	check.Equal(t, track, want)
}

// TestHeaderWords has headers that state the language, and lines that only look alike.
func TestHeaderWords(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Kind: captions\nLanguage: pt-BR": "pt-BR", "LANGUAGE:iw": "iw", " language :\tfr ": "fr", "Language": "",
		"Language: two words": "", "Language: \x1b[31m": "", "Language: é": "", "Language: " + strings.Repeat("x", 100): "", "X-Language: en": "",
	} {
		track := parse(t, "WEBVTT\n"+header+"\n\n"+at01+"\nKind: text", Options{})
		check.Equal(t, track.Language, want, header)
	}
}

func TestSubRip(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/subrip.tsv") {
		track, err := Parse([]byte(unquote(t, row[1])), Options{})
		check.Require(t, err == nil && track.Format == FormatSRT && track.Timed, "%s: %v, format %s", row[0], err, track.Format)
		check.Equal(t, fmt.Sprintf("%q", cuesOf(track)), row[2], row[0])
	}
}

func TestSubRipMarkup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"<i>a</i> <B>b</B> <u>c</u>": "a b c", `<font color="#ff0000">red</font>`: "red", `{\an8}top`: "top", `{\i1}a{\i0}b`: "ab",
		"3 < 4 and 5 > 2": "3 < 4 and 5 > 2", "a <b": "a <b", "<3 you": "<3 you", "{a}": "{a}", "{": "{", "<": "<", `{\an8`: `{\an8`,
		"<unknown>a": "<unknown>a", "a<br>b<br/>c": "abc", "&amp; &lt;b&gt;": "& <b>", "one\ntwo": "one two", "<>": "<>", "</>": "</>",
		"<font" + strings.Repeat(" ", 500) + ">": "",
	} {
		check.Equal(t, (Cue{Format: FormatSRT, Text: text}).Plain(), want, fmt.Sprintf("%q reads", text))
	}
}
