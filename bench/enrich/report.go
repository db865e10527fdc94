package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// goalMS is what the answer to a request of ten known places may take at the median, in milliseconds.
const goalMS = 1.0

// report is the last line under --json.
type report struct {
	OK         bool     `json:"ok"` // everything ran; says nothing of the goal
	Durability string   `json:"durability"`
	Rounds     int      `json:"rounds"`
	Go         string   `json:"go"`
	CPUs       int      `json:"cpus"`
	Load       string   `json:"load,omitempty"` // of the machine, before: averages over 1, 5 and 15 minutes
	Goals      []goal   `json:"goals"`
	Figures    []figure `json:"figures"`
}

// goal is what was aimed at, and what it came to.
type goal struct {
	What string  `json:"what"`
	Goal float64 `json:"goal"`
	Is   float64 `json:"is"`
	Met  bool    `json:"met"`
}

// figure is what one case came to.
type figure struct {
	kase

	Requests int    `json:"requests"` // in each round
	P50MS    spread `json:"p50_ms"`
	P99MS    spread `json:"p99_ms"`
	CPUUS    spread `json:"cpu_us"`
	Allocs   spread `json:"allocs"`
	PerSec   spread `json:"requests_per_s"`
}

// spread is the median of the rounds, the least and the greatest.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(samples []sample, pick func(sample) float64) spread {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = pick(s)
	}
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return spread{Median: median, Min: values[0], Max: values[len(values)-1]}
}

func newReport(all []kase, samples [][]sample, rounds int) report {
	r := report{OK: true, Durability: durability, Rounds: rounds, Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0)}
	for i, k := range all {
		f := figure{
			kase: k, Requests: k.requests,
			P50MS:  newSpread(samples[i], func(s sample) float64 { return s.p50 }),
			P99MS:  newSpread(samples[i], func(s sample) float64 { return s.p99 }),
			CPUUS:  newSpread(samples[i], func(s sample) float64 { return s.cpu }),
			Allocs: newSpread(samples[i], func(s sample) float64 { return s.allocated }),
			PerSec: newSpread(samples[i], func(s sample) float64 { return s.rate }),
		}
		r.Figures = append(r.Figures, f)
		if k.hit() && k.Places == 10 && k.Clients == 1 {
			r.Goals = append(r.Goals, goal{
				What: "p50_ms of 10 known places over " + k.Transport, Goal: goalMS, Is: f.P50MS.Median, Met: f.P50MS.Median < goalMS,
			})
		}
	}
	return r
}

// printer writes the report and keeps the first error.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

func (p *printer) head(o options, load string) {
	p.line("Enricher over TCP on the loopback; NATS, enricher and clients in one process of %d CPUs, %s.", runtime.GOMAXPROCS(0), runtime.Version())
	p.line("Durability: %s. Rounds: %d, each on a fresh server with its store in %s.", durability, o.rounds, os.TempDir())
	if load != "" {
		p.line("Load of the machine before: %s.", load)
	}
}

// loadAverage is how many processes wanted to run lately, on systems that say so.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

func (p *printer) round(n, of int) { fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, of) }

func (p *printer) body(r report) {
	clients := 0
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, f := range r.Figures {
		if f.Clients != clients {
			p.flush(w)
			clients = f.Clients
			fmt.Fprintf(w, "\n%s\n", title(clients))
			fmt.Fprintln(w, "over\tkind\tplaces\trequests\tp50 ms\t[min\tmax]\tp99 ms\t[min\tmax]\tCPU µs\t[min\tmax]\tallocs\treq/s\t[min\tmax]\t")
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%.0f\t%s\t\n", f.Transport, f.Kind, f.Places, f.Requests,
			f.P50MS.cells("%.3f"), f.P99MS.cells("%.3f"), f.CPUUS.cells("%.0f"), f.Allocs.Median, f.PerSec.cells("%.0f"))
	}
	p.flush(w)
	p.line("")
	for _, g := range r.Goals {
		verdict := "met"
		if !g.Met {
			verdict = "missed"
		}
		p.line("Goal: %s below %g: %.3f, %s.", g.What, g.Goal, g.Is, verdict)
	}
}

func (p *printer) flush(w *tabwriter.Writer) {
	if err := w.Flush(); p.err == nil {
		p.err = err
	}
}

func title(clients int) string {
	if clients == 1 {
		return "One client, one request after the other (the jobs of a miss are done before the next request; req/s includes them)"
	}
	return fmt.Sprintf("%d clients without a pause", clients)
}

// cells are the three numbers as columns of the table.
func (s spread) cells(format string) string {
	return fmt.Sprintf(strings.Join([]string{format, format, format}, "\t"), s.Median, s.Min, s.Max)
}
