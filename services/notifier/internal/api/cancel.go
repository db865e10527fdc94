package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

const (
	// maxUnexpanded is the number of users for whom an event may be cancelled before its notifications are stored.
	maxUnexpanded = 1000

	// shown is the time after an event was expanded from which all its notifications can be read: longer than a deposed leader
	// answers.
	shown = time.Minute
)

// ErrNotExpanded is returned for the cancellation of an event for one more user when too many are cancelled already, and the event
// has no notifications yet.
var ErrNotExpanded = errors.New("too many users are cancelled before it is expanded: cancel them a minute later, or it for all")

// Cancellation names an event or a digest that is no longer to be delivered, to all users or to one.
type Cancellation struct {
	// Cursor is the next of the call before, whose notifications are done.
	Cursor string `json:"cursor,omitempty" query:"cursor"`

	// EventID is the id of the event.
	EventID string `json:"event_id" jsonschema:"maxLength=320" query:"event"`

	// RecipientType is the kind of recipient, with user.
	RecipientType contracts.RecipientType `json:"recipient_type,omitempty" query:"type"`

	// UserID is one user, with type. Both are missing for all users.
	UserID string `json:"user_id,omitempty" jsonschema:"maxLength=320" query:"user"`
}

// Cancelled counts the outcomes of the notifications of a cancellation.
type Cancelled struct {
	// Again reports whether the event had been cancelled before.
	Again bool `json:"again,omitempty"`

	// Ended is the number of notifications that had ended without having been sent: bounced, failed, or suppressed for another
	// reason.
	Ended int `json:"ended"`

	// EventID is the id of the event.
	EventID string `json:"event_id"`

	// Next is the cursor with which the notifications after the first 1,000 are counted, "" when there are none. These notifications
	// are not sent either.
	Next string `json:"next,omitempty"`

	// Sending is the number of notifications that are being sent at this moment. A notification whose attempt fails is not tried again.
	Sending int `json:"sending"`

	// Sent is the number of notifications that had been sent. They stay sent.
	Sent int `json:"sent"`

	// State is the state of the event: cancelled, unless it is cancelled for one user only. The state of a digest is
	// cancelled.
	State plan.State `json:"state"`

	// Suppressed is the number of notifications that are not sent because of the cancellation.
	Suppressed int `json:"suppressed"`
}

// Cancel cancels an event, for all users or for one. Notifications that have been sent stay sent. Publishing the event again sends
// nothing. After an error or a crash call Cancel again to finish.
//
// A notification that is counted as suppressed is not sent, nor is one that has been put off or would be tried again. A notification
// that was not stored yet, or is after the first 1,000, may still be sent for up to [hold.Trust], plus the time of its call, if its
// sender has not received the cancellation. Usually the sender receives it within a millisecond. A notification that has gone into a
// digest has ended; the digest leaves its event out, unless the digest is being sent.
//
// A digest is cancelled by its own id, with the events that are in it at this moment. Later events go into the next digest.
// Digests after the first 1,000 are cancelled only by the call with their cursor. The error is [ErrUnknownEvent] for a digest
// that does not exist.
//
// An event that has not been published is unknown: the error is [ErrUnknownEvent]. Nothing is stored for a user whom the event does not
// concern. The users are not certain until a minute after the event is expanded. Until then it can be cancelled for 1,000 users without
// a notification; the error is [ErrNotExpanded] for more. Seven round trips, up to two more for one user, two for each notification,
// and two more for a digest.
//
// The audit stream gets a record of each call, also of a call with a cursor.
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
		return Cancelled{}, err
	}
	answer.Next = found.next.String()
	err = a.suppress(ctx, found.rows, &answer)
	return answer, err
}

// note records that an event is cancelled. It writes nothing for a digest, because a digest of another user may get
// the same id.
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
	answer.State = e.State
	if c.UserID != "" {
		if concerned, err := a.concerns(ctx, e, c); err != nil || !concerned {
			return answer, err
		}
	}
	answer.Again, err = a.cfg.Cancelled.Cancel(ctx, c.EventID, c.RecipientType, c.UserID)
	return answer, err
}

// concerns reports whether an event may have a notification for the user whom a cancellation names. An event that was expanded a while
// ago has all its notifications, except notifications that will follow an existing notification.
func (a *API) concerns(ctx context.Context, e *plan.Event, c Cancellation) (bool, error) {
	q, _, err := c.query()
	if err != nil {
		return false, err
	}
	if rows, _, err := a.rows.Subjects(ctx, q.subject(), 0); err != nil || len(rows) > 0 {
		return true, err
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

// query returns the query for the notifications of a cancellation.
func (c Cancellation) query() (Query, position, error) {
	if (c.UserID == "") != (c.RecipientType == "") {
		return Query{}, position{}, contracts.Mistake("query", "?user", "and ?type must both be there, or neither")
	}
	if _, err := contracts.EncodeToken(c.EventID); err != nil {
		return Query{}, position{}, fmt.Errorf("%w: %.80q", ErrUnknownEvent, c.EventID)
	}
	q := Query{Cursor: c.Cursor, EventID: c.EventID, RecipientType: c.RecipientType, UserID: c.UserID}
	from, err := q.begin()
	return q, from, err
}

// collects reports whether the notification is a digest.
func (s stored) collects() bool { return s.Collected }

// suppress ends the notifications that have not been sent, some at a time, and counts the outcomes of all notifications.
func (a *API) suppress(ctx context.Context, rows []stored, answer *Cancelled) error {
	all := make([][]*deliveries.Delivery, len(rows))
	err := each(rows, func(i int, row stored) (err error) {
		all[i], err = a.suppressOne(ctx, row)
		return err
	})
	if err != nil {
		return fmt.Errorf("event %.80q is cancelled, but some of its notifications do not say so yet, ask again: %w", answer.EventID, err)
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

// suppressOne ends a notification that has not been sent. It replaces the record that it has read. The
// sender replaces the same record before it sends, so only one of the two succeeds. It leaves a notification
// that is being sent to its sender. It seals a digest first, so that no event goes into a digest
// that is not sent. For a notification that was split it ends the notifications of its addresses, stored or not yet.
func (a *API) suppressOne(ctx context.Context, row stored) ([]*deliveries.Delivery, error) {
	there, err := a.cfg.Deliveries.Get(ctx, row.key)
	if err == nil && !there.State.Ended() && row.Collected {
		_, err = a.cfg.Digests.Seal(ctx, &row.Notification, nil)
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
