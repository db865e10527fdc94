package caption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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

func sample(t testing.TB) Track {
	t.Helper()
	return check.Must(Parse([]byte(sampleVTT), Options{}))(t)
}

func TestEncoders(t *testing.T) {
	t.Parallel()
	track := sample(t)
	transcript := track.Transcript()
	var text, segments, all bytes.Buffer
	check.OK(t, errors.Join(transcript.WriteText(&text), transcript.WriteSegments(&segments), track.WriteJSON(&all, transcript)))
	wantText := "[0.00s] Hello & welcome\n[5.50s] First, we need 2 cups \"flour\"\n"
	check.Equal(t, wantText, text.String())
	wantSegments := `[{"start":0,"dur":5.5,"text":"Hello & welcome"},{"start":5.5,"dur":4.5,"text":"First, we need 2 cups \"flour\""}]`
	check.Equal(t, wantSegments+"\n", segments.String())
	wantAll := `{"format":"webvtt","kind":"captions","language":"en","timed":true,"truncated":false,"skipped":1,"cues":[` +
		`{"id":"intro","start":0,"end":5.5,"text":"Hello &amp; <b>welcome</b>","plain":"Hello & welcome"},` +
		`{"id":"","start":5.5,"end":10,"text":"First, we need\n2 cups \"flour\"","plain":"First, we need 2 cups \"flour\""},` +
		`{"id":"","start":3612.345,"end":3613,"text":"[Music]","plain":"[Music]"}],"segments":` + wantSegments + "}\n"
	check.Equal(t, wantAll, all.String())
	var again []Segment
	check.OK(t, json.Unmarshal(segments.Bytes(), &again))
	check.Equal(t, transcript.Segments, again)
}

func TestTranscriptJSON(t *testing.T) {
	t.Parallel()
	want := Transcript{Language: "en", Timed: true, Truncated: true, Segments: []Segment{{time.Second, time.Millisecond, "a"}, {maxStamp, 0, "b"}}}
	data := check.Must(json.Marshal(want))(t)
	golden := `{"language":"en","timed":true,"truncated":true,"segments":[{"start":1,"dur":0.001,"text":"a"},{"start":9223372036.854,"dur":0,"text":"b"}]}`
	check.That(t, string(data) == golden, "got %s, want %s", data, golden)
	var got Transcript
	check.OK(t, json.Unmarshal(data, &got))
	check.Equal(t, want, got)
	for _, bad := range []string{`{"start":"1"}`, `{"start":1e300}`, `{"dur":-1e12}`, `{"text":1}`, `[]`} {
		check.Failsf(t, json.Unmarshal([]byte(bad), new(Segment)), "%s: no error", bad)
	}
}

func TestNothing(t *testing.T) {
	t.Parallel()
	track := check.Must(Parse([]byte("WEBVTT"), Options{}))(t)
	transcript := track.Transcript()
	var text, segments, all bytes.Buffer
	check.OK(t, errors.Join(transcript.WriteText(&text), transcript.WriteSegments(&segments), track.WriteJSON(&all, transcript)))
	want := `{"format":"webvtt","timed":true,"truncated":false,"skipped":0,"cues":[],"segments":[]}` + "\n"
	check.That(t, text.String() == "" && segments.String() == "[]\n" && all.String() == want, "got %q, %q, %q", &text, &segments, &all)
}

func TestStampsAreRounded(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Duration]string{
		0: "[0.00s] ", 4 * time.Millisecond: "[0.00s] ", 5 * time.Millisecond: "[0.01s] ", 999 * time.Millisecond: "[1.00s] ", 12340 * time.Millisecond: "[12.34s] ",
		12345 * time.Millisecond: "[12.35s] ", 10 * time.Hour: "[36000.00s] ", -time.Second: "[0.00s] ",
	} {
		check.Same(t, fmt.Sprintf("%v gives", at), string(appendStamp(nil, at)), want)
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
		"[9999999999.00s] a":                            "[9223372035.00s] a\n",
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

func TestWritersFail(t *testing.T) {
	t.Parallel()
	track, broken := sample(t), errors.New("broken")
	read, write := io.Pipe()
	check.OK(t, read.CloseWithError(broken))
	for _, err := range []error{track.Transcript().WriteText(write), track.WriteJSON(write, track.Transcript())} {
		check.Is(t, err, broken)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dataFolder returns a folder of public files that are not part of the project.
func dataFolder(t testing.TB, name string) string {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "..", "shared", "data", name)
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("the files that this test reads are not there: %v", err)
	}
	return folder
}

// departs are the files whose expectation the rules contradict: three digits before minutes are hours, and hours are followed
// by minutes and seconds.
var departs = map[string]bool{"min-top-digits.vtt": true, "minimum-spots-over-sixty.vtt": true}

// TestPublicFiles reads conformance files that others wrote.
func TestPublicFiles(t *testing.T) {
	t.Parallel()
	folder := dataFolder(t, "webvtt")
	var files []string
	for _, pattern := range []string{"*/*.vtt", "*/*/*.vtt"} {
		found := check.Must(filepath.Glob(filepath.Join(folder, pattern)))(t)
		files = append(files, found...)
	}
	compared := 0
	for _, file := range files {
		type cue struct {
			ID        string  `json:"id"`
			StartTime float64 `json:"startTime"`
			EndTime   float64 `json:"endTime"`
			Text      string  `json:"text"`
		}
		var want struct {
			Cues []cue `json:"cues"`
		}
		if departs[filepath.Base(file)] {
			continue
		}
		data, err := os.ReadFile(strings.TrimSuffix(file, ".vtt") + ".json")
		if err != nil {
			continue
		}
		check.OK(t, json.Unmarshal(data, &want))
		track := parseFile(t, file, Options{})
		var got []cue
		for _, c := range track.Cues {
			got = append(got, cue{c.ID, c.Start.Seconds(), c.End.Seconds(), c.Text})
		}
		diff := cmp.Diff(want.Cues, got)
		check.That(t, diff == "" || len(want.Cues)+len(got) == 0, "%s (-want +got):\n%s", file, diff)
		compared++
	}
	t.Logf("%d files, %d compared", len(files), compared)
	check.That(t, compared >= 99, "%d files compared, want 99 or more", compared)
}

func parseFile(t testing.TB, name string, opts Options) Track {
	t.Helper()
	track, err := Parse(check.Must(os.ReadFile(name))(t), opts)
	check.Require(t, err == nil, "%s: %v", name, err)
	return track
}

// TestPublicRollingCaptions counts words. Each word of an automatic caption has a stamp, in the cue where it is said, but for
// the words of lines that have only one.
func TestPublicRollingCaptions(t *testing.T) {
	t.Parallel()
	files := check.Must(filepath.Glob(filepath.Join(dataFolder(t, "captions"), "*.vtt")))(t)
	stamped, naive, words := 0, 0, 0
	for _, file := range files {
		track := parseFile(t, file, Options{})
		s, n, w := 0, 0, 0
		for _, c := range track.Cues {
			n += len(strings.Fields(c.Plain()))
			for line := range strings.SplitSeq(c.Text, "\n") {
				if strings.Contains(line, "<c") {
					s += len(strings.Fields(withoutSounds(Cue{Format: FormatWebVTT, Text: line}.Plain())))
				}
			}
		}
		transcript := track.Transcript()
		last := time.Duration(0)
		for _, segment := range transcript.Segments {
			w += len(strings.Fields(segment.Text))
			check.That(t, segment.Start >= last, "%s: segment at %v after one at %v", file, segment.Start, last)
			last = segment.Start
		}
		t.Logf("%s: %d words with stamps, %d de-duplicated, %d naive", filepath.Base(file), s, w, n)
		stamped, naive, words = stamped+s, naive+n, words+w
	}
	t.Logf("all: %d words with stamps, %d de-duplicated (%+.2f %%), %d naive (x %.2f)",
		stamped, words, 100*float64(words-stamped)/float64(stamped), naive, float64(naive)/float64(stamped))
	check.That(t, 200*max(words-stamped, stamped-words) <= stamped, "%d words, want %d within 0.5 %%", words, stamped)
	check.That(t, 2*naive >= 5*stamped, "%d words read naively, want about three times %d: are these rolling captions?", naive, stamped)
}

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
