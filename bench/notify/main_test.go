package main

import (
	"bytes"
	"encoding/json"
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

// A notifier and a server in processes of their own, and everything counted afterwards.
func TestCountsWhatItMeasures(t *testing.T) {
	t.Parallel()
	o := rig.Options{Rounds: 2, Scale: 0.02, Only: regexp.MustCompile(`_10/(raw_)?r1$`)}
	var out bytes.Buffer
	result, err := measure(t.Context(), &out, o)
	check.Require(t, err == nil, "%v: %s", err, out.String())
	data := check.Must(json.Marshal(result))(t)
	var r struct {
		OK    bool                          `json:"ok"`
		R1    map[string]float64            `json:"r1"`
		Peers map[string]map[string]float64 `json:"peers"`
	}
	check.OK(t, json.Unmarshal(data, &r))
	raw := r.Peers["raw_r1"]
	for name, value := range map[string]float64{
		"rows/s": r.R1["inapp_10_stored_per_s"], "inbox/s": r.R1["inapp_10_sent_per_s"],
		"over raw": r.R1["inapp_10_over_raw"], "raw rows/s": raw["inapp_10_stored_per_s"],
	} {
		check.That(t, value > 0, "%s is %v: %s", name, value, data)
	}
	_, told := raw["inapp_10_sent_per_s"]
	check.That(t, r.OK && !told, "%s", data)
	check.That(t, strings.Contains(out.String(), "Events to 10 recipients by inapp"), "no table: %s", out.String())
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

// The largest audience is compared with 1,000 recipients by medians.
func TestGrowth(t *testing.T) {
	t.Parallel()
	f := growth(map[string][]float64{
		"inapp_1000_stored_ns": {90, 100, 110}, "inapp_10000_stored_ns": {1000},
		"inapp_1000_client_peak_mb": {10}, "inapp_10000_client_peak_mb": {14},
	})
	check.That(t, f["inapp_stored_growth"] == 10 && f["inapp_memory_growth_mb"] == 4, "%v", f)
	_, ok := f["inapp_sent_growth"]
	check.That(t, !ok, "%v", f)
}
