package console_test

import (
	"context"
	"errors"
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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// works runs a worker of imports until the test ends: jobs of "stuck" ignore the end of their context, those of "bad" fail and wait for an
// hour, others are done.
func works(t *testing.T, s *consoletest.Site, id, version string) (running <-chan string) {
	t.Helper()
	began, free := make(chan string, 10), make(chan struct{})
	w, err := worker.New(s.JetStream, worker.Config{
		AckWait: 2 * time.Second, AutoCreate: true, Consumer: "importer", ID: id, Logger: slog.New(slog.DiscardHandler), StuckAfter: 10 * time.Millisecond,
		Stream: contracts.StreamImportJobs, Version: version,
	})
	check.OK(t, err)
	policy := worker.Policy{MaxAttempts: 2, Timeout: 50 * time.Millisecond}
	check.OK(t, worker.Handle(w, "jobs.import.high.>", policy, func(_ context.Context, job *worker.Job[map[string]any]) error {
		kind, _ := job.Args["kind"].(string)
		began <- kind
		switch kind {
		case "stuck":
			<-free
		case "bad":
			return worker.Retry(time.Hour, errors.New("extract: <b>refused</b> by https://svc:hunter2@host/?key=hunter2"))
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
	check.Contains(t, s.Get("/workers", http.StatusOK), "No worker answers")
	began := works(t, s, "vm-3", "v1")
	for _, kind := range []string{"good", "good", "bad"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", fmt.Appendf(nil, `{"kind":%q}`, kind))))
		check.Equal(t, <-began, kind, "the job that runs")
	}
	works(t, s, "vm-4", "v1")
	works(t, s, "vm-5", "v0")
	page := waitForPage(t, s, "/workers", "vm-3", "vm-4", "vm-5", "ready", ">2 / 1<")
	check.Contains(t, page, "IMPORT_JOBS", "! not as the others", "expediter jobs workers",
		fmt.Sprint(check.Must(os.Hostname())(t), " / ", os.Getpid()))
	waitForOverview(s, ` ms <small class="soft">of 3</small>`)
}

// Pages show the workers that answered the collector, and ask none themselves. A worker that does not answer when it is to be drained is
// not drained, and the record does not say that it was.
func TestPagesDoNotAskTheWorkers(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	var asked atomic.Int64
	check.OK(t, check.Err(s.JetStream.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
		asked.Add(1)
		_ = m.Respond([]byte(`{"instance":"one","id":"vm-3","ready":true,"stream":"IMPORT_JOBS"}`)) // the page lacks it then
	})))
	waitForPage(t, s, "/workers", "vm-3")
	before := asked.Load()
	for range 20 {
		check.Contains(t, s.Get("/workers", http.StatusOK), "vm-3")
	}
	check.That(t, asked.Load() < before+20, "20 pages asked the workers %d times", asked.Load()-before)
	_, page := s.Post("/workers/one/drain", url.Values{}, http.StatusConflict)
	check.Contains(t, page, "does not answer: it has ended")
	check.Contains(t, s.Get("/workers", http.StatusOK), "ready</span></td>")
	last := records(t, s)[0]
	check.That(t, last.Action == "drain" && last.Outcome != audit.Done, "%+v", last)
	check.OK(t, check.Err(s.JetStream.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) { // one that began after the collector asked
		_ = m.Respond([]byte(`{"instance":"second","id":"second","stream":"IMPORT_JOBS"}`))
	})))
	check.Contains(t, s.Get("/workers/second", http.StatusOK), "second")
}

func TestAWorkerIsShown(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	for _, kind := range []string{"good", "bad", "stuck"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high."+kind, fmt.Appendf(nil, `{"kind":%q}`, kind))))
		check.Equal(t, <-began, kind, "the job that runs")
	}
	waitForPage(t, s, "/workers", "vm-3")
	path := workerPath(t, s)
	page := waitForPage(t, s, path, "Stuck: it ignores its ended context", "completed", "jobs.import.high.bad", "extract: &lt;b&gt;refused&lt;/b&gt;")
	check.Contains(t, page, "jobs.import.high.&gt;", "works.func", "Remembered: 2", "1 did not complete", "jobs workers", "--recent")
	const refused = "extract: &lt;b&gt;refused&lt;/b&gt; by https://host/"
	page += waitForPage(t, s, "/jobs/IMPORT_JOBS?state=delivered,running,retrying", ">retrying<", ">in 59 m<", refused)
	page += waitForPage(t, s, "/jobs/IMPORT_JOBS/2", ">retrying<", "<dd>1 of 2</dd>", "<dt>Next</dt>", refused)
	check.That(t, !strings.Contains(page, "hunter2"), "a secret is shown: %s", page)
	s.Get("/workers/none", http.StatusNotFound)
	s.Get("/workers/a%2Fb", http.StatusNotFound)
}

// workerPath is the path of the only worker.
func workerPath(t *testing.T, s *consoletest.Site) string {
	t.Helper()
	_, after, found := strings.Cut(waitForPage(t, s, "/workers", `href="/workers/`), `href="/workers/`)
	check.Require(t, found, "no worker is linked")
	instance, _, _ := strings.Cut(after, `"`)
	return "/workers/" + instance
}

func TestAHandlerIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	path := workerPath(t, s)
	values := s.Form(waitForPage(t, s, path, "Pause</button>"), "/workers/pause", "minutes", "10")
	for _, bad := range []string{"", "0", "-1", "10081", "x"} {
		values.Set("minutes", bad)
		_, page := s.Post("/workers/pause", values, http.StatusBadRequest)
		check.Contains(t, page, "It may be paused for 1 to 10,080 minutes")
	}
	values.Set("minutes", "10")
	to, _ := s.Post("/workers/pause", values, http.StatusSeeOther, "Referer", s.URL+path)
	page := s.Get(to, http.StatusOK)
	check.Contains(t, page, "jobs.import.high.&gt; is paused until",
		"expediter jobs pause --stream IMPORT_JOBS &#39;jobs.import.high.&gt;&#39; --for 10m",
		"Resume jobs.import.high.&gt;</button>")
	page = waitForPage(t, s, "/workers", "is paused since", ">1 paused<") // the worker has followed
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", []byte(`{"kind":"good"}`))))
	check.Contains(t, s.Get("/jobs/IMPORT_JOBS/1", http.StatusOK), "is paused since", "Resume jobs.import.high.&gt;</button>")
	check.Equal(t, len(began), 0, "jobs that have begun")
	to, _ = s.Post("/workers/resume", s.Form(page, "/workers/resume"), http.StatusSeeOther, "Referer", s.URL+"/workers")
	check.Contains(t, s.Get(to, http.StatusOK), "is resumed", "expediter jobs resume --stream IMPORT_JOBS")
	check.Equal(t, <-began, "good", "the job that runs")
	_, page = s.Post("/workers/resume", values, http.StatusConflict)
	check.Contains(t, page, "is not paused any more")
	values.Set("pattern", "none.>")
	_, page = s.Post("/workers/pause", values, http.StatusConflict)
	check.Contains(t, page, "No worker takes such jobs")
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
	check.Equal(t, <-began, "stuck", "the job that runs")
	path := workerPath(t, s)
	values := s.Form(waitForPage(t, s, path, "Drain</button>", "What runs now"), path+"/drain")
	to, _ := s.Post(path+"/drain", values, http.StatusSeeOther, "Referer", s.URL+path)
	page := s.Get(to, http.StatusOK)
	check.Contains(t, page, "vm-3 takes no more jobs and finishes those that run", "expediter jobs drain ",
		"draining</span> 1 of 100 slots run", "Take jobs again</button>")
	check.Contains(t, s.Get("/workers", http.StatusOK), "draining")
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.b", []byte(`{"kind":"good"}`))))
	check.Equal(t, len(began), 0, "jobs that have begun")
	to, _ = s.Post(path+"/resume", s.Form(page, path+"/resume"), http.StatusSeeOther, "Referer", s.URL+path)
	check.Contains(t, s.Get(to, http.StatusOK), "vm-3 takes jobs again within seconds", " --resume", "ready</span> 1 of 100 slots run")
	check.Equal(t, <-began, "good", "the job that runs")
	s.Post("/workers/none/drain", values, http.StatusNotFound)
	all := records(t, s)
	for i, action := range []string{"resume", "drain"} {
		check.That(t, all[i].Action == action && strings.HasPrefix(all[i].Target, "worker vm-3 (") && all[i].Outcome == audit.Done, "%+v", all[i])
	}
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
	const path = "/jobs/" + contracts.StreamImportJobs + "/cancel"
	_, page := s.Post(path, url.Values{"all": {"1"}, "job": {"1"}, "subject": {"jobs.import.low.>"}}, http.StatusOK)
	check.Contains(t, page, "Cancel 2 jobs?", "Type 2 to cancel", "from 1, jobs.import.low.u1, which is queued, to 2,", "<dt>subject</dt>",
		"expediter jobs cancel --stream IMPORT_JOBS --subject &#39;jobs.import.low.&gt;&#39; --all --yes")
	put(3)
	values := s.Form(page, path, "typed", "2")
	s.Post(path, values, http.StatusSeeOther)
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 1, "jobs")

	put(4) // as many as the page counted match again, and none is of the page
	for _, last := range []string{values.Get("last"), "x"} {
		values.Set("last", last)
		_, refused := s.Post(path, values, http.StatusConflict)
		check.Contains(t, refused, "No job matches that could be cancelled. Nothing was done")
	}
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 2, "jobs")
}

// None among the messages that were looked at is not none.
func TestNoneOfTheFirstIsNotNone(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	many := check.Must(jetstream.New(s.JetStream.Conn(), jetstream.WithPublishAsyncMaxPending(20_000)))(t) // waits for none
	for range 10_001 {
		check.OK(t, check.Err(many.PublishAsync("jobs.import.low.u1", nil)))
	}
	<-many.PublishAsyncComplete()
	all := url.Values{"all": {"1"}}
	_, page := s.Post("/jobs/"+contracts.StreamImportJobs+"/cancel", all, http.StatusOK)
	check.Contains(t, page, "Cancel 1,000 jobs?", "There may be more behind them.")
	_, page = s.Post("/jobs/"+contracts.StreamImportJobs+"/run", all, http.StatusConflict)
	check.Contains(t, page, "No job matches that could be run now. There may be more behind them.")
}

// A worker that takes no jobs while a server restarts is a warning. One that goes on without is an error.
func TestOverviewNamesAWorkerThatStaysIdle(t *testing.T) {
	natstest.Bubble(t, overviewNamesAnIdleWorker)
}

func overviewNamesAnIdleWorker(t *testing.T, srv *natsrun.Server) {
	t.Helper()
	s := consoletest.Within(t, srv)
	var asked atomic.Int64
	check.Must(s.Conn.Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
		_ = m.Respond(fmt.Appendf(nil, `{"instance":"one","id":"w","stream":"IMPORT_JOBS","problem":"it waits","ready":%t}`, asked.Add(1) == 4))
	}))(t)
	const text = "worker w of IMPORT_JOBS</b>: it takes no jobs: it waits"
	for asked.Load() < 6 {
		_, page, named := strings.Cut(s.Get("/", http.StatusOK), text)
		check.That(t, !named || strings.HasPrefix(page, ". It may be a restart") || asked.Load() > 7, "it is an error after %d answers",
			asked.Load())
		waitForNews(s)
	}
	waitForOverview(s, text+"</span>")
}

// What a service says in the place of another's workers is shown as its own. It neither replaces what these say nor keeps the pages from
// being shown.
func TestNoServiceAnswersForTheWorkersOfAnother(t *testing.T) {
	t.Parallel()
	s, _ := consoletest.Deployed(t, "console")
	for user, streams := range map[string][]string{"importer": {"IMPORT_JOBS"}, "notifier": {"IMPORT_JOBS", "no stream", ""}} {
		nc, _ := s.As(user)
		check.Must(nc.Subscribe("worker.v1.>", func(m *nats.Msg) {
			for _, stream := range streams {
				answer := fmt.Sprintf(`{"instance":"one","id":%q,"problem":"it is %[1]s","stream":%q}`, user, stream)
				if m.Subject != inspect.SubjectInfo {
					answer = fmt.Sprintf(`{"attempts":[{"error":"it is %s"}]}`, user)
				}
				_ = m.Respond([]byte(answer)) // the page lacks it then
			}
		}))(t)
		check.OK(t, nc.Flush())
	}
	// The pages show the answers of the overview's last round, which may have begun before the others were there.
	check.That(t, !strings.Contains(waitForPage(t, s, "/", "worker notifier of IMPORT_JOBS of NOTIFIER</b>: it takes no jobs"), "worker notifier of IMPORT_JOBS<"), "the overview")
	page := waitForPage(t, s, "/workers", ">importer</a>", ">notifier</a>")
	check.That(t, strings.Count(page, "IMPORT_JOBS of IMPORTER<") == 1 && strings.Count(page, "IMPORT_JOBS of NOTIFIER<") == 1, "%s", page)
	for account, other := range map[string]string{"IMPORTER": "notifier", "NOTIFIER": "importer"} {
		page := s.Get("/workers/one?account="+account, http.StatusOK)
		check.That(t, strings.Contains(page, "it is "+strings.ToLower(account)) && !strings.Contains(page, "it is "+other), "%s", page)
	}
	s.Get("/workers/one", http.StatusNotFound)
}
