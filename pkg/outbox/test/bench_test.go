package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// The benchmarks drain a backlog. They report rows/s, and the CPU time of one row in this process, which includes the NATS
// server, and in Postgres. Postgres does not sync here, and the server syncs every two minutes. Run them with -benchtime 20000x.

func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{1, 100, 10_000} {
		for _, relays := range []int{1, 2} {
			b.Run(fmt.Sprintf("keys=%d/relays=%d", keys, relays), func(b *testing.B) {
				p := backlog(b, keys)
				drained(b, p, func(ctx context.Context) {
					all := make([]*outbox.Relay, relays)
					for i := range all {
						all[i], _ = p.relay(func(c *outbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
					}
					for published := int64(0); published < int64(b.N); sleep(ctx, time.Millisecond) {
						published = 0
						for _, r := range all {
							published += r.Stats().Published
						}
					}
				})
			})
		}
	}
}

// BenchmarkReadBack reads published rows back from the stream and deletes them.
func BenchmarkReadBack(b *testing.B) {
	p := backlog(b, 10_000)
	r, stop := p.relay(func(c *outbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	await(b, "all are published", func() bool { return r.Stats().Published == int64(b.N) })
	stop()
	p.exec("UPDATE event_outbox SET published_at = published_at - interval '1 hour'")
	p.exec("VACUUM ANALYZE event_outbox")
	drained(b, p, func(ctx context.Context) {
		r, _ := p.relay(func(c *outbox.Config) { c.Logger, c.SyncInterval = slog.New(slog.DiscardHandler), time.Minute })
		for r.Stats().Deleted < int64(b.N) {
			sleep(ctx, time.Millisecond)
		}
	})
}

// BenchmarkPoller measures what the relay replaces: a poller that reads the oldest hundred rows, publishes one, waits for the
// acknowledgement, and marks the row. It does not wait between two polls here, so this is its upper bound.
func BenchmarkPoller(b *testing.B) {
	p := backlog(b, 100)
	p.exec("CREATE INDEX poller ON event_outbox (id) WHERE state = 'pending'")
	p.exec("VACUUM ANALYZE event_outbox")
	drained(b, p, func(ctx context.Context) {
		for done := 0; done < b.N; {
			rows, err := p.pool.Query(ctx, "SELECT id, event_id, payload FROM event_outbox WHERE state = 'pending' ORDER BY id LIMIT 100")
			check.OK(b, err)
			type pending struct {
				ID      int64
				EventID string
				Payload []byte
			}
			batch, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pending])
			check.OK(b, err)
			for _, one := range batch {
				msg := nats.NewMsg("events.RESTAURANT.RESERVATION_REQUESTED")
				msg.Data, err = json.Marshal(contracts.Event{EventID: one.EventID, Payload: one.Payload})
				check.OK(b, err)
				check.OK(b, check.Err(p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(one.EventID))))
				check.OK(b, check.Err(p.pool.Exec(ctx, "UPDATE event_outbox SET state = 'published', published_at = now() WHERE id = $1 AND state = 'pending'", one.ID)))
				done++
			}
		}
	})
}

// BenchmarkLatency measures from before the insert of one event to its arrival at a subscriber. A poller needs half its
// interval for that.
func BenchmarkLatency(b *testing.B) {
	p := newPlace(b)
	nc, _ := natstest.Connect(b, p.srv)
	sub, err := nc.SubscribeSync("events.>")
	check.OK(b, err)
	p.relay(func(c *outbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	for i := 0; b.Loop(); i++ {
		p.insert(event(fmt.Sprint("e-", i), fmt.Sprint(i%100)))
		check.OK(b, check.Err(sub.NextMsg(patience)))
	}
}

// backlog returns a place with b.N rows.
func backlog(b *testing.B, keys int) *place {
	b.Helper()
	p := newPlace(b)
	for from := 0; from < b.N; from += 5000 {
		p.exec(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
			SELECT 'evt-' || n, 'RESERVATION_REQUESTED', 'RESTAURANT', (n % $1)::text, json_build_object('guests', n, 'note', repeat('x', 200))
			FROM generate_series($2::int, $3::int) n`, keys, from, min(from+5000, b.N)-1)
	}
	p.exec("VACUUM ANALYZE event_outbox")
	return p
}

// drained runs f, and reports rows/s and CPU time for each row.
func drained(b *testing.B, p *place, f func(context.Context)) {
	b.Helper()
	b.ResetTimer()
	self, server, began := ownCPU(b), postgresCPU(b), time.Now()
	f(p.Context())
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "rows/s")
	b.ReportMetric(float64((ownCPU(b)-self).Microseconds())/float64(b.N), "cpu-µs/row")
	b.ReportMetric(float64((postgresCPU(b)-server).Microseconds())/float64(b.N), "postgres-cpu-µs/row")
}

func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	check.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// postgresCPU is the CPU time of all processes of the server on Linux, and 0 elsewhere.
func postgresCPU(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(outboxtest.Folder(), "postmaster.pid"))
	check.OK(b, err)
	parent, _, _ := strings.Cut(string(text), "\n")
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	check.OK(b, err)
	var ticks int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		_, behind, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(behind)
		switch {
		case len(fields) < 15:
		case filepath.Base(filepath.Dir(file)) == parent: // includes children that have ended
			ticks += sum(b, fields[11:15])
		case fields[1] == parent:
			ticks += sum(b, fields[11:13])
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func sum(b *testing.B, fields []string) (total int) {
	b.Helper()
	for _, field := range fields {
		n, err := strconv.Atoi(field)
		check.OK(b, err)
		total += n
	}
	return total
}
