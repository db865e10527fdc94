package rig

import (
	"fmt"
	"os"
)

// Growth is what an operation costs clients and servers while there is more and more of something. It is the name of its figures.
type Growth string

// Times are how much there is, one after the other.
var Times = []int{1, 10, 100}

// MaxGrowth is how much more an operation may cost with a hundred times as much.
const MaxGrowth = 1.5

func (g Growth) figure(what string, times int) string {
	return fmt.Sprintf("growth_%s_%s_x%d", g, what, times)
}

// Add adds what n operations have cost clients and servers since before.
func (g Growth) Add(f Figures, times int, s *Service, before Work, n int) {
	now := WorkOf(s)
	g.Set(f, times, In("us", now.clients-before.clients+now.servers-before.servers)/float64(n))
}

// Set is Add of what one operation costs, in microseconds, and adds how much that is of what it was at first.
func (g Growth) Set(f Figures, times int, cpu float64) {
	f[g.figure("cpu_us", times)] = cpu
	f["growth_"+string(g)] = cpu / f[g.figure("cpu_us", 1)]
}

// Hold adds the memory that clients, of so many bytes, and servers have.
func (g Growth) Hold(f Figures, times int, clients int64, s *Service) {
	f[g.figure("mb", times)], f[g.figure("server_mb", times)] = float64(clients)/1e6, float64(s.ResidentBytes())/1e6
}

// OwnBytes is the memory of this process.
func OwnBytes() int64 { return ResidentBytes(os.Getpid()) }

func (g Growth) columns(what, title string) (all []Column) {
	for i, times := range Times {
		if i > 0 {
			title = fmt.Sprintf("× %d", times)
		}
		all = append(all, Column{Figure: g.figure(what, times), Title: title, Format: "%.0f"})
	}
	return all
}

// Columns are those of an operation with a title.
func (g Growth) Columns(title string) []Column {
	return append(g.columns("cpu_us", title+": CPU µs"), Column{Figure: "growth_" + string(g), Title: "grew", Format: "%.2f", Spread: true})
}

// Memory are the columns of Hold.
func (g Growth) Memory() []Column {
	return append(g.columns("mb", "MB"), g.columns("server_mb", "server's MB")...)
}

// GrowthTargets are that operations cost at most MaxGrowth, on each system.
func GrowthTargets(operations []Growth, on ...string) (all []Target) {
	for _, who := range on {
		for _, g := range operations {
			all = append(all, Target{On: who, Figure: "growth_" + string(g), Kind: AtMost, Goal: MaxGrowth})
		}
	}
	return all
}
