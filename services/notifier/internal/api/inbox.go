package api

import (
	"strings"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// inInboxToo reports whether a query may select notifications of the inbox.
func (q Query) inInboxToo() bool { return q.Channel == "" || q.Channel == inapp.Name }

// itemSubject returns the filter for the subjects of the notifications' items.
func (q Query) itemSubject() string {
	tokens := q.tokens()
	return deliveries.ItemSubject(strings.Join([]string{tokens[0], inapp.Name, tokens[2], tokens[3]}, "."))
}

// readItem reads a notification by its item, and reports whether the notification is in no stream.
func readItem(r kvrecord.Record) (row stored, ok bool) {
	row.at = at(r.Revision)
	row.at.items = true
	row.Notification, row.key, ok = deliveries.RowAtOnce(r)
	return row, ok
}

// place is a place with notifications: the stream, or the inbox.
type place struct {
	*kvrecord.Stream

	atOnce int // number of records that are read at a time
	read   func(kvrecord.Record) (stored, bool)
	filter func(Query) string // of the subjects that a query selects
}

func (a *API) place(items bool) place {
	if items {
		return place{Stream: a.items, atOnce: deliveries.ItemsAtOnce, read: readItem, filter: Query.itemSubject}
	}
	return place{Stream: a.rows, atOnce: readAtOnce, read: readRow, filter: Query.subject}
}
