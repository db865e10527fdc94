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
	{On: "r1", Figure: "ordered_over_plain", Kind: rig.AtLeast, Goal: 0.8},
	{On: "r1", Figure: "handlers_cpu_over_plain", Kind: rig.AtMost, Goal: 1.1},
	{On: "r1", Figure: "listing_page_server_cpu_us", Kind: rig.AtMost, Goal: 5000},
	{On: "r1", Figure: "listing_vain_server_cpu_us", Kind: rig.AtMost, Goal: 5000},
}

// judge adds the effects that were lost or doubled to what is said of each. Where one is ours, it is a failure.
func judge(r *rig.Report, got rig.Results) {
	for who := range r.Classes {
		double, lost := total(got[who], "_double"), total(got[who], "_lost")
		if figures := r.Peers[who]; figures != nil {
			figures["double"], figures["lost"] = double, lost
		}
		if figures := r.Ours[who]; figures != nil {
			figures["double"], figures["lost"] = double, lost
			if double+lost > 0 {
				r.OK = false
				r.Failures = append(r.Failures, fmt.Sprintf("%s: %.0f jobs ran twice, %.0f never", who, double, lost))
			}
		}
	}
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
