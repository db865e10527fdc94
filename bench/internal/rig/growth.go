package rig

import (
	"fmt"
	"os"
)

// Growth is the prefix of the figures of an operation whose costs for clients and servers are measured at growing sizes of some state.
type Growth string

// Times are the sizes, in multiples of the first.
var Times = []int{1, 10, 100}

func (g Growth) figure(name string, times int) string {
	return fmt.Sprintf("growth_%s_%s_x%d", g, name, times)
}

// Set adds the processor time of one operation, in microseconds, and its ratio to that at the first size.
func (g Growth) Set(f Figures, times int, cpu float64) {
	f[g.figure("cpu_us", times)] = cpu
	f["growth_"+string(g)] = cpu / f[g.figure("cpu_us", 1)]
}

// Hold adds the resident memory of the clients, which are this process, and of the servers.
func (g Growth) Hold(f Figures, times int, s *Service) {
	f[g.figure("mb", times)], f[g.figure("server_mb", times)] = float64(ResidentBytes(os.Getpid()))/1e6, float64(s.ResidentBytes())/1e6
}

func (g Growth) columns(name, title string) (all []Column) {
	for i, times := range Times {
		if i > 0 {
			title = fmt.Sprintf("× %d", times)
		}
		all = append(all, Column{Figure: g.figure(name, times), Title: title, Format: "%.0f"})
	}
	return all
}

// Columns returns the columns of an operation with a title.
func (g Growth) Columns(title string) []Column {
	return append(g.columns("cpu_us", title+": CPU µs"), Column{Figure: "growth_" + string(g), Title: "grew", Format: "%.2f", Spread: true})
}

// Memory returns the columns of Hold.
func (g Growth) Memory() []Column {
	return append(g.columns("mb", "MB"), g.columns("server_mb", "server's MB")...)
}
