package caption

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		check.OK(t, err)
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
		track := parseFile(t, file, Options{Format: FormatWebVTT})
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
	file, err := os.Open(name)
	check.OK(t, err)
	defer file.Close()
	track, err := Parse(file, opts)
	check.Require(t, err == nil, "%s: %v", name, err)
	return track
}

func TestPublicFilesWithoutExpectations(t *testing.T) {
	t.Parallel()
	folder := dataFolder(t, "webvtt")
	for name, good := range map[string]bool{
		"file-layout/bad-double-webvtt": false, "file-layout/blank-file": false, "file-layout/blank-file-with-bom": false,
		"file-layout/bom-garbage-data": false, "file-layout/bom-tab-webvtt": false, "file-layout/garbage-signature": false,
		"file-layout/newline-before-webvtt": false, "file-layout/tab-after-bom-before-header": false,
		"file-layout/webvtt-no-bom": true, "file-layout/webvtt-space": true, "file-layout/webvtt-tab": true,
		"file-layout/webvtt-with-bom": true, "file-layout/header-no-new-line": true, "cue-times/left-tab": true,
		"cue-times/missing-spaces-between-separator": true, "cue-times/separator-tab": true,
	} {
		file, err := os.Open(filepath.Join(folder, name+".vtt"))
		check.OK(t, err)
		track, err := Parse(file, Options{})
		file.Close()
		_, isFormat := errors.AsType[*FormatError](err)
		check.That(t, !good || err == nil && len(track.Cues) == 1, "%s: %d cues, %v", name, len(track.Cues), err)
		check.That(t, good || isFormat || track.Format == FormatText && name == "file-layout/garbage-signature",
			"%s: format %s, error %v", name, track.Format, err)
	}
}

// TestPublicRollingCaptions counts words. Each word of an automatic caption has a stamp, in the cue where it is said, but for
// the words of lines that have only one.
func TestPublicRollingCaptions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(dataFolder(t, "captions"), "*.vtt"))
	check.OK(t, err)
	stamped, naive, words := 0, 0, 0
	for _, file := range files {
		track := parseFile(t, file, Options{})
		s, n, w := 0, 0, 0
		for _, c := range track.Cues {
			n += len(strings.Fields(c.Plain()))
			for line := range strings.SplitSeq(c.Text, "\n") {
				if strings.Contains(line, "<c") {
					s += len(strings.Fields(Cue{Format: FormatWebVTT, Text: line}.Plain()))
				}
			}
		}
		transcript := track.Transcript(TranscriptOptions{KeepSounds: true})
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
