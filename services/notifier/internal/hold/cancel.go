package hold

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Trust is the time for which a process relies on the cancellations that it has received, without asking for missed
// ones. An untouched notification may be sent up to this time after its cancellation, and no later.
const Trust = 5 * time.Second

const (
	// cancelledKeep is the time for which a cancellation stays: longer than any notification of the event can be sent. A notification
	// is kept for 30 days, and so is each notification that follows it.
	cancelledKeep = 100 * 24 * time.Hour

	// unlisted is the time for which a cancellation that the bucket does not list stays in memory, because a deposed
	// server without it may have answered.
	unlisted = time.Hour

	// backlog is the number of pushed cancellations that may wait to be read.
	backlog = 1024

	// recheck is the least time between two requests for cancellations that were not pushed. The longest is twice that.
	recheck = time.Second
)

// Cancelled has all cancellations. It is safe for concurrent use.
type Cancelled struct {
	nc      *nats.Conn
	records *kvrecord.Stream

	asking chan struct{} // holds one token while a goroutine asks the server

	mu    sync.Mutex
	asked time.Time        // when the last answered request began
	known map[id]time.Time // when each was last listed or pushed
}

// Mark identifies an event by a part of the SHA-256 of its id, for callers that cannot cancelledKeep ids.
type Mark [12]byte

// MarkOf returns the mark of an event.
func MarkOf(eventID string) Mark {
	sum := sha256.Sum256([]byte(eventID))
	return Mark(sum[:len(Mark{})])
}

// id is the id of a cancellation, of fixed size, so that memory does not depend on the length of event ids.
type id [16]byte

// all returns the id of the cancellation of the event for all users.
func (m Mark) all() (i id) {
	copy(i[:], m[:])
	return i
}

// one returns the id of the cancellation of the event for one user.
func (m Mark) one(kind contracts.RecipientType, userID string) id {
	sum := sha256.Sum256([]byte(string(m[:]) + string(kind) + "." + userID))
	return id(sum[:len(id{})])
}

// idOf returns the id of the cancellation with a key, see keys.Cancelled and keys.CancelledUser.
func idOf(key string) (i id, ok bool) {
	tokens := strings.Split(key, ".")
	if len(tokens) < 3 {
		return i, false
	}
	event, err := contracts.DecodeToken(tokens[1])
	if err != nil {
		return i, false
	}
	switch {
	case len(tokens) == 3:
		return MarkOf(event).all(), true
	case len(tokens) != 5:
		return i, false
	}
	user, err := contracts.DecodeToken(tokens[4])
	return MarkOf(event).one(contracts.RecipientType(tokens[3]), user), err == nil
}

// OpenCancelled returns the set of all cancellations. One round trip for each 100,000.
func OpenCancelled(ctx context.Context, nc *nats.Conn, records *kvrecord.Client) (*Cancelled, error) {
	s := &Cancelled{asking: make(chan struct{}, 1), nc: nc, records: records.Bucket(contracts.BucketDeliveries), known: map[id]time.Time{}}
	if err := s.Sync(ctx); err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	return s, nil
}

// Sync lists the cancellations. When it returns, the set has the cancellations that were acknowledged before the call, as
// far as the server that answers has them. One round trip for each 100,000, which calls at the same time share. It costs the
// server time in proportion to the cancellations of the last 100 days.
func (s *Cancelled) Sync(ctx context.Context) error {
	called := time.Now()
	select {
	case s.asking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("cancellations: %w", context.Cause(ctx))
	}
	defer func() { <-s.asking }()
	if s.since().After(called) {
		return nil // another goroutine has asked in the meantime
	}
	begun := time.Now()
	for subjects, err := range s.records.All(ctx, s.records.Key(keys.AllCancelled)) {
		if err != nil {
			return fmt.Errorf("cancellations: %w", err)
		}
		for _, subject := range subjects {
			s.learn(subject)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = begun
	maps.DeleteFunc(s.known, func(_ id, at time.Time) bool { return begun.Sub(at) > unlisted })
	return nil
}

func (s *Cancelled) since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// learn adds the cancellation whose record has a subject.
func (s *Cancelled) learn(subject string) {
	key, ok := strings.CutPrefix(subject, s.records.Key(""))
	if !ok {
		return
	}
	i, ok := idOf(key)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[i] = time.Now()
}

// Covers reports whether a notification is cancelled. With sure it asks the server: one round trip. Otherwise it answers from
// memory, if the process has asked the server within [Trust].
func (s *Cancelled) Covers(ctx context.Context, n *contracts.Notification, sure bool) (bool, error) {
	if s.covers(MarkOf(n.EventID), n.RecipientType, n.UserID) {
		return true, nil
	}
	if !sure && time.Since(s.since()) <= Trust {
		return false, nil
	}
	all, err := keys.Cancelled(n.EventID)
	if err != nil {
		return false, err
	}
	one, err := keys.CancelledUser(n.EventID, n.RecipientType, n.UserID)
	if err != nil {
		return false, err
	}
	found, err := s.records.GetMany(ctx, []string{s.records.Key(all), s.records.Key(one)})
	if err != nil {
		return false, fmt.Errorf("cancellations: %w", err)
	}
	for _, r := range found {
		s.learn(r.Subject)
	}
	return len(found) > 0, nil
}

// For returns a function that reports, by an event's mark, whether the event was cancelled for a user when For was
// called. One round trip.
func (s *Cancelled) For(ctx context.Context, kind contracts.RecipientType, userID string) (func(Mark) bool, error) {
	if err := s.Sync(ctx); err != nil {
		return nil, err
	}
	return func(m Mark) bool { return s.covers(m, kind, userID) }, nil
}

func (s *Cancelled) covers(m Mark, kind contracts.RecipientType, userID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, all := s.known[m.all()]; all {
		return true
	}
	_, one := s.known[m.one(kind, userID)]
	return one
}

// Run receives cancellations until ctx ends.
func (s *Cancelled) Run(ctx context.Context) error {
	news := make(chan *nats.Msg, backlog)
	sub, err := s.nc.ChanSubscribe(contracts.RepublishSubject(contracts.BucketDeliveries, keys.AllCancelled), news)
	if err != nil {
		return fmt.Errorf("notifier: cancellations: %w", err)
	}
	defer sub.Unsubscribe()
	ask := time.NewTimer(0)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-news:
			s.learn(msg.Header.Get(jetstream.SubjectHeader))
		case <-ask.C:
			_ = s.Sync(ctx) // a caller that needs an answer asks, and gets the error
			ask.Reset(recheck + rand.N(recheck))
		}
	}
}

// Users returns the number of single users for whom an event is cancelled. One round trip.
func (s *Cancelled) Users(ctx context.Context, eventID string) (int, error) {
	pattern, err := keys.CancelledUsers(eventID)
	if err != nil {
		return 0, err
	}
	subjects, _, err := s.records.Subjects(ctx, s.records.Key(pattern), 0)
	if err != nil {
		return 0, fmt.Errorf("cancellations: %w", err)
	}
	return len(subjects), nil
}

// Cancel records that an event is cancelled, for all users when none is named. again reports whether it had been
// cancelled before. One round trip.
func (s *Cancelled) Cancel(ctx context.Context, eventID string, kind contracts.RecipientType, userID string) (again bool, err error) {
	key, err := keys.Cancelled(eventID)
	if userID != "" {
		key, err = keys.CancelledUser(eventID, kind, userID)
	}
	if err != nil {
		return false, err
	}
	data, err := json.Marshal(map[string]time.Time{"at": time.Now().UTC()})
	if err != nil {
		return false, fmt.Errorf("encode a cancellation: %w", err)
	}
	_, err = s.records.Put(ctx, kvrecord.Write{Subject: s.records.Key(key), Data: data, TTL: cancelledKeep})
	if again = errors.Is(err, kvrecord.ErrConflict); again {
		err = nil
	}
	if err == nil {
		s.learn(s.records.Key(key))
	}
	return again, err
}
