package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// State is the state of an event.
type State string

// The states of an event.
const (
	// StateSeen means: its plan is being made, or its planner died.
	StateSeen State = "seen"
	// StatePlanned means: its plan is committed.
	StatePlanned State = "planned"
	// StateExpanded means: all notifications of its plan are stored, or were delivered without being stored.
	StateExpanded State = "expanded"
	// StateRefused means: it could not be planned, and has a dead letter. It is replanned when the dead letter is replayed,
	// or when it is published again after the stream has forgotten its id.
	StateRefused State = "refused"
	// StateCancelled means: it is no longer to be delivered, whatever its state was.
	StateCancelled State = "cancelled"
)

// keep is the time for which the record of an event stays after its last change: longer than its plan and its notifications, which their
// stream keeps for 30 days. An event that is published again after that is a new event.
const keep = 40 * 24 * time.Hour

// Event is the record of an event.
type Event struct {
	// At is the time at which the event was first seen.
	At time.Time `json:"at"`

	// Fingerprint is the fingerprint of the event that was seen first, without occurred_at: senders' libraries restamp it.
	Fingerprint string `json:"fingerprint"`

	// Reason is the reason for which the event was refused, "" when it was not.
	Reason string `json:"reason,omitempty"`

	// Recipients is the number of recipients of the plan.
	Recipients int `json:"recipients,omitempty"`

	// Notifications is the number of notifications of the plan.
	Notifications int `json:"notifications,omitempty"`

	// State is the state of the event.
	State State `json:"state"`

	again bool            // the record existed before
	over  kvrecord.Record // as last read or written
}

// Unplanned reports whether the event has no plan yet, and is to have one.
func (e *Event) Unplanned() bool { return e.State == StateSeen || e.State == StateRefused }

// Written returns the time at which the record was written, by the server's clock.
func (e *Event) Written() time.Time { return e.over.Stored }

// come sets the state of the event.
func (e *Event) come(to State, p *Plan) {
	e.State, e.Reason, e.Recipients, e.Notifications = to, "", p.Recipients, p.Notifications
}

// events has the records of events.
type events struct{ *kvrecord.Stream }

// see writes the record of an event, or reads the existing record. The error is ErrMismatch when that belongs to
// another event.
func (s events) see(ctx context.Context, e recipient.Event) (*Event, error) {
	subject, err := s.subjectOf(e.EventID)
	if err != nil {
		return nil, err
	}
	mark, err := e.Fingerprint()
	if err != nil {
		return nil, err
	}
	seen := Event{At: time.Now().UTC(), Fingerprint: mark, State: StateSeen, over: kvrecord.Record{Subject: subject}}
	err = s.put(ctx, &seen)
	conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
	if !ok {
		return &seen, err
	}
	there, err := decodeEvent(conflict.Found)
	if err != nil {
		return nil, err
	}
	if there.Fingerprint != mark {
		return nil, ErrMismatch
	}
	there.again = true
	return there, nil
}

// note writes the record of an event, unless another process has written the record since it was read.
func (s events) note(ctx context.Context, e *Event) error {
	if err := s.put(ctx, e); !errors.Is(err, kvrecord.ErrConflict) {
		return err
	}
	return nil
}

// put writes the record of an event over the one that was read.
func (s events) put(ctx context.Context, e *Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the record of the event: %w", err)
	}
	stored, err := s.Put(ctx, kvrecord.Write{Subject: e.over.Subject, Data: data, Over: e.over, TTL: keep})
	if err == nil {
		e.over = stored
	}
	return err
}

func (s events) get(ctx context.Context, eventID string) (*Event, error) {
	subject, err := s.subjectOf(eventID)
	if err != nil {
		return nil, err
	}
	found, err := s.Get(ctx, subject)
	if err != nil {
		return nil, err
	}
	return decodeEvent(found)
}

// change lets alter change the record of an event, and writes it if alter reports a change. It starts over when another
// process has written the record in the meantime, which is rare, because the state of an event only advances.
func (s events) change(ctx context.Context, eventID string, alter func(*Event) bool) (*Event, error) {
	e, err := s.get(ctx, eventID)
	for err == nil && alter(e) {
		err = s.put(ctx, e)
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if !ok {
			return e, err
		}
		e, err = decodeEvent(conflict.Found)
	}
	return e, err
}

// decodeEvent reads the record of an event. The error matches [ErrNotFound] when there is none.
func decodeEvent(found kvrecord.Record) (*Event, error) {
	if len(found.Data) == 0 {
		return nil, fmt.Errorf("%s: %w", found.Subject, ErrNotFound)
	}
	e := Event{over: found}
	if err := json.Unmarshal(found.Data, &e); err != nil {
		return nil, fmt.Errorf("%w: record %s: %w", contracts.ErrInvalid, found.Subject, err)
	}
	return &e, nil
}

func (s events) subjectOf(eventID string) (string, error) {
	key, err := keys.Event(eventID)
	return s.Key(key), err
}
