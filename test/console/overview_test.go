package console_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher"
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
	stream := check.Must(s.JetStream.Stream(t.Context(), contracts.StreamImportJobs))(t)
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
	client := check.Must(worker.NewClient(s.JetStream, worker.ClientConfig{Stream: "WORK"}))(t)
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

// logged logs how long the overview took to say something since a fault.
func logged(s *consoletest.Site, texts ...string) {
	s.Helper()
	since := time.Now()
	until(s, texts...)
	s.Logf("after %s: %q", time.Since(since), texts)
}

func TestOverviewShowsAStuckHandler(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", []byte(`{"kind":"stuck"}`))))
	check.Same(t, "the job that runs", <-began, "stuck")
	logged(s, "worker vm-3 of IMPORT_JOBS: handlers that ignore their ended contexts: 1", "runbooks.md#handlersstuck", "expediter jobs workers --stacks")
}

func TestOverviewShowsAStoreThatFills(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	stream := check.Must(s.JetStream.Stream(t.Context(), contracts.StreamImportJobs))(t)
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 64 << 10
	check.OK(t, check.Err(s.JetStream.UpdateStream(t.Context(), cfg)))
	until(s, "Nothing is wrong")
	fill := func(n int) (err error) {
		for i := 0; i < n && err == nil; i++ {
			_, err = s.JetStream.Publish(t.Context(), fmt.Sprint("jobs.import.normal.", n, "-", i), bytes.Repeat([]byte("x"), 1<<10))
		}
		return err
	}
	check.OK(t, fill(52))
	logged(s, "IMPORT_JOBS: 8", " % full, and it refuses messages at 100 %", "runbooks.md#streamfilling")
	check.Failsf(t, fill(64), "a stream takes more than it may")
	logged(s, "IMPORT_JOBS: 9", " % full, and it refuses messages at 100 %")
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
	until(s, "Nothing is wrong", "server test 0 B of 4 MiB (0 %), sync every 5.0 s")
	check.OK(t, check.Err(admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", MaxBytes: 4 << 20, Subjects: []string{"fill"}})))
	for range 55 {
		check.OK(t, check.Err(admin.Publish(t.Context(), "fill", bytes.Repeat([]byte("x"), 64<<10))))
	}
	logged(s, "storage of the server test 3.", " MiB of 4 MiB (8", "runbooks.md#storagefull")
}

// A server of three dies. The overview says which, and once.
func TestOverviewShowsALostNode(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	nc, js := natstest.ConnectURL(t, cluster.URLs(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 28, Replicas: 3, Services: []string{contracts.ServiceEnricher, contracts.ServiceLock}})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	s := consoletest.Serve(t, nil, nc, js)
	until(s, "ENRICH_JOBS", "Nothing is wrong")
	leader := check.Must(cluster.StreamLeader(t.Context(), contracts.StreamEnrichJobs))(t)
	node := cluster.Nodes[0]
	if node == leader {
		node = cluster.Nodes[1]
	}
	check.OK(t, node.Kill())
	logged(s, "node "+node.Name+" was silent for ", fmt.Sprintf(", with replicas of %d streams", len(assets)), "runbooks.md#nodeaway")
	check.OK(t, node.Start(t.Context()))
	until(s, "Nothing is wrong")
}

// enrichers are processes of the enricher over the server at a URL.
var enrichers = crash.Role[string]{Name: "enricher", Run: func(ctx context.Context, url string) error {
	return enricher.Run(ctx, enricher.Config{ProviderURL: "http://127.0.0.1:1", BaseConfig: service.BaseConfig{
		CreateAssets: true, Listen: service.None, Logger: slog.New(slog.DiscardHandler), MaxBytes: 1, NATSConfig: service.NATSConfig{NATSURL: url},
	}})
}}

// The only enricher is frozen, killed and stopped while no job waits.
func TestOverviewNamesAServiceThatIsGone(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, js := natstest.Connect(t, srv)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1, Services: []string{contracts.ServiceEnricher}})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	places := check.Must(nc.SubscribeSync(contracts.RepublishSubject(contracts.BucketJobs, "ready.enricher-0")))(t)
	last := ""
	start := func() *crash.Process {
		p := enrichers.Start(t, srv.URL())
		for {
			if m := check.Must(places.NextMsg(crash.Patience))(t); string(m.Data) != last { // of this process
				last = string(m.Data)
				return p
			}
		}
	}
	p := start()
	s := consoletest.Serve(t, srv, nc, js)
	until(s, "Nothing is wrong", "ENRICH_JOBS")
	named := func() {
		logged(s, "the enricher is gone", "1 did not stop properly", "runbooks.md#servicedown", "expediter doctor")
	}
	p.Pause()
	named()
	p.Continue()
	until(s, "Nothing is wrong")
	p.Kill()
	named()
	p = start()
	until(s, "Nothing is wrong")
	p.Stop()
	for range 4 {
		waitForNews(s)
		check.Says(t, s.Get("/", http.StatusOK), "Nothing is wrong")
	}
}
