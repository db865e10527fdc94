package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// timeout bounds one row of one contestant.
const timeout = time.Minute

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	service    *rig.Service
	settings   settings
	scale      float64
	opened     []*client
}

// names makes every key one that was never used before.
var names int

func (b *bench) name(row string) string {
	names++
	return fmt.Sprintf("%s-%d", row, names)
}

// n scales a number of operations.
func (b *bench) n(n int) int { return max(1, int(float64(n)*b.scale)) }

// d scales a time.
func (b *bench) d(d time.Duration) time.Duration { return time.Duration(float64(d) * b.scale) }

func (b *bench) client(ctx context.Context) (*client, error) {
	all, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// clients opens n clients, which are closed when the row is over.
func (b *bench) clients(ctx context.Context, n int) ([]*client, error) {
	for range n {
		c, err := b.contestant.open(ctx, b.settings)
		if err != nil {
			return nil, err
		}
		b.opened = append(b.opened, c)
	}
	return b.opened[len(b.opened)-n:], nil
}

func (b *bench) close() {
	for _, c := range b.opened {
		c.close()
	}
}

// repeat runs op n times, after a tenth as often to warm up.
func (b *bench) repeat(n int, name, unit string, op func() error) (rig.Figures, error) {
	for range n/10 + 1 {
		if err := op(); err != nil {
			return nil, err
		}
	}
	taken := make([]time.Duration, 0, n)
	before := rig.WorkOf(b.service)
	for range n {
		start := time.Now()
		if err := op(); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(start))
	}
	f := rig.Figures{}
	f.Since(name, b.service, before, n)
	f.Quantiles(name, unit, taken)
	return f, nil
}

// stand is who takes part, and on what.
type stand struct {
	*rig.Stand

	entered []contestant
	offers  map[string]*client // what each offers; closed
}

// newStand starts the servers of all contestants that may run.
func newStand(ctx context.Context, o rig.Options) (_ *stand, err error) {
	shared, err := rig.NewStand(services)
	if err != nil {
		return nil, err
	}
	s := &stand{Stand: shared, offers: map[string]*client{}}
	for _, who := range field() {
		if !slices.ContainsFunc(rows(), func(r row) bool { return o.Only.MatchString(r.name + "/" + who.name) }) {
			continue
		}
		if err := s.Enter(ctx, who.name, func(ctx context.Context) error { return s.enter(ctx, who) }, timeout); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// enter starts what the contestant runs on, unless it runs, and looks at what it offers.
func (s *stand) enter(ctx context.Context, who contestant) error {
	running, err := s.Service(ctx, who.service)
	if err != nil {
		return err
	}
	who.settings.Address = running.Address
	if who.prepare != nil {
		if err := who.prepare(ctx, who.settings); err != nil {
			return err
		}
	}
	c, err := who.open(ctx, who.settings)
	if err != nil {
		return err
	}
	c.close()
	s.offers[who.name] = c
	s.entered = append(s.entered, who)
	return nil
}

// measure runs the rounds and writes the report.
func measure(ctx context.Context, out io.Writer, o rig.Options) (rig.Report, error) {
	load := rig.LoadAverage()
	s, err := newStand(ctx, o)
	if err != nil {
		return rig.Report{}, err
	}
	defer s.Close()
	if len(s.entered) == 0 && len(s.Skipped) == 0 {
		return rig.Report{}, fmt.Errorf("nothing matches --only %q", o.Only)
	}
	notes, names := make([]rig.Entry, 0, len(s.entered)), make([]rig.Entry, 0, len(s.entered))
	for _, who := range s.entered {
		notes, names = append(notes, rig.Entry{Name: who.name, Note: who.note}), append(names, rig.Entry{Name: who.name})
	}
	p := &rig.Printer{Out: out}
	p.Head("Locks and coalescing", s.Stand, notes, o, load)
	p.Line("r1, r1_file, r3 and r3_sync_always are pkg/kvlock.")
	got := rig.Results{}
	for n := range o.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, o.Rounds)
		if err := s.round(ctx, o, n, got); err != nil {
			return rig.Report{}, err
		}
	}
	r := rig.NewReport(s.Stand, got, o, load, targets())
	for _, row := range rows() {
		p.Table(row.title, row.columns, names, got)
	}
	p.Foot(r)
	return r, p.Err
}

// round runs every row by every contestant.
func (s *stand) round(ctx context.Context, o rig.Options, n int, got rig.Results) error {
	for _, r := range rows() {
		for i := range s.entered {
			who := s.entered[rig.Turn(n, i, len(s.entered))]
			skip := !o.Only.MatchString(r.name+"/"+who.name) || !r.needs(s.offers[who.name]) || r.once && n > 0
			if skip || r.name == "waiters" && who.polls {
				continue
			}
			err := s.Try(ctx, r.name, who.name, got, timeout, func(ctx context.Context) (rig.Figures, error) {
				return s.run(ctx, o, r, who)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stand) run(ctx context.Context, o rig.Options, r row, who contestant) (rig.Figures, error) {
	service, err := s.Service(ctx, who.service)
	if err != nil {
		return nil, err
	}
	b := &bench{contestant: who, service: service, settings: who.settings, scale: o.Scale}
	b.settings.Address = service.Address
	defer b.close()
	return r.run(ctx, b)
}
