package recipient

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// list yields a recipient for each key.
//
// A watcher alone does not find all: it says that it has seen everything when no message is pending, and a record that is
// written while it reads is neither pending at its old place nor yet at its new one for a moment. What the bucket has keys of
// is known at one point in time, so those that the watcher did not show are looked for afterwards.
func (d *Directory) list(ctx context.Context, keys string, kind contracts.RecipientType) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		l := listing{Directory: d, keys: keys, kind: kind, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, yield: yield}
		more, err := l.watched(ctx)
		if more && err == nil {
			more, err = l.missed(ctx)
		}
		if more && err != nil {
			yield(contracts.Recipient{}, err)
		}
	}
}

// listing is a list that is being read. It holds eight bytes of each key that it has seen. That of two keys of a million which
// are the same in them the watcher shows only one has no chance worth a name.
type listing struct {
	*Directory

	keys  string
	kind  contracts.RecipientType
	seed  maphash.Seed
	seen  map[uint64]struct{}
	yield func(contracts.Recipient, error) bool
}

// watched yields those whom the watcher shows. more is false when nobody wants more. The end is marked: a list that stops
// without the mark is not all.
func (l *listing) watched(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := l.kv.WatchFiltered(ctx, []string{l.keys}, jetstream.MetaOnly())
	if err != nil {
		return true, temporary(fmt.Errorf("list %s of the directory: %w", l.keys, err))
	}
	defer watcher.Stop() //nolint:errcheck // it ends with ctx in any case
	for {
		var entry jetstream.KeyValueEntry
		open := false
		select {
		case entry, open = <-watcher.Updates():
		case <-ctx.Done():
		}
		switch {
		case !open:
			return true, temporary(fmt.Errorf("list %s of the directory: %w", l.keys, errors.Join(ErrIncomplete, ctx.Err())))
		case entry == nil:
			return true, nil
		}
		l.seen[maphash.String(l.seed, entry.Key())] = struct{}{}
		if entry.Operation() != jetstream.KeyValuePut {
			continue
		}
		if more, err := l.one(entry.Key()); !more || err != nil {
			return more, err
		}
	}
}

// missed yields those whom the watcher did not show. One round trip for each 100,000 keys, and one for each of them.
func (l *listing) missed(ctx context.Context) (more bool, err error) {
	prefix := "$KV." + contracts.BucketDirectory + "."
	for offset := 0; ; {
		subjects, next, err := l.store.Subjects(ctx, prefix+l.keys, offset)
		if err != nil {
			return true, temporary(fmt.Errorf("list %s of the directory: %w", l.keys, err))
		}
		for subject := range subjects {
			key := strings.TrimPrefix(subject, prefix)
			if _, seen := l.seen[maphash.String(l.seed, key)]; seen {
				continue
			}
			_, err := l.kv.Get(ctx, key)
			switch {
			case errors.Is(err, jetstream.ErrKeyNotFound): // it has been deleted
				continue
			case err != nil:
				return true, temporary(fmt.Errorf("read %s of the directory: %w", key, err))
			}
			if more, err := l.one(key); !more || err != nil {
				return more, err
			}
		}
		if next == 0 {
			return true, nil
		}
		offset = next
	}
}

// one yields the recipient of a key.
func (l *listing) one(key string) (more bool, err error) {
	userID, err := contracts.DecodeToken(key[strings.LastIndexByte(key, '.')+1:])
	if err != nil {
		return true, permanent(fmt.Errorf("key %s of the directory: %w", key, err))
	}
	return l.yield(contracts.Recipient{RecipientType: l.kind, UserID: userID}, nil), nil
}
