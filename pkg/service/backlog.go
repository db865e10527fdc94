package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/service/access"
)

const (
	// backlogEvery is the least time between two questions about the consumer of a backlog, and backlogTimeout bounds a question.
	backlogEvery   = time.Second
	backlogTimeout = 2 * time.Second

	// backlogRetry is the time after which a caller with too many waiting jobs is asked to come back.
	backlogRetry = 5 * time.Second

	// maxBacklog is the number of remembered jobs at which the consumer is asked which of them still wait.
	maxBacklog = 1 << 16
)

// Backlog bounds the waiting jobs of each caller in a stream, so that one caller's backlog does not delay all others. It counts jobs that
// this process stored and that no worker has been given yet. It bounds the callers of the HTTP API that have a name. A nil Backlog, and
// requests of other callers, have no bound.
type Backlog struct {
	ask  askBacklog
	most int
	name string // of the service

	asking chan struct{} // has a place for the question under way, which guards asked
	asked  time.Time

	mu       sync.Mutex
	admitted map[string]int  // by the names of callers
	stored   map[string]jobs // by the names of callers
	total    int             // of stored

	// heard has, by stream, the last job that was stored before the last question about the consumer: the consumer counts a job only some
	// time after it was stored.
	heard map[string]uint64
}

// jobs are the sequences of jobs, by their streams.
type jobs map[string][]uint64

func (j jobs) count() (n int) {
	for _, sequences := range j {
		n += len(sequences)
	}
	return n
}

// askBacklog returns the last sequence of a stream that a worker was given, and the number of jobs behind it.
type askBacklog func(ctx context.Context, stream string) (given, waiting uint64, err error)

// Backlog returns the bound of the jobs that wait for a consumer and for its counterparts in the stream's partitions, nil for no bound.
// Only Open may call it.
func (s *Service) Backlog(stream, consumer string) *Backlog {
	most := s.Config.limits(s.access).Waiting
	if most == 0 {
		return nil
	}
	ask := func(ctx context.Context, of string) (given, waiting uint64, err error) {
		c, err := s.JetStream.Consumer(ctx, of, consumer+strings.TrimPrefix(of, stream)) // "-1" of the second partition
		if err != nil {
			return 0, 0, fmt.Errorf("%s: ask how many jobs of %s wait: %w", s.spec.Name, of, err)
		}
		info := c.CachedInfo()
		return info.Delivered.Stream, info.NumPending, nil
	}
	return newBacklog(s.spec.Name, most, ask)
}

func newBacklog(name string, most int, ask askBacklog) *Backlog {
	return &Backlog{
		admitted: map[string]int{}, ask: ask, asking: make(chan struct{}, 1), heard: map[string]uint64{}, most: most, name: name,
		stored: map[string]jobs{},
	}
}

// Admit reserves room for n jobs of the caller of a request until release is called. The error becomes 429 QUOTA_WAITING when the caller
// is at its bound. A caller below its bound may exceed it by one request. Usually no round trip. For callers at their bounds one for each
// stream, once a second for all of them together.
func (b *Backlog) Admit(ctx context.Context, n int) (release func(), err error) {
	caller := access.From(ctx).Name
	if b == nil || caller == "" {
		return func() {}, nil
	}
	if !b.admit(caller, n) {
		b.refresh(ctx)
		if !b.admit(caller, n) {
			return nil, over(b.name, "WAITING", "waiting jobs", b.most, backlogRetry)
		}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.admitted[caller] -= n; b.admitted[caller] == 0 {
			delete(b.admitted, caller)
		}
	}, nil
}

// admit reports whether a caller has room, and reserves it.
func (b *Backlog) admit(caller string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stored[caller].count()+b.admitted[caller] >= b.most {
		return false
	}
	b.admitted[caller] += n
	return true
}

// Add counts a job that a stream has stored for the caller of a request. It is called before the room for the job is released.
func (b *Backlog) Add(ctx context.Context, stream string, sequence uint64) {
	caller := access.From(ctx).Name
	if b == nil || caller == "" {
		return
	}
	b.mu.Lock()
	if b.stored[caller] == nil {
		b.stored[caller] = jobs{}
	}
	b.stored[caller][stream] = append(b.stored[caller][stream], sequence)
	b.total++
	many := b.total >= maxBacklog
	b.mu.Unlock()
	if many {
		b.refresh(ctx)
	}
}

// refresh forgets the jobs that no longer wait, unless it did so, or failed to, a moment ago.
func (b *Backlog) refresh(ctx context.Context) {
	select {
	case b.asking <- struct{}{}:
		defer func() { <-b.asking }()
	case <-ctx.Done():
		return
	}
	if time.Since(b.asked) < backlogEvery {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backlogTimeout)
	defer cancel()
	for _, stream := range b.streams() {
		if given, waiting, err := b.ask(ctx, stream); err == nil {
			b.forget(stream, given, waiting)
		}
	}
	b.asked = time.Now()
}

// streams returns the streams in which jobs wait.
func (b *Backlog) streams() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]bool{}
	for _, of := range b.stored {
		for stream := range of {
			all[stream] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// forget keeps only the jobs of a stream behind the last one that a worker was given. Of the jobs that the consumer counts, it keeps no
// more for a caller than wait in all: a stream or a consumer that was made anew has other sequences.
func (b *Backlog) forget(stream string, given, waiting uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	heard := b.heard[stream]
	b.heard[stream] = 0
	for caller, of := range b.stored {
		before := len(of[stream])
		left := slices.DeleteFunc(of[stream], func(sequence uint64) bool { return sequence <= given })
		most := waiting
		for _, sequence := range left {
			if sequence > heard {
				most++
			}
			b.heard[stream] = max(b.heard[stream], sequence)
		}
		if n := uint64(len(left)); n > most {
			left = left[n-most:]
		}
		of[stream] = left
		b.total -= before - len(left)
		if len(left) == 0 {
			delete(of, stream)
		}
		if len(of) == 0 {
			delete(b.stored, caller)
		}
	}
}
