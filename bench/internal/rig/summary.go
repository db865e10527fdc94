package rig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is the last line under --json. Beside its fields it has one for each contestant that is ours.
type Report struct {
	OK       bool                             `json:"ok"` // everything ran; says nothing of the targets
	Failures []string                         `json:"failures,omitempty"`
	Rounds   int                              `json:"rounds"`
	Scale    float64                          `json:"scale"`
	Machine  Machine                          `json:"machine"`
	Classes  map[string]string                `json:"classes,omitempty"`
	Peers    map[string]map[string]float64    `json:"peers"`
	Skipped  map[string]string                `json:"skipped,omitempty"` // the contestants that did not take part, and why
	Targets  []Verdict                        `json:"targets"`
	Spreads  map[string]map[string][2]float64 `json:"spreads"` // the least and the greatest

	Ours map[string]map[string]float64 `json:"-"` // of each the median of every figure
}

// MarshalJSON implements json.Marshaler.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	data, err := json.Marshal(plain(r))
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for who, figures := range r.Ours {
		all[who] = figures
	}
	return json.Marshal(all)
}

// Target is what is aimed at.
type Target struct {
	On     string  `json:"on"`
	Figure string  `json:"figure"`
	Kind   string  `json:"kind"` // AtMost or AtLeast
	Goal   float64 `json:"goal"`
}

// Kinds of targets.
const (
	AtLeast = "at least"
	AtMost  = "at most"
)

// Verdict is a target, and what it came to.
type Verdict struct {
	Target

	Is  float64 `json:"is"`
	Met bool    `json:"met"`
}

// NewReport sums up what was measured. All contestants are ours where no stand has others; else those whose names start with r1 or r3.
func NewReport(s *Stand, got Results, o Options, m Machine, targets []Target) Report {
	r := Report{
		OK: len(s.Failures) == 0, Failures: s.Failures, Rounds: o.Rounds, Scale: o.Scale,
		Machine: m, Skipped: s.Skipped,
		Peers: map[string]map[string]float64{}, Ours: map[string]map[string]float64{},
	}
	medians, spreads := got.Medians()
	r.Spreads = spreads
	for who, all := range medians {
		if s.starters == nil || strings.HasPrefix(who, "r1") || strings.HasPrefix(who, "r3") {
			r.Ours[who] = all
		} else {
			r.Peers[who] = all
		}
	}
	for _, t := range targets {
		if is, ok := medians[t.On][t.Figure]; ok {
			r.Targets = append(r.Targets, Verdict{t, is, t.Kind == AtLeast && is >= t.Goal || t.Kind == AtMost && is <= t.Goal})
		}
	}
	return r
}

// Head writes who takes part in what.
func (p *Printer) Head(what string, s *Stand, who []Entry, o Options, m Machine) {
	for name, running := range s.running {
		if running.Version != "" {
			m.Versions[name] = running.Version
		}
	}
	p.Note("%s over TCP on the loopback; clients in one process, every server in one of its own.", what)
	p.Note("%s", m)
	p.Note("Rounds: %d, operations × %g. A figure is the median of the rounds, with the least and the greatest behind it.", o.Rounds, o.Scale)
	p.versions(m)
	for _, name := range slices.Sorted(maps.Keys(s.Skipped)) {
		who = append(who, Entry{name, "skipped: " + s.Skipped[name]})
	}
	p.list(who)
}

// versions writes those of what is compared.
func (p *Printer) versions(m Machine) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		all = append(all, name+" "+m.Versions[name])
	}
	p.Note("Versions: %s.", strings.Join(all, "; "))
}

// list writes a line for each, which is an item of a list on the page.
func (p *Printer) list(all []Entry) {
	width := 0
	for _, one := range all {
		width = max(width, len(one.Name))
	}
	for _, one := range all {
		p.Line("  %-*s  %s", width, one.Name, one.Note)
		fmt.Fprintf(p.page, "- `%s`: %s\n", one.Name, one.Note)
	}
	fmt.Fprintln(p.page)
}

// Foot writes what became of the targets, and what went wrong.
func (p *Printer) Foot(r Report) {
	p.Line("")
	var all []Entry
	for _, v := range r.Targets {
		result := "met"
		if !v.Met {
			result = "MISSED"
		}
		all = append(all, Entry{v.On + " " + v.Figure, fmt.Sprintf("target %s %g: %.2f, %s", v.Kind, v.Goal, v.Is, result)})
	}
	p.list(all)
	for _, failure := range r.Failures {
		p.Note("FAILED: %s", failure)
	}
}
