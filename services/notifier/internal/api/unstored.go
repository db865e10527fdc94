package api

import (
	"context"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// inInbox is the partition, after all others, in the position of a row that was delivered without being stored and is found by its
// item of the inbox.
const inInbox = contracts.MaxNotifyPartitions

// inInboxToo reports whether a query may select rows that are not stored.
func (q Query) inInboxToo() bool { return q.Channel == "" || q.Channel == inapp.Name }

// itemSubject returns the filter for the subjects of the rows' items.
func (q Query) itemSubject() string {
	tokens := q.tokens()
	return "$KV." + contracts.BucketInbox + "." + tokens[2] + "." + tokens[3] + "." + tokens[0]
}

// readItem reads a row by its item, and reports whether the record is an item of a row.
func readItem(r kvrecord.Record) (row stored, ok bool) {
	row.at = at(r.Revision)
	row.at.partition = inInbox
	row.Notification, row.key, ok = deliveries.RowOfItem(r)
	return row, ok
}

// place is a place with rows: a partition, or the inbox.
type place struct {
	*kvrecord.Stream

	atOnce int  // number of records that are read at a time
	large  bool // records have the payload of an event
	read   func(kvrecord.Record) (stored, bool)
}

func (a *API) place(partition int) place {
	if partition == inInbox {
		return place{Stream: a.items, atOnce: deliveries.ItemsAtOnce, large: true, read: readItem}
	}
	return place{Stream: a.rows[partition], atOnce: readAtOnce, read: readRow}
}

// found is a record that was read, with the row in it.
type found struct {
	revision uint64
	row      func() (stored, bool)
}

// find returns a record in the form in which it is kept until the wanted ones are known: an item without its payload.
func (p place) find(r kvrecord.Record) found {
	if !p.large { // most items are not returned
		return found{revision: r.Revision, row: func() (stored, bool) { return p.read(r) }}
	}
	row, ok := p.read(r)
	return found{revision: r.Revision, row: func() (stored, bool) { return row, ok }}
}

// unstored returns the rows that are not stored in any of n partitions. rows were read by their items. Rows in read were found in a
// partition, and count as stored even if the replica that answers now lacks them. Two round trips for each 512.
func (a *API) unstored(ctx context.Context, n int, rows, read []stored) ([]stored, error) {
	wanted := map[int][]string{}
	for _, row := range rows {
		subject, err := row.Subject()
		if err != nil {
			return nil, err
		}
		wanted[0] = append(wanted[0], subject)
		if p := contracts.NotifyPartition(row.UserID, n); p > 0 {
			wanted[p] = append(wanted[p], subject)
		}
	}
	is := map[string]bool{}
	for _, row := range read {
		if subject, err := row.Subject(); err == nil {
			is[subject] = true
		}
	}
	for partition, subjects := range wanted {
		found, err := a.rows[partition].GetMany(ctx, subjects)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			is[r.Subject] = true
		}
	}
	var not []stored
	for _, row := range rows {
		if subject, err := row.Subject(); err == nil && !is[subject] {
			not = append(not, row)
		}
	}
	return not, nil
}
