package inapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Counts has the number of items of an inbox in each state.
type Counts struct {
	Archived int `json:"archived"`
	Read     int `json:"read"`
	Unread   int `json:"unread"`
}

// ListOptions select the items of a list. The zero value selects all items that are not archived.
type ListOptions struct {
	// After is the item after which the list continues. Defaults to none: the list begins with the newest.
	After *Bookmark

	// Limit is the largest number of items. Defaults to 100.
	Limit int

	// States are the states of the items. Defaults to Unread and Read.
	States []State
}

// Bookmark is a position in a list.
type Bookmark struct {
	CreatedAt time.Time               `json:"t"`
	EventID   string                  `json:"e"`
	Type      contracts.RecipientType `json:"k"`
}

// Bookmark returns the position after the item.
func (i Item) Bookmark() Bookmark { return Bookmark{i.CreatedAt, i.EventID, i.RecipientType} }

// compare orders items: the newest first.
func (m Bookmark) compare(other Bookmark) int {
	return cmp.Or(other.CreatedAt.Compare(m.CreatedAt), strings.Compare(m.EventID, other.EventID), cmp.Compare(m.Type, other.Type))
}

// Page is a part of an inbox.
type Page struct {
	// Counts are the counts of the whole inbox.
	Counts Counts `json:"counts"`

	// Items are the newest items, or the items after a bookmark.
	Items []Item `json:"items"`

	// More reports whether there are items after these.
	More bool `json:"more"`
}

// Page returns items of a user, the newest first, and the counts of the whole inbox. It reads the whole inbox, and keeps no more than
// twice the limit. An empty kind selects all kinds.
func (b *Inbox) Page(ctx context.Context, kind contracts.RecipientType, userID string, options ListOptions) (page Page, err error) {
	limit := cmp.Or(options.Limit, 100)
	if limit < 0 {
		return page, fmt.Errorf("inapp: Limit is %d: want a positive number", limit)
	}
	if options.States == nil {
		options.States = []State{Unread, Read}
	}
	items := []Item{}
	for item, err := range b.items(ctx, kind, userID) {
		if err != nil {
			return page, err
		}
		page.Counts.add(item.State)
		behind := options.After == nil || options.After.compare(item.Bookmark()) < 0
		if !behind || !slices.Contains(options.States, item.State) {
			continue
		}
		if items = append(items, item); len(items) == 2*limit+1 {
			items, page.More = newest(items, limit), true
		}
	}
	page.More = page.More || len(items) > limit
	page.Items = newest(items, limit)
	return page, nil
}

func newest(items []Item, limit int) []Item {
	slices.SortFunc(items, func(a, b Item) int { return a.Bookmark().compare(b.Bookmark()) })
	return items[:min(limit, len(items))]
}

// Counts returns the number of items of a user in each state. It reads the whole inbox.
func (b *Inbox) Counts(ctx context.Context, kind contracts.RecipientType, userID string) (Counts, error) {
	page, err := b.Page(ctx, kind, userID, ListOptions{States: []State{}}) // without items
	return page.Counts, err
}

func (c *Counts) add(state State) {
	switch state {
	case Archived:
		c.Archived++
	case Read:
		c.Read++
	case Unread:
		c.Unread++
	}
}

// keysOf returns a filter for the keys of all items of a user. An empty kind selects all kinds.
func keysOf(kind contracts.RecipientType, userID string) (string, error) {
	const anyKind = "x"
	if kind != "" {
		return keys.Inbox(kind, userID)
	}
	pattern, err := keys.Inbox(anyKind, userID)
	return "*" + strings.TrimPrefix(pattern, anyKind), err
}

// items yields the items of a user, in no particular order. Any replica may answer, so an item written a moment ago may be
// missing. An item that cannot be read is left out. One round trip for each 100,000 keys, and one for each 512 items.
func (b *Inbox) items(ctx context.Context, kind contracts.RecipientType, userID string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		pattern, err := keysOf(kind, userID)
		if err != nil {
			yield(Item{}, fmt.Errorf("inapp: %w", err))
			return
		}
		for subjects, err := range b.records.All(ctx, b.records.Key(pattern)) {
			if err != nil {
				yield(Item{}, fmt.Errorf("inapp: list: %w", err))
				return
			}
			for some := range slices.Chunk(subjects, atOnce) {
				if !b.yieldEach(ctx, some, yield) {
					return
				}
			}
		}
	}
}

// atOnce is the number of items that are read in one round trip.
const atOnce = 512

// yieldEach yields the items of subjects, and reports whether to continue.
func (b *Inbox) yieldEach(ctx context.Context, subjects []string, yield func(Item, error) bool) (more bool) {
	found, err := b.records.GetMany(ctx, subjects)
	if err != nil {
		yield(Item{}, fmt.Errorf("inapp: list: %w", err))
		return false
	}
	for _, r := range found {
		record, err := decode(r.Subject, r.Data, r.Revision)
		switch {
		case errors.Is(err, ErrNotFound): // it has no item, or no longer
		case err != nil: // the other items are still read
			b.store.Unreadable(ctx, r, err)
		case !yield(*record.Item, nil):
			return false
		}
	}
	return true
}
