package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// ErrFailed is returned with a report that is not OK.
var ErrFailed = errors.New("a row failed, or its count was wrong")

// Contestant is one system on one kind of server. The contestants of a benchmark embed it.
type Contestant struct {
	Name    string // the name in tables, in JSON and for --only
	Service string // the kind of server
	Class   string // the durability of acknowledged writes, "" where the note says so
	Note    string // how it is set
	Raw     string // the contestant that does the same with nats.go alone, "" for none
}

// About returns the contestant.
func (c Contestant) About() Contestant { return c }

// Row is one measurement.
type Row[C any] struct {
	Name    string
	Title   string
	Columns []Column
	Once    bool         // in the first round only: the result does not vary, or takes long
	Needs   func(C) bool // reports whether a contestant that has entered can run it
	Run     func(ctx context.Context, who C, on *Service) (Figures, error)
}

// Table is a table of figures that are derived from those of the rows.
type Table struct {
	Title   string
	Columns []Column
}

// Trial lets contestants run rows.
type Trial[C interface{ About() Contestant }] struct {
	What     string
	Remark   string // a text behind the list of contestants, "" for none
	Field    []C    // the contestants, in the order of the tables
	Rows     []Row[C]
	More     []Table
	Starters map[string]Starter // of services beyond those that every benchmark has, by Contestant.Service
	Targets  []Target
	Limit    time.Duration // bounds one row of one contestant, and its entry

	Enter  func(ctx context.Context, who C, on *Service) error // prepares a contestant; nil for nothing
	Derive func(got Results, entered []C)                      // adds figures after the last round; nil for none
	Judge  func(r *Report, got Results)                        // adds failures to those of rows; nil for none
}

// Run runs the rounds and writes the report. The results so far are reported even if a round fails.
func (t Trial[C]) Run(ctx context.Context, out io.Writer, o Options) (any, error) {
	machine := ThisMachine()
	s, err := NewStand(t.Starters)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	entered, err := t.enter(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if len(entered) == 0 && len(s.Skipped) == 0 {
		return nil, fmt.Errorf("nothing matches --only %q", o.Only)
	}
	notes, classes := make([]Entry, 0, len(entered)), make([]Entry, 0, len(entered))
	for _, who := range entered {
		c := who.About()
		note := c.Note
		if c.Class != "" {
			note = c.Class + ": " + note
		}
		notes, classes = append(notes, Entry{c.Name, note}), append(classes, Entry{c.Name, c.Class})
	}
	p := NewPrinter(out, o)
	p.Head(t.What, s, notes, o, machine)
	if t.Remark != "" {
		p.Note("%s", t.Remark)
	}
	got := Results{}
	for n := range o.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, o.Rounds)
		if err = t.round(ctx, s, entered, o, n, got); err != nil {
			break
		}
	}
	if t.Derive != nil {
		t.Derive(got, entered)
	}
	r := NewReport(s, got, o, machine, t.Targets)
	r.Classes = map[string]string{}
	for _, c := range classes {
		if c.Note != "" {
			r.Classes[c.Name] = c.Note
		}
	}
	if t.Judge != nil {
		t.Judge(&r, got)
	}
	for _, row := range t.Rows {
		p.Table(row.Title, row.Columns, classes, got)
	}
	for _, more := range t.More {
		p.Table(more.Title, more.Columns, classes, got)
	}
	r.OK = r.OK && err == nil
	p.Foot(r)
	if err == nil && !r.OK {
		err = ErrFailed
	}
	return r, errors.Join(err, p.err)
}

// wanted reports whether a contestant is to run a row.
func (t Trial[C]) wanted(o Options, r Row[C], who C) bool {
	return o.Only.MatchString(r.Name + "/" + who.About().Name)
}

// enter starts the servers of the contestants that are to run a row, and leaves out those whose server is not installed.
func (t Trial[C]) enter(ctx context.Context, s *Stand, o Options) (entered []C, err error) {
	for _, who := range t.Field {
		if !slices.ContainsFunc(t.Rows, func(r Row[C]) bool { return t.wanted(o, r, who) }) {
			continue
		}
		switch err := t.prepare(ctx, s, who); {
		case err == nil:
			entered = append(entered, who)
		case errors.Is(err, ErrMissing):
			s.Skipped[who.About().Name] = err.Error()
		default:
			return nil, fmt.Errorf("%s: %w", who.About().Name, err)
		}
	}
	return entered, nil
}

// prepare starts the server of a contestant.
func (t Trial[C]) prepare(ctx context.Context, s *Stand, who C) error {
	ctx, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	on, err := s.Service(ctx, who.About().Service)
	if err == nil && t.Enter != nil {
		err = t.Enter(ctx, who, on)
	}
	return err
}

// round runs every row by every contestant. A failure of a row is reported, and does not end the other rows.
func (t Trial[C]) round(ctx context.Context, s *Stand, entered []C, o Options, n int, got Results) error {
	for _, r := range t.Rows {
		for i := range entered {
			who := entered[Turn(n, i, len(entered))]
			if !t.wanted(o, r, who) || r.Once && n > 0 || !r.Needs(who) {
				continue
			}
			f, err := t.run(ctx, s, r, who)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				s.Failures = append(s.Failures, fmt.Sprintf("%s/%s: %v", r.Name, who.About().Name, err))
				fmt.Fprintln(os.Stderr, s.Failures[len(s.Failures)-1])
			}
			got.Add(who.About().Name, f)
		}
	}
	return nil
}

// run runs a row by a contestant.
func (t Trial[C]) run(ctx context.Context, s *Stand, r Row[C], who C) (Figures, error) {
	runtime.GC()
	ctx, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	on, err := s.Service(ctx, who.About().Service)
	if err != nil {
		return nil, err
	}
	return r.Run(ctx, who, on)
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

// Starter starts a service that keeps its files in a folder of its own.
type Starter func(ctx context.Context, dir string) (*Service, error)

// starters start the services that every benchmark has.
var starters = map[string]Starter{
	"etcd":                      StartEtcd,
	"nats":                      StartNATS(1, false),
	"nats, sync always":         StartNATS(1, true),
	"nats cluster":              StartNATS(3, false),
	"nats cluster, sync always": StartNATS(3, true),
	"postgres":                  StartPostgres,
}

// Stand has the running servers, the skipped contestants, and the failures.
type Stand struct {
	Skipped  map[string]string // the contestants that do not take part, and why
	Failures []string

	dir      string
	running  map[string]*Service
	starters map[string]Starter
}

// NewStand returns a stand on which nothing runs yet, with starters of services beyond those that every benchmark has.
func NewStand(starters map[string]Starter) (*Stand, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // a server may run as another user
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &Stand{Skipped: map[string]string{}, dir: dir, running: map[string]*Service{}, starters: starters}, nil
}

// Close ends everything and removes its files.
func (s *Stand) Close() {
	for _, running := range s.running {
		running.Stop()
	}
	_ = os.RemoveAll(s.dir) //nolint:errcheck // temporary
}

// Service returns a service. The first call starts it.
func (s *Stand) Service(ctx context.Context, name string) (*Service, error) {
	if s.running[name] == nil {
		dir := filepath.Join(s.dir, strings.ReplaceAll(name, ", ", "-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		start := starters[name]
		if start == nil {
			start = s.starters[name]
		}
		running, err := start(ctx, dir)
		if err != nil {
			return nil, err
		}
		s.running[name] = running
	}
	return s.running[name], nil
}

// Turn returns the index whose turn it is in a round: every other round goes through the indices backwards.
func Turn(round, i, n int) int {
	if round%2 == 1 {
		return n - 1 - i
	}
	return i
}
