package flight

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/shown"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

const (
	defaultMaxValue = 64 << 20

	// compressAbove is the size in bytes above which values are compressed, when that makes them smaller.
	compressAbove = 4 << 10

	// maxValue bounds Config.MaxValue, and the accepted size in a record.
	maxValue = 1 << 30

	// keptOpen is the largest size of an opened value that is kept with its stored form, for the next caller.
	keptOpen = 1 << 20
)

func (cfg Config) validateValues() error {
	return errors.Join(
		validate.If(cfg.MaxValue < 1 || cfg.MaxValue > maxValue, "kvlock: MaxValue is %d: want 1 to %d bytes", cfg.MaxValue, maxValue),
		validate.If(cfg.LargeValueBucket != "" && !kv.BucketName.MatchString(cfg.LargeValueBucket),
			"kvlock: LargeValueBucket is %s: want 1 to 250 letters, digits, '-' and '_'", shown.Quote(cfg.LargeValueBucket)))
}

// packed is the part of a record that describes the stored form of its value.
type packed struct {
	Codec  string  `json:"codec,omitempty"`
	Object *object `json:"object,omitempty"` // the object with the value, when it is not in the record
	Size   int     `json:"size,omitempty"`   // the size of the value, in bytes, when the record has it in another form or not at all
}

// check returns an error for a description that pack does not write. An unknown codec is that of a newer version.
func (p packed) check() error {
	switch {
	case p.Codec != "" && p.Codec != compress.Zstd:
		return fmt.Errorf("%w: codec %.32q, this program knows %q", kvlock.ErrVersion, p.Codec, compress.Zstd)
	case p.Size < 0 || p.Size > maxValue:
		return fmt.Errorf("value of %d bytes, the limit is %d", p.Size, maxValue)
	case p.Object != nil && (p.Object.Size > p.Size || p.Codec == "" && p.Object.Size != p.Size):
		return fmt.Errorf("value of %d bytes in an object of %d", p.Size, p.Object.Size)
	case p.Object != nil:
		return p.Object.check()
	}
	return nil
}

// pack returns the form in which a record stores value.
func (f *Flight) pack(key string, value []byte) (packed, []byte, error) {
	if len(value) > f.cfg.MaxValue {
		return packed{}, nil, fmt.Errorf("%w: key %q: %d bytes, Config.MaxValue is %d", kvlock.ErrTooLarge, key, len(value), f.cfg.MaxValue)
	}
	if len(value) <= compressAbove {
		return packed{}, value, nil
	}
	data, saves, err := f.codec.Compress(value)
	if err != nil {
		return packed{}, nil, fmt.Errorf("kvlock: %w", err)
	}
	if !saves {
		return packed{}, value, nil
	}
	return packed{Codec: compress.Zstd, Size: len(value)}, data, nil
}

// content is the stored form of an entry's value, which is opened when a caller wants the value. All copies of the entry share it, so that
// waiters that were woken together open it once. It is opened in the goroutine of a caller, never in the goroutine that receives pushes.
type content struct {
	packed

	stored []byte
	turn   chan struct{} // has an element while the value is being opened

	mu     sync.Mutex
	users  int // the number of callers that open it, or wait for that
	value  []byte
	broken bool
}

// errBroken is the error of a value that its record describes and that can never be read.
var errBroken = errors.New("value cannot be read")

// content returns the stored form of the value, or nil when data is the value.
func (p packed) content(data []byte) *content {
	if p.Codec == "" && p.Object == nil {
		return nil
	}
	return &content{packed: p, stored: data, turn: make(chan struct{}, 1)}
}

// unseal fetches the value of an entry, in the caller's goroutine. A broken value is reported, its record is removed, and the key is
// returned as absent.
func (f *Flight) unseal(ctx context.Context, entry Entry) (Entry, error) {
	if !entry.sealed {
		return entry, nil
	}
	c := entry.in().origin
	if c.Size > f.cfg.MaxValue {
		return Entry{}, fmt.Errorf("%w: key %q: %d bytes, Config.MaxValue is %d: raise it", kvlock.ErrTooLarge, entry.Key, c.Size, f.cfg.MaxValue)
	}
	value, first, err := c.open(ctx, f, entry.Key)
	switch {
	case err == nil:
		entry.Value, entry.sealed = value, false
		return entry, nil
	case !errors.Is(err, errBroken):
		return Entry{}, err
	case first:
		ctx, cancel := f.store.Bound(ctx)
		defer cancel()
		f.removeCorrupt(ctx, entry, err)
	}
	return Entry{Key: entry.Key, Revision: entry.Revision, Created: entry.Created, seen: entry.seen}, nil
}

// open returns the value. With errBroken, first is true for one caller only, which reports the error.
func (c *content) open(ctx context.Context, f *Flight, key string) (value []byte, first bool, err error) {
	c.enter()
	defer c.leave()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	switch {
	case c.broken:
		return nil, false, errBroken
	case c.value != nil:
		return c.value, false, nil
	}
	value, err = f.unpack(ctx, key, c)
	switch {
	case err == nil:
		c.value = value
	case errors.Is(err, errBroken):
		c.broken = true
	}
	return value, true, err
}

func (c *content) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
}

// leave drops a large value when no caller waits for it any more: entries are kept for as long as their keys are watched.
func (c *content) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users == 0 && len(c.value) > keptOpen {
		c.value = nil
	}
}

// unpack returns the value, read from the Object Store if it is stored there.
func (f *Flight) unpack(ctx context.Context, key string, c *content) ([]byte, error) {
	data := c.stored
	if c.Object != nil {
		var err error
		if data, err = f.fetch(ctx, key, *c.Object); err != nil {
			return nil, err
		}
	}
	if c.Codec == "" {
		return data, nil
	}
	value, err := f.codec.Decompress(data, c.Size)
	switch {
	case errors.Is(err, compress.ErrCorrupt):
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	case err != nil:
		return nil, fmt.Errorf("kvlock: %w", err)
	}
	return value, nil
}
