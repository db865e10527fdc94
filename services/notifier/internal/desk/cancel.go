package desk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/ledger"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/record"
)

// Cancellation is what is not to be told any more: an event, or an event to one user.
type Cancellation struct {
	Cursor        string // where the call before has ended; its rows are seen to
	EventID       string
	RecipientType contracts.RecipientType // with UserID
	UserID        string                  // with RecipientType; both empty are all whom the event concerns
}

// Cancelled is what became of the rows of a cancellation.
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

	// State is how far the event has come: cancelled, unless only a user is.
	State plan.State `json:"state"`

	// Suppressed is how many are not sent because of this.
	Suppressed int `json:"suppressed"`
}

// Cancel has an event not be told any more, to anybody or to one user. What has been sent stays so; an event that is told
// again after it is not sent. It may be called again after any error and any crash, and then ends what it has begun.
//
// No row that is counted as suppressed goes out, nor any that has been put off or is tried again. A row that was not
// stored yet, or is behind the first 1,000, may go out for [cancel.Trust] if this is what its sender has not heard of, which as
// a rule takes less than a millisecond. The error is [ErrUnknownEvent] for an event that was never told or that no rule
// is for. Five round trips, and two for each row.
func (d *Desk) Cancel(ctx context.Context, c Cancellation) (Cancelled, error) {
	filter, err := c.filter()
	if err != nil {
		return Cancelled{}, err
	}
	from, err := Query{Cursor: c.Cursor}.from()
	if err != nil {
		return Cancelled{}, err
	}
	e, err := d.cfg.Reader.Event(ctx, c.EventID)
	if errors.Is(err, record.ErrNotFound) || errors.Is(err, contracts.ErrTokenTooLong) || errors.Is(err, contracts.ErrEmptyToken) {
		return Cancelled{}, fmt.Errorf("%w: %.80q", ErrUnknownEvent, c.EventID)
	}
	if err == nil && c.UserID == "" {
		e, err = d.cfg.Reader.Cancel(ctx, c.EventID)
	}
	if err != nil {
		return Cancelled{}, err
	}
	answer := Cancelled{EventID: c.EventID, State: e.State}
	if answer.Again, err = d.cfg.Cancelled.Cancel(ctx, c.EventID, c.RecipientType, c.UserID); err != nil {
		return Cancelled{}, err
	}
	found, next, err := d.rows.Scan(ctx, filter, from, MaxLimit)
	if err != nil {
		return Cancelled{}, err
	}
	answer.Next = cursor(next)
	err = d.suppress(ctx, keysOf(found), &answer)
	return answer, err
}

// filter selects the rows that a cancellation is about.
func (c Cancellation) filter() (string, error) {
	if (c.UserID == "") != (c.RecipientType == "") {
		return "", &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
			{Path: "?user", Problem: "and ?type must both be there, or neither"},
		}}
	}
	send, _, err := Query{EventID: c.EventID, RecipientType: c.RecipientType, UserID: c.UserID}.filter()
	if errors.Is(err, contracts.ErrInvalid) && c.UserID == "" {
		return "", fmt.Errorf("%w: %.80q", ErrUnknownEvent, c.EventID)
	}
	return send, err
}

// keysOf are the keys of the rows that messages are.
func keysOf(found []record.Message) []string {
	keys := make([]string, 0, len(found))
	for _, m := range found {
		if key, ok := deliver.KeyOf(m.Subject); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// suppress ends the rows that have not been sent, some at a time, and counts what became of all.
func (d *Desk) suppress(ctx context.Context, keys []string, answer *Cancelled) error {
	errs := make([]error, len(keys))
	ends := make([]*ledger.Delivery, len(keys))
	var ending sync.WaitGroup
	room := make(chan struct{}, lookups)
	for i, key := range keys {
		room <- struct{}{}
		ending.Go(func() {
			defer func() { <-room }()
			ends[i], errs[i] = d.suppressOne(ctx, key)
		})
	}
	ending.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("event %.80q is cancelled, but some of its rows do not say so yet, ask again: %w", answer.EventID, err)
	}
	for _, end := range ends {
		switch {
		case end.State == ledger.Sent, end.State == ledger.Delivered:
			answer.Sent++
		case end.State == ledger.Suppressed && end.Reason == ledger.ReasonCancelled:
			answer.Suppressed++
		case end.State == ledger.Sending:
			answer.Sending++
		default:
			answer.Ended++
		}
	}
	return nil
}

// suppressOne ends a row over exactly the record that says that it has not been sent, so that its sender, who writes over
// the same record before it sends, cannot have missed it. What is being sent is left to whoever sends it.
func (d *Desk) suppressOne(ctx context.Context, key string) (*ledger.Delivery, error) {
	there, err := d.cfg.Ledger.Get(ctx, key)
	for err == nil && !there.State.Ended() && there.State != ledger.Sending {
		there.State, there.Reason, there.Until = ledger.Suppressed, ledger.ReasonCancelled, time.Time{}
		err = d.cfg.Ledger.Put(ctx, key, there)
		if taken, ok := errors.AsType[*ledger.TakenError](err); ok {
			there, err = taken.There, nil
		}
	}
	return there, err
}
