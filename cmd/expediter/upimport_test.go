package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// emptyPath is a PATH with nothing but this program.
func emptyPath(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("expediter")
	check.OK(t, err)
	dir := t.TempDir()
	check.OK(t, os.Symlink(program, filepath.Join(dir, "expediter")))
	return dir
}

const omelette = "Whisk 3 eggs with a pinch of salt. Melt 1 tablespoon of butter in a hot pan. Pour in the eggs and stir for 2 minutes."

// Where nothing is installed, up says once what does not work for that, and imports what needs nothing.
func TestUpWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", emptyPath(t))
	r := up(t)
	const want = "not installed: yt-dlp, so no videos of YouTube; tesseract, so no photos\n"
	if strings.Count(r.Output(), want) != 1 {
		t.Errorf("want once %q:\n%s", want, r.Output())
	}
	url := strings.Fields(r.find(t, `importer   http://127\.0\.0\.1:\d+`))[1]
	dir := t.TempDir()
	file := filepath.Join(dir, "quick-omelette.txt")
	check.OK(t, os.WriteFile(file, []byte(omelette), 0o600))
	out, err := exec.CommandContext(t.Context(), "expediter", "import", "--follow", "--url", url, file).Output()
	if err != nil || !strings.HasPrefix(string(out), "Quick omelette\n") && !strings.HasPrefix(string(out), "Omelette\n") {
		t.Errorf("%v: %s", err, out)
	}
	var stderr bytes.Buffer
	video := exec.CommandContext(t.Context(), "expediter", "import", "--follow", "--url", url, "https://youtu.be/dQw4w9WgXcQ")
	video.Stderr = &stderr
	if code := exitCode(t, video.Run()); code != 1 || !strings.Contains(stderr.String(), "it is not turned on (unavailable)") {
		t.Errorf("a video ends with %d: %s", code, &stderr)
	}
	r.Interrupt()
}

// A yt-dlp that does not work is no reason not to start, unless videos were asked for.
func TestUpWithABrokenProgram(t *testing.T) {
	dir := emptyPath(t)
	check.OK(t, os.WriteFile(filepath.Join(dir, "yt-dlp"), []byte("#!/bin/sh\nexit 3\n"), 0o700))
	t.Setenv("PATH", dir)
	r := up(t)
	if !strings.Contains(r.Output(), "a yt-dlp that works, so no videos of YouTube") {
		t.Errorf("it says:\n%s", r.Output())
	}
	r.Interrupt()
	t.Setenv("IMPORTER_YOUTUBE", "true")
	var stderr bytes.Buffer
	asked := exec.CommandContext(t.Context(), "expediter", "up", "--http-port", "0", "--importer-port", "0", "--nats-port", "0", "--notifier-port", "0")
	asked.Stderr = &stderr
	if code := exitCode(t, asked.Run()); code != 1 || !strings.Contains(stderr.String(), "yt-dlp --version exits with 3") {
		t.Errorf("it ends with %d: %s", code, &stderr)
	}
	t.Setenv("IMPORTER_YUOTUBE", "true")
	stderr.Reset()
	misspelt := exec.CommandContext(t.Context(), "expediter", "up", "--http-port", "0", "--importer-port", "0", "--nats-port", "0", "--notifier-port", "0")
	misspelt.Stderr = &stderr
	if code := exitCode(t, misspelt.Run()); code != 2 || !strings.Contains(stderr.String(), "IMPORTER_YUOTUBE: is it misspelt?") {
		t.Errorf("it ends with %d: %s", code, &stderr)
	}
}
