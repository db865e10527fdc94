package recipient

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// readAtOnce is the number of recipients that are read in one round trip.
const readAtOnce = 512

// together lets reads of single recipients share round trips: reads that begin while a round trip is under way are in
// the next one.
type together struct {
	turn chan struct{} // holds one token while a read is under way

	mu      sync.Mutex
	waiting []*reading
}

// reading is a read that waits for its round trip, or for the answer.
type reading struct {
	who  contracts.Recipient
	done chan struct{} // closed when record or err is set

	record kvrecord.Record
	err    error
}

// readShared is read, in a round trip that calls at the same time share. Other callers may have the same data, so it must not be
// changed.
func (d *Directory) readShared(ctx context.Context, kind contracts.RecipientType, userID string) (kvrecord.Record, error) {
	r := &reading{who: contracts.Recipient{RecipientType: kind, UserID: userID}, done: make(chan struct{})}
	d.together.put(r)
	for {
		select {
		case <-r.done:
			return r.record, r.err
		case <-ctx.Done():
			return kvrecord.Record{}, temporary(fmt.Errorf("read %s/%s of the directory: %w", kind, userID, context.Cause(ctx)))
		case d.together.turn <- struct{}{}:
			if some := d.together.take(); len(some) > 0 { // otherwise another caller has read the record in the meantime
				d.answer(ctx, some)
			}
			<-d.together.turn
		}
	}
}

func (t *together) put(some ...*reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = append(t.waiting, some...)
}

func (t *together) take() []*reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.waiting), readAtOnce)
	some := t.waiting[:n:n]
	t.waiting = t.waiting[n:]
	return some
}

// answer makes the reads of some callers. When ctx ends in the meantime, another caller makes the remaining reads. When one of
// several recipients fails permanently, each is read by itself. One round trip.
func (d *Directory) answer(ctx context.Context, some []*reading) {
	all := make([]contracts.Recipient, len(some))
	for i, r := range some {
		all[i] = r.who
	}
	records, err := d.readMany(ctx, all)
	wrong, ok := errors.AsType[*Error](err)
	switch {
	case err != nil && ctx.Err() != nil:
		d.together.put(some...)
		return
	case ok && wrong.Permanent && len(some) > 1:
		for i := range some {
			d.answer(ctx, some[i:i+1])
		}
		return
	}
	for i, r := range some {
		if r.err = err; err == nil {
			r.record = records[i]
		}
		close(r.done)
	}
}
