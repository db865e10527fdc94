package cancel

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/record"
)

// Trust is for how long a process goes by what it has heard without asking whether that is all. A row that nobody has
// touched may go out as long after its cancellation, and no longer.
const Trust = 5 * time.Second

const (
	// keep is for how long a cancellation stays in memory: longer than any row that it is about can be sent. A row is
	// kept for 30 days, and so is each that follows it.
	keep = 100 * 24 * time.Hour

	// page is how many records are read at a time, backlog how many news may wait to be heard.
	page, backlog = 1000, 1024

	// recheck is how often what was not heard is asked for, at least; at most it is twice that.
	recheck = time.Second
)

// Set is the cancellations. It may be used by many at once.
type Set struct {
	js    jetstream.JetStream
	store *record.Store

	asking chan struct{} // holds one token while somebody asks
	next   uint64        // from which revision on to ask; guarded by asking

	mu    sync.Mutex
	asked time.Time // when the last question that was answered began
	known map[id]time.Time
}

// Mark tells events apart, in a part of the SHA-256 of their ids. Who cannot keep ids asks by it.
type Mark [12]byte

// MarkOf returns the mark of an event.
func MarkOf(eventID string) Mark {
	sum := sha256.Sum256([]byte(eventID))
	return Mark(sum[:len(Mark{})])
}

// id is that of a cancellation, so that memory does not depend on the length of ids.
type id [16]byte

// all is the cancellation of the event.
func (m Mark) all() (i id) {
	copy(i[:], m[:])
	return i
}

// one is the cancellation of the event for one user.
func (m Mark) one(kind contracts.RecipientType, userID string) id {
	sum := sha256.Sum256([]byte(string(m[:]) + string(kind) + "." + userID))
	return id(sum[:len(id{})])
}

// idOf returns the id of the cancellation that has a key, see contracts.CancelledKey and contracts.CancelledUserKey.
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

// Open reads the cancellations that there are: one round trip, and another for every thousand.
func Open(ctx context.Context, js jetstream.JetStream) (*Set, error) {
	store, err := record.Open(ctx, js, "KV_"+contracts.BucketDeliveries)
	if err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	s := &Set{asking: make(chan struct{}, 1), js: js, store: store, next: 1, known: map[id]time.Time{}}
	if err := s.Sync(ctx); err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	return s, nil
}

// Sync asks for the cancellations that have not been heard of. Those that had been acknowledged when it was called are
// known when it returns, as far as the server that answers has them. One round trip; several who call at the same time
// share one.
func (s *Set) Sync(ctx context.Context) error {
	called := time.Now()
	select {
	case s.asking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("cancellations: %w", context.Cause(ctx))
	}
	defer func() { <-s.asking }()
	if s.since().After(called) {
		return nil // somebody else asked meanwhile
	}
	begun := time.Now()
	for from := s.next; from > 0; {
		found, next, err := s.store.Scan(ctx, "$KV."+contracts.BucketDeliveries+"."+contracts.CancelledKeys, from, page)
		if err != nil {
			return fmt.Errorf("cancellations: %w", err)
		}
		for _, m := range found {
			s.learn(m.Subject, m.Time)
			s.next = m.Revision + 1
		}
		from = next
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = begun
	return nil
}

func (s *Set) since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// learn takes up the cancellation whose record has a subject.
func (s *Set) learn(subject string, at time.Time) {
	key, ok := strings.CutPrefix(subject, "$KV."+contracts.BucketDeliveries+".")
	if !ok || time.Since(at) > keep {
		return
	}
	i, ok := idOf(key)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[i] = at
}

// forget drops what no row can be about any more.
func (s *Set) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, at := range s.known {
		if time.Since(at) > keep {
			delete(s.known, key)
		}
	}
}

// Covers reports whether a row is cancelled. sure asks for what holds now: one round trip. Otherwise what this process
// has heard is what counts, if it has asked within [Trust].
func (s *Set) Covers(ctx context.Context, n *contracts.Notification, sure bool) (bool, error) {
	if sure || time.Since(s.since()) > Trust {
		if err := s.Sync(ctx); err != nil {
			return false, err
		}
	}
	return s.covers(MarkOf(n.EventID), n.RecipientType, n.UserID), nil
}

// For returns a function that reports, by its mark, whether an event is cancelled for a user: all that was when For was
// called. One round trip.
func (s *Set) For(ctx context.Context, kind contracts.RecipientType, userID string) (func(Mark) bool, error) {
	if err := s.Sync(ctx); err != nil {
		return nil, err
	}
	return func(m Mark) bool { return s.covers(m, kind, userID) }, nil
}

func (s *Set) covers(m Mark, kind contracts.RecipientType, userID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, all := s.known[m.all()]; all {
		return true
	}
	_, one := s.known[m.one(kind, userID)]
	return one
}

// Run hears of cancellations until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	news := make(chan *nats.Msg, backlog)
	sub, err := s.js.Conn().ChanSubscribe(contracts.RepublishSubject(contracts.BucketDeliveries, contracts.CancelledKeys), news)
	if err != nil {
		return fmt.Errorf("notifier: cancellations: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed then
	ask := time.NewTimer(0)
	defer ask.Stop()
	tidied := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-news:
			s.learn(msg.Header.Get(jetstream.SubjectHeader), time.Now())
		case <-ask.C:
			_ = s.Sync(ctx) //nolint:errcheck // whoever needs to know asks, and is told why there is no answer
			if time.Since(tidied) > time.Hour {
				tidied = time.Now()
				s.forget()
			}
			ask.Reset(recheck + rand.N(recheck)) //nolint:gosec // spreads requests, guards nothing
		}
	}
}

// Cancel writes down that an event is not to be told any more: to nobody when no user is named. again says that this had
// been done before. One round trip.
func (s *Set) Cancel(ctx context.Context, eventID string, kind contracts.RecipientType, userID string) (again bool, err error) {
	key, err := contracts.CancelledKey(eventID)
	if userID != "" {
		key, err = contracts.CancelledUserKey(eventID, kind, userID)
	}
	if err != nil {
		return false, err
	}
	data, err := json.Marshal(map[string]time.Time{"at": time.Now().UTC()})
	if err != nil {
		return false, fmt.Errorf("encode a cancellation: %w", err)
	}
	subject := "$KV." + contracts.BucketDeliveries + "." + key
	_, err = s.store.Put(ctx, subject, nil, data, 0)
	if again = errors.Is(err, record.ErrTaken); again {
		err = nil
	}
	if err == nil {
		s.learn(subject, time.Now())
	}
	return again, err
}
