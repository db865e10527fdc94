package alerts

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

const jobs = contracts.StreamEnrichJobs

// far is a provider of places that has none, and may be out of order.
type far struct {
	*httptest.Server

	broken atomic.Bool
}

// provider starts one.
func (s *site) provider() *far {
	s.Helper()
	f := &far{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if f.broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"venues":[]}`)
	}))
	s.Cleanup(f.Close)
	return f
}

// enricher starts one.
func (s *site) enricher(f *far, nats string) *program {
	s.Helper()
	return s.start("enricher", "NATS_URL="+nats, "ENRICHER_LISTEN=ADDRESS", "ENABLE_WOLT_ENRICHMENT=true", "ENRICHER_PROVIDER_RATE=100",
		"ENRICHER_PROVIDER_URL="+f.URL)
}

// places is a request for n places that were not asked for before.
func (s *site) places(n int) string {
	places := make([]string, n)
	for i := range places {
		s.asked++
		places[i] = fmt.Sprintf(`{"placeId":"%d","name":"Kitchen %[1]d","cityText":"Tel Aviv"}`, s.asked)
	}
	return `{"results":[` + strings.Join(places, ",") + `]}`
}

// edit changes the configuration of a stream.
func (s *site) edit(js jetstream.JetStream, stream string, change func(*jetstream.StreamConfig)) jetstream.Stream {
	s.Helper()
	found := check.Must(js.Stream(s.Context(), stream))(s)
	cfg := found.CachedInfo().Config
	change(&cfg)
	check.OK(s, check.Err(js.UpdateStream(s.Context(), cfg)))
	return found
}

// enricherFaults are those of a far side, of instances, and of streams.
func enricherFaults(s *site) {
	srv, far := crash.StartServer(s), s.provider()
	_, js := natstest.ConnectURL(s, srv.URL)
	s.apply(srv.URL)
	network := crash.NewNetwork(s, srv.URL)
	well, killed := s.enricher(far, srv.URL), s.enricher(far, srv.URL)
	frozen, cut := s.enricher(far, srv.URL), s.enricher(far, network.URLs)
	s.watch(map[string][]*program{"enricher": {well, killed, frozen, cut}})
	fill := func(bucket string, most, size int) { // until it is full
		for n := range most {
			if check.Err(js.Publish(s.Context(), fmt.Sprintf("$KV.%s.%d-%d", bucket, size, n), make([]byte, size))) != nil {
				return
			}
		}
	}
	ask := func(n int) { check.Same(s, "status", s.post(well.address+"/v1/enrich", s.places(n)), http.StatusOK) }
	s.meanwhile = func() { ask(1) } // else the breaker lets a call through after 30 seconds, and there is none
	s.suffer(fault{"the provider fails", func() {
		far.broken.Store(true)
		ask(20)
	}, []string{"DeadLettersGrow", "FarSideHeld", "JobsFail"}, func() {
		far.broken.Store(false)
		s.await(false, "FarSideHeld")
		s.expediter("dead", "replay", "--server", srv.URL, "--job-stream", jobs, "--yes")
	}})

	var queue jetstream.Stream
	var stranded uint64
	s.suffer(fault{"instances are killed, frozen and cut off, workers are stopped, a message is stranded, streams fill", func() {
		s.expediter("jobs", "pause", "--server", srv.URL, "--stream", jobs, contracts.EnrichJobsSubjects)
		ask(1)
		queue = s.edit(js, jobs, func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "jobs.nobody") })
		ack := check.Must(js.Publish(s.Context(), "jobs.nobody", nil))(s)
		stranded = ack.Sequence
		fill(contracts.BucketRequests, 11, 99_000)
		fill(contracts.BucketRequests, 11, 9_900)
		fill(contracts.BucketJobs, 9, 99_000)
		killed.Kill()
		frozen.Pause()
		network.Cut(crash.ToServer, crash.ToClient)
	}, append(atLength("JobsLate", "ServerSilent of "+cut.address),
		"ServiceDown of "+killed.address, "ServiceDown of "+frozen.address, "NATSUnreachable of "+cut.address,
		"JobsNotWorked", "JobsStranded", "ServiceNotReady of "+well.address, "StreamFilling", "StreamFull",
	), func() {
		killed.restart()
		frozen.restart()
		network.Heal()
		s.expediter("jobs", "resume", "--server", srv.URL, "--stream", jobs, contracts.EnrichJobsSubjects)
		check.OK(s, queue.DeleteMsg(s.Context(), stranded))
		for _, bucket := range []string{contracts.BucketRequests, contracts.BucketJobs} {
			s.edit(js, "KV_"+bucket, func(c *jetstream.StreamConfig) { c.MaxBytes *= 2 })
		}
	}})
}

// signalPostgres sends a signal to all processes of the server, the first of which makes no more of them meanwhile.
func (s *site) signalPostgres(signal syscall.Signal) {
	s.Helper()
	first, _, _ := strings.Cut(read(s.T, filepath.Join(outboxtest.Folder(), "postmaster.pid")), "\n")
	send := func(number string, signal syscall.Signal) {
		pid := check.Must(strconv.Atoi(number))(s)
		if err := syscall.Kill(pid, signal); err != nil {
			s.Logf("process %d is gone: %v", pid, err)
		}
	}
	send(first, syscall.SIGSTOP)
	for _, number := range append(strings.Fields(read(s.T, fmt.Sprintf("/proc/%s/task/%[1]s/children", first))), first) {
		send(number, signal)
	}
}

// outboxFaults are those of Postgres and of rows.
func outboxFaults(s *site) {
	database := outboxtest.Database(s, installed.Postgres.Find(s)) // skips first
	s.Cleanup(outboxtest.Stop)
	srv := crash.StartServer(s)
	s.apply(srv.URL)
	folder := filepath.Dir(outboxtest.Folder())
	toPostgres, toNATS := crash.NewNetwork(s, filepath.Join(folder, ".s.PGSQL.5432")), crash.NewNetwork(s, srv.URL)
	relay := s.start("relay", "--listen=ADDRESS", "--migrate", "--sync-interval=always", "--server="+toNATS.URLs,
		"--database="+strings.Replace(database, folder, filepath.Dir(toPostgres.URLs), 1))
	s.watch(map[string][]*program{"relay": {relay}})

	sql := func(statement string) {
		conn := check.Must(pgx.Connect(s.Context(), database))(s)
		defer conn.Close(s.Context())
		check.OK(s, check.Err(conn.Exec(s.Context(), statement)))
	}
	insert := func(id string) {
		conn := check.Must(pgx.Connect(s.Context(), database))(s)
		defer conn.Close(s.Context())
		check.OK(s, outbox.Insert(s.Context(), conn, outbox.Event{Event: contracts.Event{
			EventID: id, EventType: "OUTAGE", AggregateType: "RESTAURANT", Payload: json.RawMessage(`{}`),
		}}))
	}
	away := []string{"OutboxDatabaseAway"}
	s.suffer(
		fault{"the relay is cut off from NATS, and a row is no event", func() {
			toNATS.Cut(crash.ToServer, crash.ToClient)
			insert("late")
			insert("bad")
			sql(`UPDATE event_outbox SET event_type = '' WHERE event_id = 'bad'`)
		}, []string{"OutboxLate"}, toNATS.Heal},
		fault{"the row is set aside", func() {}, []string{"OutboxSetAside"}, func() {
			sql(`UPDATE event_outbox SET event_type = 'OUTAGE' WHERE event_id = 'bad'`)
			s.expediter("relay", "--requeue", "--database", database)
		}},
		fault{"Postgres is cut off", func() { toPostgres.Cut(crash.ToServer, crash.ToClient) }, away, toPostgres.Heal},
		fault{"Postgres is frozen", func() { s.signalPostgres(syscall.SIGSTOP) }, away, func() { s.signalPostgres(syscall.SIGCONT) }},
		fault{"Postgres is killed", func() { s.signalPostgres(syscall.SIGKILL) }, away, func() { outboxtest.Restart(s) }},
	)
}
