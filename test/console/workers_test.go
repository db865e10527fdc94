package console_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// works runs a worker of imports until the test ends: jobs of "stuck" ignore the end of their context, those of "bad" fail, others are done.
func works(t *testing.T, s *consoletest.Site, id, version string) (running <-chan string) {
	t.Helper()
	began, free := make(chan string, 10), make(chan struct{})
	w, err := worker.New(s.JetStream, worker.Config{
		AckWait: 2 * time.Second, AutoCreate: true, Consumer: "importer", ID: id, Logger: slog.New(slog.DiscardHandler), StuckAfter: 10 * time.Millisecond,
		Stream: contracts.StreamImportJobs, Version: version,
	})
	check.OK(t, err)
	policy := worker.Policy{MaxAttempts: 1, Timeout: 50 * time.Millisecond}
	check.OK(t, worker.Handle(w, "jobs.import.high.>", policy, func(_ context.Context, job *worker.Job[map[string]any]) error {
		kind, _ := job.Args["kind"].(string)
		began <- kind
		switch kind {
		case "stuck":
			<-free
		case "bad":
			return fmt.Errorf("extract: <b>refused</b> by https://svc:hunter2@host/?key=hunter2")
		}
		return nil
	}))
	t.Cleanup(natstest.Background(t, w.Run))
	t.Cleanup(func() { close(free) })
	return began
}

func TestWorkersAreShown(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.Says(t, s.Get("/workers", http.StatusOK), "No worker answers")
	began := works(t, s, "vm-3", "v1")
	for _, kind := range []string{"good", "good", "bad"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", fmt.Appendf(nil, `{"kind":%q}`, kind))))
		check.Same(t, "the job that runs", <-began, kind)
	}
	works(t, s, "vm-4", "v1")
	works(t, s, "vm-5", "v0")
	page := told(t, s, "/workers", "vm-3", "vm-4", "vm-5", "ready", ">2 / 1<")
	check.Says(t, page, "IMPORT_JOBS", "! not as the others", "expediter jobs workers", fmt.Sprint(check.Must(os.Hostname())(t), " / ", os.Getpid()))
	until(s, ` ms <small class="soft">of 3</small>`)
}

// Pages show the workers that answered the collector, and ask none themselves.
func TestPagesDoNotAskTheWorkers(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	var asked atomic.Int64
	check.OK(t, check.Err(s.JetStream.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
		asked.Add(1)
		_ = m.Respond([]byte(`{"instance":"one","id":"vm-3","ready":true,"stream":"IMPORT_JOBS"}`)) // the page lacks it then
	})))
	told(t, s, "/workers", "vm-3")
	before := asked.Load()
	for range 20 {
		check.Says(t, s.Get("/workers", http.StatusOK), "vm-3")
	}
	check.That(t, asked.Load() < before+20, "20 pages asked the workers %d times", asked.Load()-before)
}

func TestAWorkerIsShown(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	for _, kind := range []string{"good", "bad", "stuck"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high."+kind, fmt.Appendf(nil, `{"kind":%q}`, kind))))
		check.Same(t, "the job that runs", <-began, kind)
	}
	told(t, s, "/workers", "vm-3")
	path := workerPath(t, s)
	page := told(t, s, path, "Stuck: it ignores its ended context", "completed", "jobs.import.high.bad", "extract: &lt;b&gt;refused&lt;/b&gt;")
	check.Says(t, page, "jobs.import.high.&gt;", "works.func", "Remembered: 2", "1 did not complete", "jobs workers", "--recent")
	check.That(t, !strings.Contains(page, "hunter2"), "a secret is shown: %s", page)
	s.Get("/workers/none", http.StatusNotFound)
	s.Get("/workers/a%2Fb", http.StatusNotFound)
}

// workerPath is the path of the only worker.
func workerPath(t *testing.T, s *consoletest.Site) string {
	t.Helper()
	_, after, found := strings.Cut(told(t, s, "/workers", `href="/workers/`), `href="/workers/`)
	check.Require(t, found, "no worker is linked")
	instance, _, _ := strings.Cut(after, `"`)
	return "/workers/" + instance
}

func TestAHandlerIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	path := workerPath(t, s)
	values := form(t, told(t, s, path, "Pause</button>"), "/workers/pause", "minutes", "10")
	for _, bad := range []string{"", "0", "-1", "10081", "x"} {
		values.Set("minutes", bad)
		_, page := s.Post("/workers/pause", values, http.StatusBadRequest)
		check.Says(t, page, "It may be paused for 1 to 10,080 minutes")
	}
	values.Set("minutes", "10")
	to, _ := s.Post("/workers/pause", values, http.StatusSeeOther, "Referer", s.URL+path)
	page := s.Get(to, http.StatusOK)
	check.Says(t, page, "jobs.import.high.&gt; is paused until", "expediter jobs pause --stream IMPORT_JOBS &#39;jobs.import.high.&gt;&#39; --for 10m",
		"Resume</button>")
	page = told(t, s, "/workers", "is paused since", "ready, 1 paused") // the worker has followed
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", []byte(`{"kind":"good"}`))))
	check.Same(t, "jobs that have begun", len(began), 0)
	to, _ = s.Post("/workers/resume", form(t, page, "/workers/resume"), http.StatusSeeOther, "Referer", s.URL+"/workers")
	check.Says(t, s.Get(to, http.StatusOK), "goes on", "expediter jobs resume --stream IMPORT_JOBS")
	check.Same(t, "the job that runs", <-began, "good")
	_, page = s.Post("/workers/resume", values, http.StatusConflict)
	check.Says(t, page, "is not paused any more")
	values.Set("pattern", "none.>")
	_, page = s.Post("/workers/pause", values, http.StatusConflict)
	check.Says(t, page, "No worker takes such jobs")
	values.Set("pattern", "a..b")
	s.Post("/workers/pause", values, http.StatusBadRequest)
	s.Post("/workers/pause", url.Values{"stream": {"a b"}, "pattern": {"x"}, "minutes": {"1"}}, http.StatusBadRequest)
	all := records(t, s)
	check.That(t, all[len(all)-1].Action == "pause" && all[len(all)-1].Target == `handler "jobs.import.high.>" of IMPORT_JOBS` &&
		all[len(all)-1].Outcome == audit.Done && all[len(all)-2].Action == "resume", "%+v", all)
}

func TestAWorkerIsDrainedAndTakesJobsAgain(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", []byte(`{"kind":"stuck"}`))))
	check.Same(t, "the job that runs", <-began, "stuck")
	path := workerPath(t, s)
	values := form(t, told(t, s, path, "Drain</button>", "What runs now"), path+"/drain")
	to, _ := s.Post(path+"/drain", values, http.StatusSeeOther, "Referer", s.URL+path)
	page := s.Get(to, http.StatusOK)
	check.Says(t, page, "vm-3 takes no more jobs and finishes those that run", "expediter jobs drain ", "draining, 1 of 100 slots run", "Take jobs again</button>")
	check.Says(t, s.Get("/workers", http.StatusOK), "draining")
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.b", []byte(`{"kind":"good"}`))))
	check.Same(t, "jobs that have begun", len(began), 0)
	to, _ = s.Post(path+"/resume", form(t, page, path+"/resume"), http.StatusSeeOther, "Referer", s.URL+path)
	check.Says(t, s.Get(to, http.StatusOK), "vm-3 takes jobs again within seconds", " --resume", "ready, 1 of 100 slots run")
	check.Same(t, "the job that runs", <-began, "good")
	s.Post("/workers/none/drain", values, http.StatusNotFound)
	all := records(t, s)
	for i, action := range []string{"resume", "drain"} {
		check.That(t, all[i].Action == action && strings.HasPrefix(all[i].Target, "worker vm-3 (") && all[i].Outcome == audit.Done, "%+v", all[i])
	}
}

// A worker that does not answer is not drained, and the record does not say that it was.
func TestASilentWorkerIsNotDrained(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.OK(t, check.Err(s.JetStream.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"instance":"one","id":"vm-3","ready":true,"stream":"IMPORT_JOBS"}`)) // the page lacks it then
	})))
	told(t, s, "/workers", "vm-3")
	_, page := s.Post("/workers/one/drain", url.Values{}, http.StatusConflict)
	check.Says(t, page, "It does not answer")
	check.Says(t, s.Get("/workers", http.StatusOK), "<td>ready</td>")
	last := records(t, s)[0]
	check.That(t, last.Action == "drain" && last.Outcome != audit.Done, "%+v", last)
}

// All that match are those that the page has counted: jobs that come after it stay.
func TestAllThatMatchAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	put := func(n int) {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), fmt.Sprintf("jobs.import.low.u%d", n), nil)))
	}
	put(1)
	put(2)
	const path = "/jobs/" + contracts.StreamImportJobs
	page := s.Get(path+"/all", http.StatusOK)
	check.Says(t, page, "2 jobs can be cancelled", "No job that matches can be run now.")
	put(3)
	values := form(t, page, path+"/cancel", "typed", "2")
	s.Post(path+"/cancel", values, http.StatusSeeOther)
	check.Same(t, "jobs", s.Messages(contracts.StreamImportJobs), 1)

	put(4) // as many as the page counted match again, and none is of the page
	_, refused := s.Post(path+"/cancel", values, http.StatusConflict)
	check.Says(t, refused, "0 of the jobs that were counted match now")
	check.Same(t, "jobs", s.Messages(contracts.StreamImportJobs), 2)
}

// None among the messages that were looked at is not none.
func TestNoneOfTheFirstIsNotNone(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	for range 10_001 {
		check.OK(t, check.Err(s.JetStream.PublishAsync("jobs.import.low.u1", nil)))
	}
	<-s.JetStream.PublishAsyncComplete()
	page := s.Get("/jobs/"+contracts.StreamImportJobs+"/all", http.StatusOK)
	check.Says(t, page, "1,000 jobs can be cancelled. There may be more", "among the first 10,000 messages")
	check.That(t, !strings.Contains(page, "can be run now."), "%s", page)
}
