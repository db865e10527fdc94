package caption

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
