package inapp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// backlog is the number of changes that a feed holds for a slow reader. Any further changes are read from the bucket.
const backlog = 256

// flushTimeout bounds the wait for the server to have the subscription.
const flushTimeout = 5 * time.Second

// Feed delivers the changes of one inbox as they happen. It is used by one goroutine, and closed.
type Feed struct {
	inbox   *Inbox
	kind    contracts.RecipientType
	userID  string
	changes chan *nats.Msg
	status  chan nats.Status
	sub     *nats.Subscription

	behind  bool // the inbox has to be read, because a change may have been missed
	dropped int  // messages that the subscription dropped before the last reading
	seen    uint64
	waiting []Item // to be delivered, in the order of their revisions
}

// Follow returns a feed of the changes after a revision: 0 for the whole inbox first. A revision that the bucket has not
// reached, because it was recreated, counts as 0. The server sends each change to the feed. When the feed may have
// missed a change, it reads the inbox again. A change may be left out when the same item changes again.
func (b *Inbox) Follow(ctx context.Context, kind contracts.RecipientType, userID string, after uint64) (*Feed, error) {
	keys, err := keysOf(kind, userID)
	if err != nil {
		return nil, fmt.Errorf("inapp: %w", err)
	}
	f := &Feed{inbox: b, kind: kind, userID: userID, changes: make(chan *nats.Msg, backlog), seen: after}
	nc := b.js.Conn()
	sub, err := nc.ChanSubscribe(contracts.RepublishSubject(contracts.BucketInbox, keys), f.changes)
	if err != nil {
		return nil, fmt.Errorf("inapp: follow: %w", err)
	}
	f.sub, f.status = sub, nc.StatusChanged(nats.CONNECTED)
	if err := f.begin(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// begin reads the inbox once the server has the subscription.
func (f *Feed) begin(ctx context.Context) error {
	if f.seen > 0 {
		stream, err := f.inbox.js.Stream(ctx, "KV_"+contracts.BucketInbox)
		if err != nil {
			return fmt.Errorf("inapp: follow: %w", err)
		}
		if f.seen > stream.CachedInfo().State.LastSeq {
			f.seen = 0
		}
	}
	flush, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := f.inbox.js.Conn().FlushWithContext(flush); err != nil {
		return fmt.Errorf("inapp: follow: %w", err)
	}
	return f.read(ctx)
}

// read takes from the bucket the items that have changed since the last revision seen.
func (f *Feed) read(ctx context.Context) error {
	var changed []Item
	for item, err := range f.inbox.items(ctx, f.kind, f.userID) {
		if err != nil {
			return err
		}
		if item.Revision > f.seen {
			changed = append(changed, item)
		}
	}
	for _, item := range f.waiting { // a replica that lags behind may not have it yet
		at := slices.IndexFunc(changed, func(c Item) bool { return c.RecipientType == item.RecipientType && c.EventID == item.EventID })
		switch {
		case at < 0:
			changed = append(changed, item)
		case changed[at].Revision < item.Revision:
			changed[at] = item
		}
	}
	slices.SortFunc(changed, func(a, b Item) int { return int(a.Revision) - int(b.Revision) })
	f.waiting, f.behind = changed, false
	return nil
}

// Close ends the feed.
func (f *Feed) Close() {
	_ = f.sub.Unsubscribe() // the connection is closed then
	f.inbox.js.Conn().RemoveStatusListener(f.status)
}

// Next waits for the next item that has changed, and returns its present state. When ctx ends while the inbox is read again,
// the next call reads it.
func (f *Feed) Next(ctx context.Context) (Item, error) {
	for {
		if f.behind {
			switch err := f.read(ctx); {
			case err != nil && ctx.Err() != nil:
				return Item{}, fmt.Errorf("inapp: follow: %w", context.Cause(ctx))
			case err != nil:
				return Item{}, err
			}
		}
		if len(f.waiting) > 0 {
			item := f.waiting[0]
			f.waiting = f.waiting[1:]
			f.seen = item.Revision
			return item, nil
		}
		select {
		case msg := <-f.changes:
			if item, ok := f.changed(msg); ok {
				f.waiting = append(f.waiting, item)
			}
			f.behind = f.missed()
		case <-f.status: // the server does not send changes made while there was no connection
			f.behind = true
		case <-ctx.Done():
			return Item{}, fmt.Errorf("inapp: follow: %w", context.Cause(ctx))
		}
	}
}

// missed reports whether changes were dropped since its last call.
func (f *Feed) missed() bool {
	dropped, err := f.sub.Dropped()
	if err != nil || dropped == f.dropped {
		return false
	}
	f.dropped = dropped
	return true
}

// changed reads a change that the server has sent, and reports whether the feed has not delivered it yet.
func (f *Feed) changed(msg *nats.Msg) (Item, bool) {
	revision, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil || revision <= f.seen {
		return Item{}, false
	}
	record, err := decode(msg.Header.Get(jetstream.SubjectHeader), msg.Data, revision)
	return *record.Item, err == nil
}
