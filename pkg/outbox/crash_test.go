package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// relays are processes with a relay.
var relays = crash.Role[task]{Name: "relay", Run: relayProcess}

// task is the task of a relay process.
type task struct {
	Database string
	URL      string

	Log, Name string        // of the effect log, "" for none, and of the process in it
	Timeout   time.Duration // PublishTimeout; twice this and 10 seconds is the time for which a frozen relay keeps its lanes

	DieAt  string // the point at which it dies, "" for none
	After  int    // when it passes that point for this time
	StopAt string // the point at which it first waits until the file Go is there, "" for none
	Go     string
}

func relayProcess(ctx context.Context, is task) error {
	pool, err := pgxpool.New(ctx, is.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	die, batch := testbed.DieAt(is.DieAt, is.After), &batchLog{}
	if is.Log != "" {
		if batch.Log, err = crash.OpenLog(is.Log, is.Name); err != nil {
			return err
		}
		defer batch.Close()
	}
	cfg := outbox.Config{
		BatchSize: 8, Concurrency: 1, Hooks: outbox.Hooks{Sending: batch.sending}, Logger: slog.New(slog.DiscardHandler), NATSURL: is.URL,
		Poll: 200 * time.Millisecond, Pool: pool, PublishTimeout: is.Timeout,
	}
	cfg = cfg.Passing(func(point string) { // there is one batch at a time
		die(point)
		switch point {
		case outbox.PointClaimed:
			batch.acknowledged = nil // those of a batch whose transaction has failed are published again
		case outbox.PointCommitted:
			batch.commit()
		}
		if is.StopAt != "" {
			fmt.Fprintln(os.Stdout, point)
		}
		if is.StopAt == point {
			is.StopAt = "past"
			for _, err := os.Stat(is.Go); err != nil && retry.Sleep(ctx, 5*time.Millisecond); {
				_, err = os.Stat(is.Go)
			}
		}
	})
	for { // a process that is started in the middle of a fault may find no database
		r, err := outbox.New(ctx, cfg)
		if err == nil {
			r.Run(ctx)
			return batch.err
		}
		if !retry.Sleep(ctx, 50*time.Millisecond) {
			return nil // it was stopped while it started
		}
	}
}

// batchLog writes the events of a relay's batch into the effect log: those that are sent, acknowledged, and committed.
type batchLog struct {
	*crash.Log // nil for none

	acknowledged []string
	err          error
}

func (b *batchLog) note(kind crash.Kind, ids ...string) {
	for _, id := range ids {
		if b.Log != nil {
			b.err = errors.Join(b.err, b.Write(kind, id))
		}
	}
}

func (b *batchLog) sending(header nats.Header) func(error) {
	id := header.Get(nats.MsgIdHdr)
	b.note(crash.Started, id)
	return func(err error) {
		if err == nil {
			b.note(crash.Effect, id)
			b.acknowledged = append(b.acknowledged, id)
		}
	}
}

func (b *batchLog) commit() {
	b.note(crash.Recorded, b.acknowledged...)
	b.acknowledged = nil
}

// A relay process is killed at each point of its work, also between an acknowledgement and the commit, and another relay goes on.
// No event is lost or in the stream twice, and the order of each key stays.
func TestKilledRelayLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		after int
	}{
		{outbox.PointClaimed, 1}, {outbox.PointAcknowledged, 1}, {outbox.PointAcknowledged, 5}, {outbox.PointMarked, 3}, {outbox.PointCommitted, 3},
	} {
		t.Run(fmt.Sprint(test.point, " ", test.after), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			all := events("e", 5, 12)
			p.insert(all[:40]...)
			relays.Start(t, task{After: test.after, Database: p.pool.Config().ConnString(), DieAt: test.point, URL: p.srv.URL()}).Died()
			before := len(p.messages())
			p.insert(all[40:]...)
			left := int64(p.left())
			r, _ := p.relay(func(c *outbox.Config) {
				c.Poll = 100 * time.Millisecond // the locks of the killed process end when Postgres notices
			})
			await(t, "all rows are counted, a moment after they are gone", func() bool { return r.Stats().Published == left })
			checkOrder(t, p.stored(), all)
			s := r.Stats()
			again := test.point == outbox.PointAcknowledged || test.point == outbox.PointMarked
			check.That(t, again == (s.Duplicates > 0), "%d were in the stream and %d of them were published again", before, s.Duplicates)
			check.That(t, s.SetAside == 0, "stats are %+v", s)
		})
	}
}

// A signal freezes a relay that holds lanes. Other relays publish from the other lanes in the meantime. A relay that thaws in time
// publishes its rows. If it thaws late, Postgres has given its lanes to another relay, and it publishes none of their rows, not
// even where the stream would take a second copy. Each event is in the stream once, and the events of each key are in order.
func TestFrozenRelayHoldsUpItsLanesAndNoOthers(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"thaws in time": false, "thaws late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }) // as if it had been frozen for days
			all := events("held", 5, 12)
			p.insert(all...)
			thaw := filepath.Join(t.TempDir(), "thaw")
			frozen := relays.Start(t, task{
				Database: p.pool.Config().ConnString(), Go: thaw, StopAt: outbox.PointClaimed, Timeout: time.Second, URL: p.srv.URL(),
			})
			frozen.Await("^" + outbox.PointClaimed + "$")
			frozen.Pause()
			check.OK(t, os.WriteFile(thaw, nil, 0o600))  // it sees it when it continues
			all = append(all, events("later", 60, 3)...) // of more aggregates, and so in more lanes
			p.insert(all[60:]...)
			free := query[int](p, "SELECT count(*) FROM event_outbox WHERE lane NOT IN (SELECT lane FROM event_outbox WHERE event_id LIKE 'held-%')")
			r, _ := p.relay(func(c *outbox.Config) { c.Poll = 100 * time.Millisecond })
			await(t, "the other lanes are published", func() bool { return p.left() == len(all)-free })
			n := len(p.messages())
			check.That(t, n == free && free != 0, "%d events are in the stream, want the %d of the other lanes", n, free)
			if !late {
				frozen.Continue()
			}
			await(t, "all are published", func() bool { return p.left() == 0 }) // a relay counts a row a moment after it is deleted
			if late {
				await(t, "it has counted all: the frozen one has lost its lanes", func() bool { return r.Stats().Published == int64(len(all)) })
				p.forgets()
				frozen.Continue()
				frozen.Await("^" + outbox.PointAcknowledged + "$") // it would have published by now
			} else if r.Stats().Published == int64(len(all)) {
				t.Error("the frozen one has published nothing: it was not in time")
			}
			checkOrder(t, slices.DeleteFunc(p.stored(), func(id string) bool { return id == "probe" }), all)
		})
	}
}

// forgets waits until the stream takes a second copy of the messages that it holds.
func (p *place) forgets() {
	p.Helper()
	again := func() bool {
		ack := check.Must(p.js.Publish(p.Context(), "events.OTHER.X", []byte(`{"event_id":"probe"}`), jetstream.WithMsgID("probe")))(p)
		return !ack.Duplicate
	}
	again()
	await(p, "it has forgotten", again)
}

// Every fault of relays, of their way to the servers and the database, and of the servers happens once while three relays publish. No
// event is lost, overtaken, or in the stream twice.
func TestRelaysThroughEveryFault(t *testing.T) {
	t.Parallel()
	emptyDatabase(t) // skips first
	r := crash.Random(t)(0)
	result := publishThrough(t, crash.ThreeServers(t), time.Second, func(_ *crash.Log, faults []crash.Fault) {
		for _, fault := range faults {
			check.ErrorIs(t, fault.Do(t.Context(), r), nil, fault.Name)
		}
	})
	check.ErrorIs(t, result.Err(), nil)
}

// TestProof is the part "outbox" of the proof. Postgres is killed and started again, too.
func TestProof(t *testing.T) {
	programs := testbed.Postgres.Find(t)
	crash.Proof(t, "outbox", func(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
		const lease = 12 * time.Second // of a relay whose stream has a second to acknowledge an event
		return publishThrough(t, on, lease, func(log *crash.Log, faults []crash.Fault) {
			ctx, cancel := context.WithDeadline(t.Context(), until)
			defer cancel()
			check.ErrorIs(t, crash.Inject(ctx, r, time.Second, append(faults, crash.Fault{
				Name: "database killed", Do: func(context.Context, *rand.Rand) error {
					return errors.Join(log.Inject("database killed", ""), outboxtest.Restart(programs))
				},
			})...), nil)
		})
	})
}

// publishThrough has three relay processes publish events while inject injects faults that last for between 1 and 2 times as long as long.
// It returns when all events are published, with the judgement of the processes and of the stream.
func publishThrough(
	t *testing.T, on *crash.Servers, long time.Duration, inject func(log *crash.Log, faults []crash.Fault),
) crash.Result {
	t.Helper()
	pool, log := database(t), crash.NewLog(t)
	_, js := natstest.ConnectURL(t, on.URL)
	p := &place{TB: t, pool: pool, js: js}
	p.stream(func(s *jetstream.StreamConfig) { s.Duplicates, s.Replicas = time.Hour, on.Replicas }) // longer than any fault on any machine
	connection := pool.Config().ConnConfig
	socket := filepath.Join(connection.Host, fmt.Sprint(".s.PGSQL.", connection.Port))
	group := crash.NewGroup(t, log, on.URL+","+socket, 3, func(name, servers string) *crash.Process {
		last := strings.LastIndex(servers, ",")
		return relays.Start(t, task{
			Database: strings.Replace(connection.ConnString(), connection.Host, filepath.Dir(servers[last+1:]), 1),
			Log:      log.Path(), Name: name, Timeout: time.Second, URL: servers[:last],
		})
	})
	wanted := map[string]string{} // an event, and the one before it of its aggregate
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	inserted := make(chan error, 1)
	go func() { inserted <- insertUntil(ctx, t, pool, wanted) }()
	inject(log, slices.Concat(group.Faults(long), on.Faults(log, long, contracts.StreamEvents)))
	stop()
	check.OK(t, <-inserted)
	await(t, "all are published", func() bool { return p.left() == 0 })
	group.Stop()
	result := check.Must(log.Judge(maps.Keys(wanted), nil))(t)
	stored := crash.NewLog(t)
	for _, id := range p.stored() {
		check.OK(t, errors.Join(stored.Write(crash.Effect, id), stored.Write(crash.Recorded, id)))
	}
	stream := check.Must(stored.Judge(maps.Keys(wanted), func(id string) string { return wanted[id] }))(t)
	result.Lost, result.Unwanted = append(result.Lost, stream.Lost...), append(result.Unwanted, stream.Unwanted...)
	result.Repeated, result.OutOfOrder = append(result.Repeated, stream.Repeated...), stream.OutOfOrder
	return result
}

// insertUntil inserts events of 20 aggregates, one of each at a time, until ctx ends. A transaction whose outcome is unknown is repeated.
func insertUntil(ctx context.Context, t *testing.T, pool *pgxpool.Pool, wanted map[string]string) error {
	t.Helper()
	const aggregates = 20
	for n := 0; retry.Sleep(ctx, 50*time.Millisecond); n++ {
		var part []outbox.Event
		for a := range aggregates {
			id, before := fmt.Sprint(a, "-", n), ""
			if n > 0 {
				before = fmt.Sprint(a, "-", n-1)
			}
			wanted[id] = before
			part = append(part, event(id, fmt.Sprint(a)))
		}
		giveUp := time.Now().Add(patience)
		for {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return outbox.Insert(t.Context(), tx, part...) })
			if failed, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && failed.Code == "23505" { // they are there
				break
			}
			if time.Now().After(giveUp) {
				return err
			}
			retry.Sleep(t.Context(), 50*time.Millisecond)
		}
	}
	return nil
}
