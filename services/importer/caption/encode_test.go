package caption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	track, err := Parse(strings.NewReader(sampleVTT), Options{})
	check.OK(t, err)
	return track
}

func TestEncoders(t *testing.T) {
	t.Parallel()
	track := sample(t)
	transcript := track.Transcript(TranscriptOptions{KeepSounds: true})
	var text, segments, all bytes.Buffer
	check.OK(t, errors.Join(transcript.WriteText(&text), transcript.WriteSegments(&segments), track.WriteJSON(&all, transcript)))
	wantText := "[0.00s] Hello & welcome\n[5.50s] First, we need 2 cups \"flour\"\n[3612.35s] [Music]\n"
	check.Equal(t, wantText, text.String())
	wantSegments := `[
{"start":0,"dur":5.5,"text":"Hello & welcome"}
,{"start":5.5,"dur":4.5,"text":"First, we need 2 cups \"flour\""}
,{"start":3612.345,"dur":0.655,"text":"[Music]"}
]
`
	check.Equal(t, wantSegments, segments.String())
	wantAll := `{"format":"webvtt","kind":"captions","language":"en","timed":true,"truncated":false,"skipped":1,
"cues": [
{"id":"intro","start":0,"end":5.5,"text":"Hello &amp; <b>welcome</b>","plain":"Hello & welcome"}
,{"id":"","start":5.5,"end":10,"text":"First, we need\n2 cups \"flour\"","plain":"First, we need 2 cups \"flour\""}
,{"id":"","start":3612.345,"end":3613,"text":"[Music]","plain":"[Music]"}
],
"segments": ` + strings.TrimSuffix(wantSegments, "\n") + "}\n"
	check.Equal(t, wantAll, all.String())
	check.That(t, json.Valid(all.Bytes()) && json.Valid(segments.Bytes()), "not JSON")
	var again []Segment
	check.OK(t, json.Unmarshal(segments.Bytes(), &again))
	check.Equal(t, transcript.Segments, again)
}

func TestTranscriptJSON(t *testing.T) {
	t.Parallel()
	want := Transcript{Language: "en", Timed: true, Truncated: true, Segments: []Segment{{time.Second, time.Millisecond, "a"}, {maxStamp, 0, "b"}}}
	data, err := json.Marshal(want)
	check.OK(t, err)
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
	track, err := Parse(strings.NewReader("WEBVTT"), Options{})
	check.OK(t, err)
	transcript := track.Transcript(TranscriptOptions{Sentences: true})
	var text, segments, all bytes.Buffer
	check.OK(t, errors.Join(transcript.WriteText(&text), transcript.WriteSegments(&segments), track.WriteJSON(&all, transcript)))
	want := `{"format":"webvtt","timed":true,"truncated":false,"skipped":0,` + "\n\"cues\": [\n],\n\"segments\": [\n]}\n"
	check.That(t, text.String() == "" && segments.String() == "[\n]\n" && all.String() == want, "got %q, %q, %q", &text, &segments, &all)
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
			track, err := Parse(strings.NewReader(input), Options{})
			check.Require(t, err == nil, "%q: %v", input, err)
			var text bytes.Buffer
			check.OK(t, track.Transcript(TranscriptOptions{}).WriteText(&text))
			diff := cmp.Diff(want, text.String())
			check.That(t, diff == "", "%q (-want +got):\n%s", input, diff)
			input = text.String()
		}
	}
}

func TestWritersFail(t *testing.T) {
	t.Parallel()
	track := sample(t)
	for range 600 { // more than a buffer
		track.Cues = append(track.Cues, track.Cues[0])
	}
	transcript := track.Transcript(TranscriptOptions{})
	for size := range 60 {
		for name, write := range map[string]func(w *full) error{
			"text":     func(w *full) error { return transcript.WriteText(w) },
			"segments": func(w *full) error { return transcript.WriteSegments(w) },
			"json":     func(w *full) error { return track.WriteJSON(w, transcript) },
		} {
			err := write(&full{room: 1000 * size})
			check.That(t, (err == nil || errors.Is(err, errFull)) && (err != nil || size >= 10), "%s into %d bytes: %v", name, 1000*size, err)
		}
	}
}

var errFull = errors.New("full")

// full is a writer that takes so many bytes.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, errFull
	}
	f.room -= len(p)
	return len(p), nil
}
