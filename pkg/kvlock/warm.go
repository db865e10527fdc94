package kvlock

import (
	"context"
	"errors"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

// errNoMemory says that there is nothing to warm.
var errNoMemory = errors.New("kvlock: Config.Memory is off: there is nothing to warm")

// Warm loads into memory what the bucket holds under prefix, as [Flight.List] understands it, and returns how many
// results and failures it read. What does not fit into memory is evicted as ever. To load known keys, [Flight.GetMany]
// is enough; to compute what is missing, Do.
//
// All that is under prefix is read twice: once to find the keys, and once, 512 at a time, to know as of when it holds.
func (f *Flight) Warm(ctx context.Context, prefix string) (n int, err error) {
	if f.memory == nil {
		return 0, errNoMemory
	}
	keys := make([]string, 0, directget.MaxSubjects)
	load := func() error {
		slots, err := f.GetMany(ctx, keys)
		for _, slot := range slots {
			if slot.State == Done || slot.State == Failed {
				n++
			}
		}
		keys = keys[:0]
		return err
	}
	for slot, err := range f.List(ctx, prefix) {
		switch {
		case slot.Key == "" && err != nil:
			return n, err
		case err != nil || slot.State == Pending:
			continue
		}
		if keys = append(keys, slot.Key); len(keys) == cap(keys) {
			if err := load(); err != nil {
				return n, err
			}
		}
	}
	return n, load()
}
