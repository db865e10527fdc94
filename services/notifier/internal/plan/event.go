package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// State is the state of an event.
type State string

// The states of an event.
const (
	// StateUnpublished means: the event has not been published, and is cancelled for some users.
	StateUnpublished State = "unpublished"
	// StateSeen means: its plan is being made, or its planner died.
	StateSeen State = "seen"
	// StatePlanned means: its plan is committed.
	StatePlanned State = "planned"
	// StateExpanded means: all rows of its plan are stored, or were delivered without being stored.
	StateExpanded State = "expanded"
	// StateRefused means: it could not be planned, and has a dead letter. It is planned anew when the dead letter is replayed,
	// or when it is published again after the stream has forgotten its id.
	StateRefused State = "refused"
	// StateCancelled means: it is no longer to be delivered, whatever its state was.
	StateCancelled State = "cancelled"
)

// keep is the time for which the record of an event stays after its last change: longer than its plan and its rows, which their
// stream keeps for 30 days. An event that is published again after that is a new event.
const keep = 40 * 24 * time.Hour

// The bounds of events that are cancelled before they are published.
const (
	// MaxUnpublished is the largest number of such events at a time.
	MaxUnpublished = 1000

	// KeepUnpublished is the time for which each is kept. An event that is published later is not cancelled.
	KeepUnpublished = 7 * 24 * time.Hour
)

// Event is the record of an event.
type Event struct {
	// At is the time at which the event was first seen.
	At time.Time `json:"at"`

	// Fingerprint is the exact fingerprint of the event that was seen first. "" means that the event was cancelled
	// before it was published.
	Fingerprint string `json:"fingerprint"`

	// Mark is the first half of the fingerprint without occurred_at. "" when it equals that of Fingerprint, and in
	// records of earlier versions.
	Mark string `json:"mark,omitempty"`

	// Reason is the reason for which the event was refused, "" when it was not.
	Reason string `json:"reason,omitempty"`

	// Recipients is the number of recipients of the plan.
	Recipients int `json:"recipients,omitempty"`

	// Rows is the number of rows of the plan.
	Rows int `json:"rows,omitempty"`

	// State is the state of the event.
	State State `json:"state"`

	again bool            // the record existed before
	over  kvrecord.Record // as last read or written
}

// Unplanned reports whether the event has no plan yet, and is to have one.
func (e *Event) Unplanned() bool { return e.State == StateSeen || e.State == StateRefused }

// Published reports whether the event has been published. An unpublished event with a record is cancelled, for all
// users or for some.
func (e *Event) Published() bool { return e.Fingerprint != "" }

// name sets the fields that distinguish the event from other events with its id.
func (e *Event) name(event contracts.Event) (err error) {
	if e.Fingerprint, err = event.ExactFingerprint(); err != nil {
		return err
	}
	if event.OccurredAt.IsZero() {
		return nil
	}
	e.Mark, err = event.Fingerprint()
	e.Mark = e.Mark[:min(markText, len(e.Mark))]
	return err
}

// markText is the number of characters of Mark: 128 bits.
const markText = 32

// same reports whether two records are of the same event. A process of an earlier version may have removed the mark
// of a record.
func (e *Event) same(other *Event) bool {
	loose := func(e *Event) string { return cmp.Or(e.Mark, e.Fingerprint[:min(markText, len(e.Fingerprint))]) }
	return e.Fingerprint == other.Fingerprint || loose(e) == loose(other)
}

// Written returns the time at which the record was written, by the server's clock.
func (e *Event) Written() time.Time { return e.over.Stored }

// come sets the state of the event.
func (e *Event) come(to State, p *Plan) {
	e.State, e.Reason, e.Recipients, e.Rows = to, "", p.Recipients, p.Rows
}

// events has the records of events.
type events struct{ *kvrecord.Stream }

// see writes the record of an event, or reads the existing record. The error is ErrMismatch when that belongs to
// another event.
func (s events) see(ctx context.Context, e contracts.Event) (*Event, error) {
	subject, err := s.subjectOf(e.EventID)
	if err != nil {
		return nil, err
	}
	seen := Event{At: time.Now().UTC(), State: StateSeen, over: kvrecord.Record{Subject: subject}}
	if err := seen.name(e); err != nil {
		return nil, err
	}
	err = s.put(ctx, &seen)
	conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
	if !ok {
		return &seen, err
	}
	there, err := decodeEvent(conflict.Found)
	news := false
	if err == nil && !there.Published() {
		there, news, err = s.published(ctx, e.EventID, &seen)
	}
	if err != nil {
		return nil, err
	}
	if !there.same(&seen) {
		return nil, ErrMismatch
	}
	there.again = !news
	return there, nil
}

// published records that an event that was cancelled before, for all users or for some, is published, and reports whether that
// is new. Five round trips.
func (s events) published(ctx context.Context, eventID string, seen *Event) (there *Event, news bool, err error) {
	there, err = s.change(ctx, eventID, func(there *Event) bool {
		if news = !there.Published(); news {
			there.Fingerprint, there.Mark = seen.Fingerprint, seen.Mark
		}
		if there.State == StateUnpublished {
			there.State = StateSeen
		}
		return news
	})
	if err == nil && news {
		err = s.uncount(ctx, eventID)
	}
	return there, news, err
}

// uncount removes an event from the unpublished ones.
func (s events) uncount(ctx context.Context, eventID string) error {
	key, err := contracts.UnpublishedKey(eventID)
	if err != nil {
		return err
	}
	counted, err := s.Get(ctx, s.Key(key))
	if err == nil && counted.Revision > 0 {
		_, err = s.Put(ctx, kvrecord.Write{Subject: s.Key(key), Data: []byte("{}"), Over: counted, TTL: time.Second})
	}
	if errors.Is(err, kvrecord.ErrConflict) { // the entry has just expired, or was written again
		return nil
	}
	return err
}

// announce writes the record of an event that has not been published, unless there is a record. At the limit it still accepts an
// event that is counted already, as when several calls announce it at the same time. Three round trips.
func (s events) announce(ctx context.Context, eventID string) error {
	subject, err := s.subjectOf(eventID)
	if err != nil {
		return err
	}
	key, err := contracts.UnpublishedKey(eventID)
	if err != nil {
		return err
	}
	counted, _, err := s.Subjects(ctx, s.Key(contracts.UnpublishedKeys), 0)
	if err != nil {
		return err
	}
	if len(counted) >= MaxUnpublished && !slices.Contains(counted, s.Key(key)) {
		return ErrUnpublished
	}
	_, err = s.Put(ctx, kvrecord.Write{Subject: s.Key(key), Data: []byte("{}"), TTL: KeepUnpublished})
	if err == nil || errors.Is(err, kvrecord.ErrConflict) {
		err = s.note(ctx, &Event{At: time.Now().UTC(), State: StateUnpublished, over: kvrecord.Record{Subject: subject}})
	}
	return err
}

// planned records that the plan is committed. A record that another process has written since it was read has that
// too.
func (s events) planned(ctx context.Context, e *Event, plan *Plan) error {
	e.come(StatePlanned, plan)
	return s.note(ctx, e)
}

// reopened records that the event has been published again since it was refused.
func (s events) reopened(ctx context.Context, e *Event) error {
	e.State, e.Reason = StateSeen, ""
	return s.note(ctx, e)
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
	ttl := keep
	if !e.Published() {
		ttl = KeepUnpublished
	}
	stored, err := s.Put(ctx, kvrecord.Write{Subject: e.over.Subject, Data: data, Over: e.over, TTL: ttl})
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

// change lets alter change the record of an event, and writes it if alter reports a change. It begins anew when another
// process has written the record meanwhile, which is rare, because the state of an event only advances.
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
