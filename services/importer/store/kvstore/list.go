package kvstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/store"
)

// MaxList is how many recipes a list has at most.
const MaxList = 1000

// Query says which recipes of an owner to list.
type Query struct {
	// OwnerID is whose. Required.
	OwnerID string

	// Text has words that must all be in the title or in an ingredient, in any case. Defaults to none.
	Text string

	// Limit is how many are listed, the newest first. Defaults to [MaxList], which is the most.
	Limit int
}

// List returns recipes of an owner, the newest first, and whether there are more than the limit. Its cost grows with how
// many recipes the owner has: about two round trips and a message each.
func (s *Store) List(ctx context.Context, q Query) (list []Summary, more bool, err error) {
	if q.Limit <= 0 || q.Limit > MaxList {
		q.Limit = MaxList
	}
	owner, err := contracts.EncodeToken(q.OwnerID)
	if err != nil {
		return nil, false, fmt.Errorf("importer: list recipes: owner: %w", err)
	}
	watcher, err := s.kv.Watch(ctx, "owner."+owner+".*", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, false, &store.Error{Op: "list recipes", Retryable: true, Err: err}
	}
	defer watcher.Stop() //nolint:errcheck // the server removes the consumer by itself
	words := strings.Fields(strings.ToLower(q.Text))
	for {
		select {
		case entry, open := <-watcher.Updates():
			if !open {
				return nil, false, &store.Error{Op: "list recipes", Retryable: true, Err: fmt.Errorf("the list broke off after %d", len(list))}
			}
			if entry == nil { // the end of what is there
				slices.SortFunc(list, func(a, b Summary) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID)) })
				n := min(len(list), q.Limit)
				return list[:n], n < len(list), nil
			}
			var sum Summary
			if json.Unmarshal(entry.Value(), &sum) == nil && sum.matches(words) {
				list = append(list, sum)
			}
		case <-ctx.Done():
			return nil, false, fmt.Errorf("importer: list recipes: %w", context.Cause(ctx))
		}
	}
}
