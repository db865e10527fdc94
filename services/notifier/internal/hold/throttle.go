package hold

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Bounds of the notifications that wait.
const (
	// maxPromised is the number of waiting notifications whose order is kept, in addition to the last notifications, which determine when
	// there is room.
	maxPromised = 256

	// late is the time after its turn for which a notification holds up the notifications after it. Then it counts as lost: cancelled,
	// or no longer wanted. The next notification has half the time, because it has asked while it was held up.
	late = time.Minute

	// overdue is the longest time after their turns for which notifications hold up others, however many of them are lost.
	overdue = 5 * time.Minute

	// held is the time after which a held-up notification asks again.
	held = 200 * time.Millisecond
)

// Turn is a notification with the time at which it was delivered, or is to ask again.
type Turn struct {
	// At is the time of the turn.
	At time.Time `json:"at"`

	// Order is the time at which a waiting notification was planned. Notifications have their turns in this order.
	Order time.Time `json:"order,omitzero"`

	// Notification is the mark of the notification.
	Row string `json:"row"`
}

// state is the record. Its size is bounded by the limit and maxPromised.
type state struct {
	// Granted are the notifications that were delivered in the last period, in the order of their times.
	Granted []Turn `json:"granted,omitempty"`

	// Promised are the first and the last of the promised turns that were not taken, in the order of their times.
	Promised []Turn `json:"promised,omitempty"`
}

// Throttles has the records. It is safe for concurrent use, also by several processes.
type Throttles struct{ records *kvrecord.Stream }

// NewThrottles returns the store. No round trip.
func NewThrottles(records *kvrecord.Client) *Throttles {
	return &Throttles{records.Bucket(contracts.BucketDeliveries)}
}

// ThrottleKey names the notifications that are counted together.
type ThrottleKey struct {
	Channel, Group, UserID string

	RecipientType contracts.RecipientType
}

// Ask grants a notification and returns the zero time, or returns the time at which the notification is to ask again, or, for a
// throttle that suppresses, at which there will be room. A notification that was granted and is sent again, because it failed or its
// sender died, takes no second grant. Waiting notifications are let through in the order in which they were planned, except late
// notifications, and notifications beyond maxPromised. promised reports whether the notification asks again at the time that it was
// promised. Two round trips.
func (st *Throttles) Ask(
	ctx context.Context, key ThrottleKey, row string, planned time.Time, t contracts.Throttle, promised bool,
) (until time.Time, err error) {
	name, err := keys.Throttle(key.Group, key.Channel, key.RecipientType, key.UserID)
	if err != nil {
		return time.Time{}, fmt.Errorf("throttle: %w", err)
	}
	over, err := st.records.Get(ctx, st.records.Key(name))
	if err != nil {
		return time.Time{}, fmt.Errorf("throttle: %w", err)
	}
	sum := sha256.Sum256([]byte(row)) // distinguishes notifications
	mark := base64.RawURLEncoding.EncodeToString(sum[:12])
	for {
		s := state{}
		if len(over.Data) > 0 {
			if err := json.Unmarshal(over.Data, &s); err != nil {
				return time.Time{}, fmt.Errorf("throttle: record at %d: %w", over.Revision, err)
			}
		}
		until, changed := s.ask(time.Now().UTC(), Turn{Order: planned, Row: mark}, t, promised)
		if !changed {
			return until, nil
		}
		err := st.put(ctx, st.records.Key(name), &s, over, t.Period())
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if !ok {
			return until, err
		}
		over = conflict.Found
	}
}

func (st *Throttles) put(ctx context.Context, subject string, s *state, over kvrecord.Record, period time.Duration) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("throttle: encode: %w", err)
	}
	last := time.Now() // a period after the last turn the record has no effect
	if n := len(s.Promised); n > 0 && s.Promised[n-1].At.After(last) {
		last = s.Promised[n-1].At
	}
	ttl := (time.Until(last) + period + time.Minute).Truncate(time.Second)
	if _, err := st.records.Put(ctx, kvrecord.Write{Subject: subject, Data: data, Over: over, TTL: ttl}); err != nil {
		return fmt.Errorf("throttle: %w", err)
	}
	return nil
}

// ask grants a turn now, or promises one. changed reports whether the record has changed.
func (s *state) ask(now time.Time, row Turn, t contracts.Throttle, promised bool) (until time.Time, changed bool) {
	mine := func(turn Turn) bool { return turn.Row == row.Row }
	s.Granted = slices.DeleteFunc(s.Granted, func(turn Turn) bool { return !turn.At.After(now.Add(-t.Period())) })
	if !slices.ContainsFunc(s.Granted, mine) {
		waiting := slices.IndexFunc(s.Promised, mine)
		if waiting >= 0 && s.Promised[waiting].At.After(now) {
			return s.Promised[waiting].At, false
		}
		promised = promised || waiting >= 0
		dropped := s.dropLost(now, mine)
		if first := slices.IndexFunc(s.Promised, mine); first > 0 {
			return now.Add(held), dropped
		}
		s.Promised = slices.DeleteFunc(s.Promised, mine)
		until := s.next(now, t, promised)
		if until.After(now) {
			if t.Suppress {
				return until, false
			}
			if promised { // the delivered notifications fill the period until then, for all other notifications too
				s.delay(until)
			}
			row.At = until
			return s.promise(row, t.Limit), true
		}
	}
	// An earlier grant of the notification moves to now: the notification counts once, for a period from its last delivery.
	s.Granted = slices.DeleteFunc(s.Granted, mine)
	s.Granted = last(append(s.Granted, Turn{At: now, Row: row.Row}), t.Limit)
	return time.Time{}, true
}

// dropLost removes the notifications that did not ask at their turns, and reports whether there were any. mine selects the notification
// that asks.
func (s *state) dropLost(now time.Time, mine func(Turn) bool) bool {
	before := len(s.Promised)
	s.Promised = slices.DeleteFunc(s.Promised, func(turn Turn) bool { return turn.At.Before(now.Add(-overdue)) })
	if len(s.Promised) > 0 && !mine(s.Promised[0]) && s.Promised[0].At.Before(now.Add(-late)) {
		s.Promised = slices.Delete(s.Promised, 0, 1)
		s.delay(now.Add(-late / 2))
	}
	return len(s.Promised) < before
}

// delay moves all turns before a time to that time.
func (s *state) delay(until time.Time) {
	for i := range s.Promised {
		if s.Promised[i].At.Before(until) {
			s.Promised[i].At = until
		}
	}
}

// promise adds a waiting notification, distributes the times of the turns to the notifications in their order, and returns the
// notification's time.
func (s *state) promise(row Turn, limit int) (until time.Time) {
	rows := append(slices.Clone(s.Promised), row)
	times := make([]time.Time, len(rows))
	for i, turn := range sorted(rows) {
		times[i] = turn.At
	}
	slices.SortStableFunc(rows, func(a, b Turn) int { return a.Order.Compare(b.Order) })
	for i := range rows {
		if rows[i].At = times[i]; rows[i].Row == row.Row {
			until = times[i]
		}
	}
	if spare := len(rows) - maxPromised - limit; spare > 0 {
		rows = slices.Delete(rows, maxPromised, maxPromised+spare)
	}
	s.Promised = rows
	return until
}

// next returns the first time at which there is room. It comes after all promised turns, except for a notification that has a
// promise.
func (s *state) next(now time.Time, t contracts.Throttle, promised bool) time.Time {
	turns := slices.Clone(s.Granted)
	if !promised {
		turns = append(turns, s.Promised...)
	}
	sorted(turns)
	if len(turns) < t.Limit {
		return now
	}
	next := turns[len(turns)-t.Limit].At.Add(t.Period())
	if next.Before(now) {
		return now
	}
	return next
}

func sorted(turns []Turn) []Turn {
	slices.SortStableFunc(turns, func(a, b Turn) int { return a.At.Compare(b.At) })
	return turns
}

func last(turns []Turn, n int) []Turn { return turns[max(0, len(turns)-n):] }
