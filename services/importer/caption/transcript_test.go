package caption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	for _, c := range []struct {
		name string
		cues []string
		want []string
	}{
		{
			"words with stamps and hold cues",
			[]string{
				"0 1990  \none<00:00:01.000><c> two</c>", "1990 2000 one two\n ", "2000 3990 one two\nthree<00:00:03.000><c> four</c>",
				"3990 4000 three four\n ", "4000 6000 three four\nfive",
			},
			[]string{"0+2000 one two", "2000+2000 three four", "4000+2000 five"},
		},
		{
			"colours, as older files have them",
			[]string{
				"0 1990 <c.colorE5E5E5>one<00:00:01.000><c> two</c></c>", "1990 2000 <c.colorE5E5E5>one two</c>\n ",
				"2000 4000 <c.colorE5E5E5>one two</c>\n<c.colorCCCCCC>three</c><c.colorE5E5E5><00:00:03.000><c> four</c></c>",
			},
			[]string{"0+2000 one two", "2000+2000 three four"},
		},
		{
			"no hold cues",
			[]string{"0 2000 a b", "2000 4000 a b\nc d", "4000 6000 c d\ne f"},
			[]string{"0+2000 a b", "2000+2000 c d", "4000+2000 e f"},
		},
		{
			"three lines",
			[]string{"0 2000 a", "2000 4000 a\nb", "4000 6000 a\nb\nc", "6000 8000 b\nc\nd"},
			[]string{"0+2000 a", "2000+2000 b", "4000+2000 c", "6000+2000 d"},
		},
		{
			"cues that overlap",
			[]string{"0 4000 a b", "2000 6000 a b\nc d", "4000 8000 c d\ne f"},
			[]string{"0+4000 a b", "2000+4000 c d", "4000+4000 e f"},
		},
		{
			"a line said twice",
			[]string{"0 1990  \nstir", "1990 2000 stir\n ", "2000 3990 stir\nstir", "3990 4000 stir\n ", "4000 5990 stir\nand stir"},
			[]string{"0+2000 stir", "2000+2000 stir", "4000+1990 and stir"},
		},
		{
			"a line said twice, without hold cues",
			[]string{"0 2000 a", "2000 4000 a\nstir", "4000 6000 stir\nstir", "6000 8000 stir\nb"},
			[]string{"0+2000 a", "2000+2000 stir", "4000+2000 stir", "6000+2000 b"},
		},
		{
			"a line said again after a pause",
			[]string{"0 1990 a\nstir<00:00:01.000><c> it</c>", "1990 2000 stir it\n ", "20000 21990  \nstir<00:00:21.000><c> it</c>", "21990 22000 stir it\n "},
			[]string{"0+2000 a stir it", "20000+2000 stir it"},
		},
		{
			"equal lines that scroll together",
			[]string{"0 2000 a", "2000 4000 a\na", "4000 6000 a\na\nb", "6000 8000 a\nb\nc"},
			[]string{"0+2000 a", "2000+2000 a", "4000+2000 b", "6000+2000 c"},
		},
		{
			"a pause, and no blank line",
			[]string{"0 1990 a", "1990 2000 a\n ", "2000 3990 a\nstir", "3990 4000 stir\n ", "20000 21990 stir", "21990 22000 stir\n "},
			[]string{"0+2000 a", "2000+2000 stir", "20000+2000 stir"},
		},
		{
			"a pause, and the line before is still there",
			[]string{"0 1990 a", "1990 2000 a\n ", "2000 3990 a\nstir", "3990 4000 stir\n ", "20000 21990 stir\nwell", "21990 22000 well\n "},
			[]string{"0+2000 a", "2000+2000 stir", "20000+2000 well"},
		},
		{
			"a blank first line carries nothing",
			[]string{"0 1990  \nstir", "1990 2000 stir\n ", "2000 3990  \nstir", "3990 4000 stir\n ", "4000 6000 stir\nmore"},
			[]string{"0+2000 stir", "2000+2000 stir", "4000+2000 more"},
		},
		{
			"a line with stamps is new",
			[]string{"0 1990  \nstir<00:00:01.000><c> it</c>", "1990 2000 stir it\n ", "2000 3990 stir<00:00:03.000><c> it</c>\nnow", "3990 4000 stir it\nnow"},
			[]string{"0+2000 stir it", "2000+2000 stir it now"},
		},
		{
			"a line from long ago is new",
			[]string{"0 2000 a", "2000 4000 a\nb", "4000 6000 b\nc", "6000 8000 c\na", "8000 9000 a\nb"},
			[]string{"0+2000 a", "2000+2000 b", "4000+2000 c", "6000+2000 a", "8000+1000 b"},
		},
		{
			"cues without text do not count",
			[]string{"0 2000 a", "2000 2010  ", "2010 4000 a\nb", "4000 4100 <b></b>", "4100 6000 b\nc"},
			[]string{"0+2000 a", "2010+1990 b", "4100+1900 c"},
		},
		{
			"space does not matter",
			[]string{"0 2000 a  b ", "2000 4000  a&nbsp;b\nc", "4000 6000 c\nd"},
			[]string{"0+2000 a b", "2000+2000 c", "4000+2000 d"},
		},
	} {
		diff := cmp.Diff(c.want, linesOf(t, vtt(c.cues...)))
		check.That(t, diff == "", "%s (-want +got):\n%s", c.name, diff)
	}
}

// TestOtherCaptionsStay has tracks that repeat without scrolling.
func TestOtherCaptionsStay(t *testing.T) {
	t.Parallel()
	for name, cues := range map[string][]string{
		"short answers":          {"0 1000 No.", "1000 2000 No.", "2000 3000 Yes.", "3000 4000 No."},
		"always the same":        {"0 1000 No.", "1000 2000 No.", "2000 3000 No."},
		"a refrain":              {"0 2000 one\ntwo", "2000 4000 three\nfour", "4000 6000 one\ntwo", "6000 8000 one\ntwo"},
		"a line twice by chance": {"0 1000 a", "1000 2000 b\nc", "2000 3000 c\nd", "3000 4000 e", "4000 5000 f"},
		"repeated after pauses":  {"0 1000 a", "5000 6000 a\nb", "10000 11000 b\nc", "15000 16000 c\nd"},
		"one cue":                {"0 1000 a"},
	} {
		var want []string
		for _, c := range cues {
			var start, end int
			check.OK(t, check.Err(fmt.Sscanf(c, "%d %d", &start, &end)))
			want = append(want, fmt.Sprintf("%d+%d %s", start, end-start, strings.ReplaceAll(strings.SplitN(c, " ", 3)[2], "\n", " ")))
		}
		diff := cmp.Diff(want, linesOf(t, vtt(cues...)))
		check.That(t, diff == "", "%s (-want +got):\n%s", name, diff)
	}
}

func TestRollingSubRip(t *testing.T) {
	t.Parallel()
	input := "1\n00:00:00,000 --> 00:00:02,000\n<i>a b</i>\n\n2\n00:00:02,000 --> 00:00:04,000\na b\nc &amp; d\n\n3\n00:00:04,000 --> 00:00:06,000\nc & d\ne\n"
	check.Equal(t, []string{"0+2000 a b", "2000+2000 c & d", "4000+2000 e"}, linesOf(t, input))
}

func TestSounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[Music]": "", "[Music] hello": "hello", "hello [Applause]": "hello", "a [Music] b": "a b", "a [ __ ] b": "a b", "[موسيقى]": "", "[]": "",
		"[upbeat music playing]": "", "♪": "", "♪ la la ♪": "la la", "♪♪ [Music] ♪♪": "", "a[Music]b": "ab",
		"[add 2 cups of flour]": "[add 2 cups of flour]", "[stir it well and then some more]": "[stir it well and then some more]",
		"(Music)": "(Music)", "[": "[", "]": "]", "a ] b [ c": "a ] b [ c", "[[Music]": "[", "[[Music] x]": "", "[1 [Music] x]": "[1 x]",
		"[" + strings.Repeat("x", 100) + "]": "[" + strings.Repeat("x", 100) + "]",
	} {
		check.Same(t, fmt.Sprintf("%q gives", text), withoutSounds(text), want)
		check.Same(t, "gives the second time", withoutSounds(want), want)
	}
	input := vtt("0 1000 [Music]", "1000 2000 hello", "2000 3000 [upbeat\nmusic]")
	check.Equal(t, []string{"1000+1000 hello"}, linesOf(t, input))
}

func TestSegmentsAreOrdered(t *testing.T) {
	t.Parallel()
	input := vtt("5000 6000 c", "0 1000 a", "7000 6000 d", "0 500 b", "8000 9000  \n<b></b>")
	want := []string{"0+1000 a", "0+500 b", "5000+1000 c", "7000+0 d"} // one that ends before it starts lasts no time
	check.Equal(t, want, linesOf(t, input))
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

// TestTranscriptsHaveTimes reads a transcript, in which a segment ends where the next one starts.
func TestTranscriptsHaveTimes(t *testing.T) {
	t.Parallel()
	want := []string{"0+1500 a", "1500+1750 b c", "3250+0 d"}
	check.Equal(t, want, linesOf(t, "[0.00s] a\n[1.50s] b\nc\n[3.25s] d"))
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
		timed := mode%2 == 1
		track, err := Parse([]byte(input), Options{Timed: timed})
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
		checkLimits(t, input, timed)

		var text, again bytes.Buffer
		check.OK(t, transcript.WriteText(&text))
		if !transcript.Timed || len(transcript.Segments) == 0 {
			return // lines without stamps may look like another format
		}
		reread := check.Must(Parse(text.Bytes(), Options{}))(t)
		check.That(t, reread.Timed, "the stamps were not read again")
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
func checkLimits(t *testing.T, input string, timed bool) {
	t.Helper()
	opts := Options{Timed: timed, MaxBytes: int64(len(input)/2 + 16), MaxCueBytes: 8, MaxCues: 2, MaxTextBytes: 12}
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
	if whole, err := Parse([]byte(input), Options{Timed: timed}); err == nil && !track.Truncated && !reflect.DeepEqual(whole, track) {
		t.Errorf("not truncated, but not the same (-want +got):\n%s", cmp.Diff(whole, track))
	}
}
