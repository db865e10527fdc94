package rig

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

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

// Medians are the medians of everything, and the least and the greatest of each, without digits that say nothing.
func (r Results) Medians() (medians map[string]map[string]float64, spreads map[string]map[string][2]float64) {
	medians, spreads = map[string]map[string]float64{}, map[string]map[string][2]float64{}
	for who, all := range r {
		medians[who], spreads[who] = map[string]float64{}, map[string][2]float64{}
		for name, values := range all {
			s := NewSpread(values)
			medians[who][name], spreads[who][name] = round(s.Median), [2]float64{round(s.Min), round(s.Max)}
		}
	}
	return medians, spreads
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// Column is a figure of a table.
type Column struct {
	Figure string
	Title  string
	Format string
	Spread bool // show the least and the greatest beside the median
}

// Columns joins groups of them.
func Columns(groups ...[]Column) (all []Column) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

func (c Column) cells(values []float64) []string {
	if len(values) == 0 {
		if c.Spread {
			return []string{"-", "", ""}
		}
		return []string{"-"}
	}
	s := NewSpread(values)
	cells := []string{fmt.Sprintf(c.Format, s.Median)}
	if c.Spread {
		cells = append(cells, fmt.Sprintf(c.Format, s.Min), fmt.Sprintf(c.Format, s.Max))
	}
	return cells
}

func head(columns []Column) string {
	var titles []string
	for _, c := range columns {
		titles = append(titles, c.Title)
		if c.Spread {
			titles = append(titles, "[min", "max]")
		}
	}
	return strings.Join(titles, "\t")
}

// Printer writes a report, and its tables into a page if there is one, and keeps the first error.
type Printer struct {
	out  io.Writer
	page *Page
	err  error
}

// NewPrinter returns one that writes to out, and where o says.
func NewPrinter(out io.Writer, o Options) *Printer { return &Printer{out: out, page: o.page} }

// Err is the first error.
func (p *Printer) Err() error { return p.err }

// Line writes a line.
func (p *Printer) Line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// Note writes a line that the page has, too.
func (p *Printer) Note(format string, args ...any) {
	p.Line(format, args...)
	fmt.Fprintf(p.page, format+"\n\n", args...)
}

// Entry is who stands in a table, and what is said of it behind its figures.
type Entry struct{ Name, Note string }

// Table writes a line for each that has figures of these columns, and nothing if nobody has.
func (p *Printer) Table(title string, columns []Column, who []Entry, got Results) {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	var page strings.Builder
	lines := 0
	for _, one := range who {
		cells := []string{one.Name}
		for _, c := range columns {
			cells = append(cells, c.cells(got[one.Name][c.Figure])...)
		}
		if strings.Trim(strings.Join(cells[1:], ""), "-") == "" {
			continue
		}
		if lines++; lines == 1 {
			p.Line("\n%s", title)
			fmt.Fprintln(w, "\t"+head(columns)+"\t")
			pageHead(&page, title, columns)
		}
		line := strings.Join(cells, "\t") + "\t"
		if one.Note != "" {
			line += "  " + one.Note // what no tab ends is in no column
		}
		fmt.Fprintln(w, line)
		pageLine(&page, one.Name, columns, got[one.Name])
	}
	if err := w.Flush(); p.err == nil {
		p.err = err
	}
	if lines > 0 {
		fmt.Fprintln(p.page, page.String())
	}
}

func pageHead(page *strings.Builder, title string, columns []Column) {
	fmt.Fprintf(page, "%s:\n\n| |", title)
	for _, c := range columns {
		fmt.Fprintf(page, " %s |", c.Title)
	}
	page.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
}

func pageLine(page *strings.Builder, name string, columns []Column, got map[string][]float64) {
	fmt.Fprintf(page, "| `%s` |", name)
	for _, c := range columns {
		cells := c.cells(got[c.Figure])
		text := cells[0]
		if c.Spread && len(got[c.Figure]) > 1 {
			text += " [" + cells[1] + " " + cells[2] + "]"
		}
		fmt.Fprintf(page, " %s |", text)
	}
	page.WriteString("\n")
}
