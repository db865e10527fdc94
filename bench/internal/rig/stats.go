package rig

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Figures are the results of one row of one contestant in one round, by the name of the figure.
type Figures map[string]float64

// Spread is the median of the rounds, the least and the greatest.
type Spread struct{ Median, Min, Max float64 }

// NewSpread returns the Spread of values.
func NewSpread(values []float64) Spread {
	values = slices.Sorted(slices.Values(values))
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return Spread{Median: median, Min: values[0], Max: values[len(values)-1]}
}

// Quantiles adds the 50th and the 99th percentile of taken. Of fewer than a hundred times the latter is the slowest.
func (f Figures) Quantiles(name, unit string, taken []time.Duration) {
	if len(taken) == 0 {
		return
	}
	slices.Sort(taken)
	f[name+"_p50_"+unit] = In(unit, taken[len(taken)/2])
	f[name+"_p99_"+unit] = In(unit, taken[len(taken)*99/100])
}

// In returns a time in a unit: ns, us or ms.
func In(unit string, d time.Duration) float64 {
	switch unit {
	case "ns":
		return float64(d)
	case "us":
		return float64(d) / float64(time.Microsecond)
	default:
		return float64(d) / float64(time.Millisecond)
	}
}

// Work is processor time: of the clients, which are this process, and of the servers.
type Work struct{ clients, servers time.Duration }

// WorkOf returns the work of this process and of s so far.
func WorkOf(s *Service) Work { return Work{SelfTime(), s.ProcessorTime()} }

// Since adds the work since before for each of n operations.
func (f Figures) Since(name string, s *Service, before Work, n int) {
	now := WorkOf(s)
	f[name+"_client_cpu_us"] = In("us", now.clients-before.clients) / float64(n)
	f[name+"_server_cpu_us"] = In("us", now.servers-before.servers) / float64(n)
}

// SelfTime returns the processor time of this process, in user and in system mode.
func SelfTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// loadAverage returns the load averages, "" on systems without them.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// Counts are the cells of a confusion table.
type Counts struct {
	Right  int `json:"right"`
	Wrong  int `json:"wrong"`
	Missed int `json:"missed"`
}

// Add counts one answer: found reports whether it was found, there whether it exists.
func (c *Counts) Add(found, there bool) {
	switch {
	case found && there:
		c.Right++
	case found:
		c.Wrong++
	case there:
		c.Missed++
	}
}

// Sum adds other counts.
func (c *Counts) Sum(other Counts) {
	c.Right, c.Wrong, c.Missed = c.Right+other.Right, c.Wrong+other.Wrong, c.Missed+other.Missed
}

// Score is the precision and recall of counts.
type Score struct {
	Counts

	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
}

// Score returns precision, recall and F1 with three digits.
func (c Counts) Score() Score {
	return Score{
		Counts: c, Precision: share(c.Right, c.Right+c.Wrong), Recall: share(c.Right, c.Right+c.Missed),
		F1: share(2*c.Right, 2*c.Right+c.Wrong+c.Missed),
	}
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(1000*float64(part)/float64(whole)) / 1000
}

// Report is the last line under --json. Beside its fields it has one for each contestant that is ours.
type Report struct {
	OK       bool                             `json:"ok"` // everything ran; does not depend on the targets
	Failures []string                         `json:"failures,omitempty"`
	Rounds   int                              `json:"rounds"`
	Scale    float64                          `json:"scale"`
	Machine  Machine                          `json:"machine"`
	Classes  map[string]string                `json:"classes,omitempty"`
	Peers    map[string]map[string]float64    `json:"peers"`
	Skipped  map[string]string                `json:"skipped,omitempty"` // the contestants that did not take part, and why
	Targets  []Verdict                        `json:"targets"`
	Spreads  map[string]map[string][2]float64 `json:"spreads"` // the least and the greatest

	Ours map[string]map[string]float64 `json:"-"` // the median of every figure, by contestant
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

// Target is a bound that a figure should meet.
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

// Verdict is a target, its figure, and whether it is met.
type Verdict struct {
	Target

	Is  float64 `json:"is"`
	Met bool    `json:"met"`
}

// NewReport sums up the results. Contestants whose names start with r1 or r3 are ours; without a stand all are.
func NewReport(s *Stand, got Results, o Options, m Machine, targets []Target) Report {
	r := Report{
		OK: len(s.Failures) == 0, Failures: s.Failures, Rounds: o.Rounds, Scale: o.Scale,
		Machine: m, Skipped: s.Skipped,
		Peers: map[string]map[string]float64{}, Ours: map[string]map[string]float64{},
	}
	medians, spreads := got.Medians()
	r.Spreads = spreads
	for who, all := range medians {
		if s.running == nil || strings.HasPrefix(who, "r1") || strings.HasPrefix(who, "r3") {
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

// Head writes the title, the machine and the contestants.
func (p *Printer) Head(title string, s *Stand, who []Entry, o Options, m Machine) {
	for name, running := range s.running {
		if running.Version != "" {
			m.Versions[name] = running.Version
		}
	}
	p.Note("%s over TCP on the loopback; clients in one process, every server in one of its own.", title)
	p.Note("%s", m)
	p.Note("Rounds: %d, operations × %g. A figure is the median of the rounds, with the least and the greatest behind it.", o.Rounds, o.Scale)
	p.versions(m)
	for _, name := range slices.Sorted(maps.Keys(s.Skipped)) {
		who = append(who, Entry{name, "skipped: " + s.Skipped[name]})
	}
	p.list(who)
}

// versions writes the versions of the contestants.
func (p *Printer) versions(m Machine) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		all = append(all, name+" "+m.Versions[name])
	}
	p.Note("Versions: %s.", strings.Join(all, "; "))
}

// list writes a line for each entry, which is an item of a list on the page if it has a note.
func (p *Printer) list(all []Entry) {
	width := 0
	for _, one := range all {
		width = max(width, len(one.Name))
	}
	for _, one := range all {
		p.Line("  %-*s  %s", width, one.Name, one.Note)
		if one.Note != "" {
			fmt.Fprintf(p.page, "- `%s`: %s\n", one.Name, one.Note)
		}
	}
	fmt.Fprintln(p.page)
}

// Foot writes the verdicts of the targets, and the failures.
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
