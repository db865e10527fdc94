package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	// overdue is the time after which a run that did not come is missed: the servers insert one at once when they are back.
	overdue = time.Minute

	// crashes is the number of workers in a row that ended with the same job.
	crashes = 2

	maxLimits = 512 // keys that are read
	maxPoison = 200 // delivered jobs that are read, the oldest
)

// details are the parts of a State that cost more than a few round trips, from the last round with details.
type details struct {
	Limits    []kvlock.LimitState // of handlers that answered, with permits of processes that have ended, or unreadable
	Lost      []worker.StoredJob  // jobs whose workers end
	Schedules []worker.Scheduled
}

// stalls reports whether a consumer with jobs completed none since the round before, and jobs came, or started, then or in the round before
// that. It reports true as well while a limit is a problem, which has to end. A stream at rest does not stall, so it costs nothing.
func (s *State) stalls(before State) bool {
	idle := false
	for id, c := range s.Count.Consumers {
		was := before.Count.Consumers[id]
		isIdle := c.Acknowledged == was.Acknowledged
		s.moved = s.moved || !isIdle || c.Queued != was.Queued || c.Delivered != was.Delivered || c.Redelivered != was.Redelivered
		idle = idle || isIdle && c.Queued+c.Delivered > 0
	}
	return idle && (s.moved || before.moved) || len(before.Limits) > 0
}

// lookAtLimits reads the limits of the handlers: up to three round trips if there are any, and jobs.
func (s *State) lookAtLimits(ctx context.Context, from Source) {
	before, limits, left := s.Limits, s.limits(), false
	s.Limits = nil
	for _, c := range s.Count.Consumers {
		left = left || c.Queued > 0 || c.Delivered > 0
	}
	if left && len(limits) > 0 {
		all, _, err := kvlock.ListLimits(ctx, from.JetStream, contracts.BucketJobs, maxLimits)
		for _, l := range newer(before, all, err) {
			if limits[strings.TrimSuffix(l.Name, ".turns")] && (l.Problem != "" || l.Ended > 0 && len(l.Queue) > 0) {
				s.Limits = append(s.Limits, l)
			}
		}
	}
}

// lookCloser reads the details of a stream: up to five round trips if jobs were redelivered, and one, with another for each, if it has
// schedules.
func (s *State) lookCloser(ctx context.Context, client *worker.Client) {
	before := s.details
	s.Lost, s.Schedules = nil, nil
	var redelivered bool
	for _, c := range s.Count.Consumers {
		redelivered = redelivered || c.Redelivered > 0
	}
	if redelivered {
		page, err := client.Jobs(ctx, worker.JobFilter{
			Limit: maxPoison, Look: maxPoison, States: []worker.State{worker.StateDelivered, worker.StateRetrying, worker.StateRunning},
		})
		for _, job := range newer(before.Lost, page.Jobs, err) {
			for _, j := range job.Each() {
				if j.Lost >= crashes {
					s.Lost = append(s.Lost, *j)
				}
			}
		}
	}
	if s.Info.Config.AllowMsgSchedules && s.Info.State.NumSubjects <= fewSubjects {
		all, err := client.Schedules(ctx)
		s.Schedules = newer(before.Schedules, all, err)
	}
}

// limits returns the names of the limits of the handlers that answered.
func (s *State) limits() map[string]bool {
	names := map[string]bool{}
	for _, w := range s.Workers {
		for _, h := range w.Handlers {
			for _, name := range h.Limits {
				names[name] = true
			}
		}
	}
	return names
}

// starved finds limits under which no job starts, though no job holds them.
func (s State) starved() (all []Problem) {
	texts := map[string]string{}
	for _, l := range s.Limits {
		if texts[l.Name] = "its record cannot be read: " + l.Problem; l.Problem == "" {
			texts[l.Name] = fmt.Sprintf("%d permits are of processes that have ended, and others wait for them", l.Ended)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		p := s.problem("limit.starved", "limit "+name+" of "+s.Info.Config.Name, "%s", texts[name])
		p.Command, p.Page = operate.Line("limits", &operate.JobSelection{Account: s.Account}), []any{"/keys/limits", s.query()}
		all = append(all, p)
	}
	return all
}

// poison finds jobs whose workers end, one after the other.
func (s State) poison() (all []Problem) {
	for i, j := range s.Lost {
		if i == 1 {
			break // the oldest stands for all
		}
		p := s.problem("job.poison", "job "+j.ID+" of "+s.Info.Config.Name,
			"the last %d workers that had it ended without a report, at %s. Jobs like it: %d", j.Lost, j.Subject, len(s.Lost))
		p.Command = s.jobs("show", strconv.FormatUint(j.Sequence, 10))
		p.Page = []any{"/jobs", s.Info.Config.Name, j.Sequence, s.query("id", j.ID)}
		all = append(all, p)
	}
	return all
}

// late finds schedules whose runs do not come, or that no consumer takes.
func (s State) late() (all []Problem) {
	now := s.Info.TimeStamp
	for _, sched := range s.Schedules {
		add := func(id, format string, args ...any) {
			p := s.problem(id, "schedule "+sched.Subject+" of "+s.Info.Config.Name, format, args...)
			p.Command, p.Page = operate.Line("schedules", &operate.JobSelection{Account: s.Account}), []any{"/schedules"}
			all = append(all, p)
		}
		last := sched.Since // a message came, so the run may have
		if s.Info.State.LastTime.After(last) {
			last = s.Info.State.LastTime
		}
		next, err := sched.Next(last)
		if sched.Every > 0 { // an interval begins again when the stream had no leader
			next = last.Add(sched.Every)
		}
		switch {
		case err != nil:
			add("schedule.silent", "it never runs: %v", err)
		case now.Sub(next) > overdue:
			add("schedule.silent", "its run of %s did not come: the servers do not insert it", operate.Stamp(next))
		case !s.Count.At.IsZero() && !s.isTaken(sched.Subject): // the cause of jobs that are stranded, too
			add("schedule.untaken", "no consumer takes its jobs, the next at %s", operate.Stamp(next))
		}
	}
	return all
}

// isTaken reports whether a consumer takes the jobs of a subject.
func (s State) isTaken(jobs string) bool {
	for _, c := range s.Count.Consumers {
		filters := append(slices.Clone(c.Config.FilterSubjects), c.Config.FilterSubject)
		covers := func(f string) bool { return f != "" && subject.Covers(f, jobs) }
		if len(filters) == 1 && filters[0] == "" || slices.ContainsFunc(filters, covers) {
			return true
		}
	}
	return false
}
