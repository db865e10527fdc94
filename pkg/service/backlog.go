package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/service/access"
)

const (
	// backlogEvery is how often, at most, the consumer of a backlog is asked about, and backlogTimeout bounds the question.
	backlogEvery   = time.Second
	backlogTimeout = 2 * time.Second

	// backlogRetry is when a caller with too many waiting jobs is asked to come back.
	backlogRetry = 5 * time.Second

	// maxBacklog is how many jobs are remembered before the consumer is asked which of them still wait.
	maxBacklog = 1 << 16
)

// Backlog bounds the jobs of each caller that wait in a stream, so that the backlog of one is not everybody's. It counts those that
// this process stored and that no worker has been given. The callers are those of the HTTP API that have a name; a nil Backlog, and
// requests of other callers, have no bound.
type Backlog struct {
	ask  func(context.Context) (given, waiting uint64, err error) // the last sequence that workers were given, and how many jobs are behind it
	most int
	name string // of the service

	asking chan struct{} // has a place for the question under way, which guards asked
	asked  time.Time

	mu       sync.Mutex
	admitted map[string]int      // by the names of callers
	stored   map[string][]uint64 // the sequences of jobs, by the names of callers
	total    int                 // of stored
}

// Backlog returns the bound of the jobs that wait for a consumer, nil for none. Only Open may call it.
func (s *Service) Backlog(stream, consumer string) *Backlog {
	most := s.Config.limits(s.access).Waiting
	if most == 0 {
		return nil
	}
	ask := func(ctx context.Context) (given, waiting uint64, err error) {
		c, err := s.JetStream.Consumer(ctx, stream, consumer)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: ask how many jobs of %s wait: %w", s.spec.Name, stream, err)
		}
		info := c.CachedInfo()
		return info.Delivered.Stream, info.NumPending, nil
	}
	return newBacklog(s.spec.Name, most, ask)
}

func newBacklog(name string, most int, ask func(context.Context) (given, waiting uint64, err error)) *Backlog {
	return &Backlog{
		admitted: map[string]int{}, ask: ask, asking: make(chan struct{}, 1), most: most, name: name, stored: map[string][]uint64{},
	}
}

// Admit reserves room for n jobs of the caller of a request until release is called. The error becomes 429 QUOTA_WAITING when as many
// of its jobs wait already as may. A caller below its bound may exceed it by one request. Usually no round trip; one for the callers
// at their bounds, once a second for all of them together.
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
	if len(b.stored[caller])+b.admitted[caller] >= b.most {
		return false
	}
	b.admitted[caller] += n
	return true
}

// Add counts a job that the stream has stored for the caller of a request, before the room for it is released.
func (b *Backlog) Add(ctx context.Context, sequence uint64) {
	caller := access.From(ctx).Name
	if b == nil || caller == "" {
		return
	}
	b.mu.Lock()
	b.stored[caller] = append(b.stored[caller], sequence)
	b.total++
	many := b.total >= maxBacklog
	b.mu.Unlock()
	if many {
		b.refresh(ctx)
	}
}

// refresh forgets the jobs that do not wait any more, unless that was done, or tried in vain, a moment ago.
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
	given, waiting, err := b.ask(ctx)
	b.asked = time.Now()
	if err == nil {
		b.forget(given, waiting)
	}
}

// forget keeps the jobs behind the last one that a worker was given, and of no caller more than wait in all: a stream or a consumer
// that was made anew has other sequences.
func (b *Backlog) forget(given, waiting uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total = 0
	for caller, jobs := range b.stored {
		jobs = slices.DeleteFunc(jobs, func(sequence uint64) bool { return sequence <= given })
		if n := uint64(len(jobs)); n > waiting {
			jobs = jobs[n-waiting:]
		}
		if len(jobs) == 0 {
			delete(b.stored, caller)
			continue
		}
		b.stored[caller] = jobs
		b.total += len(jobs)
	}
}
