package kvlock

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

// Stats tells what a [Flight] did since it was made.
type Stats struct {
	// Reads of keys, by Get and GetMany, and by Do before it computes anything.
	Memory MemoryStats // those that cost no round trip
	Hits   uint64      // found in the bucket
	Misses uint64      // absent or pending

	// Calls of Do, but for those that were served from memory.
	Cached    uint64
	Coalesced uint64
	Computed  uint64
	Stale     uint64 // past its TTL, for want of a newer value
	Errors    uint64 // that returned an error

	// Claims.
	Acquired       uint64
	Held           uint64 // refused, because somebody else held it
	Lost           uint64
	Refreshes      uint64 // to compute a value anew before anybody has to wait for it
	RenewalsFailed uint64
	TakeOvers      uint64 // taken from an owner that died

	// Waits for who computes, in this process or another.
	Waits        uint64
	WaitTimeouts uint64 // that their callers gave up

	// Trouble.
	Corrupt     uint64 // records that nobody could read, and that were removed
	Panics      uint64
	Unavailable uint64 // operations that JetStream did not answer
}

// MemoryStats tells what the memory of a Flight holds and did.
type MemoryStats struct {
	Bytes   int64 // held now: keys, values, and what it takes to keep them
	Entries int64 // held now, some of which may have ended

	Evictions     uint64 // entries given up for others
	Flushes       uint64 // of everything, because changes of the bucket were not pushed
	Hits          uint64 // reads that cost no round trip
	Invalidations uint64 // entries that were dropped because their keys changed
	Refused       uint64 // answers that were not kept, because a change might have overtaken them
}

// Stats tells what the Flight did since it was made. It counts by itself, and so costs no round trip.
func (f *Flight) Stats() Stats {
	c := &f.counts
	s := Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(),
		Cached: c.outcomes[Cached].Load(), Coalesced: c.outcomes[Coalesced].Load(), Computed: c.outcomes[Computed].Load(),
		Errors:   c.errors.Load(),
		Acquired: c.acquired.Load(), Held: c.held.Load(), Lost: c.lost.Load(), RenewalsFailed: c.renewals.Load(),
		TakeOvers: c.takeOvers.Load(), Waits: c.waits.Load(), WaitTimeouts: c.timeouts.Load(),
		Corrupt: c.corrupt.Load(), Panics: c.panics.Load(), Unavailable: c.unavailable.Load(),
	}
	if f.memory != nil {
		s.Memory = MemoryStats(f.memory.tier.Stats())
	}
	return s
}

// counters are what Stats adds up. Most are counts of events.
type counters struct {
	acquired, corrupt, held, lost, panics, refreshes, renewals, takeOvers, timeouts, waits atomic.Uint64

	errors, hits, misses, unavailable atomic.Uint64

	outcomes [8]atomic.Uint64 // by Outcome
}

func (c *counters) happened(kind EventKind) {
	switch kind {
	case EventAcquired:
		c.acquired.Add(1)
	case EventHeld:
		c.held.Add(1)
	case EventLost:
		c.lost.Add(1)
	case EventRenewalFailed:
		c.renewals.Add(1)
	case EventTakeOver:
		c.takeOvers.Add(1)
	case EventWaiting:
		c.waits.Add(1)
	case EventWaitTimeout:
		c.timeouts.Add(1)
	case EventPanic:
		c.panics.Add(1)
	case EventCorrupt:
		c.corrupt.Add(1)
	case EventRefresh:
		c.refreshes.Add(1)
	case EventReleased, EventCoalesced, EventReturned, EventStale:
	}
}

// read counts what a read found in the bucket.
func (c *counters) read(slot Slot) {
	if slot.State == Done || slot.State == Failed {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
}

// returned counts what a call of Do returned. What was served from memory is counted there, by each core for itself.
func (c *counters) returned(r Result, err error) {
	switch {
	case err != nil:
		c.errors.Add(1)
	case !r.Memory:
		c.outcomes[r.Outcome].Add(1)
	}
}

// Usage is what a bucket takes.
type Usage struct {
	Bytes   uint64    // that its messages take where they are stored, for each replica
	Created time.Time // when the bucket was made
	Entries uint64    // keys, and markers that hide what was there; what has expired is removed by the server
}

// Usage tells what the bucket takes, as its leader knows it: whatever it holds, in one round trip.
func (f *Flight) Usage(ctx context.Context) (Usage, error) {
	ctx, cancel := f.bound(ctx)
	defer cancel()
	stream, err := f.js.Stream(ctx, streamName(f.bucket))
	if err != nil {
		return Usage{}, f.unavailable(ctx, "ask for the usage of", []string{f.bucket}, err)
	}
	info := stream.CachedInfo()
	return Usage{Bytes: info.State.Bytes, Created: info.Created, Entries: info.State.Msgs}, nil
}

// soon is what Survey calls so.
const soon = 24 * time.Hour

// Survey is what a bucket holds under a prefix.
type Survey struct {
	Done, Failed, Pending int // keys

	Bytes    int64     // of the records of these keys, with their values as they are stored
	Expiring int       // results and failures that end within 24 hours, by the clock of this process
	Oldest   time.Time // when the oldest result was stored; zero when there is none
	Unknown  int       // records that no Flight wrote
}

// Survey counts what the bucket holds under prefix, as [Flight.List] understands it. It is a full scan, for a person or a
// dashboard: NATS counts keys, but does not look at them. It reads the headers of all messages, and no values: of a
// million keys in 5 to 15 seconds, with no more than 500 in memory at a time, by a consumer as List does.
func (f *Flight) Survey(ctx context.Context, prefix string) (Survey, error) {
	var s Survey
	if err := checkPrefix(prefix); err != nil {
		return s, err
	}
	now := time.Now()
	for m, err := range f.scan(ctx, prefix, true) {
		if err != nil {
			return Survey{}, err
		}
		if !isMarker(m.Header) {
			s.add(m, now)
		}
	}
	return s, nil
}

// isMarker says that a stored message hides what was there.
func isMarker(h nats.Header) bool {
	return h.Get(headerOperation) != "" || h.Get(headerMarkerReason) != ""
}

func (s *Survey) add(m directget.Message, now time.Time) {
	state := m.Header.Get(headerState)
	switch parseState(state) {
	case Done:
		s.Done++
		if s.Oldest.IsZero() { // they come in the order in which they were stored
			s.Oldest = m.Time
		}
	case Failed:
		s.Failed++
	case Pending:
		s.Pending++
	default:
		if state == "" {
			s.Unknown++
		}
		return
	}
	if n, err := strconv.ParseInt(m.Header.Get(headerSize), 10, 64); err == nil {
		s.Bytes += n
	}
	ttl, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
	if err == nil && parseState(state) != Pending && m.Time.Add(ttl).Before(now.Add(soon)) {
		s.Expiring++
	}
}
