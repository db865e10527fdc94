package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

const (
	// maxUnexpanded is for how many users an event may be cancelled before its rows are stored.
	maxUnexpanded = 1000

	// shown is how long after an event was expanded its rows show that: longer than a leader that was deposed answers.
	shown = time.Minute
)

// ErrNotExpanded is returned for the cancellation of an event for one more user when too many are cancelled already, and the event
// has no rows yet.
var ErrNotExpanded = errors.New("too many users are cancelled before it is expanded: cancel them a minute later, or it for all")

// Cancellation names an event or a digest that is not to be delivered any more, to all users or to one.
type Cancellation struct {
	Cursor        string                  `json:"cursor,omitempty"` // where the call before has ended; its rows are seen to
	EventID       string                  `json:"event_id"`
	RecipientType contracts.RecipientType `json:"recipient_type,omitempty"` // with UserID
	UserID        string                  `json:"user_id,omitempty"`        // with RecipientType; both empty are all recipients of the event
}

// Cancelled counts the outcomes of the rows of a cancellation.
type Cancelled struct {
	// Again says that it had been cancelled before.
	Again bool `json:"again,omitempty"`

	// Ended is how many rows had ended without having been sent: bounced, failed, or suppressed for another reason.
	Ended int `json:"ended"`

	// EventID is the event.
	EventID string `json:"event_id"`

	// Next is the cursor with which the rows behind the first 1,000 are counted, "" when there are none. They are not sent
	// either.
	Next string `json:"next,omitempty"`

	// Sending is how many are being sent at this moment. Those whose try fails are not tried again.
	Sending int `json:"sending"`

	// Sent is how many had been sent. They stay so.
	Sent int `json:"sent"`

	// State is how far the event has come: cancelled, unless only a user is. A digest is cancelled.
	State plan.State `json:"state"`

	// Suppressed is how many are not sent because of this.
	Suppressed int `json:"suppressed"`

	// Unpublished says that the event has not been published. It is cancelled if it is published within [plan.KeepUnpublished].
	Unpublished bool `json:"unpublished,omitempty"`
}

// Cancel cancels an event, for all users or for one. Rows that have been sent stay sent; an event that is published again
// after it is not sent. After an error or a crash call it again: it finishes what it has begun.
//
// No row that is counted as suppressed goes out, nor any that has been put off or is tried again. A row that was not
// stored yet, or is behind the first 1,000, may go out for [cancel.Trust] if its sender has not heard of the cancellation,
// which as a rule takes less than a millisecond, and for the seconds that its call then takes. A row that has gone into a digest has
// ended; the digest leaves its event out,
// unless the digest is being sent.
//
// A digest is cancelled by its own id, with the events that are in it at this moment. Later events go into the next one. Digests
// behind the first 1,000 are not cancelled before the call with their cursor. The error is [ErrUnknownEvent] for a digest that is
// not there.
//
// An event can be cancelled before it is published, which holds for [plan.KeepUnpublished]: there are at most [plan.MaxUnpublished]
// such events at a time, and the error is [plan.ErrUnpublished] for more. Nothing is stored for a user whom the event does not
// concern. Until a minute after the event is expanded its users are not certain: until then it can be cancelled for 1,000 users
// without a row, and the error is [ErrNotExpanded] for more. Seven round trips, four more for an event that is not published, up to
// two more for one user, and two for each row, three for one of the inbox; two more for a digest.
//
// The audit stream has a record of each call, also of one with a cursor.
func (a *API) Cancel(ctx context.Context, c Cancellation) (answer Cancelled, err error) {
	q, from, err := c.query()
	if err != nil {
		return Cancelled{}, err
	}
	err = a.cfg.Audit.Do(ctx, "cancel", q.target(), func(ctx context.Context) (int, error) {
		answer, err = a.cancel(ctx, c, q, from)
		return answer.Suppressed, err
	})
	return answer, err
}

func (a *API) cancel(ctx context.Context, c Cancellation, q Query, from position) (Cancelled, error) {
	answer, err := a.note(ctx, c)
	unknown := errors.Is(err, ErrUnknownEvent)
	if err != nil && !unknown {
		return Cancelled{}, err
	}
	found, findErr := a.find(ctx, q, from, MaxLimit)
	if findErr != nil {
		return Cancelled{}, findErr
	}
	if unknown && !slices.ContainsFunc(found.rows, stored.collects) {
		if answer, err = a.forestall(ctx, c, err); err != nil {
			return Cancelled{}, err
		}
	}
	answer.Next = found.next.String()
	err = a.suppress(ctx, found.rows, &answer)
	return answer, err
}

// forestall cancels an event that has not been published. The error is unknown for a digest, and for an id that is too long for an
// event.
func (a *API) forestall(ctx context.Context, c Cancellation, unknown error) (Cancelled, error) {
	if strings.HasPrefix(c.EventID, contracts.DigestIDPrefix) || len(c.EventID) > contracts.MaxID {
		return Cancelled{}, unknown
	}
	if err := a.cfg.Reader.Announce(ctx, c.EventID); err != nil {
		return Cancelled{}, err
	}
	return a.note(ctx, c)
}

// note records that an event is cancelled. Of a digest nothing is written here: another user's may come to have its id.
func (a *API) note(ctx context.Context, c Cancellation) (Cancelled, error) {
	answer := Cancelled{EventID: c.EventID, State: plan.StateCancelled}
	e, err := a.cfg.Reader.Event(ctx, c.EventID)
	if errors.Is(err, plan.ErrNotFound) || errors.Is(err, contracts.ErrTokenTooLong) || errors.Is(err, contracts.ErrEmptyToken) {
		return answer, fmt.Errorf("%w: %.80q", ErrUnknownEvent, c.EventID)
	}
	if err == nil && c.UserID == "" {
		answer.Again = e.State == plan.StateCancelled
		e, err = a.cfg.Reader.Cancel(ctx, c.EventID)
	}
	if err != nil {
		return answer, err
	}
	answer.State, answer.Unpublished = e.State, !e.Published()
	if c.UserID == "" && answer.Unpublished { // it will have no rows
		return answer, nil
	}
	if c.UserID != "" {
		if concerned, err := a.concerns(ctx, e, c); err != nil || !concerned {
			return answer, err
		}
	}
	answer.Again, err = a.cfg.Cancelled.Cancel(ctx, c.EventID, c.RecipientType, c.UserID)
	return answer, err
}

// concerns reports whether an event may have a row of the user whom a cancellation names. One that has been expanded for a while has
// all rows that it gets, but those that follow one that is there.
func (a *API) concerns(ctx context.Context, e *plan.Event, c Cancellation) (bool, error) {
	q, _, err := c.query()
	if err != nil {
		return false, err
	}
	partitions, _, err := a.partitions(ctx, q)
	if err != nil {
		return false, err
	}
	for _, p := range partitions {
		if rows, _, err := a.rows[p].Subjects(ctx, q.subject(), 0); err != nil || len(rows) > 0 {
			return true, err
		}
	}
	if items, _, err := a.items.Subjects(ctx, q.itemSubject(), 0); err != nil || len(items) > 0 {
		return true, err
	}
	if e.State == plan.StateExpanded && time.Since(e.Written()) > shown {
		return false, nil
	}
	users, err := a.cfg.Cancelled.Users(ctx, c.EventID)
	if err == nil && users >= maxUnexpanded {
		err = fmt.Errorf("event %.80q: %w", c.EventID, ErrNotExpanded)
	}
	return true, err
}

// query selects the rows that a cancellation is about.
func (c Cancellation) query() (Query, position, error) {
	if (c.UserID == "") != (c.RecipientType == "") {
		return Query{}, position{}, &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
			{Path: "?user", Problem: "and ?type must both be there, or neither"},
		}}
	}
	if _, err := contracts.EncodeToken(c.EventID); err != nil {
		return Query{}, position{}, fmt.Errorf("%w: %.80q", ErrUnknownEvent, c.EventID)
	}
	q := Query{Cursor: c.Cursor, EventID: c.EventID, RecipientType: c.RecipientType, UserID: c.UserID}
	from, err := q.begin()
	return q, from, err
}

// collects reports whether the row is a digest.
func (s stored) collects() bool { return s.Collected }

// suppress ends the rows that have not been sent, some at a time, and counts the outcomes of all.
func (a *API) suppress(ctx context.Context, rows []stored, answer *Cancelled) error {
	errs := make([]error, len(rows))
	all := make([][]*deliveries.Delivery, len(rows))
	var ending sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i, row := range rows {
		room <- struct{}{}
		ending.Go(func() {
			defer func() { <-room }()
			all[i], errs[i] = a.suppressOne(ctx, row)
		})
	}
	ending.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("event %.80q is cancelled, but some of its rows do not say so yet, ask again: %w", answer.EventID, err)
	}
	for _, end := range slices.Concat(all...) {
		switch {
		case end.State == deliveries.Sent, end.State == deliveries.Delivered:
			answer.Sent++
		case end.State == deliveries.Suppressed && end.Reason == deliveries.ReasonCancelled:
			answer.Suppressed++
		case end.State == deliveries.Sending:
			answer.Sending++
		default:
			answer.Ended++
		}
	}
	return nil
}

// suppressOne ends a row that has not been sent. It replaces the record that it has read. The sender replaces the same
// record before it sends, so only one of the two succeeds; of the inbox, whose items come once, it takes the place of the item. A row
// that is being sent is left to its sender. A digest is sealed first, so that no event goes into a digest that is not sent. For a row
// that was split those of its addresses end, stored or not yet.
func (a *API) suppressOne(ctx context.Context, row stored) ([]*deliveries.Delivery, error) {
	there, err := a.cfg.Deliveries.Get(ctx, row.key)
	switch open := err == nil && !there.State.Ended(); {
	case open && row.Collected:
		_, err = a.cfg.Digests.Seal(ctx, &row.Notification, nil)
	case open && row.Channel == inapp.Name && there.State != deliveries.Sending:
		var delivered bool
		if delivered, err = a.cfg.Withhold(ctx, &row.Notification); delivered { // its sender writes it down
			there.State = deliveries.Delivered
		}
	}
	for err == nil && !there.State.Ended() && there.State != deliveries.Sending {
		there.State, there.Reason, there.Until = deliveries.Suppressed, deliveries.ReasonCancelled, time.Time{}
		err = a.cfg.Deliveries.Put(ctx, row.key, there)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			there, err = taken.There, nil
		}
	}
	if err != nil || len(there.Addresses) == 0 {
		return []*deliveries.Delivery{there}, err
	}
	var all []*deliveries.Delivery
	for _, part := range row.parts(there) {
		ends, err := a.suppressOne(ctx, part)
		if err != nil {
			return nil, err
		}
		all = append(all, ends...)
	}
	return all, nil
}
