package api

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// position is a position in the results of a query. Its meaning depends on the way in which notifications are found. The zero
// value is the beginning.
type position struct {
	// revision is the revision of the next record, 0 while the notifications come from the recipients of a plan.
	revision uint64

	// part and index are the next part of a plan's recipients, and the next notification within the part.
	part, index int

	// digest reports whether revision is the revision of a digest after the notifications of a plan. A revision alone as the cursor for
	// an event with a plan is refused, because it does not tell which notifications of the plan were read.
	digest bool

	// items reports whether revision is the revision of an item of the inbox, after the records of the stream.
	items bool

	end bool
}

// at returns the position of a record.
func at(revision uint64) position { return position{revision: revision, end: revision == 0} }

// String returns the cursor of the position, "" for the end.
func (p position) String() string {
	switch {
	case p.end:
		return ""
	case p.digest:
		return digestCursor + strconv.FormatUint(p.revision, 36)
	case p.items:
		return itemsCursor + strconv.FormatUint(p.revision, 36)
	case p.revision > 0:
		return strconv.FormatUint(p.revision, 36)
	default:
		return planCursor + strconv.Itoa(p.part) + "-" + strconv.Itoa(p.index)
	}
}

// The cursor of a position in a plan begins with planCursor, in the digests after the plan with digestCursor, and in the items
// of the inbox with itemsCursor.
const planCursor, digestCursor, itemsCursor = "p-", "d-", "i-"

// parse reads a cursor, "" for the beginning.
func parse(text string) (p position, err error) {
	if text == "" {
		return position{}, nil
	}
	if in, ok := strings.CutPrefix(text, planCursor); ok {
		part, index, _ := strings.Cut(in, "-")
		var failed error
		p.part, err = strconv.Atoi(part)
		p.index, failed = strconv.Atoi(index)
		err = errors.Join(err, failed)
	} else {
		text, p.digest = strings.CutPrefix(text, digestCursor)
		text, p.items = strings.CutPrefix(text, itemsCursor)
		p.revision, err = strconv.ParseUint(text, 36, 64)
	}
	if err != nil || p.part < 0 || p.index < 0 || p.revision == 0 && !strings.HasPrefix(text, planCursor) {
		return p, unknownCursor()
	}
	return p, nil
}

func unknownCursor() error {
	return contracts.Mistake("query", "?cursor", "is none that was given out")
}

// stored is a notification with its key and position.
type stored struct {
	contracts.Notification // empty when it cannot be read

	at  position
	key string
}

// isUnreadable reports whether the notification cannot be decoded. Its worker dead-letters it.
func (s stored) isUnreadable() bool { return s.EventID == "" }

// part is some of the notifications that a query selects.
type part struct {
	rows   []stored
	looked int      // the number of records that were looked at
	next   position // the position of the next notifications
}

// find returns notifications that a query selects, whatever their state, from a position on. It looks at no more notifications than
// most. Its cost on the server grows with the notifications of the user, or with the notifications that it looks at, and not with all
// notifications.
func (a *API) find(ctx context.Context, q Query, from position, most int) (part, error) {
	switch {
	case q.UserID != "":
		return a.ofUser(ctx, q, from, most)
	case q.EventID != "":
		return a.ofEvent(ctx, q, from, most)
	default:
		return a.ofAll(ctx, q, from, most)
	}
}

// through calls in for the stream of notifications, and then for the items of the inbox if the query may select any, from a position
// on, until in has looked at as many records as most.
func (a *API) through(q Query, from position, most int, in func(at place, from position, most int) (part, error)) (all part, err error) {
	for _, items := range []bool{false, true} {
		switch {
		case items && !q.inInboxToo(), from.items && !items:
			continue
		case all.looked >= most:
			all.next = position{items: items, revision: 1}
			return all, nil
		case items && !from.items:
			from = position{items: true}
		}
		found, err := in(a.place(items), from, most-all.looked)
		if err != nil {
			return part{}, err
		}
		all.rows, all.looked, all.next = append(all.rows, found.rows...), all.looked+found.looked, found.next
		if all.next.items = items; !all.next.end {
			return all, nil
		}
	}
	all.next = position{end: true}
	return all, nil
}

// ofUser returns notifications of a user in the order in which they were stored, and then notifications of the inbox that are in no
// stream. The server finds their subjects by the first tokens, the channels and kinds of recipients. One round trip for the stream, one
// for the inbox, and one for each 512 notifications of the user.
func (a *API) ofUser(ctx context.Context, q Query, from position, most int) (part, error) {
	return a.through(q, from, most, func(in place, from position, most int) (part, error) {
		return a.among(ctx, in, in.All(ctx, in.filter(q)), from, most)
	})
}

// ofAll returns notifications of all users and events in the order in which they were stored, and then notifications of the inbox that
// are in no stream. At most two round trips.
func (a *API) ofAll(ctx context.Context, q Query, from position, most int) (part, error) {
	return a.through(q, from, most, func(in place, from position, most int) (part, error) {
		found, next, err := in.Scan(ctx, from.revision, most)
		if err != nil {
			return part{}, err
		}
		some := part{looked: len(found), next: at(next)}
		for _, r := range found {
			if row, ok := in.read(r); ok && q.matches(row.key) {
				some.rows = append(some.rows, row)
			}
		}
		return some, nil
	})
}

// ofEvent returns notifications of an event: the notifications of its plan in the order of the plan, and then the digests whose id is the
// event's, in the order in which they were stored. One round trip for the plan, two for the digests, and one for each 512
// notifications.
func (a *API) ofEvent(ctx context.Context, q Query, from position, most int) (part, error) {
	p, err := a.cfg.Reader.Get(ctx, q.EventID)
	switch {
	case errors.Is(err, plan.ErrNotFound):
		// There was no plan, or it has expired. Then only the last notifications may be left: notifications of a next channel.
		if from.items { // items cannot be found by event
			return part{}, unknownCursor()
		}
		return a.among(ctx, a.place(false), a.subjectsOfRows(ctx, q.key(), q.digestKey()), from, most)
	case err != nil:
		return part{}, err
	case from.digest:
		return a.digestsOf(ctx, q, from, most)
	case from.revision > 0:
		return part{}, unknownCursor()
	}
	found, err := a.ofPlan(ctx, p, q, from, most)
	if err != nil || !found.next.end {
		return found, err
	}
	digests, err := a.digestsOf(ctx, q, position{}, most-len(found.rows))
	return part{
		rows: append(found.rows, digests.rows...), looked: found.looked + digests.looked, next: digests.next,
	}, err
}

// digestsOf returns the digests whose id is the event's, from a position on.
func (a *API) digestsOf(ctx context.Context, q Query, from position, most int) (part, error) {
	found, err := a.among(ctx, a.place(false), a.subjectsOfRows(ctx, q.digestKey()), from, most)
	found.next.digest = !found.next.end
	for i := range found.rows {
		found.rows[i].at.digest = true
	}
	return found, err
}

// readAtOnce is the number of notifications that are read before the notifications beyond the wanted ones are dropped.
const readAtOnce = 2048

// among returns the notifications of a place at subjects, in the order in which they were stored, from a position on, and no more
// notifications than most. It reads the notifications of all subjects, and keeps no more than the returned notifications and readAtOnce
// others. subjects may yield a subject more than once.
func (a *API) among(ctx context.Context, in place, subjects iter.Seq2[[]string, error], from position, most int) (part, error) {
	var kept []stored
	for list, err := range subjects {
		if err != nil {
			return part{}, err
		}
		for some := range slices.Chunk(list, in.atOnce) {
			records, err := in.GetMany(ctx, some)
			if err != nil {
				return part{}, err
			}
			for _, r := range records {
				if row, ok := in.read(r); ok && r.Revision >= from.revision {
					kept = append(kept, row)
				}
			}
			slices.SortFunc(kept, func(a, b stored) int { return cmp.Compare(a.at.revision, b.at.revision) })
			kept = slices.CompactFunc(kept, func(a, b stored) bool { return a.at.revision == b.at.revision })
			kept = kept[:min(len(kept), most+1)]
		}
	}
	p := part{rows: kept, looked: min(len(kept), most), next: position{end: true}}
	if len(kept) > most {
		p.rows, p.next = kept[:most], at(kept[most].at.revision)
	}
	return p, nil
}

// subjectsOfRows yields the subjects of notifications, from the keys of their records in the bucket of deliveries.
func (a *API) subjectsOfRows(ctx context.Context, filters ...string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for _, filter := range filters {
			for keys, err := range a.deliveries.All(ctx, a.deliveries.Key(filter)) {
				subjects := make([]string, 0, len(keys))
				for _, key := range keys {
					tokens := strings.Split(key, ".")
					tokens = tokens[len(tokens)-keyTokens:]
					subjects = append(subjects, strings.Join([]string{"notify.send", tokens[1], tokens[2], tokens[3], tokens[0]}, "."))
				}
				if !yield(subjects, err) {
					return
				}
			}
		}
	}
}

// readRow decodes a record as a notification, and reports whether it is one.
func readRow(r kvrecord.Record) (row stored, ok bool) {
	key, replay, ok := keys.OfSubject(r.Subject)
	if !ok || replay > 0 || !strings.HasPrefix(r.Subject, "notify.send.") {
		return row, false // a plan, or a replay
	}
	row.at, row.key = at(r.Revision), key
	if n, err := contracts.Decode[contracts.Notification](r.Data); err == nil {
		row.Notification, row.Payload = n, nil // so that many notifications can be held
	}
	return row, true
}
