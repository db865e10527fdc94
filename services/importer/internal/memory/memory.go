// Package memory bounds the memory that the jobs of a process hold at once, in bytes. A job reserves the memory for its
// source before it reads it, so that many large sources are read one after the other, and many small ones at the same time.
package memory

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Room is the memory that the shares of jobs are parts of. Make it with New.
type Room struct {
	free *semaphore.Weighted
	size int64
}

// New returns a room of a number of bytes.
func New(size int64) *Room { return &Room{free: semaphore.NewWeighted(size), size: size} }

// Share returns an empty share with one user, which has to call Leave.
func (r *Room) Share() *Share { return &Share{room: r, users: 1} }

// Share is the memory of one job. It is given back when its last user has left it. It is safe for concurrent
// use.
type Share struct {
	room *Room

	mu    sync.Mutex
	held  int64
	users int
}

// Hold makes the share a number of bytes large, or as large as the room. A share that has to wait gives back its bytes
// before, so that no two wait for each other. The error wraps the cause of ctx.
func (s *Share) Hold(ctx context.Context, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold(ctx, size)
}

// hold is Hold with the mutex locked.
func (s *Share) hold(ctx context.Context, size int64) error {
	size = min(size, s.room.size)
	if more := size - s.held; more <= 0 || s.room.free.TryAcquire(more) {
		s.room.free.Release(max(0, -more))
		s.held = size
		return nil
	}
	s.room.free.Release(s.held)
	s.held = 0
	if err := s.room.free.Acquire(ctx, size); err != nil {
		return fmt.Errorf("importer: wait for %d bytes of memory: %w", size, context.Cause(ctx))
	}
	s.held = size
	return nil
}

// Enter adds a user.
func (s *Share) Enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// Leave removes a user.
func (s *Share) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users == 0 {
		s.room.free.Release(s.held)
		s.held = 0
	}
}

// ToRead is about how much reading a page or captions of a size takes, at worst: small ones can be all values, of large ones as
// many values are read as there is room for.
func ToRead(size int) int64 { return 12*int64(size) + min(100*int64(size), 64<<20) }

// ToKeep is about how much the material of a source takes until its job ends, by its size in JSON.
func ToKeep(size int) int64 { return 8 * int64(size) }

// ToExtract is about how much making a recipe of a text of a size takes, of which every word is looked at.
func ToExtract(size int) int64 { return 200 * int64(size) }

type key struct{}

// With returns a context for the work that a share is for.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// Hold makes the share of ctx a number of bytes large, see [Share.Hold]. Without a share it does nothing.
func Hold(ctx context.Context, size int64) error {
	if s, ok := ctx.Value(key{}).(*Share); ok {
		return s.Hold(ctx, size)
	}
	return nil
}

// More makes the share of ctx larger by a number of bytes. Without a share it does nothing.
func More(ctx context.Context, size int64) error {
	if s, ok := ctx.Value(key{}).(*Share); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.hold(ctx, s.held+size)
	}
	return nil
}
