package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// running is a program that was started and stays up.
type running struct{ *crash.Process }

// up starts `expediter up` on free ports and returns when it has said all that it says.
func up(t *testing.T, args ...string) running {
	t.Helper()
	return start(t, "Ctrl-C", exec.Command("expediter", slices.Concat([]string{"up"}, freePorts, args)...))
}

var freePorts = strings.Fields("--http-port 0 --importer-port 0 --nats-port 0 --notifier-port 0 --console-port 0")

// refuses runs `expediter up`, which has to end with a code and to say why.
func refuses(t *testing.T, code int, args []string, says ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "expediter", slices.Concat([]string{"up"}, freePorts, args)...).CombinedOutput()
	check.Equal(t, exitCode(t, err), code, fmt.Sprintf("exit code with %q", args))
	check.Contains(t, string(out), says...)
}

// start starts a program and returns when it has printed a line with a text.
func start(t *testing.T, until string, cmd *exec.Cmd) running {
	t.Helper()
	r := running{crash.Start(t, cmd)}
	r.Await(regexp.QuoteMeta(until))
	return r
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	check.Require(t, ok, "%v", err)
	return exit.ExitCode()
}

// find returns the first match of a pattern in the output.
func (r running) find(t *testing.T, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindString(r.Output())
	check.Require(t, found != "", "no %s in:\n%s", pattern, r.Output())
	return found
}

// lines returns the command lines in the output.
func (r running) lines() []string {
	var lines []string
	for line := range strings.Lines(r.Output()) {
		if typed, ok := strings.CutPrefix(line, "  "); ok && !strings.HasPrefix(typed, " ") {
			lines = append(lines, strings.TrimSpace(typed))
		}
	}
	return lines
}

// shell runs a line as a user types it.
func shell(t *testing.T, line string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	check.Require(t, err == nil, "%s: %v: %s", line, err, &stderr)
	return string(out)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// decode returns the answer of the enricher about the only place, and what it says of Wolt.
func decode(t *testing.T, text string) (contracts.EnrichResponse, contracts.ProviderState) {
	t.Helper()
	a, err := contracts.Decode[contracts.EnrichResponse]([]byte(text))
	check.Require(t, err == nil && len(a.Results) == 1, "%v: %s", err, text)
	state, _ := a.Results[0].State(contracts.ProviderWolt)
	return a, state
}

const venue = "https://wolt.com/en/isr/tel-aviv/restaurant/kph-almh-lbnh"

// The lines work as they are printed: the first asks, the second follows, and the third, over NATS, gets the results so
// far. The fourth imports a recipe; the last two publish an event, and show that it reached its recipients. The console finds no problem.
// What was stored is there after a restart.
func TestUpSaysWhatToTry(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	r := up(t, "--dir", dir)
	url := strings.Fields(r.find(t, `notifier   http://127\.0\.0\.1:\d+`))[1]
	server := strings.Fields(r.find(t, `NATS       nats://127\.0\.0\.1:\d+`))[1]
	lines := r.lines()
	check.Require(t, len(lines) == 6, "want six lines to paste, got %q in:\n%s", lines, r.Output())
	first, state := decode(t, shell(t, lines[0]))
	check.That(t, first.RequestID == "hello" && first.Pending == 1 && state.Status == contracts.StatusPending, "the first answer is %+v", first)
	events := shell(t, lines[1])
	check.Contains(t, events, `"status":"FOUND","url":"`+venue+`"`, "event: complete")
	third, state := decode(t, shell(t, lines[2]))
	check.Equal(t, state, contracts.ProviderState{Status: contracts.StatusFound, URL: new(venue)})
	check.Equal(t, third.Pending, 0, "pending over NATS")
	check.Contains(t, shell(t, lines[3]), "1 tablespoon butter", "3. Pour in the eggs")
	check.Contains(t, shell(t, "curl -s '"+r.find(t, `http://127\.0\.0\.1:\d+/console/`)+"doctor?run=1'"), "Healthy.")

	_, before := decode(t, shell(t, lines[0]))
	emit, inbox := lines[4], lines[5]
	check.Equal(t, shell(t, emit), "accepted   evt-001  RESERVATION_REQUESTED\n", emit)
	out := shell(t, inbox)
	check.That(t, strings.Contains(out, "unread") && strings.Contains(out, `{"guests":4}`), "%s: %s", inbox, out)
	listed := shell(t, "expediter notifications --server "+server+" --event evt-001")
	check.Contains(t, listed, "RESTAURANT_USER  ada    inapp    delivered", "RESTAURANT_USER  ben ", "CUSTOMER         carla")
	for name, event := range map[string]string{"dov": `"event_type":"MENU_CHANGED"`, "eva": `"event_type":"OUTAGE"`} {
		shell(t, `echo '{"event_id":"`+name+`",`+event+`,"aggregate_type":"RESTAURANT","restaurant_id":"5"}' | expediter emit --wait --server `+server+" -")
		out := shell(t, "expediter inbox --server "+server+" "+name)
		check.That(t, strings.Contains(out, "unread"), "%s is not told: %s", name, out)
	}
	check.Contains(t, shell(t, "curl -s "+url+"/readyz"), "ok")
	check.Contains(t, shell(t, `curl -s -d '{"state":"archived"}' `+url+"/v1/users/carla/inbox"), `"unread":0`)
	r.Interrupt()
	check.Equal(t, r.Said(), "Stopping. Interrupt again to end at once.", "it complained")

	// Delivered events are not delivered again, and results are known.
	r = up(t, "--dir", dir)
	lines = r.lines()
	_, state = decode(t, shell(t, lines[0]))
	check.Equal(t, state, before)
	check.Equal(t, shell(t, lines[len(lines)-2]), "duplicate  evt-001  RESERVATION_REQUESTED (exists already)\n", "again")
	out = shell(t, lines[len(lines)-1])
	check.That(t, strings.Contains(out, "archived") && !strings.Contains(out, "unread"), "again: %s", out)
	r.Interrupt()
}

func TestUpOnACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers, which takes seconds")
	}
	r := up(t, "--cluster", "3")
	n := len(regexp.MustCompile(`nats://127\.0\.0\.1:\d+  `).FindAllString(strings.ReplaceAll(r.Output(), "\n", "  "), -1))
	check.That(t, n == 3, "want the URLs of three servers:\n%s", r.Output())
	answer, _ := decode(t, shell(t, strings.Replace(r.lines()[0], "/v1/enrich'", "/v1/enrich?wait=20s'", 1)))
	check.Equal(t, answer.Pending, 0, "still pending")
	_, state := decode(t, shell(t, r.lines()[2]))
	check.Equal(t, state.URL, new(venue), "over NATS")
	r.Interrupt()
	check.That(t, !strings.Contains(r.Said(), "route"), "it prints lines of the log:\n%s", r.Said())
}

// An interrupt while it starts is not an error.
func TestUpInterruptedWhileItStarts(t *testing.T) {
	t.Parallel()
	r := start(t, "", exec.Command("sh", "-c", "exec expediter up --http-port 0 --importer-port 0 --notifier-port 0 --console-port 0 --cluster 3 2>&1"))
	r.Interrupt()
	said := r.Output()
	check.That(t, strings.HasPrefix(said, "Starting 3 NATS servers") && !strings.Contains(said, "error"), "it says:\n%s", said)
}

// A reason not to start is reported in the words of its flags, with advice.
func TestUpSaysWhyItDoesNotStart(t *testing.T) { //nolint:tparallel // what waits are the subtests below "reasons"
	t.Parallel()
	listener := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	_, taken, err := net.SplitHostPort(listener.Addr().String())
	check.OK(t, err)
	dir := t.TempDir()
	r := up(t, "--dir", dir)
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, rules, "version: 1\nevents:\n  A:\n    CUSTOMER: {channels: [email]}\n    GUEST: {channels: [inapp], scope: near}\n")
	everybodys := "/tmp"
	if another := t.TempDir(); os.Chown(another, 1234, 1234) == nil { // as root
		everybodys = filepath.Join(another, "data")
	}
	cases := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--dir", everybodys}, 1, "error: --dir " + everybodys + " cannot be used (start NATS: natsrun: store directory cannot be used: " + everybodys + ": another user may change what is in it"},
		{[]string{"--importer-port", taken}, 1, "is another one up? Stop it, or take free ports with --console-port 0 "},
		{[]string{"--http-port", taken}, 1, "is another one up? Stop it, or take free ports with --console-port 0 "},
		{[]string{"--nats-port", taken}, 1, "is another one up? Stop it, or take free ports with --console-port 0 "},
		{[]string{"--console-port", taken}, 1, "is another one up? Stop it, or take free ports with --console-port 0 "},
		{[]string{"--dir", dir}, 1, "error: --dir " + dir + " is used by another one that is up; stop it, or take another directory"},
		{[]string{"--dir", file}, 1, "error: --dir " + file + " cannot be used"},
		{[]string{"--catalog", "nowhere.csv"}, 3, "nowhere.csv: no such file"},
		{[]string{"--rules", "nowhere.yaml"}, 3, "nowhere.yaml: no such file"},
		{[]string{"--rules", rules}, 1, "line 4: "},
		{[]string{"--rules", rules}, 1, "line 5: "},
		{[]string{"--cluster", "2"}, 2, "--cluster 2: want 1, or 3 to 9"},
		{[]string{"--http-port", "-1"}, 2, `invalid argument "-1" for "--http-port" flag`},
		{[]string{"--nats-port", "65536"}, 2, `invalid argument "65536" for "--nats-port" flag`},
	}
	t.Run("reasons", func(t *testing.T) { // it returns when all have ended
		for _, tc := range cases {
			t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
				t.Parallel()
				refuses(t, tc.code, tc.args, tc.want)
			})
		}
	})
	r.Interrupt()
}

// emptyPath is a PATH with nothing but this program.
func emptyPath(t *testing.T) string {
	t.Helper()
	program := check.Must(exec.LookPath("expediter"))(t)
	dir := t.TempDir()
	check.OK(t, os.Symlink(program, filepath.Join(dir, "expediter")))
	return dir
}

const omelette = "Whisk 3 eggs with a pinch of salt. Melt 1 tablespoon of butter in a hot pan. Pour in the eggs and stir for 2 minutes."

// Where no program is installed, up lists once the sources that need one, and imports the others.
func TestUpWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", emptyPath(t))
	r := up(t)
	const want = "not installed: yt-dlp, so no videos of YouTube; tesseract, so no photos\n"
	check.That(t, strings.Count(r.Output(), want) == 1, "want once %q:\n%s", want, r.Output())
	url := strings.Fields(r.find(t, `importer   http://127\.0\.0\.1:\d+`))[1]
	dir := t.TempDir()
	file := filepath.Join(dir, "quick-omelette.txt")
	check.OK(t, os.WriteFile(file, []byte(omelette), 0o600))
	out, err := exec.CommandContext(t.Context(), "expediter", "import", "--follow", "--url", url, file).Output()
	check.That(t, err == nil && (strings.HasPrefix(string(out), "Quick omelette\n") || strings.HasPrefix(string(out), "Omelette\n")),
		"%v: %s", err, out)
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
	testbed.WriteProgram(t, filepath.Join(dir, "yt-dlp"), "#!/bin/sh\nexit 3\n")
	t.Setenv("PATH", dir)
	r := up(t)
	check.Contains(t, r.Output(), "a yt-dlp that works, so no videos of YouTube")
	r.Interrupt()
	t.Setenv("IMPORTER_YOUTUBE", "true")
	refuses(t, 1, nil, "yt-dlp --version exits with 3")
	t.Setenv("IMPORTER_YUOTUBE", "true")
	refuses(t, 2, nil, "IMPORTER_YUOTUBE: is it misspelt?")
}
