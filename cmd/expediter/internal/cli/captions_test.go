package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
)

// TestCaptionsSayWhatWasCut hands the command more cues than it takes.
func TestCaptionsSayWhatWasCut(t *testing.T) {
	t.Parallel()
	const cue = "00:00.000 --> 00:01.000\na\n\n"
	cfg, stdout, stderr := captionsConfig("WEBVTT\n\n" + strings.Repeat(cue, caption.DefaultMaxCues+1))
	if code := Run(t.Context(), cfg, []string{"captions", "--format", "json", "-"}); code != ExitFailure {
		t.Errorf("exits with %d, want %d", code, ExitFailure)
	}
	if got, want := stderr.String(), "error: standard input: not all of it was read: cut at line 750003 by MaxCues (250000)\n"; got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}
	var out struct {
		Cues      []struct{}        `json:"cues"`
		Cuts      []caption.Cut     `json:"cuts"`
		Segments  []caption.Segment `json:"segments"`
		Truncated bool              `json:"truncated"`
	}
	check.OK(t, json.Unmarshal(stdout.Bytes(), &out))
	if !out.Truncated || len(out.Cuts) != 1 || len(out.Cues) != caption.DefaultMaxCues || len(out.Segments) != caption.DefaultMaxCues {
		t.Errorf("truncated %t, cuts %v, %d cues, %d segments", out.Truncated, out.Cuts, len(out.Cues), len(out.Segments))
	}
}

// TestCaptionsOutputFails has a standard output that is gone.
func TestCaptionsOutputFails(t *testing.T) {
	t.Parallel()
	for _, format := range captionsFormats {
		cfg, _, stderr := captionsConfig("WEBVTT\n\n00:00.000 --> 00:01.000\na\n")
		cfg.Stdout = closedPipe{}
		if code := Run(t.Context(), cfg, []string{"captions", "--format", format, "-"}); code != ExitFailure {
			t.Errorf("%s: exits with %d, want %d", format, code, ExitFailure)
		}
		if got, want := stderr.String(), "error: writing the output: closed pipe\n"; got != want {
			t.Errorf("%s: stderr %q, want %q", format, got, want)
		}
	}
}

func captionsConfig(stdin string) (cfg Config, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return Config{
		Getenv: func(string) string { return "" }, Stderr: stderr, Stdin: strings.NewReader(stdin), Stdout: stdout,
	}, stdout, stderr
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("closed pipe") }
