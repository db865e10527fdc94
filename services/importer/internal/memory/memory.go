// Package memory bounds the memory that the jobs of a process hold at once, in bytes. A job reserves the memory for its
// source before it reads the source. Parts of the memory are for small sources, which never wait for large ones, and a
// large source that finds no memory does not wait long with a slot of the worker.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// ErrBusy is returned for a share that is not small when the memory is taken, and enough other shares wait for it.
var ErrBusy = errors.New("importer: other sources take the memory")

// Room is the memory of which each job has a share. Make it with New.
type Room struct {
	parts [3]part       // for shares that are small, of a usual page, and large
	queue chan struct{} // has an element for each share that waits and is not small
}

// part is a part of the memory.
type part struct {
	*semaphore.Weighted

	most int64 // the largest share in it
}

// New returns a room of a number of bytes: a sixteenth for shares of up to 1/64 of it, three sixteenths for shares of up to as
// much, and the rest for larger ones. A share that is not small waits only beside fewer than waiting others.
func New(size int64, waiting int) *Room {
	of := func(size, most int64) part { return part{semaphore.NewWeighted(size), most} }
	small, usual := size/16, size/16*3
	return &Room{
		parts: [3]part{of(small, size/64), of(usual, usual), of(size-small-usual, size-small-usual)},
		queue: make(chan struct{}, waiting),
	}
}

// Share returns an empty share with one user, which has to call Leave.
func (r *Room) Share() *Share { return &Share{room: r, part: &r.parts[0], users: 1} }

// Share is the memory of one job. It is given back when its last user leaves. It is safe for concurrent use.
type Share struct {
	room *Room

	mu    sync.Mutex
	part  *part // has what is held
	held  int64
	users int
}

// Hold sets the size of the share in bytes, at most that of the part for large shares. A share that has to wait first gives back
// its bytes, so that no two shares wait for each other. The error is ErrBusy, or wraps the cause of ctx.
func (s *Share) Hold(ctx context.Context, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold(ctx, size)
}

// hold is Hold with the mutex locked.
func (s *Share) hold(ctx context.Context, size int64) error {
	parts := s.room.parts[:]
	size = min(size, parts[len(parts)-1].most)
	for parts[0].most < size {
		parts = parts[1:]
	}
	switch own := &parts[0]; {
	case size > s.held && size <= s.part.most && s.part.TryAcquire(size-s.held):
	case size > s.held:
		s.part.Release(s.held)
		s.held = 0
		if err := s.enter(ctx, parts, size); err != nil {
			return err
		}
	case own != s.part && own.TryAcquire(size): // a large share needs all of the part that this one leaves
		s.part.Release(s.held)
		s.part = own
	default:
		s.part.Release(s.held - size)
	}
	s.held = size
	return nil
}

// enter takes the bytes of an empty share from the first of the parts that has them, or waits for the first part.
func (s *Share) enter(ctx context.Context, parts []part, size int64) error {
	for i := range parts {
		if s.part = &parts[i]; s.part.TryAcquire(size) {
			return nil
		}
	}
	s.part = &parts[0]
	if s.part != &s.room.parts[0] {
		select {
		case s.room.queue <- struct{}{}:
			defer func() { <-s.room.queue }()
		default:
			return ErrBusy
		}
	}
	if err := s.part.Acquire(ctx, size); err != nil {
		return fmt.Errorf("importer: wait for %d bytes of memory: %w", size, context.Cause(ctx))
	}
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
		s.part.Release(s.held)
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
