package rig

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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

// Medians returns the medians of all figures, and the least and the greatest of each, without insignificant digits.
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

// NewPrinter returns a Printer that writes to out, and tables and notes also into the page of o, if any.
func NewPrinter(out io.Writer, o Options) *Printer { return &Printer{out: out, page: o.page} }

// Err returns the first error.
func (p *Printer) Err() error { return p.err }

// Line writes a line.
func (p *Printer) Line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// Note writes a line to the page, too.
func (p *Printer) Note(format string, args ...any) {
	p.Line(format, args...)
	fmt.Fprintf(p.page, format+"\n\n", args...)
}

// Entry is the line of a contestant in a table: its name, and the note behind its figures.
type Entry struct{ Name, Note string }

// Table writes a line for each contestant that has figures of these columns, and nothing if none has.
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
			line += "  " + one.Note // a text without a tab at its end is in no column
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

// Page is a part of a document in Markdown, between two lines with its name, which a benchmark writes anew.
type Page struct {
	name, file string
	text       strings.Builder
}

func (p *Page) lines() (begin, end string) {
	return "<!-- begin of what bench/" + p.name + " writes -->\n", "<!-- end of what bench/" + p.name + " writes -->\n"
}

// OpenPage returns the page of a benchmark in a document, nil for no file.
func OpenPage(name, file string) (*Page, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	p := &Page{name: name, file: file}
	_, err := p.put("")
	return p, err
}

// Write implements io.Writer, and writes nothing where there is no page.
func (p *Page) Write(text []byte) (int, error) {
	if p != nil {
		p.text.Write(text)
	}
	return len(text), nil
}

// put returns the document with text in the place of the page.
func (p *Page) put(text string) (string, error) {
	data, err := os.ReadFile(p.file)
	if err != nil {
		return "", fmt.Errorf("--write: %w", err)
	}
	begin, end := p.lines()
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("--write %s: it has no line %q with %q behind it", p.file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + text + end + after, nil
}

// Save writes the text into the document, below the command with its arguments.
func (p *Page) Save(args []string) error {
	if p == nil {
		return nil
	}
	command := strings.Join(append([]string{"go -C bench run ./" + p.name}, measuring(args)...), " ")
	text, err := p.put("\n```sh\n" + command + "\n```\n\n" + strings.TrimSpace(p.text.String()) + "\n\n")
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	return nil
}

// SaveText is Save for a text that is not Markdown.
func (p *Page) SaveText(args []string) error {
	if p == nil {
		return nil
	}
	text := p.text.String()
	p.text.Reset()
	p.text.WriteString("```text\n" + strings.TrimSpace(text) + "\n```")
	return p.Save(args)
}

// measuring returns arguments without the flags that do not change the measurement.
func measuring(args []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		switch name, value, _ := strings.Cut(strings.TrimLeft(args[i], "-"), "="); {
		case name == "json":
		case name == "write" || name == "data": // and the place of the data on this machine
			if value == "" {
				i++
			}
		case strings.ContainsAny(args[i], "^$|()*"):
			kept = append(kept, "'"+args[i]+"'")
		default:
			kept = append(kept, args[i])
		}
	}
	return kept
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

// String returns a sentence about the machine.
func (m Machine) String() string {
	s := fmt.Sprintf("Measured on %s with %d × %s (%s), %s", m.Date, m.CPUs, m.CPU, m.OS, m.Go)
	if m.Load != "" {
		s += ", load before: " + m.Load
	}
	return s + "."
}

// compared are the libraries whose versions are reported, by the beginnings of their paths.
var compared = []string{
	"github.com/ThreeDotsLabs/watermill-nats", "github.com/go-redsync/redsync", "github.com/hibiken/asynq",
	"github.com/jackc/pgx", "github.com/nats-io/nats-server", "github.com/nats-io/nats.go", "github.com/redis/rueidis",
	"github.com/riverqueue/river", "go.etcd.io/etcd/client",
}

// ThisMachine describes the machine at the moment, and the libraries of this program.
func ThisMachine() Machine {
	m := Machine{
		CPU: processor(), CPUs: runtime.GOMAXPROCS(0), Date: time.Now().Format(time.DateOnly), Go: runtime.Version(), Load: loadAverage(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Versions: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, d := range info.Deps {
		if slices.ContainsFunc(compared, func(of string) bool { return d.Path == of || strings.HasPrefix(d.Path, of+"/v") }) {
			m.Versions[d.Path] = d.Version
		}
	}
	return m
}

// LastLine reads the report that a benchmark writes as the last line of its output.
func LastLine[T any](out string) (report T, err error) {
	out = strings.TrimSpace(out)
	line := out[strings.LastIndexByte(out, '\n')+1:]
	if err := json.Unmarshal([]byte(line), &report); err != nil {
		return report, fmt.Errorf("last line %q: %w", line, err)
	}
	return report, nil
}
