package throttle

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
)

// Turn is a row and when it was delivered, or is to ask again.
type Turn struct {
	// At is when.
	At time.Time `json:"at"`

	// Row is the mark of the row.
	Row string `json:"row"`
}

// state is the record: at most a limit's worth of each.
type state struct {
	// Granted are the rows that were delivered in the last period, in the order of their times.
	Granted []Turn `json:"granted,omitempty"`

	// Promised are the last turns that were promised and have not come, in the order of their times.
	Promised []Turn `json:"promised,omitempty"`
}

// Store is the records. It may be used by many at once, in any number of processes.
type Store struct{ records *kvrecord.Stream }

// New returns the store. No round trip.
func New(records *kvrecord.Client) *Store { return &Store{records.Bucket(contracts.BucketDeliveries)} }

// Key names what is counted together.
type Key struct {
	Channel, Group, UserID string

	RecipientType contracts.RecipientType
}

// Ask lets a row be delivered now, and returns the zero time, or returns when it is to ask again, or when there will be room if
// it is to be suppressed. A row that was granted and is sent again, because it failed or its sender died, takes no second
// grant. promised says that it asks again at the time that it was given. Two round trips.
func (st *Store) Ask(ctx context.Context, key Key, row string, t contracts.Throttle, promised bool) (until time.Time, err error) {
	name, err := contracts.ThrottleKey(key.Group, key.Channel, key.RecipientType, key.UserID)
	if err != nil {
		return time.Time{}, fmt.Errorf("throttle: %w", err)
	}
	over, err := st.records.Get(ctx, st.records.Key(name))
	if err != nil {
		return time.Time{}, fmt.Errorf("throttle: %w", err)
	}
	for {
		s := state{}
		if len(over.Data) > 0 {
			if err := json.Unmarshal(over.Data, &s); err != nil {
				return time.Time{}, fmt.Errorf("throttle: record at %d: %w", over.Revision, err)
			}
		}
		until, changed := s.ask(time.Now().UTC(), mark(row), t, promised)
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

func (st *Store) put(ctx context.Context, subject string, s *state, over kvrecord.Record, period time.Duration) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("throttle: encode: %w", err)
	}
	last := time.Now() // nothing is counted a period after the last turn
	if n := len(s.Promised); n > 0 && s.Promised[n-1].At.After(last) {
		last = s.Promised[n-1].At
	}
	ttl := (time.Until(last) + period + time.Minute).Truncate(time.Second)
	if _, err := st.records.Put(ctx, kvrecord.Write{Subject: subject, Data: data, Over: over, TTL: ttl}); err != nil {
		return fmt.Errorf("throttle: %w", err)
	}
	return nil
}

// ask grants a turn now, or promises one. changed says that the record is another then.
func (s *state) ask(now time.Time, row string, t contracts.Throttle, promised bool) (until time.Time, changed bool) {
	mine := func(turn Turn) bool { return turn.Row == row }
	s.Granted = slices.DeleteFunc(s.Granted, func(turn Turn) bool { return !turn.At.After(now.Add(-t.Period())) })
	if !slices.ContainsFunc(s.Granted, mine) {
		waiting := slices.IndexFunc(s.Promised, mine)
		if waiting >= 0 && s.Promised[waiting].At.After(now) {
			return s.Promised[waiting].At, false
		}
		promised = promised || waiting >= 0
		s.Promised = slices.DeleteFunc(s.Promised, func(turn Turn) bool { return mine(turn) || !turn.At.After(now) })
		until := s.next(now, t, promised)
		if until.After(now) {
			if t.Suppress {
				return until, false
			}
			s.Promised = last(sorted(append(s.Promised, Turn{At: until, Row: row})), t.Limit)
			return until, true
		}
	}
	// One that is granted already moves to now: it counts once, for a period from when it is delivered last.
	s.Granted = slices.DeleteFunc(s.Granted, mine)
	s.Granted = last(append(s.Granted, Turn{At: now, Row: row}), t.Limit)
	return time.Time{}, true
}

// next is the first moment at which there is room: behind all that was promised, but for a row whose turn has come.
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

// mark tells rows apart.
func mark(row string) string {
	sum := sha256.Sum256([]byte(row))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
