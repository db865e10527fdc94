package api

import (
	"context"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// inInbox takes the place of a partition behind all others, in the position of a row that was delivered without being stored: it is
// there by its item of the inbox.
const inInbox = contracts.MaxNotifyPartitions

// inInboxToo reports whether a query may select rows that are not stored.
func (q Query) inInboxToo() bool { return q.Channel == "" || q.Channel == inapp.Name }

// itemSubject selects the items of the rows.
func (q Query) itemSubject() string {
	tokens := q.tokens()
	return "$KV." + contracts.BucketInbox + "." + tokens[2] + "." + tokens[3] + "." + tokens[0]
}

// readItem reads a row by its item, and reports whether the record is one that may stand for a row.
func readItem(r kvrecord.Record) (row stored, ok bool) {
	row.at = at(r.Revision)
	row.at.partition = inInbox
	row.Notification, row.key, ok = deliveries.RowOfItem(r)
	return row, ok
}

// place returns the records of a partition, or of the inbox, and how one of them is read.
func (a *API) place(partition int) (records *kvrecord.Stream, read func(kvrecord.Record) (stored, bool)) {
	if partition == inInbox {
		return a.items, readItem
	}
	return a.rows[partition], readRow
}

// unstored returns those of rows, which were read by their items, that are not stored in any of n partitions. Two round trips for each 512.
func (a *API) unstored(ctx context.Context, n int, rows []stored) ([]stored, error) {
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
