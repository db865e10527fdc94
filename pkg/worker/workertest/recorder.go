package workertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// moment is the point of a call at which the suite holds it.
type moment int

const (
	beforeEffect moment = iota
	afterEffect
)

// hold holds the first calls that reach a moment.
type hold struct {
	at       moment
	left     int           // the number of further calls that it holds
	reached  chan string   // gets the job of each
	released chan struct{} // closed when the calls may continue
	result   error         // the error that the calls return then
}

// release lets the calls continue. If result is an error, the calls return it instead, and a call that is held before its effect has no
// effect.
func (h *hold) release(result error) {
	h.result = result
	close(h.released)
}

// recorder is the Recorder of a suite, in the suite's own process.
type recorder struct {
	mu      sync.Mutex
	changed chan struct{} // closed and recreated with each call
	effects map[string]int
	held    *hold
	inside  map[string]int // calls that have not returned
	overlap map[string]int // the most at one time
	poison  map[string]bool
}

func newRecorder() *recorder {
	return &recorder{
		changed: make(chan struct{}), effects: make(map[string]int), inside: make(map[string]int),
		overlap: make(map[string]int), poison: make(map[string]bool),
	}
}

// Record implements Recorder.
func (r *recorder) Record(ctx context.Context, jobID string) error {
	return r.visit(ctx, jobID, func() { r.effects[jobID]++ })
}

// RecordOnce implements Recorder.
func (r *recorder) RecordOnce(ctx context.Context, jobID string) error {
	return r.visit(ctx, jobID, func() { r.effects[jobID] = 1 })
}

// Reach implements Recorder.
func (r *recorder) Reach(ctx context.Context, jobID string) error {
	return r.visit(ctx, jobID, func() {})
}

func (r *recorder) visit(ctx context.Context, jobID string, leave func()) error {
	r.note(func() {
		r.inside[jobID]++
		r.overlap[jobID] = max(r.overlap[jobID], r.inside[jobID])
	})
	defer r.note(func() { r.inside[jobID]-- })
	if r.refuses(jobID) {
		return fmt.Errorf("%w: %s", ErrRefused, jobID)
	}
	if err := r.pass(ctx, jobID, beforeEffect); err != nil {
		return err
	}
	r.note(leave)
	return r.pass(ctx, jobID, afterEffect)
}

// pass waits while the call is held.
func (r *recorder) pass(ctx context.Context, jobID string, at moment) error {
	h := r.take(at)
	if h == nil {
		return nil
	}
	h.reached <- jobID
	select {
	case <-h.released:
		return h.result
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take counts a call as held.
func (r *recorder) take(at moment) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil || r.held.at != at || r.held.left == 0 {
		return nil
	}
	r.held.left--
	return r.held
}

// hold holds the first n calls that reach a moment from now on, in place of an earlier hold.
func (r *recorder) hold(n int, at moment) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = &hold{at: at, left: n, reached: make(chan string, n), released: make(chan struct{})}
	return r.held
}

func (r *recorder) refuse(jobID string) { r.note(func() { r.poison[jobID] = true }) }

func (r *recorder) refuses(jobID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poison[jobID]
}

// note calls change and wakes the waiters.
func (r *recorder) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// look returns, by job, the number of effects, and the largest number of handlers at a time. The channel is closed at the next change.
func (r *recorder) look() (effects, overlap map[string]int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.effects), maps.Clone(r.overlap), r.changed
}

// letters returns the dead letters of a stream's jobs, oldest first within each stream, with any first part of their subjects.
func letters(ctx context.Context, js jetstream.JetStream, of string) (all []worker.DeadLetter, err error) {
	streams := js.ListStreams(ctx, jetstream.WithStreamListSubject("*."+of+".>"))
	for info := range streams.Info() {
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			return nil, fmt.Errorf("look up stream %s: %w", info.Config.Name, err)
		}
		for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
			msg, err := stream.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read dead letter %d of %s: %w", seq, info.Config.Name, err)
			}
			letter, err := worker.ParseDeadLetter(msg.Data)
			if err == nil && letter.Stream == of {
				all = append(all, letter)
			}
		}
	}
	if err := streams.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("look up the stream of dead letters: %w", err)
	}
	return all, nil
}
