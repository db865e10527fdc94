package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// State is how far an event has come.
type State string

// The states of an event.
const (
	// StateSeen is an event whose plan is being made, or whose planner died.
	StateSeen State = "seen"
	// StatePlanned means: its plan is committed.
	StatePlanned State = "planned"
	// StateExpanded means: all rows of its plan are stored.
	StateExpanded State = "expanded"
	// StateRefused means: it could not be planned, and has a dead letter. It is planned anew when that is replayed, or when it
	// is told again and the stream has forgotten its id.
	StateRefused State = "refused"
	// StateCancelled means: it is not to be told any more, however far it had come.
	StateCancelled State = "cancelled"
)

// keep is how long the record of an event stays after its last change: longer than its plan and its rows, which their stream keeps
// for 30 days. An event that is told again after that is another one.
const keep = 40 * 24 * time.Hour

// Event is what is kept of an event.
type Event struct {
	// At is when it was first seen.
	At time.Time `json:"at"`

	// Fingerprint is that of the event with all its fields: the same in whichever order, and with whatever white space,
	// they are written.
	Fingerprint string `json:"fingerprint"`

	// Reason is why it was refused, "" when it was not.
	Reason string `json:"reason,omitempty"`

	// Recipients is how many the plan has.
	Recipients int `json:"recipients,omitempty"`

	// Rows is how many the plan has.
	Rows int `json:"rows,omitempty"`

	// State is how far the event has come.
	State State `json:"state"`

	again bool            // it was there before
	over  kvrecord.Record // as it was read or written
}

// Unplanned reports whether it has no plan yet, and is to have one.
func (e *Event) Unplanned() bool { return e.State == StateSeen || e.State == StateRefused }

// Written is when the record was written that was read, by the server's clock.
func (e *Event) Written() time.Time { return e.over.Stored }

// come sets how far the event has come.
func (e *Event) come(to State, p *Plan) {
	e.State, e.Reason, e.Recipients, e.Rows = to, "", p.Recipients, p.Rows
}

// events are the records of events.
type events struct{ *kvrecord.Stream }

// see writes the record of an event, or reads the one that is there. ErrMismatch says that it is of another event.
func (s events) see(ctx context.Context, e contracts.Event) (*Event, error) {
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
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
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
	return &seen, err
}

// planned notes that the plan is committed. What somebody else has noted since it was seen is that as well, or more.
func (s events) planned(ctx context.Context, e *Event, plan *Plan) error {
	e.come(StatePlanned, plan)
	return s.note(ctx, e)
}

// reopened notes that the event has been told again since it was refused.
func (s events) reopened(ctx context.Context, e *Event) error {
	e.State, e.Reason = StateSeen, ""
	return s.note(ctx, e)
}

// note writes the record of an event, unless another process has written it since it was read.
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

// change writes the record of an event as alter leaves it, unless alter says that there is nothing to alter. It begins anew
// when another process has written meanwhile: of those there are few, since an event comes only ever further.
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
		return nil, fmt.Errorf("record %s: %w", found.Subject, err)
	}
	return &e, nil
}

func (s events) subjectOf(eventID string) (string, error) {
	key, err := contracts.EventRecordKey(eventID)
	return s.Key(key), err
}
