package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/internal/readback"
)

// A row is read back before it is deleted, also when no connection or leader was lost. If its message is gone, it is published
// again.
func TestRowIsReadBackBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	r, _ := p.relay(func(c *outbox.Config) { c.Poll = 100 * time.Millisecond })
	p.insert(event("first", "0"))
	await(t, "the first is published", func() bool { return r.Stats().Published == 1 })
	p.age()
	await(t, "what is read on a new connection has been read", func() bool { return r.Stats().Deleted == 1 })
	p.insert(events("e", 3, 2)...)
	await(t, "all are published", func() bool { return r.Stats().Published == 7 })
	p.lose(query[int64](p, "SELECT stream_seq FROM event_outbox WHERE event_id = 'e-1-0'"))
	p.age()
	await(t, "one is published again", func() bool { return r.Stats().Published == 8 })
	p.age()
	await(t, "all rows are gone", func() bool { return r.Stats().Deleted == 7 })
	if s := r.Stats(); s.Lost != 1 || s.Published != 8 || len(p.events()) != 7 {
		t.Errorf("stats are %+v, and the stream has %d events", s, len(p.events()))
	}
}

// Messages that the stream's limits or its operator removed from its beginning are not lost.
func TestMessagesThatTheStreamRemovedAreNotPublishedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	all := events("e", 3, 10)
	p.insert(all...)
	r, stop := p.relay(nil)
	await(t, "all are published", func() bool { return r.Stats().Published == 30 })
	stop()
	stream, err := p.js.Stream(t.Context(), contracts.StreamEvents)
	check.OK(t, err)
	check.OK(t, stream.Purge(t.Context(), jetstream.WithPurgeKeep(10)))
	r, _ = p.relay(func(c *outbox.Config) { c.SyncInterval = time.Second })
	await(t, "all rows are gone", func() bool { return r.Stats().Deleted == 30 })
	s := r.Stats()
	check.That(t, s.Lost == 0 && s.Published == 0, "stats are %+v", s)
}

// One request reads messages that are close together, and one request each reads those that are not. Both find exactly the
// missing messages.
func TestMissingIsExact(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, stop := p.relay(nil)
	p.insert(events("e", 1, 700)...)
	await(t, "all are published", func() bool { return r.Stats().Published == 700 })
	stop()
	nc, js := natstest.Connect(t, p.srv)
	reader := readback.Reader{JS: js, NC: nc, Stream: contracts.StreamEvents, Timeout: patience}
	stream, err := p.js.Stream(t.Context(), contracts.StreamEvents)
	check.OK(t, err)
	deleted := []uint64{3, 300, 512, 699, 700} // 699 and 700 are the end of the stream, which keeps its last sequence
	for _, seq := range deleted {
		check.OK(t, stream.DeleteMsg(t.Context(), seq))
	}
	for _, step := range []uint64{1, 3, 100} {
		rows, err := p.pool.Query(t.Context(), `SELECT id, CASE stream_seq WHEN 513 THEN 'another' ELSE event_id END, lane, stream_seq
			FROM event_outbox WHERE stream_seq % $1 = 0 OR stream_seq = 513`, step)
		check.OK(t, err)
		refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[readback.Ref])
		check.OK(t, err)
		lost, err := reader.Missing(t.Context(), refs)
		check.OK(t, err)
		got := make([]uint64, len(lost))
		for i, one := range lost {
			got[i] = one.Seq
		}
		slices.Sort(got)
		want := slices.DeleteFunc(append(slices.Clone(deleted), 513), func(seq uint64) bool { return seq != 513 && seq%step != 0 })
		slices.Sort(want)
		diff := cmp.Diff(want, got)
		check.That(t, diff == "", "step %d: %s", step, diff)
	}
}
