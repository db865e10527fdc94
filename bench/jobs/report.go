package main

import (
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// targets are those of one server that syncs as deployed.
var targets = []rig.Target{
	{On: "r1", Figure: "over_raw", Kind: rig.AtLeast, Goal: 0.6},
	{On: "r1", Figure: "cpu_us_per_job", Kind: rig.AtMost, Goal: 80},
	{On: "r1", Figure: "start_p50_ms", Kind: rig.AtMost, Goal: 1},
	{On: "r1", Figure: "five_step_jobs_per_s", Kind: rig.AtLeast, Goal: 4000},
	{On: "r1", Figure: "restart_over_ackwait", Kind: rig.AtMost, Goal: 2},
}

// newReport adds the effects that were lost or doubled to what is said of each. Where one is ours, it is a failure.
func newReport(s *stand, got rig.Results, o options, load string) rig.Report {
	r := rig.NewReport(s.Stand, got, o.Options, load, targets)
	r.Classes = map[string]string{}
	for _, who := range s.entered {
		r.Classes[who.name] = who.class
		double, lost := total(got[who.name], "_double"), total(got[who.name], "_lost")
		if figures := r.Peers[who.name]; figures != nil {
			figures["double"], figures["lost"] = double, lost
		}
		if figures := r.Ours[who.name]; figures != nil {
			figures["double"], figures["lost"] = double, lost
			if double+lost > 0 {
				r.OK = false
				r.Failures = append(r.Failures, fmt.Sprintf("%s: %.0f jobs ran twice, %.0f never", who.name, double, lost))
			}
		}
	}
	return r
}

// total sums a count over all rows and rounds.
func total(figures map[string][]float64, suffix string) (sum float64) {
	for name, values := range figures {
		if strings.HasSuffix(name, suffix) {
			for _, v := range values {
				sum += v
			}
		}
	}
	return sum
}

// overRaw compares each round's jobs/s with those of nats.go alone in the same round.
func overRaw(got rig.Results, s *stand) {
	for _, who := range s.entered {
		mine, raw := got[who.name]["jobs_per_s"], got[who.raw]["jobs_per_s"]
		if n := len(got[who.name]["over_raw"]); who.raw != "" && len(mine) == len(raw) && len(mine) > n {
			got.Add(who.name, rig.Figures{"over_raw": mine[n] / raw[n]})
		}
	}
}
