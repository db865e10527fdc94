package inapp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// markedAtOnce is how many unread items MarkAll takes in one go, when none are named.
const markedAtOnce = 1000

// MarkAny is Mark for an item of any kind of recipient, when kind is "": the first that the user has. It reads the whole
// inbox then.
func (b *Inbox) MarkAny(ctx context.Context, kind contracts.RecipientType, userID, eventID string, state State) (Item, error) {
	if kind != "" {
		return b.Mark(ctx, kind, userID, eventID, state)
	}
	for item, err := range b.items(ctx, "", userID) {
		if err != nil {
			return Item{}, err
		}
		if item.EventID == eventID {
			return b.Mark(ctx, item.RecipientType, userID, eventID, state)
		}
	}
	return Item{}, fmt.Errorf("inapp: %w", ErrNotFound)
}

// MarkAll puts the items of events into a state, or, when events is empty, all that are unread, and returns how many it
// has changed. Those that are not there are left out. Two round trips for each.
func (b *Inbox) MarkAll(ctx context.Context, kind contracts.RecipientType, userID string, events []string, state State) (int, error) {
	changed := 0
	for {
		var items []Item
		for item, err := range b.items(ctx, kind, userID) {
			if err != nil {
				return changed, err
			}
			if item.State == state || len(events) > 0 && !slices.Contains(events, item.EventID) || len(events) == 0 && item.State != Unread {
				continue
			}
			if items = append(items, item); len(items) == markedAtOnce {
				break
			}
		}
		for _, item := range items {
			_, err := b.Mark(ctx, item.RecipientType, userID, item.EventID, state)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return changed, err
			}
			changed++
		}
		if len(items) < markedAtOnce {
			return changed, nil
		}
	}
}
