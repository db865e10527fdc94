// Package limit counts, over all workers of a bucket, how many jobs run at once and how
// often they start.
//
// Each key of a limit has a record. It holds how many permits each worker has, who waits
// for one, and when the next start is due; a worker changes it by writes that the server
// accepts only at the revision that they were computed from. What a worker wants of a key
// is put together into one write, and a permit that one job leaves is given to the next
// here without any.
//
// That a worker lives is not in those records but in one of its own, renewed three times in
// its TTL, however many keys it has permits of. Others treat its permits as taken until they
// have ended that record: by a write at the revision that they have seen unchanged for the
// whole TTL. The worker itself counts from when it sent the write that stands there, so its
// time is over before; and having been ended it can renew no more. So no clock is compared
// with another, nothing is decided from a read, and a worker that was cut off or stopped
// cannot come back to permits that others have.
//
// Starts are counted by the generic cell rate algorithm (ITU-T I.371, annex A; "virtual
// scheduling"): one time in the record, from which all is computed.
package limit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// patience is how long a job that has its permits waits with them for its start, when
// another limit says when that is.
const patience = time.Second

// late is how long after its time a start may be used.
const late = time.Second

var (
	// ErrClosed is returned to who waits when the worker stops.
	ErrClosed = errors.New("limit: closed")

	// ErrLost is the cause with which the work under a permit ends that is not held any more.
	ErrLost = errors.New("limit: the lease of this worker's permits has ended")
)

// FullError is returned when no more jobs can wait here.
type FullError struct {
	// Delay is when to come back.
	Delay time.Duration
}

// Error implements error.
func (e *FullError) Error() string { return fmt.Sprintf("limit: full, come back in %s", e.Delay) }

// RecordError is returned when what is stored of a limit cannot be read.
type RecordError struct {
	// Cause is what is wrong.
	Cause error

	// Subject is where it is.
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

// Rule is a limit and the key that a job counts under.
type Rule struct {
	Key  string
	Spec Spec
}

// Seat is the place that a job takes up in its worker while it does not wait. It must not
// block.
type Seat interface {
	// Give gives the place to others, and says whether it was taken.
	Give() bool

	// Take takes it again, and reports false when there is none.
	Take() bool
}

// Config says where the records are.
type Config struct {
	// Conn is the connection on which the writes of others are listened to.
	Conn *nats.Conn

	// Failed is told of requests that failed. They are tried again.
	Failed func(error)

	// Lease is how long the permits of a worker outlive it.
	Lease time.Duration

	// Lost is called when the lease has ended.
	Lost func(error)

	// Records is the stream of the key-value bucket.
	Records *kvrecord.Stream

	// Request is how long one request may take.
	Request time.Duration

	// Waiting is how many jobs may wait here.
	Waiting int
}

// Entry is a job that wants in.
type Entry struct {
	// Lost is called when a permit is not held any more.
	Lost func(error)

	// Rules are what it counts under. Those with a rate come last, else they are sorted, so
	// that all jobs ask in the same order.
	Rules []Rule

	// Seat is its place. It has one when it comes, and when it was let in.
	Seat Seat

	// Sequence is its place in line: the smallest is first.
	Sequence uint64
}

// Sort brings rules into the order in which they are asked.
func Sort(rules []Rule) {
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(min(a.Spec.Rate, 1), min(b.Spec.Rate, 1)), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
}

// Pass is the right to run. Leave it when done.
type Pass struct {
	held []permit
	lost func(error)
	set  *Set
}

type permit struct {
	gate  *gate
	owner string // the name under which it was taken
}

// Leave gives the permits to others. It does not block.
func (p *Pass) Leave() {
	if p == nil {
		return
	}

	p.set.forget(p)
	p.drop()
}

func (p *Pass) drop() {
	for _, held := range slices.Backward(p.held) {
		held.gate.leave(held.owner)
	}

	p.held = nil
}

// Enter waits until a job may run. It waits with nothing in hand: what one limit has granted
// is given back when another does not grant at once, and the job waits in line there. When
// too many wait, the last of them get a [*FullError].
func (s *Set) Enter(ctx context.Context, e Entry) (*Pass, error) {
	pass := &Pass{lost: e.Lost, set: s}

	for wait := 0; ; {
		refused, err := s.try(ctx, e, pass, wait)
		if err != nil {
			pass.drop()

			return nil, err
		}

		if refused < 0 && s.keep(pass) {
			return pass, nil
		}

		pass.drop()
		wait = max(refused, 0)
	}
}

// try asks all limits, first the one to wait for, and returns which of them refused, -1 for
// none.
func (s *Set) try(ctx context.Context, e Entry, pass *Pass, first int) (int, error) {
	var start time.Time

	for n := range e.Rules {
		at := n // the one to wait for is asked first
		switch {
		case n == 0:
			at = first
		case n <= first:
			at = n - 1
		}

		w := &waiter{
			out: make(chan grant, 1), seat: e.Seat, sequence: e.Sequence, try: n > 0,
		}

		g, got, err := s.ask(ctx, e.Rules[at], w)
		if errors.Is(err, errRefused) {
			return at, nil
		}

		if err != nil {
			return at, err
		}

		pass.held = append(pass.held, permit{gate: g, owner: got.owner})
		if got.start.After(start) {
			start = got.start
		}
	}

	if !backoff.Sleep(ctx, time.Until(start)) {
		return 0, ErrClosed
	}

	if !start.IsZero() && time.Since(start) > late {
		return len(e.Rules) - 1, nil // it would be too close to those that start now
	}

	return -1, nil
}

// ask asks one limit.
func (s *Set) ask(ctx context.Context, r Rule, w *waiter) (*gate, grant, error) {
	for {
		g := s.gate(r)

		got, err := g.enter(ctx, w)
		if !errors.Is(err, errRetired) || s.ctx.Err() != nil {
			return g, got, err
		}
	}
}

// hash makes any key a token of a subject.
func hash(key string) string {
	const enough = 16 // bytes

	sum := sha256.Sum256([]byte(key))

	return hex.EncodeToString(sum[:enough])
}
