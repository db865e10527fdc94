package inapp

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Counts are how many items of an inbox are in each state.
type Counts struct {
	Archived int `json:"archived"`
	Read     int `json:"read"`
	Unread   int `json:"unread"`
}

// ListOptions say which items are listed. The zero value is all that are not archived.
type ListOptions struct {
	// After is the item behind which the list goes on. Defaults to none: it begins with the newest.
	After *Bookmark

	// Limit is how many are returned at most. Defaults to 100.
	Limit int

	// States are those of the items. Defaults to Unread and Read.
	States []State
}

// Bookmark is where a list has come to.
type Bookmark struct {
	CreatedAt time.Time               `json:"t"`
	EventID   string                  `json:"e"`
	Type      contracts.RecipientType `json:"k"`
}

// Bookmark is where a list has come to that ends with this item.
func (i Item) Bookmark() Bookmark { return Bookmark{i.CreatedAt, i.EventID, i.RecipientType} }

// compare orders items: the newest first.
func (m Bookmark) compare(other Bookmark) int {
	return cmp.Or(other.CreatedAt.Compare(m.CreatedAt), strings.Compare(m.EventID, other.EventID), cmp.Compare(m.Type, other.Type))
}

// Page is a part of an inbox.
type Page struct {
	// Counts are those of the whole inbox.
	Counts Counts `json:"counts"`

	// Items are the newest, or those behind a bookmark.
	Items []Item `json:"items"`

	// More says that there are more behind them.
	More bool `json:"more"`
}

// List returns the items of a user, the newest first. It reads the whole inbox, and keeps no more than twice the limit.
// No kind is all kinds.
func (b *Inbox) List(ctx context.Context, kind contracts.RecipientType, userID string, options ListOptions) ([]Item, error) {
	page, err := b.Page(ctx, kind, userID, options)
	return page.Items, err
}

// Page is List with the counts of the whole inbox.
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

// Counts returns how many items of a user are in each state. It reads the whole inbox.
func (b *Inbox) Counts(ctx context.Context, kind contracts.RecipientType, userID string) (Counts, error) {
	var counts Counts
	for item, err := range b.items(ctx, kind, userID) {
		if err != nil {
			return counts, err
		}
		counts.add(item.State)
	}
	return counts, nil
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

// keysOf selects the keys of all items of a user. No kind is all kinds.
func keysOf(kind contracts.RecipientType, userID string) (string, error) {
	const anyKind = "x"
	if kind != "" {
		return contracts.InboxKeys(kind, userID)
	}
	keys, err := contracts.InboxKeys(anyKind, userID)
	return "*" + strings.TrimPrefix(keys, anyKind), err
}

// items yields the items of a user, in no particular order. Any replica may answer, so an item written a moment ago may be
// missing. An item that cannot be read is left out. One round trip for each 100,000 keys, and one for each 512 items.
func (b *Inbox) items(ctx context.Context, kind contracts.RecipientType, userID string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		keys, err := keysOf(kind, userID)
		if err != nil {
			yield(Item{}, fmt.Errorf("inapp: %w", err))
			return
		}
		for offset, more := 0, true; more; more = offset > 0 {
			var subjects []string
			if subjects, offset, err = b.records.Subjects(ctx, b.records.Key(keys), offset); err != nil {
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

// atOnce is how many items are read in one round trip.
const atOnce = 512

// yieldEach yields the items of subjects, and reports whether the caller goes on.
func (b *Inbox) yieldEach(ctx context.Context, subjects []string, yield func(Item, error) bool) (more bool) {
	found, err := b.records.GetMany(ctx, subjects)
	if err != nil {
		yield(Item{}, fmt.Errorf("inapp: list: %w", err))
		return false
	}
	for _, r := range found {
		if len(r.Data) == 0 { // it was removed
			continue
		}
		item, err := decode(r.Subject, r.Data, r.Revision)
		if err != nil { // the others are read all the same
			b.cfg.Unreadable(ctx, r, err)
			continue
		}
		if !yield(item, nil) {
			return false
		}
	}
	return true
}
