package caption

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Times are read in each form that has one meaning, wherever they stand in a file, and never become text: a form with two meanings, or
// none, is an error that names its line.
func TestTimesAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	const refused = "-"
	for _, row := range check.Rows(t, "testdata/times.tsv") {
		line, want := unquote(t, row[0]), row[1]
		for name, input := range map[string]string{
			"first":       "1\n" + line + "\nb\n",
			"second":      "1\n00:00:00,000 --> 00:00:00,500\na\n\n2\n" + line + "\nb\n",
			"joined":      "1\n00:00:00,000 --> 00:00:00,500\na\n2\n" + line + "\nb\n",
			"WebVTT":      "WEBVTT\n\n00:00:00.000 --> 00:00:00.500\na\n\n" + line + "\nb\n",
			"no empty":    "WEBVTT\n00:00:00.000 --> 00:00:00.500\na\n" + line + "\nb\n",
			"its own":     "WEBVTT\n\n" + line + "\nb\n",
			"no WEBVTT":   "00:00:00.000 --> 00:00:00.500\na\n\n" + line + "\nb\n",
			"CRLF":        "\ufeff1\r\n" + line + "\r\nb\r\n",
			"marked":      "\u200e1\n\u200f" + line + "\u202c\n\u200eb\n",
			"after words": "Soup\n\n" + line + "\nb\n",
		} {
			track, err := Parse([]byte(input), Options{Timed: true, Lenient: true})
			if want == refused {
				wrong, ok := errors.AsType[*FormatError](err)
				lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(input, "\r\n", "\n")), "\n")
				check.Require(t, ok && wrong.Line > 0 && strings.Contains(lines[wrong.Line-1], line), "%s: %q: %v, %+v: want its line", name, input,
					err, track)
				check.ErrorContains(t, err, fmt.Sprintf("line %d: ", wrong.Line))
				continue
			}
			check.Require(t, err == nil && len(track.Cues) > 0 && track.Skipped == 0, "%s: %q: %v", name, input, err)
			last := track.Cues[len(track.Cues)-1]
			text := strings.ReplaceAll(strings.Trim(last.Text, "\u200e"), "\n", " ")
			check.Equal(t, fmt.Sprintf("%s-%s %s", last.Start, last.End, text), want, fmt.Sprintf("%s: %q: %+v", name, input, track.Cues))
			check.That(t, len(track.Cues) == 1 || track.Cues[0].Text == "a", "%s: %q: %+v", name, input, track.Cues)
		}
	}
}

// What only looks like times stays text.
func TestTextThatLooksLikeTimes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"2.5 -> 3.5 cups", "10:00 - 12:00", "1/2 --> 3/4", "Bake 0:30 --> 1:00", "a --> b", "180 → 200", "01.05.2024 - 03.05.2024", "1, 2, 3", "1:1 ratio",
		"Mix 1:2 > 1:3", "-->", "5 -- 6", "450 F -> 220 C", "ratio: --> 2", "3 x 1.5 - 2.5", "8.30 Uhr - 9.15 Uhr", "１：２ の割合",
	} {
		for _, head := range []string{"", "1\n00:00:00,000 --> 00:00:00,500\n", "WEBVTT\n\n00:00.000 --> 00:00.500\n"} {
			track, err := Parse([]byte(head+text+"\n"), Options{Lenient: true})
			check.That(t, err == nil && len(track.Cues) == 1 && track.Cues[0].Text == text, "%q: %+v, %v", head+text, track.Cues, err)
		}
	}
}

// A transcript copied from a player has its times before its lines or above them. What has few times is text, and times that go back or
// that no clock has are refused by line: no time becomes text.
func TestCopiedTranscripts(t *testing.T) {
	t.Parallel()
	for input, want := range map[string][]string{
		"0:00\nhello\n0:05\nadd eggs\nand milk\n1:02:03\nbake\n":               {"0+5000 hello", "5000+3718000 add eggs and milk", "3723000+0 bake"},
		"0:00 hallo\n0:05 zwei Eier\n\n0:09 fertig":                            {"0+5000 hallo", "5000+4000 zwei Eier", "9000+0 fertig"},
		"[00:01] a\r\n[00:02] b":                                               {"1000+1000 a", "2000+0 b"},
		"(0:01) a\n(0:02.5) b":                                                 {"1000+1500 a", "2500+0 b"},
		"0:01 - a\n0:02 – b\n0:03: c":                                          {"1000+1000 a", "2000+1000 b", "3000+0 c"},
		"Transcript\n0:01\na\n0:02\nb":                                         {"0+1000 Transcript", "1000+1000 a", "2000+0 b"},
		"٠:٠١\nأضف\n٠:٠٢\nاخلط":                                                {"1000+1000 أضف", "2000+0 اخلط"},
		"0：01\n卵を割ります\n0：02\n混ぜます":                                             {"1000+1000 卵を割ります", "2000+0 混ぜます"},
		"[Music]\n0:01\n[Music]\n0:02\nב":                                      {"2000+0 ב"},
		"0:01\na\n0:01\nb":                                                     {"1000+0 a", "1000+0 b"},
		"Bread\n10:30 Mix it.\nFlour\nSalt\nWater\nKnead.\nBake.\nCool.\nEat.": nil,
		"1:10 ratio\nMix":                                                      nil,
		"0:09\na\n0:05\nb":                                                     {"line 3: "},
		"0:01\na\n0:75\nb":                                                     {"line 3: "},
	} {
		track, err := Parse([]byte(input), Options{Timed: want != nil, Lenient: true})
		if len(want) == 1 && strings.HasPrefix(want[0], "line") {
			check.ErrorContains(t, err, want[0])
			continue
		}
		check.That(t, err == nil && track.Timed == (want != nil) && track.Format == FormatText, "%q: %+v, %v", input, track, err)
		if want != nil {
			check.Equal(t, linesOf(t, input), want)
		}
	}
}

// A file of several that were joined has no header as text.
func TestJoinedFiles(t *testing.T) {
	t.Parallel()
	track := parse(t, "WEBVTT\n\n00:00.000 --> 00:01.000\na\nWEBVTT\nX-TIMESTAMP-MAP=LOCAL:00:00:00.000,MPEGTS:9\n00:01.000 --> 00:02.000\nb\n", Options{Lenient: true})
	check.Equal(t, cuesOf(track), []cueFields{{"", span01, "a"}, {"", "1s-2s", "b"}})
}
