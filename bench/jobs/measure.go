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

// timeout bounds one row of one contestant. The job of a dead worker of asynq takes a minute.
const timeout = 3 * time.Minute

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	opened     []*client
	queued     int
	scale      float64
	service    *rig.Service
	settings   settings
}

// queues makes every queue one that was never used before.
var queues int

// n scales a number of operations.
func (b *bench) n(n int) int { return max(100, int(float64(n)*b.scale*b.contestant.weight)) }

// client opens a client, which is closed when the row is over.
func (b *bench) client(ctx context.Context) (*client, error) {
	c, err := b.contestant.open(ctx, b.settings)
	if err != nil {
		return nil, err
	}
	b.opened = append(b.opened, c)
	return c, nil
}

func (b *bench) close() {
	for _, c := range b.opened {
		c.close()
	}
}

// stand is who takes part.
type stand struct {
	*rig.Stand

	entered []contestant
	offers  map[string]*client // what each offers; closed
}

// wanted reports whether somebody is to run a row.
func wanted(o options, r row, who contestant) bool {
	return o.Only.MatchString(r.name + "/" + who.name)
}

func (s *stand) enter(ctx context.Context, o options) error {
	for _, who := range field() {
		if !slices.ContainsFunc(rows(), func(r row) bool { return wanted(o, r, who) }) {
			continue
		}
		err := s.Enter(ctx, who.name, func(ctx context.Context) error {
			b, err := s.bench(ctx, o, who)
			if err != nil {
				return err
			}
			c, err := b.client(ctx)
			if err != nil {
				return err
			}
			c.close()
			s.offers[who.name] = c
			s.entered = append(s.entered, who)
			return nil
		}, timeout)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stand) bench(ctx context.Context, o options, who contestant) (*bench, error) {
	service, err := s.Service(ctx, who.service)
	if err != nil {
		return nil, err
	}
	queues++
	return &bench{
		contestant: who, queued: o.queued, scale: o.Scale, service: service,
		settings: settings{Address: service.Address, Queue: fmt.Sprintf("q%d", queues)},
	}, nil
}

// measure runs the rounds and writes the report.
func measure(ctx context.Context, out io.Writer, o options) (any, error) {
	load := rig.LoadAverage()
	shared, err := rig.NewStand(starters)
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	s := &stand{Stand: shared, offers: map[string]*client{}}
	if err := s.enter(ctx, o); err != nil {
		return nil, err
	}
	if len(s.entered) == 0 && len(s.Skipped) == 0 {
		return nil, fmt.Errorf("nothing matches --only %q", o.Only)
	}
	notes, classes := make([]rig.Entry, 0, len(s.entered)), make([]rig.Entry, 0, len(s.entered))
	for _, who := range s.entered {
		notes = append(notes, rig.Entry{Name: who.name, Note: who.class + ": " + who.note})
		classes = append(classes, rig.Entry{Name: who.name, Note: who.class})
	}
	p := &rig.Printer{Out: out}
	p.Head("Jobs", s.Stand, notes, o.Options, load)
	got := rig.Results{}
	for n := range o.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, o.Rounds)
		if err := s.round(ctx, o, n, got); err != nil {
			return nil, err
		}
	}
	r := newReport(s, got, o, load)
	for _, row := range rows() {
		p.Table(row.title, row.columns, classes, got)
	}
	p.Foot(r)
	return r, p.Err
}

// round runs every row by every contestant.
func (s *stand) round(ctx context.Context, o options, n int, got rig.Results) error {
	for _, r := range rows() {
		for i := range s.entered {
			who := s.entered[rig.Turn(n, i, len(s.entered))]
			slow := r.name == "restart" && who.lease > ackWait
			if !wanted(o, r, who) || !r.needs(who, s.offers[who.name]) || r.once && n > 0 || slow && !o.slow {
				continue
			}
			err := s.Try(ctx, r.name, who.name, got, timeout+limitOf(o), func(ctx context.Context) (rig.Figures, error) {
				b, err := s.bench(ctx, o, who)
				if err != nil {
					return nil, err
				}
				defer b.close()
				return r.run(ctx, b)
			})
			if err != nil {
				return err
			}
		}
		overRaw(got, s)
	}
	return nil
}

// limitOf is what a large queue takes to grow.
func limitOf(o options) time.Duration { return time.Duration(o.queued) * 200 * time.Microsecond }
