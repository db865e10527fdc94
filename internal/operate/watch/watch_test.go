package watch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// healthy is a stream with 500 queued jobs and 10 delivered ones, whose worker answers.
func healthy() watch.State {
	info := &jetstream.StreamInfo{Config: worker.StreamConfig("ORDERS", "jobs.>")}
	w := inspect.Info{
		ID: "vm-1", Instance: "one", Stream: "ORDERS", Host: "vm", PID: 7, Ready: true, Slots: 10, Running: 10,
		Handlers: []inspect.Handler{{Pattern: "jobs.pay.>", Consumer: "pay"}},
	}
	c := consumer.Counted{Queued: 500, Delivered: 10, Pulls: 1, Ours: true, Config: jetstream.ConsumerConfig{FilterSubjects: []string{"jobs.pay.>"}}}
	return watch.State{
		Info: info, At: time.Now(), Workers: []inspect.Info{w}, Asked: true, Answered: map[string]inspect.Info{"pay": w}, Known: true,
		Count: consumer.Count{At: time.Now(), Consumers: map[consumer.ID]consumer.Counted{{Name: "pay"}: c}},
	}
}

// alter changes the only consumer.
func alter(s *watch.State, change func(*consumer.Counted)) {
	for id, c := range s.Count.Consumers {
		change(&c)
		s.Count.Consumers[id] = c
	}
}

// altered changes the only consumer after other changes.
func altered(change func(*consumer.Counted), before ...func(*watch.State)) func(*watch.State) {
	return func(s *watch.State) {
		for _, f := range before {
			f(s)
		}
		alter(s, change)
	}
}

// failed makes the worker remember failures among its attempts.
func failed(failed, of, completed int, ago time.Duration) func(*watch.State) {
	return func(s *watch.State) {
		s.Workers[0].Last.Failing = []inspect.Failing{{
			Pattern: "jobs.pay.>", Failed: failed, First: failed, Of: of, Completed: completed, Error: "bank: 503", At: s.At.Add(-ago), Since: s.At.Add(-ago),
		}}
	}
}

// scheduled gives the stream a schedule, and a last message that came some time ago.
func scheduled(subject, cron string, ago time.Duration) func(*watch.State) {
	return func(s *watch.State) {
		s.Info.TimeStamp = s.At
		s.Info.State.LastTime = s.At.Add(-ago)
		s.Schedules = []worker.Scheduled{{Cron: cron, Subject: subject, Since: s.At.Add(-24 * time.Hour)}}
	}
}

// died makes the worker answer no more.
func died(s *watch.State) {
	s.Workers = nil
	alter(s, func(c *consumer.Counted) { c.Pulls = 0 })
}

// stopped makes the worker end properly, and leave jobs.
func stopped(s *watch.State) {
	died(s)
	alter(s, func(c *consumer.Counted) { c.Delivered = 0 })
}

// foreign makes the only consumer one that has not the settings of a worker's, and from which nothing pulls.
func foreign(s *watch.State) {
	died(s)
	s.Answered = nil
	alter(s, func(c *consumer.Counted) { c.Ours, c.Config.MaxDeliver, c.Config.MaxAckPending = false, -1, 1 })
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*watch.State)
		after  time.Duration // for which the state lasts
		want   string        // the beginning of the only problem, "" for none
	}{
		"healthy":                          {change: func(*watch.State) {}, after: time.Hour},
		"all killed":                       {died, 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 10 delivered and not done. The last one, vm-1 on vm, has ended"},
		"for a moment":                     {change: died, after: time.Second},
		"all wait for a retry":             {altered(func(c *consumer.Counted) { c.Queued = 0 }, died), 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 0 jobs queued, 10 delivered"},
		"frozen, its pull request is left": {func(s *watch.State) { s.Workers = nil }, 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 10 delivered and not done. 1 pull requests are left of workers that are frozen"},
		"one of two is frozen": {func(s *watch.State) {
			s.Frozen = []inspect.Info{{ID: "vm-2", Stream: "ORDERS", PID: 8, Host: "vm", Running: 3}}
		}, 2 * time.Second, "worker.frozen worker vm-2 of ORDERS: process 8 on vm is connected and does not answer"},
		"no worker ever came": {func(s *watch.State) {
			died(s)
			s.Answered = nil
		}, 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 10 delivered and not done. Its program does not run"},
		"all are drained":            {func(s *watch.State) { s.Workers[0].Drained, s.Workers[0].Running = true, 0 }, 2 * time.Second, "worker.drained consumer ORDERS/pay: all its workers are drained: 500 jobs queued"},
		"stopped":                    {stopped, 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 0 delivered and not done. The last one, vm-1 on vm, has stopped. It may be a restart: it is an error after 10s"},
		"stopped for good":           {stopped, 11 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 0 delivered and not done. The last one, vm-1 on vm, has stopped"},
		"killed for good":            {died, 11 * time.Second, "worker.gone consumer ORDERS/pay: "},
		"not ready for good":         {func(s *watch.State) { s.Workers[0].Ready = false }, 11 * time.Second, "worker.idle worker vm-1 of ORDERS: "},
		"no jobs, no worker":         {change: altered(func(c *consumer.Counted) { c.Queued, c.Delivered = 0, 0 }, died), after: time.Hour},
		"another program's consumer": {change: altered(func(c *consumer.Counted) { c.Ours, c.Pulls = false, 1 }, foreign), after: time.Hour},
		"another program's batch":    {change: altered(func(c *consumer.Counted) { c.Config.AckWait = time.Minute }, foreign), after: time.Minute - 1},
		"another program's event": {change: func(s *watch.State) {
			foreign(s)
			s.Info.Config.Retention = jetstream.LimitsPolicy
		}, after: time.Hour},
		"another program's, pushed":                {change: altered(func(c *consumer.Counted) { c.Config.DeliverSubject = "x" }, foreign), after: time.Hour},
		"nothing pulls":                            {foreign, 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 10 delivered and not done. Nothing pulls from it, and its max_deliver of -1 and max_ack_pending of 1 "},
		"changed, and killed":                      {altered(func(c *consumer.Counted) { c.Ours = false }, died), 2 * time.Second, "worker.gone consumer ORDERS/pay: no worker of it answers: 500 jobs queued, 10 delivered and not done. The last one, vm-1 on vm, has ended"},
		"workers that may not answer, or be asked": {change: func(s *watch.State) { s.Workers, s.Asked = nil, false }, after: time.Hour},
		"every attempt fails":                      {failed(100, 100, 0, time.Second), 0, "handler.failing handler jobs.pay.> of ORDERS: 100 of the last 100 attempts failed, 0 were retries, the last at "},
		"after few attempts":                       {failed(5, 6, 0, time.Second), 0, "handler.failing handler jobs.pay.> of ORDERS: 5 of the last 6"},
		"it has recovered":                         {change: failed(100, 103, 3, time.Second)},
		"some attempts fail":                       {change: failed(40, 100, 0, time.Second)},
		"too few to tell":                          {change: failed(4, 4, 0, time.Second)},
		"failed long ago, and no job is left":      {change: altered(func(c *consumer.Counted) { c.Queued, c.Delivered = 0, 0 }, failed(5, 5, 0, time.Hour))},
		"failed long ago, and jobs of others run":  {change: failed(5, 5, 0, time.Hour)},
		"failed long ago, and a job waits for a retry": {func(s *watch.State) {
			failed(5, 5, 0, time.Hour)(s)
			s.Workers[0].Running = 9
		}, 0, "handler.failing handler jobs.pay.> of ORDERS: 5 of the last 5"},
		"one bad job among good ones": {change: func(s *watch.State) {
			failed(5, 9, 0, time.Second)(s)
			s.Workers[0].Last.Failing[0].First = 1
		}},
		"a limit of the dead": {func(s *watch.State) {
			s.Limits = []kvlock.LimitState{{Name: "mail", Ended: 2, Queue: []string{"one"}}}
		}, 11 * time.Second, "limit.starved limit mail of ORDERS: 2 permits are of processes that have ended"},
		"a limit that nobody can read": {func(s *watch.State) {
			s.Limits = []kvlock.LimitState{{Name: "mail", Problem: "no JSON"}}
		}, 11 * time.Second, "limit.starved limit mail of ORDERS: its record cannot be read: no JSON"},
		"a job that ends its workers": {func(s *watch.State) {
			s.Lost = []worker.StoredJob{{ID: "a", Subject: "jobs.pay.1", Lost: 3}}
		}, 0, "job.poison job a of ORDERS: the last 3 workers that had it ended without a report, at jobs.pay.1. Jobs like it: 1"},
		"a run that comes": {change: scheduled("jobs.pay.daily", "0 * * * * *", 50*time.Second), after: time.Hour},
		"an interval that began again": {change: func(s *watch.State) {
			scheduled("jobs.pay.daily", "", time.Minute)(s)
			s.Schedules[0].Every, s.Schedules[0].Since = time.Hour, s.At.Add(-90*time.Minute)
		}, after: time.Hour},
		"a run that did not come": {scheduled("jobs.pay.daily", "0 * * * * *", 5*time.Minute), 2 * time.Second, "schedule.silent schedule jobs.pay.daily of ORDERS: its run of "},
		"a day that never is":     {scheduled("jobs.pay.daily", "0 0 0 31 2 *", time.Hour), 2 * time.Second, "schedule.silent schedule jobs.pay.daily of ORDERS: it never runs"},
		"runs that nobody takes":  {scheduled("jobs.mail.daily", "0 0 9 * * *", time.Second), 2 * time.Second, "schedule.untaken schedule jobs.mail.daily of ORDERS: no consumer takes its jobs"},
		"its consumer is paused":  {altered(func(c *consumer.Counted) { c.Paused = time.Hour }), 0, "consumer.paused consumer ORDERS/pay: it is paused for another 1h0m0s"},
		"stranded":                {func(s *watch.State) { s.Stranded, s.Example = 3, "jobs.x" }, 2 * time.Second, "queue.stranded stream ORDERS: 3 messages that no consumer will ever deliver, such as jobs.x"},
		"paused": {func(s *watch.State) {
			s.Pauses = []worker.Pause{{Pattern: "jobs.>", By: "ada", Until: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}}
		}, 0, "handler.paused handler jobs.> of ORDERS: paused by ada until 2030-01-02T03:04:05Z, jobs behind it: 510"},
		"paused in part":                 {func(s *watch.State) { s.Pauses = []worker.Pause{{Pattern: "jobs.pay.a"}} }, 0, "handler.paused handler jobs.pay.a of ORDERS: paused until it is resumed, jobs behind it: up to 510"},
		"its consumer was deleted":       {func(s *watch.State) { clear(s.Count.Consumers) }, 2 * time.Second, "consumer.missing consumer ORDERS/pay: it is missing: worker vm-1 gets no jobs of jobs.pay.>"},
		"many dead letters":              {func(s *watch.State) { s.Dead = 50 }, 0, "dead.rising stream ORDERS: 50 dead letters within an hour"},
		"too many dead letters to count": {func(s *watch.State) { s.Dead, s.Partial = 938, true }, 0, "dead.rising stream ORDERS: 938 dead letters or more within an hour"},
		"few dead letters":               {change: func(s *watch.State) { s.Dead = 49 }},
		"a work queue that deletes its oldest jobs": {func(s *watch.State) {
			s.Info.Config.MaxBytes, s.Info.State.Bytes = 100, 96
		}, 0, "stream.full stream ORDERS: it is 96 % full, and deletes its oldest jobs at 100 %"},
		"stuck":     {func(s *watch.State) { s.Workers[0].Stuck, s.Workers[0].StuckJobs = 2, []string{"a", "b"} }, 0, "worker.stuck worker vm-1 of ORDERS: 2 of 10 slots are held by handlers that ignore their ended contexts: job a, b"},
		"not ready": {func(s *watch.State) { s.Workers[0].Ready, s.Workers[0].Problem = false, "no bucket" }, 0, "worker.idle worker vm-1 of ORDERS: it takes no jobs: no bucket"},
		"it starts": {change: func(s *watch.State) { s.Workers[0].Ready, s.Workers[0].Problem = false, inspect.Starting }, after: 5 * time.Second},
		"no handler": {func(s *watch.State) {
			s.Workers[0].Now, s.Workers[0].Last.Unhandled = s.At, &inspect.Unhandled{Subject: "jobs.pay.x", At: s.At.Add(-time.Second)}
		}, 0, "handler.missing worker vm-1 of ORDERS: it has no handler for jobs such as jobs.pay.x"},
		"another clock": {func(s *watch.State) { s.Workers[0].Skew = -3 * time.Second }, 2 * time.Second, "clock.worker worker vm-1 of ORDERS: its clock differs by -3s"},
		"it stops":      {change: func(s *watch.State) { s.Workers[0].Ready, s.Workers[0].Stopping = false, true }, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			test.change(&s)
			_, memory, _ := watch.Memory(nil).Certain(s.At, s.Problems())
			certain, _, unsure := memory.Certain(s.At.Add(test.after), s.Problems())
			var all []string
			for _, p := range certain {
				all = append(all, p.ID+" "+p.Of+": "+p.Text)
				check.That(t, p.Command != "" && p.Runbook != "" && len(p.Page) > 0 && !p.Since.IsZero(), "%+v lacks something", p)
			}
			got := strings.Join(all, "\n")
			check.That(t, strings.HasPrefix(got, test.want) && len(all) <= 1 && (test.want != "") == (len(all) == 1), "%q, want %q", got, test.want)
			if test.want == "" {
				return
			}
			restart := strings.Contains(got, "may be a restart") // alarms nobody
			calm := slices.Contains([]string{"clock.worker", "handler.paused", "worker.drained"}, certain[0].ID)
			check.Equal(t, certain[0].Severity == watch.Warning, restart || calm || strings.Contains(got, "Nothing pulls"), "a warning: "+got)
			check.That(t, unsure == restart && (!restart || test.after < 10*time.Second), "unsure: %t, after %s: %s", unsure, test.after, got)
		})
	}
}

// A schedule stays a problem, with one beginning, while its jobs are stranded and after they were purged.
func TestAScheduleIsNamedBesideItsStrandedJobs(t *testing.T) {
	t.Parallel()
	for _, stranded := range []uint64{0, 3} {
		s := healthy()
		scheduled("jobs.mail.daily", "0 0 9 * * *", time.Second)(&s)
		s.Stranded = stranded
		named := slices.ContainsFunc(s.Problems(), func(p watch.Problem) bool { return p.ID == "schedule.untaken" })
		check.That(t, named, "with %d stranded jobs: %+v", stranded, s.Problems())
	}
}

// Jobs that fail for good at their first attempt are among the dead letters, and no list of jobs has them.
func TestFailuresWithoutARetryLeadToTheirDeadLetters(t *testing.T) {
	t.Parallel()
	s := healthy()
	failed(5, 5, 0, time.Second)(&s)
	for dead, want := range map[int]string{0: "/jobs", 5: "/dead"} {
		s.Dead = dead
		check.Equal(t, s.Problems()[0].Page[0], any(want), "page")
	}
}
