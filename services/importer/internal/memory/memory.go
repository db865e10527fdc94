// Package memory bounds the memory that the jobs of a process hold at once, in bytes. A job reserves the memory for its
// source before it reads the source, so that large sources are read one after the other, and many small sources at the same
// time.
package memory

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Room is the memory of which each job has a share. Make it with New.
type Room struct {
	free *semaphore.Weighted
	size int64
}

// New returns a room of a number of bytes.
func New(size int64) *Room { return &Room{free: semaphore.NewWeighted(size), size: size} }

// Share returns an empty share with one user, which has to call Leave.
func (r *Room) Share() *Share { return &Share{room: r, users: 1} }

// Share is the memory of one job. It is given back when its last user leaves. It is safe for concurrent use.
type Share struct {
	room *Room

	mu    sync.Mutex
	held  int64
	users int
}

// Hold sets the size of the share in bytes, at most the size of the room. A share that has to wait first gives back
// its bytes, so that no two shares wait for each other. The error wraps the cause of ctx.
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

// ToRead returns roughly the bytes that reading a page or captions of a size takes at worst. A small source can consist of
// values only; the number of values of a large source is bounded.
func ToRead(size int) int64 { return 12*int64(size) + min(100*int64(size), 64<<20) }

// ToKeep returns roughly the bytes that the material of a source takes until its job ends, by its size in JSON.
func ToKeep(size int) int64 { return 8 * int64(size) }

// ToExtract returns roughly the bytes that making a recipe of a text of a size takes, of which every word is
// examined.
func ToExtract(size int) int64 { return 200 * int64(size) }

type key struct{}

// With returns a context for the work that uses a share.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// Hold sets the size of the share of ctx in bytes, see [Share.Hold]. Without a share it does nothing.
func Hold(ctx context.Context, size int64) error {
	if s, ok := ctx.Value(key{}).(*Share); ok {
		return s.Hold(ctx, size)
	}
	return nil
}

// More enlarges the share of ctx by a number of bytes. Without a share it does nothing.
func More(ctx context.Context, size int64) error {
	if s, ok := ctx.Value(key{}).(*Share); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.hold(ctx, s.held+size)
	}
	return nil
}
