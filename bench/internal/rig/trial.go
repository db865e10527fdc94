package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	Needs   func(C) bool // reports whether a contestant that has entered can run it; nil if all can
	Run     func(ctx context.Context, who C, on *Service) (Figures, error)
}

// Trial lets contestants run rows.
type Trial[C interface{ About() Contestant }] struct {
	What  string
	Field []C // the contestants, in the order of the tables
	Rows  []Row[C]
	Limit time.Duration // bounds one row of one contestant, and its entry

	Enter  func(ctx context.Context, who C, on *Service) error // prepares a contestant; nil for nothing
	Derive func(got Results, entered []C, r *Report)           // adds figures and failures after the last round; nil for none
}

// Run runs the rounds and returns the report. The results so far are reported even if a round fails.
func (t Trial[C]) Run(ctx context.Context, o Options) (*Report, error) {
	r := NewReport(o, ThisMachine())
	s, err := newStand()
	if err != nil {
		return nil, err
	}
	defer s.close()
	entered, err := t.enter(ctx, s, o, r)
	if err != nil {
		return nil, err
	}
	if len(entered) == 0 && len(r.Skipped) == 0 {
		return nil, fmt.Errorf("nothing matches --only %q", o.Only)
	}
	for name, running := range s.running {
		if running.Version != "" {
			r.Machine.Versions[name] = running.Version
		}
	}
	r.Note("%s over TCP on the loopback; clients in one process, every server in one of its own.", t.What)
	r.Note("%s", r.Machine)
	r.Note("Rounds: %d, operations × %g. A figure is the median of the rounds, with the least and the greatest behind it.", o.Rounds, o.Scale)
	var list []string
	names := make([]string, len(entered))
	for i, who := range entered {
		c := who.About()
		if names[i] = c.Name; c.Class != "" {
			c.Note = c.Class + ": " + c.Note
		}
		list = append(list, fmt.Sprintf("- `%s`: %s", c.Name, c.Note))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		list = append(list, fmt.Sprintf("- `%s`: skipped: %s", name, r.Skipped[name]))
	}
	r.Note("%s", strings.Join(list, "\n"))
	got := Results{}
	for n := range o.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, o.Rounds)
		if err = t.round(ctx, s, entered, o, n, got, r); err != nil {
			break
		}
	}
	if t.Derive != nil {
		t.Derive(got, entered, r)
	}
	for _, row := range t.Rows {
		r.Table(row.Title, row.Columns, names, got)
	}
	for _, failure := range r.Failures {
		r.Note("FAILED: %s", failure)
	}
	if err == nil && len(r.Failures) > 0 {
		err = ErrFailed
	}
	return r, err
}

// wanted reports whether a contestant is to run a row.
func (t Trial[C]) wanted(o Options, r Row[C], who C) bool {
	return o.Only.MatchString(r.Name + "/" + who.About().Name)
}

// enter starts the servers of the contestants that are to run a row, and leaves out those whose server is not installed.
func (t Trial[C]) enter(ctx context.Context, s *stand, o Options, r *Report) (entered []C, err error) {
	for _, who := range t.Field {
		if !slices.ContainsFunc(t.Rows, func(r Row[C]) bool { return t.wanted(o, r, who) }) {
			continue
		}
		switch err := t.prepare(ctx, s, who); {
		case err == nil:
			entered = append(entered, who)
		case errors.Is(err, ErrMissing):
			r.Skipped[who.About().Name] = err.Error()
		default:
			return nil, fmt.Errorf("%s: %w", who.About().Name, err)
		}
	}
	return entered, nil
}

// prepare starts the server of a contestant.
func (t Trial[C]) prepare(ctx context.Context, s *stand, who C) error {
	ctx, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	on, err := s.service(ctx, who.About().Service)
	if err == nil && t.Enter != nil {
		err = t.Enter(ctx, who, on)
	}
	return err
}

// round runs every row by every contestant. A failure of a row is reported, and does not end the other rows.
func (t Trial[C]) round(ctx context.Context, s *stand, entered []C, o Options, n int, got Results, r *Report) error {
	for _, row := range t.Rows {
		for i := range entered {
			who := entered[Turn(n, i, len(entered))]
			if !t.wanted(o, row, who) || row.Once && n > 0 || row.Needs != nil && !row.Needs(who) {
				continue
			}
			f, err := t.run(ctx, s, row, who)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				r.Failures = append(r.Failures, fmt.Sprintf("%s/%s: %v", row.Name, who.About().Name, err))
				fmt.Fprintln(os.Stderr, r.Failures[len(r.Failures)-1])
			}
			got.Add(who.About().Name, f)
		}
	}
	return nil
}

// run runs a row by a contestant.
func (t Trial[C]) run(ctx context.Context, s *stand, r Row[C], who C) (Figures, error) {
	runtime.GC()
	ctx, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	on, err := s.service(ctx, who.About().Service)
	if err != nil {
		return nil, err
	}
	return r.Run(ctx, who, on)
}

// starter starts a service that keeps its files in its own folder.
type starter func(ctx context.Context, dir string) (*Service, error)

// starters start the services, by Contestant.Service.
var starters = map[string]starter{
	"etcd":                      startEtcd,
	"nats":                      startNATS(1, false),
	"nats, sync always":         startNATS(1, true),
	"nats cluster":              startNATS(3, false),
	"nats cluster, sync always": startNATS(3, true),
	"postgres":                  startPostgres,
	"redis":                     startRedis("--appendonly", "no"),
	"redis, everysec":           startRedis("--appendonly", "yes", "--appendfsync", "everysec"),
}

// stand has the running servers.
type stand struct {
	dir     string
	running map[string]*Service
}

func newStand() (*stand, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // a server may run as another user
	}
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &stand{dir: dir, running: map[string]*Service{}}, nil
}

// close ends everything and removes its files.
func (s *stand) close() {
	for _, running := range s.running {
		running.Stop()
	}
	_ = os.RemoveAll(s.dir) // temporary
}

// service returns a service. The first call starts it.
func (s *stand) service(ctx context.Context, name string) (*Service, error) {
	if s.running[name] == nil {
		dir := filepath.Join(s.dir, strings.ReplaceAll(name, ", ", "-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		running, err := starters[name](ctx, dir)
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
