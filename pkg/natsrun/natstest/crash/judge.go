package crash

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Result is what a judge found in a Log.
type Result struct {
	// Wanted is the number of effects that were accepted, and have to happen.
	Wanted int

	// Lost are the wanted ids without an effect.
	Lost []string

	// Unwanted are the ids of effects that nobody wanted.
	Unwanted []string

	// Repeated are the ids whose effect was repeated by a process that started it after it had been recorded. This must never be.
	Repeated []string

	// Unrecorded is how often an effect was repeated by a process that started it before it was recorded: another process had died before
	// the record, or this one was frozen or cut off for so long that another took over.
	Unrecorded int

	// OutOfOrder are the ids that were started, or had their effect, before the effect of the id that goes before them.
	OutOfOrder []string

	// TakeOvers are the times from a fault of a process to the next entry of another process for each id that the first had started.
	TakeOvers []time.Duration

	// Faults is the number of faults by name.
	Faults map[string]int

	// History has the entries of the first ids of which something is wrong, and the faults between them.
	History []Entry
}

// Judge compares the log with the ids whose effects are wanted. before returns the id whose effect has to come before that of an id, ""
// for none; it may be nil.
func (l *Log) Judge(wanted iter.Seq[string], before func(id string) string) (Result, error) {
	j := judge{before: before, of: map[string]*course{}, open: map[string]map[string]*course{}}
	j.Faults = map[string]int{}
	if err := l.Entries(j.take); err != nil {
		return Result{}, err
	}
	for id := range wanted {
		j.Wanted++
		if c := j.of[id]; c == nil || c.effects == 0 {
			j.Lost = append(j.Lost, id)
		} else {
			c.wanted = true
		}
	}
	for id, c := range j.of {
		if !c.wanted && c.effects > 0 {
			j.Unwanted = append(j.Unwanted, id)
		}
	}
	slices.Sort(j.Unwanted)
	slices.Sort(j.TakeOvers)
	return j.Result, j.trace(l)
}

// trace reads the history of at most three ids of each kind, with the last three faults before each entry.
func (r *Result) trace(l *Log) error {
	wrong := map[string]bool{}
	for _, ids := range [][]string{r.Lost, r.Unwanted, r.Repeated, r.OutOfOrder} {
		for _, id := range ids[:min(len(ids), 3)] {
			wrong[id] = true
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	var faults []Entry
	return l.Entries(func(e Entry) {
		switch {
		case e.Kind == Injected:
			faults = append(faults, e)
		case wrong[e.ID]:
			r.History = append(append(r.History, faults[max(0, len(faults)-3):]...), e)
			faults = faults[:0]
		}
	})
}

// Add adds the result of another round.
func (r *Result) Add(other Result) {
	r.Wanted += other.Wanted
	r.Unrecorded += other.Unrecorded
	r.Lost = append(r.Lost, other.Lost...)
	r.Unwanted = append(r.Unwanted, other.Unwanted...)
	r.Repeated = append(r.Repeated, other.Repeated...)
	r.OutOfOrder = append(r.OutOfOrder, other.OutOfOrder...)
	r.History = append(r.History, other.History...)
	r.TakeOvers = append(r.TakeOvers, other.TakeOvers...)
	slices.Sort(r.TakeOvers)
	if r.Faults == nil {
		r.Faults = map[string]int{}
	}
	for name, n := range other.Faults {
		r.Faults[name] += n
	}
}

// Err returns an error that names what is wrong, at most ten ids of each kind, and the History; nil if nothing is.
func (r *Result) Err() error {
	var wrong []string
	for _, kind := range []struct {
		name string
		ids  []string
	}{{"lost", r.Lost}, {"unwanted", r.Unwanted}, {"repeated after their record", r.Repeated}, {"out of order", r.OutOfOrder}} {
		if n := len(kind.ids); n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s: %q", n, kind.name, kind.ids[:min(n, 10)]))
		}
	}
	if wrong == nil {
		return nil
	}
	var history strings.Builder
	for _, e := range r.History {
		fmt.Fprintf(&history, "\n%s %s %s %s", e.At.UTC().Format("15:04:05.000000"), e.Process, e.Kind, e.ID)
	}
	return fmt.Errorf("of %d effects: %s%s", r.Wanted, strings.Join(wrong, "; "), history.String())
}

// course is what has happened to one id.
type course struct {
	effects  int
	holder   string // the process that started it last
	faulted  string // the process that held it when a fault happened to it
	fault    time.Time
	recorded bool
	starts   map[string]bool // the processes that started it, and whether it had been recorded by then
	wanted   bool
}

type judge struct {
	Result

	before func(string) string
	of     map[string]*course
	open   map[string]map[string]*course // what a process has started and not recorded
}

func (j *judge) take(e Entry) {
	if e.Kind == Injected {
		j.Faults[e.ID]++
		for _, c := range j.open[e.Process] {
			c.faulted, c.fault = e.Process, e.At
		}
		return
	}
	c := j.of[e.ID]
	if c == nil {
		c = &course{}
		j.of[e.ID] = c
	}
	if c.faulted != "" {
		if c.faulted != e.Process {
			j.TakeOvers = append(j.TakeOvers, max(0, e.At.Sub(c.fault)))
		}
		c.faulted = ""
	}
	switch e.Kind {
	case Started:
		j.checkOrder(e.ID)
		if c.starts == nil {
			c.starts = make(map[string]bool, 1)
		}
		c.starts[e.Process] = c.recorded
		delete(j.open[c.holder], e.ID)
		c.holder = e.Process
		if j.open[e.Process] == nil {
			j.open[e.Process] = map[string]*course{}
		}
		j.open[e.Process][e.ID] = c
	case Effect:
		j.checkOrder(e.ID)
		began, started := c.starts[e.Process]
		switch {
		case c.recorded && (began || !started):
			j.Repeated = append(j.Repeated, e.ID)
		case c.effects > 0:
			j.Unrecorded++
		}
		c.effects++
	case Recorded:
		c.recorded = true
		delete(j.open[c.holder], e.ID)
	case Injected: // returned above
	}
}

func (j *judge) checkOrder(id string) {
	if j.before == nil {
		return
	}
	former := j.before(id)
	if former == "" {
		return
	}
	if c := j.of[former]; c == nil || c.effects == 0 {
		j.OutOfOrder = append(j.OutOfOrder, id)
	}
}
