package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// ErrFailed is returned with a report that is not OK.
var ErrFailed = errors.New("a row failed, or its count was wrong")

// Contestant is one system on one kind of server. The contestants of a benchmark embed it.
type Contestant struct {
	Name    string // in tables, in JSON and for --only
	Service string // what it runs on
	Class   string // how durable what it has acknowledged is, "" where the note says so
	Note    string // how it is set
	Raw     string // the contestant that does the same with nats.go alone, "" for none
}

// About returns the contestant.
func (c Contestant) About() Contestant { return c }

// Row is one thing that is measured.
type Row[C any] struct {
	Name    string
	Title   string
	Columns []Column
	Once    bool         // in the first round only: it is no matter of luck, or takes long
	Needs   func(C) bool // reports whether a contestant that has entered can run it
	Run     func(ctx context.Context, who C, on *Service) (Figures, error)
}

// Table is a table of figures that are derived from those of the rows.
type Table struct {
	Title   string
	Columns []Column
}

// Trial has contestants run rows.
type Trial[C interface{ About() Contestant }] struct {
	What     string
	Remark   string // behind the list of contestants, "" for none
	Field    []C    // everybody who takes part, in the order of the tables
	Rows     []Row[C]
	More     []Table
	Starters map[string]Starter // by Contestant.Service
	Targets  []Target
	Limit    time.Duration // of one row of one contestant, and of its entry

	Enter  func(ctx context.Context, who C, on *Service) error // prepares a contestant; nil for nothing
	Derive func(got Results, entered []C)                      // adds figures after the last round; nil for none
	Judge  func(r *Report, got Results)                        // nil for no more than failures of rows
}

// Run runs the rounds and writes the report. What was measured is reported also when a round could not be ended.
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

// enter starts what the contestants run on that are to run a row, and leaves out those for which nothing is installed.
func (t Trial[C]) enter(ctx context.Context, s *Stand, o Options) (entered []C, err error) {
	for _, who := range t.Field {
		if !slices.ContainsFunc(t.Rows, func(r Row[C]) bool { return t.wanted(o, r, who) }) {
			continue
		}
		err := s.Enter(ctx, who.About().Name, func(ctx context.Context) error {
			on, err := s.Service(ctx, who.About().Service)
			if err == nil && t.Enter != nil {
				err = t.Enter(ctx, who, on)
			}
			if err == nil {
				entered = append(entered, who)
			}
			return err
		}, t.Limit)
		if err != nil {
			return nil, err
		}
	}
	return entered, nil
}

// round runs every row by every contestant.
func (t Trial[C]) round(ctx context.Context, s *Stand, entered []C, o Options, n int, got Results) error {
	for _, r := range t.Rows {
		for i := range entered {
			who := entered[Turn(n, i, len(entered))]
			if !t.wanted(o, r, who) || r.Once && n > 0 || !r.Needs(who) {
				continue
			}
			c := who.About()
			err := s.Try(ctx, r.Name, c.Name, got, t.Limit, func(ctx context.Context) (Figures, error) {
				on, err := s.Service(ctx, c.Service)
				if err != nil {
					return nil, err
				}
				return r.Run(ctx, who, on)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
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
