package pages_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// jobs is a console over a stream with jobs in every state.
type jobs struct {
	*consoletest.Site
	*worker.Client

	done, running, waiting, later worker.Receipt
}

const task = "tasks.חדשות"

func startJobs(t *testing.T, mutate ...func(*console.Config)) *jobs {
	t.Helper()
	s := &jobs{Site: consoletest.Start(t, mutate...)}
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), worker.StreamConfig("WORK", "tasks.>"))))
	var err error
	s.Client = check.Must(worker.NewClient(s.JetStream, worker.ClientConfig{Stream: "WORK"}))(t)
	ended, runs := make(chan bool, 10), make(chan bool, 10)
	w, err := worker.New(s.JetStream, worker.Config{
		AutoCreate: true, Concurrency: 1, Consumer: "cook", ID: "vm-3", Logger: slog.New(slog.DiscardHandler), SoftStop: -1, Stream: "WORK",
		Version: "v1",
		Hooks:   worker.Hooks{Settled: func(worker.Settlement) { ended <- true }},
	})
	check.OK(t, err)
	check.OK(t, worker.Handle(w, "tasks.>", worker.Policy{
		Limits: []worker.Limit{{Name: "tenant", Concurrency: 2}}, MaxAttempts: 5,
	}, func(ctx context.Context, j *worker.Job[map[string]any]) error {
		if _, err := step.Run(ctx, j, "fetch", func(context.Context) (map[string]string, error) {
			return map[string]string{"title": "soup", "owner_id": "u7"}, nil
		}); err != nil {
			return err
		}
		if j.Args["run"] != true {
			return nil
		}
		check.OK(t, j.Progress(ctx, map[string]any{"progress": 0.6, "step": "extract"}))
		runs <- true
		<-ctx.Done()
		return ctx.Err()
	}))
	t.Cleanup(natstest.Background(t, w.Run))
	insert := func(job worker.NewJob) worker.Receipt {
		return check.Must(s.Insert(t.Context(), job))(t)
	}
	args := map[string]any{"url": "https://u:secret@a.example/x?token=secret", "owner_id": "u7", "name": "<b>soup</b>"}
	s.done = insert(worker.NewJob{Args: args, ID: "the done", Subject: task, Unique: &worker.Unique{Key: "done", Keep: time.Hour}})
	<-ended
	s.running = insert(worker.NewJob{
		Args: map[string]any{"run": true, "owner_id": "u7"}, ID: "the running", Subject: task,
		Header: nats.Header{"traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
	})
	<-runs
	for range 3 {
		s.waiting = insert(worker.NewJob{Args: args, Subject: "tasks.wait"})
	}
	for i := range 3 {
		s.later = insert(worker.NewJob{Args: args, Delay: time.Duration(i+1) * time.Hour, Subject: "tasks.later"})
	}
	for _, p := range []worker.Periodic{
		{Args: args, Cron: "0 9 * * *", Name: "digest", Subject: "tasks.report", TimeZone: "Asia/Jerusalem"},
		{Args: args, Every: time.Hour, Name: "sweep", Subject: "tasks.report"},
	} {
		check.OK(t, check.Err(s.Schedule(t.Context(), p)))
	}
	return s
}

// path is that of a job.
func (s *jobs) path(r worker.Receipt) string {
	return fmt.Sprintf("/jobs/WORK/%d?subject=%s", r.Sequence, url.QueryEscape(r.Subject))
}

// state is that of a job.
func (s *jobs) state(r worker.Receipt) worker.State {
	j := check.Must(s.Job(s.Context(), worker.JobRef{ID: r.ID, Sequence: r.Sequence, Subject: r.Subject}))(s.T)
	return j.State
}

// last is the last record of the audit.
func (s *jobs) last() string {
	all := check.Must(audit.List(s.Context(), s.JetStream, 1))(s.T)
	check.Require(s.T, len(all) == 1, "no record")
	return fmt.Sprintf("%s %s %s %d %s", all[0].Actor, all[0].Action, all[0].Target, all[0].Count, all[0].Outcome)
}

func named(rs ...worker.Receipt) url.Values {
	v := url.Values{}
	for _, r := range rs {
		v.Add("job", fmt.Sprintf("%d %s", r.Sequence, r.ID))
	}
	return v
}

func TestJobsAreShown(t *testing.T) {
	t.Parallel()
	s := startJobs(t)
	list := s.Get("/jobs", 200)
	check.Contains(t, list, ">WORK<", ">IMPORT_JOBS<")
	check.That(t, !strings.Contains(list, ">DEAD<"), "a stream without jobs is listed")
	check.Contains(t, s.Get("/jobs/WORK", 200), "all <b>10</b>", "queued <b>3</b>", "retrying <b>1</b>", "scheduled <b>5</b>",
		"cancelled <b>1</b>",
		"expediter jobs list --stream WORK", "10 of 10 messages")
	for query, want := range map[string]int{
		"": 8, "state=queued": 3, "state=delivered,running,retrying": 1, "state=scheduled": 3, "state=done,dead,cancelled": 1,
		"subject=tasks.wait": 3, "key=done": 1, "state=scheduled&subject=tasks.wait": 0, "from=999999": 0,
	} {
		check.Equal(t, strings.Count(s.Get("/jobs/WORK?"+query, 200), `name="job" value`), want, query)
	}
	check.Contains(t, s.Get("/jobs/WORK?state=gone", 400), "no state")
	check.Contains(t, s.Get("/jobs/WORK?subject=a..b", 400), "not a subject filter")
	check.Contains(t, s.Get("/jobs/WORK?from=soon", 400), "no place in the list")
	check.Contains(t, s.Get("/jobs/NONE", 404), "There is no stream NONE")
	check.Contains(t, s.Get("/jobs/A.B", 400), "no name of a stream")
	check.Contains(t, s.Get("/jobs/WORK/999", 404), "no such job")
	check.Contains(t, s.Get("/jobs/WORK?account=x", 404), "no account")

	running := s.Get(s.path(s.running), 200)
	check.Contains(t, running, "running", ">vm-3</a>", "<dd>1 of 5</dd>", "4bf92f3577b34da6a3ce929d0e0e4736", "fetch",
		"&#34;title&#34;: &#34;soup&#34;",
		"tenant", "Hidden", "<code>owner_id</code>", fmt.Sprintf("expediter jobs cancel --stream WORK %d --yes", s.running.Sequence))
	done := s.Get(s.path(s.done), 200)
	check.Contains(t, done, "<dt>Ended</dt>", `<th scope="row" class="num">1</th>`, "vm-3")
	waiting := s.Get(s.path(s.waiting), 200)
	check.Contains(t, waiting, "&lt;b&gt;soup", "https://a.example/x")
	for _, page := range []string{running, done, waiting} {
		check.That(t, !strings.Contains(page, "secret@") && !strings.Contains(page, "token=") && !strings.Contains(page, "u7"),
			"it has secrets: %s", page)
	}
}

func TestJobsAreCancelledAndRun(t *testing.T) {
	t.Parallel()
	s := startJobs(t)
	to, _ := s.Post("/jobs/WORK/run", s.Form(s.Get(s.path(s.later), 200), "/jobs/WORK/run"), 303)
	check.Contains(t, s.Get(strings.TrimPrefix(to, s.URL), 200), "Queued 1 job.")
	check.Equal(t, s.state(s.later), worker.StateQueued, "the delayed")
	check.Equal(t, s.last(), fmt.Sprintf("anyone run job WORK:%d 1 done", s.later.Sequence), "record")

	both := named(s.running, s.done)
	_, question := s.Post("/jobs/WORK/cancel", both, 200)
	check.Contains(t, question, "Cancel 2 jobs?", "Type 2 to cancel",
		fmt.Sprintf("expediter jobs cancel --stream WORK %d --yes", s.running.Sequence))
	both.Set("typed", "2")
	to, _ = s.Post("/jobs/WORK/cancel", both, 303)
	check.Contains(t, s.Get(to, 200), "Cancelled 1 job. Of the others, 1 had ended.")
	check.Equal(t, s.state(s.running), worker.StateCancelled, "the running")

	filter := url.Values{"all": {"1"}, "subject": {"tasks.later"}, "state": {"scheduled"}}
	_, question = s.Post("/jobs/WORK/cancel", filter, 200)
	check.Contains(t, question, "Cancel 2 jobs?", "Type 2 to cancel")
	filter.Set("typed", "3")
	_, refused := s.Post("/jobs/WORK/cancel", filter, 409)
	check.Contains(t, refused, "it is 2 now. Nothing was done", "Type 2 to cancel")
	filter.Set("typed", "2")
	s.Post("/jobs/WORK/cancel", filter, 303)
	check.That(t, strings.HasPrefix(s.last(), "anyone cancel 2 jobs of WORK from "), "record: %s", s.last())
	check.Equal(t, strings.Count(s.Get("/jobs/WORK?state=scheduled", 200), `name="job" value`), 0, "delayed jobs left")
	for _, form := range []url.Values{{}, {"job": {"x"}}, {"job": make([]string, 1001)}} {
		s.Post("/jobs/WORK/cancel", form, 400)
	}
}

// A job of a stream that is not a work queue is shown as each consumer has it, and is not taken from the others. The page of a job and
// those of its workers link to each other.
func TestJobHasAPartForEachConsumer(t *testing.T) {
	t.Parallel()
	s := startJobs(t)
	cfg := worker.StreamConfig("LOG", "log.>")
	cfg.Retention = jetstream.LimitsPolicy
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), cfg)))
	reached := make(chan bool, 10)
	for _, name := range []string{"audit", "kitchen"} {
		w := check.Must(worker.New(s.JetStream, worker.Config{
			AutoCreate: true, Consumer: name, ID: "w-" + name, Logger: slog.New(slog.DiscardHandler), SoftStop: -1, Stream: "LOG",
			Hooks: worker.Hooks{Settled: func(worker.Settlement) { reached <- true }},
		}))(t)
		check.OK(t, worker.Handle(w, "log.>", worker.Policy{Limits: []worker.Limit{{Name: "limit-of-" + name, Concurrency: 2}}},
			func(ctx context.Context, j *worker.Job[any]) error {
				if err := step.Do(ctx, j, "step of "+name, func(context.Context) error { return nil }); err != nil || name == "audit" {
					return worker.Discard(errors.Join(errors.New("no paper"), err))
				}
				check.OK(t, j.Progress(ctx, "chopping"))
				reached <- true
				<-ctx.Done()
				return ctx.Err()
			}))
		t.Cleanup(natstest.Background(t, w.Run))
	}
	c := check.Must(worker.NewClient(s.JetStream, worker.ClientConfig{Stream: "LOG"}))(t)
	r := check.Must(c.Insert(t.Context(), worker.NewJob{Subject: "log.dish"}))(t)
	for range 2 {
		<-reached
	}
	var page string
	check.Until(t, time.Minute, "the workers on the page", func() bool {
		page = s.Get("/jobs/LOG/1?id="+r.ID, 200)
		return strings.Contains(page, "w-audit</a>") && strings.Contains(page, "w-kitchen</a>")
	})
	auditing, kitchen, cut := strings.Cut(page, "Consumer kitchen: ")
	check.Require(t, cut && strings.Contains(auditing, `dead</span></h2>`) && strings.Contains(kitchen, `running</span></h2>`),
		"parts: %s", page)
	for of, other := range map[string]string{auditing: kitchen, kitchen: auditing} {
		for _, name := range []string{"no paper", "step of audit", "limit-of-audit", "w-audit"} {
			check.That(t, strings.Contains(of, name) != strings.Contains(other, name), "both consumers have, or lack, %s", name)
		}
	}
	check.Contains(t, kitchen, "step of kitchen", "limit-of-kitchen", "chopping", "its consumers (audit, kitchen) and other readers")
	check.That(t, !strings.Contains(page, ">Cancel<"), "it offers to cancel the job for all")
	check.Contains(t, auditing, `href="/dead?job-stream=LOG&amp;subject=log.dish"`)

	link := regexp.MustCompile(`href="(/workers/[^"]+)">w-kitchen<`).FindStringSubmatch(kitchen)
	check.Require(t, link != nil, "no link to the worker: %s", kitchen)
	to := `href="/jobs/LOG/1?id=` + r.ID + `&amp;subject=log.dish"`
	check.Contains(t, s.Get(link[1], 200), to)
	check.Contains(t, s.Get("/dead/one?seq=1", 200), to)
	s.Get("/jobs/LOG/1?subject=log.cup", 404)
	s.Get("/jobs/LOG/1?id=other&subject=log.dish", 404)
	check.Contains(t, s.Get("/jobs/LOG", 200), "dead</span>", "running</span>")
	for _, form := range []url.Values{named(r), {"all": {"1"}, "subject": {"log.dish"}, "typed": {"1"}}} {
		form.Set("typed", "1")
		_, body := s.Post("/jobs/LOG/cancel", form, 409)
		check.Contains(t, body, "stream LOG is not a work queue")
	}
	check.Equal(t, s.Messages("LOG"), 1, "messages")
}

func TestSchedulesAreRemoved(t *testing.T) {
	t.Parallel()
	s := startJobs(t)
	check.Contains(t, s.Get("/schedules", 200), "tasks.report.digest", "0 0 9 * * *", "Asia/Jerusalem", "every 1h0m0s",
		"expediter jobs unschedule --stream WORK tasks.report.sweep --yes")
	_, sweep, _ := strings.Cut(s.Get("/schedules", 200), "tasks.report.digest --yes")
	form := s.Form(sweep, "/schedules/remove")
	check.Contains(t, s.Again("/schedules/remove", form, "/schedules"), "type tasks.report.sweep")
	form.Set("typed", "tasks.report.sweep")
	to, _ := s.Post("/schedules/remove", form, 303)
	check.Contains(t, s.Get(to, 200), "Ended the schedule of tasks.report.sweep.")
	check.Equal(t, s.last(), `anyone unschedule schedule "tasks.report.sweep" of WORK 1 done`, "record")
	all := check.Must(s.Schedules(t.Context()))(t)
	check.Equal(t, len(all), 1, "schedules left")
	_, body := s.Post("/schedules/remove", form, 409)
	check.Contains(t, body, "Nothing was done")
}

// hold holds a lock that others wait for.
func (s *jobs) hold(t *testing.T) *kvlock.Lease {
	t.Helper()
	locks, err := kvlock.NewLocker(t.Context(), s.JetStream, kvlock.LockerConfig{Bucket: "locks", Instance: "vm-3/812", TTL: 30 * time.Second})
	check.OK(t, err)
	t.Cleanup(locks.Close)
	lease := check.Must(locks.Acquire(t.Context(), "nightly", kvlock.AcquireOptions{Metadata: map[string]string{"command": "pg_dump"}}))(t)
	return lease
}

func TestLocksAreShownAndStolen(t *testing.T) {
	t.Parallel()
	s := startJobs(t)
	check.Contains(t, s.Get("/keys", 200), "No lock is held")
	lease := s.hold(t)
	check.Contains(t, s.Get("/keys", 200), "nightly", "vm-3/812", "pg_dump", lease.Token().String(), "expediter locks steal nightly --yes")
	check.Contains(t, s.Get("/keys/limits", 200), "tenant", "1 of 1 keys")
	s.Get("/keys?bucket=none", 404)
	form := s.Form(s.Get("/keys", 200), "/keys/steal", "typed", "night")
	check.Contains(t, s.Again("/keys/steal", form, "/keys?prefix=night"), "type its name")
	form.Set("typed", "nightly")
	form.Set("token", "1-1")
	_, body := s.Post("/keys/steal", form, 409)
	check.Contains(t, body, "another holder")
	form.Set("token", lease.Token().String())
	to, _ := s.Post("/keys/steal", form, 303)
	check.Contains(t, s.Get(to, 200), "Took the lock nightly", "No lock is held")
	check.Equal(t, s.last(), "anyone steal lock nightly of \"vm-3/812\" 1 done", "record")
	<-lease.Context().Done()
	check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
}

// tabTo presses the tab key until the element of a selector has the focus.
func tabTo(p *consoletest.Page, selector string) {
	p.Helper()
	for range 100 {
		if consoletest.Get(p, chromedp.Evaluate[bool](`document.activeElement.matches(`+strconv.Quote(selector)+`)`)) {
			return
		}
		p.Press(kb.Tab)
	}
	p.Fatalf("tabs never get to %s", selector)
}

// refresh makes a page reload itself, as it does every few seconds, and waits until it has.
func refresh(p *consoletest.Page) {
	p.Helper()
	consoletest.Get(p, chromedp.Evaluate[bool](`new Promise((r) => {
		document.addEventListener("htmx:afterRequest", () => r(true), {once: true});
		htmx.trigger(document.querySelector("main"), "refresh");
	})`, chromedp.EvalAwaitPromise))
}

// Each action needs a keyboard only, with a script and without. A reload of the page in between loses nothing.
func TestWorkIsDoneByKeyboard(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	s := startJobs(t)
	says := func(p *consoletest.Page, words string) {
		t.Helper()
		check.Contains(t, consoletest.Get(p, chromedp.Text(chromedp.CSS("main .note"))), words)
	}
	wide, narrow := consoletest.View{Width: 1440}, consoletest.View{Width: 360, NoScript: true}
	p := b.Open(t, s.URL+"/jobs/WORK?state=queued", wide)
	tabTo(p, "input[type=checkbox]")
	p.Press(" ")
	tabTo(p, "button.danger")
	refresh(p)
	p.Submit(kb.Enter)
	until(p, `document.activeElement.name === "typed"`)
	p.Press("1")
	p.Submit(kb.Enter)
	says(p, "Cancelled 1 job.")
	p = b.Open(t, s.URL+"/jobs/WORK", narrow)
	tabTo(p, "input[name=subject]")
	p.Press(strings.Split("*.later", "")...)
	p.Submit(kb.Enter)
	tabTo(p, "button[name=all]") // the filter goes with the person
	p.Submit(kb.Enter)
	check.Contains(t, consoletest.Get(p, chromedp.Text(chromedp.CSS("main"))), "*.later", "Type 3 to cancel 3 jobs")
	p.Press("3")
	p.Submit(kb.Enter)
	says(p, "Cancelled 3 jobs.")
	check.Equal(t, s.state(s.waiting), worker.StateQueued, "a job that does not match")
}
