package rig

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Figures are the results of one row of one contestant in one round, by the name of the figure.
type Figures map[string]float64

// Quantiles adds the 50th and the 99th percentile of taken. Of fewer than a hundred times the latter is the slowest.
func (f Figures) Quantiles(name, unit string, taken []time.Duration) {
	if len(taken) == 0 {
		return
	}
	slices.Sort(taken)
	f[name+"_p50_"+unit] = In(unit, taken[len(taken)/2])
	f[name+"_p99_"+unit] = In(unit, taken[len(taken)*99/100])
}

// Since adds the work since before for each of n operations.
func (f Figures) Since(name string, s *Service, before Work, n int) {
	now := WorkOf(s)
	f[name+"_client_cpu_us"] = In("us", now.clients-before.clients) / float64(n)
	f[name+"_server_cpu_us"] = In("us", now.servers-before.servers) / float64(n)
}

// In returns a time in a unit: us or ms.
func In(unit string, d time.Duration) float64 {
	if unit == "us" {
		return float64(d) / float64(time.Microsecond)
	}
	return float64(d) / float64(time.Millisecond)
}

// Spread is the median of the rounds, the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(values []float64) Spread {
	values = slices.Sorted(slices.Values(values))
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return Spread{Median: median, Min: values[0], Max: values[len(values)-1]}
}

// Results are the figures of all rounds, by contestant and name.
type Results map[string]map[string][]float64

// Add adds the figures of one row of one contestant in one round.
func (r Results) Add(who string, f Figures) {
	if r[who] == nil {
		r[who] = map[string][]float64{}
	}
	for name, value := range f {
		r[who][name] = append(r[who][name], value)
	}
}

// OverRaw adds the ratio of a figure in each round to that of nats.go alone.
func (r Results) OverRaw(c Contestant, figure, ratio string) {
	mine, raw := r[c.Name][figure], r[c.Raw][figure]
	if c.Raw == "" || len(mine) != len(raw) {
		return
	}
	for i := range mine {
		r.Add(c.Name, Figures{ratio: mine[i] / raw[i]})
	}
}

// Column is a figure of a table.
type Column struct {
	Figure string
	Title  string
	Format string
	Spread bool // show the least and the greatest beside the median
}

func (c Column) cell(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	s := newSpread(values)
	if !c.Spread || len(values) == 1 {
		return fmt.Sprintf(c.Format, s.Median)
	}
	return fmt.Sprintf(c.Format+" ["+c.Format+" "+c.Format+"]", s.Median, s.Min, s.Max)
}

// Report is what a benchmark with contestants found: a text in Markdown, and these fields as JSON.
type Report struct {
	Failures []string                     `json:"failures,omitempty"`
	Rounds   int                          `json:"rounds"`
	Scale    float64                      `json:"scale"`
	Machine  Machine                      `json:"machine"`
	Skipped  map[string]string            `json:"skipped,omitempty"` // the contestants that did not take part, and why
	Figures  map[string]map[string]Spread `json:"figures"`           // by contestant and name, of the columns of all tables

	text strings.Builder
}

// NewReport returns an empty report.
func NewReport(o Options, m Machine) *Report {
	return &Report{Rounds: o.Rounds, Scale: o.Scale, Machine: m, Skipped: map[string]string{}, Figures: map[string]map[string]Spread{}}
}

// Text returns the text so far.
func (r *Report) Text() string { return r.text.String() }

// Note writes a paragraph.
func (r *Report) Note(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n\n", args...) }

// Table writes a line for each contestant that has figures of these columns, and nothing if none has.
func (r *Report) Table(title string, columns []Column, who []string, got Results) {
	w := tabwriter.NewWriter(&r.text, 0, 0, 1, ' ', 0)
	head := "|\t"
	for _, c := range columns {
		head += "| " + c.Title + "\t"
	}
	for _, name := range who {
		line, found := "| `"+name+"`\t", false
		for _, c := range columns {
			values := got[name][c.Figure]
			line += "| " + c.cell(values) + "\t"
			if len(values) > 0 {
				found = true
				if r.Figures[name] == nil {
					r.Figures[name] = map[string]Spread{}
				}
				r.Figures[name][c.Figure] = newSpread(values)
			}
		}
		if !found {
			continue
		}
		if head != "" {
			r.Note("%s:", title)
			fmt.Fprintln(w, head+"|\n"+strings.Repeat("|---\t", len(columns)+1)+"|")
			head = ""
		}
		fmt.Fprintln(w, line+"|")
	}
	_ = w.Flush() // into memory
	if head == "" {
		r.text.WriteString("\n")
	}
}

// Machine describes the machine of a measurement, and the versions of the contestants.
type Machine struct {
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Date     string            `json:"date"`
	Go       string            `json:"go"`
	Load     string            `json:"load,omitempty"` // the load before the measurement: averages over 1, 5 and 15 minutes
	OS       string            `json:"os"`
	Versions map[string]string `json:"versions"` // the versions of the compared libraries and programs
}

// String returns sentences about the machine.
func (m Machine) String() string {
	s := fmt.Sprintf("Measured on %s with %d × %s (%s), %s", m.Date, m.CPUs, m.CPU, m.OS, m.Go)
	if m.Load != "" {
		s += ", load before: " + m.Load
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		versions = append(versions, name+" "+m.Versions[name])
	}
	return s + ".\n\nVersions: " + strings.Join(versions, "; ") + "."
}

// compared are the libraries whose versions are reported, by the beginnings of their paths.
var compared = []string{
	"github.com/go-redsync/redsync", "github.com/hibiken/asynq",
	"github.com/jackc/pgx", "github.com/nats-io/nats-server", "github.com/nats-io/nats.go", "github.com/redis/rueidis",
	"github.com/riverqueue/river", "go.etcd.io/etcd/client",
}

// ThisMachine describes the machine at the moment, and the libraries of this program.
func ThisMachine() Machine {
	cpus, _ := os.ReadFile("/proc/cpuinfo") // unknown on other systems than Linux
	_, model, _ := strings.Cut(string(cpus), "model name\t: ")
	model, _, _ = strings.Cut(model, "\n")
	load, _ := os.ReadFile("/proc/loadavg") // as above
	averages := strings.Fields(string(load))
	m := Machine{
		CPU: model, CPUs: runtime.GOMAXPROCS(0), Date: time.Now().Format(time.DateOnly), Go: runtime.Version(),
		Load: strings.Join(averages[:min(3, len(averages))], " "), OS: runtime.GOOS + "/" + runtime.GOARCH, Versions: map[string]string{},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.ContainsFunc(compared, func(of string) bool { return d.Path == of || strings.HasPrefix(d.Path, of+"/v") }) {
				m.Versions[d.Path] = d.Version
			}
		}
	}
	return m
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
