package alerts

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// signalPostgres sends a signal to all processes of the server, the first of which makes no more of them meanwhile.
func (s *site) signalPostgres(signal syscall.Signal) {
	s.Helper()
	first, _, _ := strings.Cut(read(s.T, filepath.Join(outboxtest.Folder(), "postmaster.pid")), "\n")
	send := func(number string, signal syscall.Signal) {
		pid, err := strconv.Atoi(number)
		check.OK(s, err)
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
		conn, err := pgx.Connect(s.Context(), database)
		check.OK(s, err)
		defer conn.Close(s.Context())
		check.OK(s, check.Err(conn.Exec(s.Context(), statement)))
	}
	insert := func(id string) {
		conn, err := pgx.Connect(s.Context(), database)
		check.OK(s, err)
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
