package console_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// until reads the overview until it says all of the texts.
func until(s *consoletest.Site, texts ...string) {
	s.Helper()
	check.Says(s.T, shown(s, func(body string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
	}), texts...)
}

// shown reads the overview anew at each news, until it is as wanted or patience is over, and returns it.
func shown(s *consoletest.Site, wanted func(body string) bool) (body string) {
	s.Helper()
	for end := time.Now().Add(crash.Patience); ; waitForNews(s) {
		if body = s.Get("/", http.StatusOK); wanted(body) || time.Now().After(end) {
			return body
		}
	}
}

// waitForNews waits until an open page would be read anew.
func waitForNews(s *consoletest.Site) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.URL+"/live?topic=overview", http.NoBody)
	check.OK(s.T, err)
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	check.OK(s.T, err)
	defer answer.Body.Close()
	var got strings.Builder
	for buffer := make([]byte, 256); !strings.Contains(got.String(), "changed"); {
		n, err := answer.Body.Read(buffer)
		check.Require(s.T, err == nil, "the stream of news ended: %v", err)
		got.Write(buffer[:n])
	}
}

func TestOverviewShowsFaults(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	until(s, "Nothing is wrong", `href="/jobs/ENRICH_JOBS"`)
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}})))
	until(s, `href="/jobs/OTHERS"`)
	check.OK(t, s.JetStream.DeleteStream(t.Context(), "OTHERS")) // no service needs it
	body := shown(s, func(body string) bool { return !strings.Contains(body, "OTHERS") })
	check.That(t, !strings.Contains(body, "OTHERS"), "a stream that went away is shown: %s", body)
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), s.JetStream, contracts.Consumers(contracts.AssetOptions{
		Services: []string{contracts.ServiceImporter},
	}), contracts.ApplyOptions{})))
	for _, subject := range []string{"jobs.import.normal.a", "jobs.import.nobody.b"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), subject, []byte("{}"))))
	}
	until(s, "IMPORT_JOBS: 1 message that no consumer will ever deliver", "IMPORT_JOBS: 1 message waiting, and no worker takes any",
		"runbooks.md#jobsstranded", "expediter dead stranded IMPORT_JOBS")
	stream, err := s.JetStream.Stream(t.Context(), contracts.StreamImportJobs)
	check.OK(t, err)
	cfg := stream.CachedInfo().Config
	cfg.Discard = jetstream.DiscardOld
	check.OK(t, check.Err(s.JetStream.UpdateStream(t.Context(), cfg)))
	until(s, "IMPORT_JOBS: discard is")
	check.OK(t, s.JetStream.DeleteStream(t.Context(), contracts.StreamImportJobs))
	until(s, "IMPORT_JOBS: it is missing")
}

// Of jobs that are set aside those that are due later are counted, and the dead letters of the last hour are told apart by their streams.
func TestOverviewCountsDelayedJobsAndDeadLetters(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), worker.StreamConfig("WORK", "tasks.>"))))
	client, err := worker.NewClient(s.JetStream, worker.ClientConfig{Stream: "WORK"})
	check.OK(t, err)
	for n := range 3 {
		check.OK(t, check.Err(client.Insert(t.Context(), worker.NewJob{Args: n, Delay: time.Hour, Subject: fmt.Sprint("tasks.", n)})))
		s.PutLetters(consoletest.Letter(n))
	}
	s.PutLetters(consoletest.Letter(3, func(l *worker.DeadLetter) { l.Stream = "WORK" }))
	until(s, `/dead?since=1h&amp;job-stream=IMPORT_JOBS">3</a>`, `/dead?since=1h&amp;job-stream=WORK">1</a>`)
	until(s, `">WORK</a></th><td class="num">0</td><td class="num">0</td><td class="num">3</td>`) // when they are counted anew
	check.Says(t, s.Get("/dead?since=1h&job-stream=WORK", http.StatusOK), "j3")
}

func TestAuditPage(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.Says(t, s.Get("/audit", http.StatusOK), "Nobody has done anything yet")
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "audit.cli.steal", []byte(`{"id":"1","actor":"<b>eve","action":"steal","target":"nightly","count":1,"outcome":"done"}`))))
	check.Says(t, s.Get("/audit", http.StatusOK), "&lt;b&gt;eve", "steal", "nightly", "done")
}
