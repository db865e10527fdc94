package caption

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// long makes the captions of some hours: rolling ones with stamps, or plain ones.
func long(cues int, rolling bool) string {
	var b strings.Builder
	b.WriteString("WEBVTT\nKind: captions\nLanguage: en\n\n")
	before := " "
	for i := range cues {
		at := 4000 * i
		if !rolling {
			fmt.Fprintf(&b, "%d\n%s --> %s\nthese are the words of cue %d,\nand &quot;these&quot; are more of them\n\n", i, clock(at), clock(at+4000), i)
			continue
		}
		line := fmt.Sprintf("these are the words of cue %d", i)
		fmt.Fprintf(&b, "%s --> %s align:start position:0%%\n%s\n", clock(at), clock(at+3990), before)
		for j, word := range strings.Fields(line) {
			if j == 0 {
				b.WriteString(word)
				continue
			}
			fmt.Fprintf(&b, "<%s><c> %s</c>", clock(at+500*j), word)
		}
		fmt.Fprintf(&b, "\n\n%s --> %s align:start position:0%%\n%s\n \n\n", clock(at+3990), clock(at+4000), line)
		before = line
	}
	return b.String()
}

func BenchmarkParse(b *testing.B) {
	for name, input := range map[string]string{
		"manual": long(10_000, false), "rolling": long(5_000, true),
		"srt": strings.ReplaceAll(strings.TrimPrefix(long(10_000, false), "WEBVTT\nKind: captions\nLanguage: en\n\n"), ".000", ",000"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(input)))
			for b.Loop() {
				parse(b, input, Options{})
			}
		})
	}
}

func BenchmarkEach(b *testing.B) {
	input := long(10_000, false)
	b.ReportAllocs()
	b.SetBytes(int64(len(input)))
	for b.Loop() {
		check.OK(b, check.Err(Each(strings.NewReader(input), Options{}, func(Cue) error { return nil })))
	}
}

func BenchmarkTranscript(b *testing.B) {
	for name, input := range map[string]string{"manual": long(10_000, false), "rolling": long(5_000, true)} {
		track := parse(b, input, Options{})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(input)))
			for b.Loop() {
				track.Transcript(TranscriptOptions{})
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	track := parse(b, long(10_000, false), Options{})
	transcript := track.Transcript(TranscriptOptions{})
	b.ReportAllocs()
	for b.Loop() {
		check.OK(b, errors.Join(transcript.WriteText(io.Discard), track.WriteJSON(io.Discard, transcript)))
	}
}
