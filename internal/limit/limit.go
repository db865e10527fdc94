// Package limit counts, over all processes of a bucket, how many jobs run at once and how often they start. Package worker limits its
// handlers with it; kvlock.Semaphore and kvlock.RateLimiter offer it to other programs. Below, a worker is a process, and a job a caller.
//
// Each key of a limit has a record. It holds how many permits each worker has, which workers wait for one, and when the next
// start is due. A worker changes it by writes that the server accepts only at the revision from which they were computed. A worker asks
// for the permits of all its waiting jobs in one write, and passes a permit from one of its jobs to the next without a write.
//
// Each worker has a lease for all its permits: its own record, which it renews three times in its TTL, whatever the number of its
// keys. Other workers treat its permits as taken until they have ended that record: by a write at the revision that they have seen
// unchanged for the whole TTL. The worker itself counts the lease from the time it sent the last renewal, so for it the lease ends
// earlier. It cannot renew a record that was ended. So no two clocks are compared, nothing is decided from a read, and a worker that was
// cut off or paused cannot use permits that others have taken.
//
// Starts are counted by the generic cell rate algorithm (ITU-T I.371, annex A; "virtual
// scheduling"): the record has one time, from which all is computed.
package limit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// patience is the time for which a job keeps its other permits while it waits for its start under a rate.
const patience = time.Second

// late is the time after its due time within which a start may be used.
const late = time.Second

var (
	// ErrClosed is returned to a waiting job when the worker stops.
	ErrClosed = errors.New("limit: closed")

	// ErrLost is the cause of the end of a job whose permit is no longer held.
	ErrLost = errors.New("limit: the lease of this worker's permits has ended")
)

// FullError is returned when no more jobs can wait in this worker.
type FullError struct {
	// Delay is the time after which the job should come back.
	Delay time.Duration
}

// Error implements error.
func (e *FullError) Error() string { return fmt.Sprintf("limit: full, come back in %s", e.Delay) }

// RecordError is returned when the record of a limit cannot be decoded.
type RecordError struct {
	// Cause is the error of decoding it.
	Cause error

	// Subject is the subject of the record.
	Subject string
}

// Error implements error.
func (e *RecordError) Error() string { return fmt.Sprintf("limit: record %s: %v", e.Subject, e.Cause) }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Cause }

// Spec is one limit.
type Spec struct {
	Burst       int
	Concurrency int
	Name        string
	Per         time.Duration
	Rate        int
}

// gap is the time between two starts.
func (s Spec) gap() time.Duration { return s.Per / time.Duration(s.Rate) }

// longestBurst bounds the time in which a burst comes back, so that no time overflows.
const longestBurst = 50 * 365 * 24 * time.Hour

// burst returns the time by which a start may be early.
func (s Spec) burst() time.Duration {
	early := time.Duration(max(s.Burst-1, 0))
	if early > longestBurst/max(s.gap(), 1) {
		return longestBurst
	}
	return early * s.gap() //nolint:durationcheck // early is a number
}

// Rule is a limit and the key under which a job counts.
type Rule struct {
	Key  string
	Spec Spec
}

// name returns the name of the rule's record.
func (r Rule) name() string {
	sum := sha256.Sum256([]byte(r.Key)) // any key is a token of a subject then
	return r.Spec.Name + "." + hex.EncodeToString(sum[:16])
}

// Slot is the slot that a job takes up in its worker while it does not wait. Its methods must not block.
type Slot interface {
	// Give leaves the slot to other jobs, and reports whether the job had one.
	Give() bool

	// Take takes a slot again, and reports whether the job has one then.
	Take() bool
}

// Config configures a [Set].
type Config struct {
	// Conn is the connection that receives other workers' writes.
	Conn *nats.Conn

	// Failed is called with the error of a request. The request is repeated.
	Failed func(error)

	// Lease is the TTL of a worker's lease: the time for which a dead worker's permits stay taken.
	Lease time.Duration

	// Lost is called when the lease has ended.
	Lost func(error)

	// Prefix begins the keys of all records. Defaults to "limits.".
	Prefix string

	// Records is the stream of the key-value bucket.
	Records *kvrecord.Stream

	// Request bounds the time of one request.
	Request time.Duration

	// Waiting is the largest number of jobs that may wait in this worker.
	Waiting int
}

// Entry is a job that asks for permits.
type Entry struct {
	// Lost is called when a permit of the job is no longer held.
	Lost func(error)

	// Rules are the limits of the job, in the order of Sort, so that all jobs ask in the same order.
	Rules []Rule

	// Slot is the slot of the job, which has one when it calls Enter and when Enter returns a Permit. It is nil where jobs need none.
	Slot Slot

	// Sequence is the place of the job in line: the smallest is first.
	Sequence uint64
}

// Sort brings rules into the order in which jobs ask for them: by name, those with a rate last.
func Sort(rules []Rule) {
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(min(a.Spec.Rate, 1), min(b.Spec.Rate, 1)), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
}

// Permit holds the permits of a job that may run. The job calls Leave when it is done.
type Permit struct {
	held []permit
	lost func(error)
	set  *Set
}

type permit struct {
	limiter *limiter
	owner   string // the name of the lease under which it was taken
}

// Leave gives the permits to other jobs. It does not block.
func (p *Permit) Leave() {
	if p == nil {
		return
	}
	p.set.mu.Lock()
	delete(p.set.permits, p)
	p.set.mu.Unlock()
	p.drop()
}

// Live reports whether the permits are still held. After a pause of the process it is right before [Entry.Lost] is called.
func (p *Permit) Live() bool {
	return !slices.ContainsFunc(p.held, func(held permit) bool {
		return held.limiter.spec.Concurrency > 0 && !p.set.isLive(held.owner)
	})
}

func (p *Permit) drop() {
	for _, held := range slices.Backward(p.held) {
		held.limiter.leave(held.owner)
	}
	p.held = nil
}

// Enter waits until a job may run. It waits for one limit at a time, and holds no permit of another: when a limit does not grant at
// once, Enter gives back its other permits, and waits in line for that limit. When too many jobs wait, the last of them get a
// [*FullError].
func (s *Set) Enter(ctx context.Context, e Entry) (*Permit, error) {
	permit := &Permit{lost: e.Lost, set: s}
	for wait := 0; ; {
		refused, err := s.try(ctx, e, permit, wait)
		if err != nil {
			permit.drop()
			return nil, err
		}
		if refused < 0 && s.keep(permit) {
			return permit, nil
		}
		permit.drop()
		wait = max(refused, 0)
	}
}

// try asks all limits, beginning with first, and returns the index of the limit that refused, -1 for none.
func (s *Set) try(ctx context.Context, e Entry, all *Permit, first int) (int, error) {
	var start time.Time
	for n := range e.Rules {
		at := n // the limit to wait for comes first
		switch {
		case n == 0:
			at = first
		case n <= first:
			at = n - 1
		}
		w := &waiter{
			out: make(chan grant, 1), slot: e.Slot, sequence: e.Sequence, try: n > 0,
		}
		l, got, err := s.ask(ctx, e.Rules[at], w)
		if errors.Is(err, errRefused) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		all.held = append(all.held, permit{limiter: l, owner: got.owner})
		if got.start.After(start) {
			start = got.start
		}
	}
	if !retry.Sleep(ctx, time.Until(start)) {
		return 0, ErrClosed
	}
	if !start.IsZero() && time.Since(start) > late {
		return len(e.Rules) - 1, nil // it would be too close to the starts of now
	}
	return -1, nil
}

// ask asks one limit.
func (s *Set) ask(ctx context.Context, r Rule, w *waiter) (*limiter, grant, error) {
	for {
		l := s.limiter(r)
		got, err := l.enter(ctx, w)
		if !errors.Is(err, errRetired) || s.ctx.Err() != nil {
			return l, got, err
		}
	}
}

// DefaultPrefix begins the keys of the records of workers.
const DefaultPrefix = "limits."

// State is the record of one key of a limit.
type State struct {
	// Ended is the number of permits of processes that have ended, or are cut off. Within the TTL of their leases a process that waits frees
	// them.
	Ended int `json:"ended,omitempty"`

	// Held has the number of permits that each process holds.
	Held map[string]int `json:"held"`

	// Key is the hash of the key.
	Key string `json:"key"`

	// Name is the name of the limit.
	Name string `json:"limit"`

	// Next is the time at which the next start is due, if the limit has a rate.
	Next time.Time `json:"next,omitzero"`

	// Problem is the reason that nobody can read the record, and that nothing starts under it, "" for none.
	Problem string `json:"problem,omitempty"`

	// Queue are the processes that want permits, the first in line first.
	Queue []string `json:"queue,omitempty"`
}

// Survey returns the states of no more than most keys, for display, and the number of all keys. Three round trips, and one more for each
// 512 keys, and each 512 processes that hold permits.
func Survey(ctx context.Context, records *kvrecord.Stream, prefix string, most int) (all []State, total int, err error) {
	subjects, _, err := records.Subjects(ctx, records.Key(prefix+">"), 0)
	if err != nil {
		return nil, 0, fmt.Errorf("limit: %w", err)
	}
	members := records.Key(prefix + "workers.")
	subjects = slices.DeleteFunc(subjects, func(s string) bool { return strings.HasPrefix(s, members) })
	slices.Sort(subjects)
	total = len(subjects)
	found, err := records.GetMany(ctx, subjects[:min(total, most)])
	if err != nil {
		return nil, 0, fmt.Errorf("limit: %w", err)
	}
	holders := map[string]bool{} // those left in the end have no lease
	for _, r := range found {
		if len(r.Data) == 0 {
			continue // gone in the meantime
		}
		rec, err := decode(r.Data)
		s := State{Held: map[string]int{}, Queue: rec.Queue}
		if err != nil {
			s.Problem = (&RecordError{Cause: err, Subject: r.Subject}).Error()
		}
		s.Name, s.Key, _ = strings.Cut(strings.TrimPrefix(r.Subject, records.Key(prefix)), ".")
		for _, h := range rec.Holders {
			s.Held[h.ID] = h.N
			holders[members+h.ID] = true
		}
		if rec.Next > 0 {
			s.Next = time.Unix(0, rec.Next)
		}
		all = append(all, s)
	}
	leases, err := records.GetMany(ctx, slices.Collect(maps.Keys(holders)))
	if err != nil {
		return nil, 0, fmt.Errorf("limit: %w", err)
	}
	for _, r := range leases {
		var m member
		if json.Unmarshal(r.Data, &m) == nil && !m.Ended && time.Since(r.Stored) < m.TTL+late {
			delete(holders, r.Subject)
		}
	}
	for i := range all {
		for id, n := range all[i].Held {
			if holders[members+id] {
				all[i].Ended += n
			}
		}
	}
	return all, total, nil
}
