package httpapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

const (
	// uploadsAtOnce bounds the files that are in memory at a time, and uploadsOfOne those of one caller with a name: a client may
	// send its file as slowly as the server lets it.
	uploadsAtOnce = 8
	uploadsOfOne  = uploadsAtOnce / 2

	// uploadWait bounds the wait for room. It is less than the time for an answer.
	uploadWait = 10 * time.Second
)

// room is for the files that are in memory at a time.
type room struct {
	mu    sync.Mutex // guards the fields below
	all   int
	freed chan struct{}  // is closed when a file leaves
	of    map[string]int // by the names of callers
}

func newRoom() *room { return &room{freed: make(chan struct{}), of: map[string]int{}} }

// enter waits for room for a file of the caller of a request, until leave is called. The error matches [service.ErrBusy] when there
// is none in time.
func (r *room) enter(ctx context.Context) (leave func(), err error) {
	caller := access.From(ctx).Name
	ctx, cancel := context.WithTimeout(ctx, uploadWait)
	defer cancel()
	for {
		entered, freed := r.try(caller)
		if entered {
			return func() { r.leave(caller) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("importer: no room for a file: %w", service.ErrBusy)
		}
	}
}

func (r *room) try(caller string) (entered bool, freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= uploadsAtOnce || caller != "" && r.of[caller] >= uploadsOfOne {
		return false, r.freed
	}
	r.all++
	r.of[caller]++
	return true, nil
}

func (r *room) leave(caller string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	r.of[caller]--
	if r.of[caller] == 0 {
		delete(r.of, caller)
	}
	close(r.freed)
	r.freed = make(chan struct{})
}
