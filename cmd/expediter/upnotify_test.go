package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The commands that up prints work as they are: the event reaches its recipients, and notifications shows that.
func TestUpTellsPeople(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := up(t, "--dir", dir)
	url := strings.Fields(r.find(t, `notifier   http://127\.0\.0\.1:\d+`))[1]
	server := strings.Fields(r.find(t, `NATS       nats://127\.0\.0\.1:\d+`))[1]
	lines := r.lines()
	emit, inbox := lines[len(lines)-2], lines[len(lines)-1]
	check.Same(t, emit, shell(t, emit), "accepted   evt-001  RESERVATION_REQUESTED\n")
	out := shell(t, inbox)
	check.That(t, strings.Contains(out, "unread") && strings.Contains(out, `{"guests":4}`), "%s: %s", inbox, out)
	rows := shell(t, "expediter notifications --server "+server+" --event evt-001")
	for _, want := range []string{"RESTAURANT_USER  ada    inapp    delivered", "RESTAURANT_USER  ben ", "CUSTOMER         carla"} {
		check.Says(t, rows, want)
	}
	for name, event := range map[string]string{"dov": `"event_type":"MENU_CHANGED"`, "eva": `"event_type":"OUTAGE"`} {
		shell(t, `echo '{"event_id":"`+name+`",`+event+`,"aggregate_type":"RESTAURANT","restaurant_id":"5"}' | expediter emit --wait --server `+server+" -")
		out := shell(t, "expediter inbox --server "+server+" "+name)
		check.That(t, strings.Contains(out, "unread"), "%s is not told: %s", name, out)
	}
	check.Says(t, shell(t, "curl -s "+url+"/readyz"), "ok")
	shell(t, strings.Replace(inbox, "expediter inbox", "expediter inbox archive --all", 1))
	r.Interrupt()
	check.Same(t, "it complained", r.Said(), "Stopping. Interrupt again to end at once.")

	// What was told stays told.
	r = up(t, "--dir", dir)
	lines = r.lines()
	check.Same(t, "again", shell(t, lines[len(lines)-2]), "duplicate  evt-001  RESERVATION_REQUESTED\n")
	out = shell(t, lines[len(lines)-1])
	check.That(t, strings.Contains(out, "archived") && !strings.Contains(out, "unread"), "again: %s", out)
	r.Interrupt()
}

// Rules that have mistakes are no rules, and all of the mistakes are told.
func TestUpWithRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rules string
		code  int
		want  []string
	}{
		{"version: 2\nevents: {}\n", 1, []string{"rules.yaml: line 1: version is \"2\": want 1"}},
		{"version: 1\nevents:\n  A:\n    CUSTOMER: {channels: [email]}\n    GUEST: {channels: [inapp], scope: near}\n", 1, []string{"line 4: ", "line 5: "}},
		{"", 3, []string{"rules.yaml: no such file"}},
	} {
		path := t.TempDir() + "/rules.yaml"
		if tc.rules != "" {
			writeFile(t, path, tc.rules)
		}
		cmd := exec.CommandContext(t.Context(), "expediter", "up", "--http-port", "0", "--importer-port", "0", "--nats-port", "0",
			"--notifier-port", "0", "--rules", path)
		out, err := cmd.CombinedOutput()
		code := exitCode(t, err)
		check.That(t, code == tc.code, "exits with %d, want %d", code, tc.code)
		for _, want := range tc.want {
			check.That(t, strings.Contains(string(out), want), "no %q in %s", want, out)
		}
	}
}
