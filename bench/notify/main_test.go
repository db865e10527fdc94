package main

import (
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) {
	rig.NodeMain()
	rig.ChildMain(childRole, serve)
	goleak.VerifyTestMain(m)
}

// The notifier and the server are separate processes, and everything is counted afterwards.
func TestCountsWhatItMeasures(t *testing.T) {
	t.Parallel()
	o := rig.Options{Rounds: 2, Scale: 0.02, Only: regexp.MustCompile(`_10/(raw_)?r1$`)}
	r, err := measure(t.Context(), o)
	check.Require(t, err == nil, "%v", err)
	ours, raw := r.Figures["r1"], r.Figures["raw_r1"]
	for name, of := range map[string]rig.Spread{
		"rows/s": ours["inapp_10_stored_per_s"], "inbox/s": ours["inapp_10_sent_per_s"],
		"over raw": ours["inapp_10_over_raw"], "raw rows/s": raw["inapp_10_stored_per_s"],
	} {
		check.That(t, of.Median > 0, "%s is %v: %s", name, of, r.Text())
	}
	_, told := raw["inapp_10_sent_per_s"]
	check.That(t, !told && strings.Contains(r.Text(), "Events to 10 recipients by inapp"), "%s", r.Text())
}

func TestWrongCountsAreErrors(t *testing.T) {
	t.Parallel()
	r := rowOf{events: 2, recipients: 10}
	for _, test := range []struct {
		name         string
		counted      counts
		lost, double float64
	}{
		{"as it should be", counts{stored: 20, sent: 20}, 0, 0},
		{"rows only", counts{stored: 20, sent: -1}, 0, 0},
		{"a row is missing", counts{stored: 19, sent: 19}, 1, 0},
		{"a message is missing", counts{stored: 20, sent: 18}, 2, 0},
		{"a row is of nobody", counts{stored: 21, sent: 20}, 0, 1},
		{"sent twice", counts{stored: 20, sent: 20, double: 3}, 0, 3},
	} {
		f := rig.Figures{}
		err := r.judge(f, test.counted)
		check.That(t, f["inapp_10_lost"] == test.lost && f["inapp_10_double"] == test.double && (err != nil) == (test.lost+test.double > 0),
			"%s: %v, %v", test.name, f, err)
	}
}
