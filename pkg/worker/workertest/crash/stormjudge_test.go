package crash_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// judge reads the recorder's notes, in its order.
func (s *storm) judge() {
	s.t.Helper()
	v := &verdict{jobs: map[string]*course{}, outages: map[int][]outage{}, excluded: map[string]int{}}
	s.recorder.each(s.t, "told.>", func(position int, m jetstream.Msg) {
		var n note
		check.OK(s.t, json.Unmarshal(m.Data(), &n))
		v.take(position, n)
	})
	for i := range s.inserted {
		job := fmt.Sprintf("%s/%d", kinds[i%len(kinds)].name, i/len(kinds))
		check.Equal(s.t, v.of(job).seen["effect"], 1, fmt.Sprintf("job %s has effects", job))
	}
	for _, wrong := range v.wrong {
		s.t.Error(wrong)
	}
	s.t.Logf("%d jobs, %d workers, %d runs; not excluded by README.md: %v", s.inserted, s.spawned, v.runs, v.excluded)
}

// verdict is the result of reading the notes.
type verdict struct {
	excluded map[string]int
	faults   []outage // of leaders and consumers
	jobs     map[string]*course
	notes    []note
	outages  map[int][]outage // of workers
	runs     int
	wrong    []string
}

// course is the notes of a job: how many of each kind, where it began and ended, and when it began.
type course struct {
	began, ended int
	first        time.Time
	ran          map[int]int // where each worker last did
	seen         map[string]int
}

// outage is a time in which a worker was stopped or a fault lasted: its kind, its positions among the notes, and the time at which the
// worker was stopped or the fault was over.
type outage struct {
	what     string
	from, to int
	at       time.Time
}

func (v *verdict) of(job string) *course {
	c := v.jobs[job]
	if c == nil {
		c = &course{ran: map[int]int{}, seen: map[string]int{}}
		v.jobs[job] = c
	}
	return c
}

func (v *verdict) take(at int, n note) {
	v.notes = append(v.notes, n)
	switch n.What {
	case "stopped":
		v.outages[n.Worker] = append(v.outages[n.Worker], outage{from: at})
	case "continued":
		last := &v.outages[n.Worker][len(v.outages[n.Worker])-1]
		last.to, last.at = at, n.At
	case "leader killed", "stepped down":
		v.faults = append(v.faults, outage{what: "the leader changed", from: at})
	case "consumer deleted":
		v.faults = append(v.faults, outage{what: "its consumer was deleted", from: at})
	case over:
		last := &v.faults[len(v.faults)-1]
		last.to, last.at = at, n.At
	}
	if n.Job == "" {
		return
	}
	c := v.of(n.Job)
	switch n.What {
	case "run":
		v.runs++
		if c.began == 0 {
			c.began, c.first = at, n.At
		}
		if c.ended > 0 {
			v.fault("started after its end", at, n, c.ended)
		}
		v.checkOrder(at, n)
		c.ran[n.Worker] = at
	case "done":
		c.ended = at
	case steps[0], steps[1]:
		if c.seen["kept-"+n.What] > 0 {
			v.fault("ran step "+n.What+" again", at, n, c.ran[n.Worker])
		}
	}
	c.seen[n.What]++
}

// checkOrder wants a job that starts to come after the effect of the one before it, and before the next one.
func (v *verdict) checkOrder(at int, n note) {
	name, number, _ := strings.Cut(n.Job, "/")
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
	if !k.policy.Ordered {
		return
	}
	var i int
	if _, err := fmt.Sscan(number, &i); err != nil {
		v.wrong = append(v.wrong, err.Error())
	}
	if i >= k.keys && v.of(fmt.Sprintf("%s/%d", name, i-k.keys)).seen["effect"] == 0 {
		v.wrong = append(v.wrong, fmt.Sprintf("job %s started before the effect of the one before it, in worker %d", n.Job, n.Worker))
	}
	if next := v.of(fmt.Sprintf("%s/%d", name, i+k.keys)); next.began > 0 {
		v.fault("started after the next one", at, n, next.began)
	}
}

// fault records an event that should not have happened at a note, unless README.md names the cause: its attempt started before its
// worker was stopped (which takes a moment, and lasts for more than an AckWait), since the given position, or the consumer or its
// leader was another since the job was delivered for the first time, which was a moment before it first ran.
func (v *verdict) fault(event string, at int, n note, since int) {
	first := v.of(n.Job).first
	within := func(o outage) bool { return o.to > since && o.from < at && n.At.Before(o.at.Add(ackWait/2)) }
	changed := func(o outage) bool { return o.to == 0 || first.Before(o.at.Add(ackWait/2)) }
	if slices.ContainsFunc(v.outages[n.Worker], within) {
		v.excluded[event+": its worker was stopped within it"]++
	} else if i := slices.IndexFunc(v.faults, changed); i >= 0 {
		v.excluded[event+": "+v.faults[i].what]++
	} else {
		v.wrong = append(v.wrong, fmt.Sprintf("job %s %s, in worker %d and delivery %d; its notes, and those of faults:\n%s",
			n.Job, event, n.Worker, n.Delivery, v.about(n.Job)))
	}
}

// about returns the notes of a job and of the faults of workers and servers.
func (v *verdict) about(job string) string {
	var all strings.Builder
	for at, n := range v.notes {
		if n.Job == "" || n.Job == job {
			fmt.Fprintf(&all, "%d: %s %s, worker %d, delivery %d\n", at+1, n.At.Format("05.000"), n.What, n.Worker, n.Delivery)
		}
	}
	return all.String()
}
