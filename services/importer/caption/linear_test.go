package caption

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
			input := "WEBVTT\n\n00:00.000 --> 00:01.000\n" + strings.Repeat(text, times)
			opts := Options{MaxCueBytes: 1 << 30, MaxCues: 1 << 30, MaxTextBytes: 1 << 40}.withDefaults()
			in := newLines(strings.NewReader(input), opts)
			cues, err := open(in, &Summary{}, opts)
			check.OK(t, err)
			total := 0
			check.OK(t, each(in, cues, opts, func(c Cue) error {
				total += len(c.Text)
				return nil
			}))
			return total + in.work
		}
		const times = 2000
		if once, twice := work(times), work(2*times); twice > 2*once+64 || once > 4*(len(text)*times+64) {
			t.Errorf("%s: %d steps for %d bytes, %d for twice as many", name, once, len(text)*times, twice)
		}
	}
}

// TestAllocationIsLinear reads everything and makes everything of it. It does not run beside other tests, whose memory would
// count as well.
func TestAllocationIsLinear(t *testing.T) {
	for name, text := range hostile {
		for format, head := range map[Format]string{
			FormatWebVTT: "WEBVTT\n\n00:00.000 --> 00:01.000\n", FormatSRT: "1\n00:00:00,000 --> 00:00:01,000\n", FormatText: "[0.00s] ",
		} {
			allocated := func(times int) uint64 {
				input := head + strings.Repeat(text, times)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				makeEverything(t, input, Options{Format: format})
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc
			}
			const times = 4000
			once, twice := allocated(times), allocated(2*times)
			check.That(t, twice <= 3*once+1<<18, "%s as %s: %d bytes allocated, %d for twice the input", name, format, once, twice)
		}
	}
}

func makeEverything(t testing.TB, input string, opts Options) {
	t.Helper()
	track := parse(t, input, opts)
	for _, c := range track.Cues {
		c.Plain()
	}
	for _, opts := range []TranscriptOptions{{}, {KeepRepeats: true, KeepSounds: true}, {Sentences: true}} {
		transcript := track.Transcript(opts)
		check.OK(t, errors.Join(track.WriteJSON(io.Discard, transcript), transcript.WriteText(io.Discard)))
	}
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
		_, got := repair(nil, []byte(text))
		check.That(t, string(got) == want, "%q gives %q, want %q", text, got, want)
	}
}

func TestWholeRunes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a": "a", "é": "é", "aé": "aé", "a\xc3": "a", "漢": "漢", "\xe6\xbc": "", "x🍞": "x🍞", "x\xf0\x9f\x8d": "x", "x\xf0": "x", "\x80\x80\x80\x80": "\x80\x80\x80\x80",
	} {
		check.Same(t, fmt.Sprintf("%q gives", text), string(wholeRunes([]byte(text))), want)
	}
	if text := "漢字🍞"; utf8.ValidString(text) {
		for i := range len(text) {
			got := wholeRunes([]byte(text[:i]))
			check.That(t, utf8.Valid(got), "the first %d bytes give %q", i, got)
		}
	}
}
