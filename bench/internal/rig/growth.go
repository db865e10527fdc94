package rig

import (
	"fmt"
	"os"
)

// Growth is the prefix of the figures of an operation whose costs for clients and servers are measured at growing sizes of some state.
type Growth string

// Times are the sizes, in multiples of the first.
var Times = []int{1, 10, 100}

// MaxGrowth bounds the cost of an operation at the largest size, over that at the first.
const MaxGrowth = 1.5

func (g Growth) figure(name string, times int) string {
	return fmt.Sprintf("growth_%s_%s_x%d", g, name, times)
}

// Add adds the cost of n operations since before for clients and servers.
func (g Growth) Add(f Figures, times int, s *Service, before Work, n int) {
	now := WorkOf(s)
	g.Set(f, times, In("us", now.clients-before.clients+now.servers-before.servers)/float64(n))
}

// Set is Add for an operation's processor time in microseconds. It also adds the ratio to the time at the first size.
func (g Growth) Set(f Figures, times int, cpu float64) {
	f[g.figure("cpu_us", times)] = cpu
	f["growth_"+string(g)] = cpu / f[g.figure("cpu_us", 1)]
}

// Hold adds the resident memory of clients, in bytes, and of servers.
func (g Growth) Hold(f Figures, times int, clients int64, s *Service) {
	f[g.figure("mb", times)], f[g.figure("server_mb", times)] = float64(clients)/1e6, float64(s.ResidentBytes())/1e6
}

// OwnBytes returns the memory of this process in RAM, in bytes.
func OwnBytes() int64 { return ResidentBytes(os.Getpid()) }

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

// GrowthTargets returns the targets that operations cost at most MaxGrowth, on each system.
func GrowthTargets(operations []Growth, on ...string) (all []Target) {
	for _, who := range on {
		for _, g := range operations {
			all = append(all, Target{On: who, Figure: "growth_" + string(g), Kind: AtMost, Goal: MaxGrowth})
		}
	}
	return all
}
