package outbox

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// A row is not let go before it was read back, also when nothing gave reason to doubt: its message is gone, and it is
// published again.
func TestRowIsReadBackBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	r, _ := p.relay(func(c *Config) { c.Poll = 100 * time.Millisecond })
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

// What the stream's limits or its operator have removed from its beginning is not lost: it was there.
func TestWhatTheStreamHasRemovedIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	all := events("e", 3, 10)
	p.insert(all...)
	r, stop := p.relay(nil)
	await(t, "all are published", func() bool { return r.Stats().Published == 30 })
	stop()
	stream, err := p.js.Stream(t.Context(), contracts.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeKeep(10)); err != nil {
		t.Fatal(err)
	}
	r, _ = p.relay(func(c *Config) { c.SyncInterval = time.Second })
	await(t, "all rows are gone", func() bool { return r.Stats().Deleted == 30 })
	if s := r.Stats(); s.Lost != 0 || s.Published != 0 {
		t.Errorf("stats are %+v", s)
	}
}

// Messages are read many at a time where they stand close together, and one by one where others are between them. Both ways
// find exactly those that are missing.
func TestMissingIsExact(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, stop := p.relay(nil)
	p.insert(events("e", 1, 700)...)
	await(t, "all are published", func() bool { return r.Stats().Published == 700 })
	stop()
	s, err := r.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	stream, err := p.js.Stream(t.Context(), contracts.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	gone := map[uint64]bool{1: false, 3: true, 300: true, 512: true, 699: true, 700: true}
	for seq, is := range gone {
		if is {
			if err := stream.DeleteMsg(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []int{1, 3, 100} {
		var refs []ref
		rows, err := p.pool.Query(t.Context(), "SELECT id, event_id, lane, stream_seq FROM event_outbox WHERE stream_seq % $1 = 0 OR stream_seq = 513", step)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var one ref
			if err := rows.Scan(&one.id, &one.eventID, &one.lane, &one.seq); err != nil {
				t.Fatal(err)
			}
			if one.seq == 513 {
				one.eventID = "another" // somebody else's message is there
			}
			refs = append(refs, one)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		lost, err := s.missing(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		for seq, is := range gone {
			if is && seq%uint64(step) == 0 {
				want++
			}
		}
		for _, one := range lost {
			if !gone[one.seq] && one.seq != 513 {
				t.Errorf("step %d: %d is there", step, one.seq)
			}
		}
		// 700 and 699 were the end of the stream: its sequence does not go back for those who delete.
		if len(lost) != want {
			t.Errorf("step %d: %d are missing, want %d", step, len(lost), want)
		}
	}
}
