package rig

import (
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Figures are what one row of one contestant came to in one round, by the name of the figure.
type Figures map[string]float64

// Spread is the median of the rounds, the least and the greatest.
type Spread struct{ Median, Min, Max float64 }

// NewSpread sums values up.
func NewSpread(values []float64) Spread {
	values = slices.Sorted(slices.Values(values))
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return Spread{Median: median, Min: values[0], Max: values[len(values)-1]}
}

// Quantiles adds the 50th and the 99th percentile of what was taken. Of fewer than a hundred the latter is the slowest.
func (f Figures) Quantiles(name, unit string, taken []time.Duration) {
	if len(taken) == 0 {
		return
	}
	slices.Sort(taken)
	f[name+"_p50_"+unit] = In(unit, taken[len(taken)/2])
	f[name+"_p99_"+unit] = In(unit, taken[len(taken)*99/100])
}

// In is a time in a unit: ns, us or ms.
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

// Work is what processors did: for the clients, which are this process, and for the servers.
type Work struct{ clients, servers time.Duration }

// WorkOf is what was done so far.
func WorkOf(s *Service) Work { return Work{SelfTime(), s.ProcessorTime()} }

// Since adds what was spent for each of n operations since before.
func (f Figures) Since(name string, s *Service, before Work, n int) {
	now := WorkOf(s)
	f[name+"_client_cpu_us"] = In("us", now.clients-before.clients) / float64(n)
	f[name+"_server_cpu_us"] = In("us", now.servers-before.servers) / float64(n)
}

// SelfTime is what this process has spent, in user and in system mode.
func SelfTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
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

// Counts are the cells of a confusion table.
type Counts struct {
	Right  int `json:"right"`
	Wrong  int `json:"wrong"`
	Missed int `json:"missed"`
}

// Add counts one answer: whether something was found, and whether it is there.
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

// Score is what counts come to.
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
