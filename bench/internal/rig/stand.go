package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Starter starts a service that keeps its files in a folder of its own.
type Starter func(ctx context.Context, dir string) (*Service, error)

// Stand is what contestants run on, and what became of them.
type Stand struct {
	Skipped  map[string]string // the contestants that do not take part, and why
	Failures []string

	dir      string
	running  map[string]*Service
	starters map[string]Starter
}

// NewStand returns a stand on which nothing runs yet.
func NewStand(starters map[string]Starter) (*Stand, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // a server may run as another user
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &Stand{Skipped: map[string]string{}, dir: dir, running: map[string]*Service{}, starters: starters}, nil
}

// Close ends everything and removes its files.
func (s *Stand) Close() {
	for _, running := range s.running {
		running.Stop()
	}
	_ = os.RemoveAll(s.dir) //nolint:errcheck // temporary
}

// Service returns a service, which is started when it is asked for first.
func (s *Stand) Service(ctx context.Context, name string) (*Service, error) {
	if s.running[name] == nil {
		dir := filepath.Join(s.dir, strings.ReplaceAll(name, ", ", "-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		running, err := s.starters[name](ctx, dir)
		if err != nil {
			return nil, err
		}
		s.running[name] = running
	}
	return s.running[name], nil
}

// Enter lets somebody take part, unless what it needs is not installed.
func (s *Stand) Enter(ctx context.Context, who string, enter func(context.Context) error, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := enter(ctx)
	if errors.Is(err, ErrMissing) {
		s.Skipped[who] = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	return nil
}

// Try runs a row by a contestant. One that fails is told, and does not end the others.
func (s *Stand) Try(
	ctx context.Context, row, who string, got Results, limit time.Duration, measure func(context.Context) (Figures, error),
) error {
	runtime.GC()
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f, err := measure(try)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.Failures = append(s.Failures, fmt.Sprintf("%s/%s: %v", row, who, err))
		fmt.Fprintln(os.Stderr, s.Failures[len(s.Failures)-1])
	}
	got.Add(who, f)
	return nil
}

// Turn is whose turn it is in a round: every other round goes through them backwards.
func Turn(round, i, n int) int {
	if round%2 == 1 {
		return n - 1 - i
	}
	return i
}
