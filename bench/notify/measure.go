package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// timeout bounds one row of one contestant.
const timeout = 10 * time.Minute

// errFailed is returned with a report that is not OK.
var errFailed = errors.New("a row failed, or its count was wrong")

// stand is who takes part.
type stand struct {
	*rig.Stand

	entered []contestant
}

// wanted reports whether somebody is to run a row.
func wanted(o options, r rowOf, who contestant) bool {
	return r.needs(who) && o.Only.MatchString(r.name()+"/"+who.name)
}

// enter starts what is needed, and leaves out whom nothing is installed for.
func (s *stand) enter(ctx context.Context, o options) error {
	for _, who := range field() {
		if !slices.ContainsFunc(rows(o), func(r rowOf) bool { return wanted(o, r, who) }) {
			continue
		}
		err := s.Enter(ctx, who.name, func(ctx context.Context) error {
			if _, err := s.Service(ctx, who.service); err != nil {
				return err
			}
			s.entered = append(s.entered, who)
			return nil
		}, timeout)
		if err != nil {
			return err
		}
	}
	return nil
}

// measure runs the rounds and writes the report.
func measure(ctx context.Context, out io.Writer, o options) (any, error) {
	load := rig.LoadAverage()
	shared, err := rig.NewStand(starters)
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	s := &stand{Stand: shared}
	if err := s.enter(ctx, o); err != nil {
		return nil, err
	}
	if len(s.entered) == 0 && len(s.Skipped) == 0 {
		return nil, fmt.Errorf("nothing matches --only %q", o.Only)
	}
	notes := make([]rig.Entry, 0, len(s.entered))
	for _, who := range s.entered {
		notes = append(notes, rig.Entry{Name: who.name, Note: who.class + ": " + who.note})
	}
	p := &rig.Printer{Out: out}
	p.Head("Notifications", s.Stand, notes, o.Options, load)
	got := rig.Results{}
	for n := range o.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, o.Rounds)
		if err = s.round(ctx, o, n, got); err != nil {
			break // what has been measured until now is told
		}
	}
	r := s.report(p, got, o, load)
	if err != nil {
		r.OK = false
		return r, errors.Join(err, p.Err)
	}
	if !r.OK {
		return r, errors.Join(errFailed, p.Err)
	}
	return r, p.Err
}

// round runs every row by every contestant.
func (s *stand) round(ctx context.Context, o options, n int, got rig.Results) error {
	for _, r := range rows(o) {
		for i := range s.entered {
			who := s.entered[rig.Turn(n, i, len(s.entered))]
			if !wanted(o, r, who) || r.recipients == largest && n > 0 {
				continue
			}
			err := s.Try(ctx, r.name(), who.name, got, timeout, func(ctx context.Context) (rig.Figures, error) {
				service, err := s.Service(ctx, who.service)
				if err != nil {
					return nil, err
				}
				return r.run(ctx, &bench{channel: r.channel, contestant: who, profile: o.profile, row: r.name(), service: service})
			})
			if err != nil {
				return err
			}
		}
		s.overRaw(got, r)
	}
	return nil
}

// overRaw compares the rows/s that were stored in this round with those that nats.go alone stored one at a time.
func (s *stand) overRaw(got rig.Results, r rowOf) {
	for _, who := range s.entered {
		figure := r.name() + "_stored_per_s"
		mine, raw := got[who.name][figure], got[who.raw][figure]
		if n := len(got[who.name][r.name()+"_over_raw"]); who.raw != "" && len(mine) == len(raw) && len(mine) > n {
			got.Add(who.name, rig.Figures{r.name() + "_over_raw": mine[n] / raw[n]})
		}
	}
}
