package console_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// waitForOverview reads the overview waitForOverview it says all of the texts.
func waitForOverview(s *consoletest.Site, texts ...string) {
	s.Helper()
	check.Contains(s.T, waitForOverviewThat(s, func(body string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
	}), texts...)
}

// waitForOverviewThat reloads the overview at each push, until it is as wanted or patience is over, and returns it.
func waitForOverviewThat(s *consoletest.Site, wanted func(body string) bool) (body string) {
	s.Helper()
	for end := time.Now().Add(crash.Patience); ; waitForNews(s) {
		if body = s.Get("/", http.StatusOK); wanted(body) || time.Now().After(end) {
			return body
		}
	}
}

// waitForNews waits until an open page would be reloaded, or in a bubble for a while.
func waitForNews(s *consoletest.Site) {
	s.Helper()
	if s.URL == "" {
		natstest.Pass(100 * time.Millisecond)
		return
	}
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

func TestOverviewShowsFaults(t *testing.T) { natstest.Bubble(t, overviewShowsFaults) }

func overviewShowsFaults(t *testing.T, srv *natsrun.Server) {
	t.Helper()
	s := consoletest.Within(t, srv)
	waitForOverview(s, "No problems detected", `href="/jobs/ENRICH_JOBS"`)
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}})))
	waitForOverview(s, `href="/jobs/OTHERS"`)
	check.OK(t, s.JetStream.DeleteStream(t.Context(), "OTHERS")) // no service needs it
	body := waitForOverviewThat(s, func(body string) bool { return !strings.Contains(body, "OTHERS") })
	check.That(t, !strings.Contains(body, "OTHERS"), "a stream that went away is shown: %s", body)
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), s.JetStream, provision.Consumers(contracts.AssetOptions{
		Services: []string{contracts.ServiceImporter},
	}), provision.Options{})))
	for _, subject := range []string{"jobs.import.normal.a", "jobs.import.nobody.b"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), subject, []byte("{}"))))
	}
	waitForOverview(s, "<b>stream IMPORT_JOBS</b>: 1 message that no consumer will ever deliver, such as jobs.import.nobody.b",
		"<b>consumer IMPORT_JOBS/importer</b>: no worker of it answers: 1 job queued", `<a href="/jobs/IMPORT_JOBS?state=queued">`,
		"runbooks.md#jobsstranded", "expediter dead stranded IMPORT_JOBS")
	stream := check.Must(s.JetStream.Stream(t.Context(), contracts.StreamImportJobs))(t)
	cfg := stream.CachedInfo().Config
	cfg.Discard = jetstream.DiscardOld
	check.OK(t, check.Err(s.JetStream.UpdateStream(t.Context(), cfg)))
	waitForOverview(s, "stream IMPORT_JOBS</b>: discard is")
	check.OK(t, s.JetStream.DeleteStream(t.Context(), contracts.StreamImportJobs))
	waitForOverview(s, "stream IMPORT_JOBS</b>: it is missing")
}

// The overview counts the delayed jobs of a stream, and its dead letters of the last hour.
func TestOverviewCountsDelayedJobsAndDeadLetters(t *testing.T) { natstest.Bubble(t, overviewCounts) }

func overviewCounts(t *testing.T, srv *natsrun.Server) {
	t.Helper()
	s := consoletest.Within(t, srv)
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), worker.StreamConfig("WORK", "tasks.>"))))
	client := check.Must(worker.NewClient(s.JetStream, worker.ClientConfig{Stream: "WORK"}))(t)
	for n := range 3 {
		check.OK(t, check.Err(client.Insert(t.Context(), worker.NewJob{Args: n, Delay: time.Hour, Subject: fmt.Sprint("tasks.", n)})))
		s.PutDeadLetters(consoletest.DeadLetter(n))
	}
	s.PutDeadLetters(consoletest.DeadLetter(3, func(l *worker.DeadLetter) { l.Stream = "WORK" }))
	waitForOverview(s, `/dead?job-stream=IMPORT_JOBS&amp;since=1h">3</a>`, `/dead?job-stream=WORK&amp;since=1h">1</a>`)
	waitForOverview(s, `">WORK</a></th><td class="num">0</td><td class="num">0</td><td class="num">0</td><td class="num">3</td>`) // after the next count
	check.Contains(t, s.Get("/dead?since=1h&job-stream=WORK", http.StatusOK), "j3")
	cfg := check.Must(s.JetStream.Stream(t.Context(), contracts.StreamDead))(t).CachedInfo().Config
	cfg.AllowDirect = false
	check.OK(t, check.Err(s.JetStream.UpdateStream(t.Context(), cfg)))
	waitForOverview(s, `<td class="num">–</td><td class="num">0</td></tr>`) // an unreadable stream of dead letters does not count as 0
}

// The gauge for alerts has each problem of the overview, up to a bound, and no other.
func TestProblemsAreExported(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "console"}))(t)
	t.Cleanup(func() { check.OK(t, exports.Stop(context.WithoutCancel(t.Context()))) })
	s := consoletest.Start(t, func(c *console.Config) { c.Meters = exports.Meters })
	scraped := func() string {
		page := httptest.NewRecorder()
		exports.Metrics.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		return page.Body.String()
	}
	waitForOverview(s, "No problems detected")
	check.That(t, !strings.Contains(scraped(), "console_problem{"), "a problem without one: %s", scraped())
	client := check.Must(worker.NewClient(s.JetStream, worker.ClientConfig{AllowUntaken: true, Stream: contracts.StreamImportJobs}))(t)
	for n := range 110 {
		check.OK(t, client.Pause(t.Context(), worker.Pause{Pattern: fmt.Sprint("jobs.import.normal.", n)}))
	}
	check.OK(t, s.JetStream.DeleteStream(t.Context(), "KV_locks"))
	waitForOverview(s, "KV_locks</b>: it is missing", "handler jobs.import.normal.109 of IMPORT_JOBS</b>: paused")
	page := scraped()
	check.Contains(t, page, `console_problem{id="stream.missing",of="stream KV_locks",severity="error"} 1`,
		`console_problem{id="more",of="",severity="warning"} 1`)
	check.Equal(t, strings.Count(page, "console_problem{"), 101, "series")
	testbed.Metrics(t, page, func(name string) bool { return strings.HasPrefix(name, "console_") })
}

// The store of a server fills, although no account and no stream has a bound that is near.
func TestOverviewShowsAServerThatFills(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Users = users.Public
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.JetStreamMaxStore, o.SyncAlways, o.SyncInterval = 4<<20, false, 5*time.Second
		})
	})
	_, admin := natstest.Connect(t, srv, users.As("admin"))
	nc, js := natstest.Connect(t, srv, users.As("console"))
	s := consoletest.Serve(t, srv, nc, js)
	waitForOverview(s, "No problems detected", "server test 0 B of 4 MiB (0 %), sync every 5.0 s")
	check.OK(t,
		check.Err(admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", MaxBytes: 4 << 20, Subjects: []string{"fill"}})))
	for range 55 {
		check.OK(t, check.Err(admin.Publish(t.Context(), "fill", bytes.Repeat([]byte("x"), 64<<10))))
	}
	waitForOverview(s, "storage of the server test 3.", " MiB of 4 MiB (8", "runbooks.md#storagefull")
}
