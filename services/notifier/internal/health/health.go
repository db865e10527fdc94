// Package health keeps the endpoints of users that do not answer, so that no process calls them in vain.
//
// An endpoint is an address on a channel, such as the URL of a webhook. An endpoint that has failed without a success for days
// is disabled for all processes. Its state is kept in a bucket, which is written when an endpoint begins to fail, when it works
// again, and when it is disabled, and never while it works. Each process by itself leaves an endpoint alone for a while that it
// did not reach several times in a notification.
package health

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// State is the state of an endpoint.
type State string

// The states of an endpoint.
const (
	// Disabled means: it is not called.
	Disabled State = "disabled"
	// Failing means: it has failed, and has accepted no message since.
	Failing State = "failing"
	// Healthy means: it works, or has been enabled.
	Healthy State = "healthy"
)

const (
	// every is the time between two readings of the records of other processes.
	every = 5 * time.Second

	// maxError bounds the text of an error that is kept, in bytes.
	maxError = 512

	// keep is the time for which the record of an endpoint stays that works again, or that has failed and was not called since. The
	// record of a disabled endpoint stays until the endpoint is enabled.
	keep = 40 * 24 * time.Hour

	// writeTimeout bounds the write of a change of state. After a failure, the next call writes it.
	writeTimeout = 5 * time.Second
)

// ErrUnknown is returned for an endpoint without a record.
var ErrUnknown = errors.New("nothing is kept of such an endpoint")

// Endpoint is the record of an endpoint. Its address is not kept, because it may hold secrets.
type Endpoint struct {
	// Channel is the channel's name, and ID a hash of channel and address.
	Channel string `json:"channel"`
	ID      string `json:"id"`

	// At is the time of the last change of State.
	At time.Time `json:"at"`

	// LastError is the error of the delivery that last changed State.
	LastError string `json:"last_error,omitempty"`

	// RecipientType and UserID name the recipient of that delivery.
	RecipientType contracts.RecipientType `json:"recipient_type,omitempty"`
	UserID        string                  `json:"user_id,omitempty"`

	// Others reports that deliveries to other recipients at this address failed too. Otherwise only those to this recipient are
	// disabled.
	Others bool `json:"others,omitempty"`

	// Since is the time at which the endpoint began to fail.
	Since time.Time `json:"since,omitzero"`

	// State decides whether deliveries are tried.
	State State `json:"state"`

	over kvrecord.Record // as last read or written
}

// Config configures a [Store].
type Config struct {
	// DisableAfter is the time after which an endpoint that always fails is disabled. Required.
	DisableAfter time.Duration

	// Logger gets the log. Required.
	Logger *slog.Logger
}

// Store has the health of all endpoints. It is safe for concurrent use, also by several processes.
type Store struct {
	breaker breaker
	cfg     Config
	records *kvrecord.Stream

	mu    sync.Mutex
	known map[string]Endpoint // by subject, all that are not healthy
}

// Open reads the records of all endpoints. One round trip, and one for each 512 endpoints that have ever
// failed.
func Open(ctx context.Context, records *kvrecord.Client, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, records: records.Bucket(contracts.BucketDeliveries), known: map[string]Endpoint{}}
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Run reads the records again, as Open does, every few seconds until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	retry.Every(ctx, every, func(ctx context.Context) {
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "notifier: the health of endpoints is not up to date", "error", err)
		}
	})
	return nil
}

// read reads the records of all endpoints. Its cost on the server grows with their number, not with other records of the
// bucket.
func (s *Store) read(ctx context.Context) error {
	for subjects, err := range s.records.All(ctx, s.subject("*", "*")) {
		var found []kvrecord.Record
		if err == nil {
			found, err = s.records.GetMany(ctx, subjects)
		}
		if err != nil {
			return fmt.Errorf("notifier: read the health of endpoints: %w", err)
		}
		for _, r := range found {
			if e, err := decode(r); err == nil {
				s.learn(e)
			}
		}
	}
	return nil
}

// learn remembers a record, unless a newer one is known.
func (s *Store) learn(e Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.subject(e.Channel, e.ID)
	switch old, ok := s.known[key]; {
	case ok && old.over.Revision >= e.over.Revision:
	case e.State == Healthy:
		delete(s.known, key)
	default:
		s.known[key] = e
	}
}

// Verdict is the answer to whether an endpoint may be called.
type Verdict int

// The verdicts.
const (
	// Free means: it may be called now. The caller reports the outcome by Called, or that it made no call by Left.
	Free Verdict = iota
	// Busy means: it may be called after a wait, because other calls have the slots.
	Busy
	// Down means: it may be called after a wait, because it was not reached lately.
	Down
	// Off means: it is disabled.
	Off
)

// Admit returns whether an endpoint may be called, and the wait before its caller asks again. It sets the timeout of the call. No
// round trip.
func (s *Store) Admit(c *Call) (Verdict, time.Duration) {
	c.key = s.subject(c.Channel, id(c.Channel, c.Address))
	s.mu.Lock()
	known := s.known[c.key]
	s.mu.Unlock()
	if known.State == Disabled && (known.Others || known.isOf(c.RecipientType, c.UserID)) {
		return Off, 0
	}
	wait, down := s.breaker.enter(c, time.Now())
	switch {
	case down:
		return Down, wait
	case wait > 0:
		return Busy, wait
	}
	return Free, 0
}

// Called records the outcome of a call, nil for a success. It writes the record when the endpoint's state changes.
func (s *Store) Called(ctx context.Context, c *Call, m channel.Message, failure *channel.Error) {
	s.breaker.called(c, time.Now(), failure)
	name, key := c.Channel, c.key
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		there := s.known[key]
		s.mu.Unlock()
		next, changed := s.after(there, m, failure)
		if !changed {
			return
		}
		next.Channel, next.ID, next.RecipientType, next.UserID = name, id(name, c.Address), m.RecipientType, m.UserID
		err := s.put(ctx, next, there.over)
		switch {
		case errors.Is(err, kvrecord.ErrConflict): // another process has written the record, which is known now
			continue
		case err != nil:
			s.cfg.Logger.WarnContext(ctx, "notifier: the health of an endpoint is not kept", "channel", name, "endpoint", next.ID, "error", err)
		case next.State == Disabled:
			s.cfg.Logger.WarnContext(ctx, "notifier: an endpoint is disabled", "channel", name, "endpoint", next.ID,
				"recipient_type", m.RecipientType, "user_id", m.UserID, "since", next.Since, "error", failure)
		}
		return
	}
}

// Left records that a call that Admit let through was not made.
func (s *Store) Left(c *Call) { s.breaker.left(c, time.Now()) }

// isOf reports whether the record is of deliveries to a recipient.
func (e Endpoint) isOf(kind contracts.RecipientType, user string) bool {
	return e.RecipientType == kind && e.UserID == user
}

// after returns the state of an endpoint after a call, and reports whether it has changed.
func (s *Store) after(e Endpoint, m channel.Message, failure *channel.Error) (Endpoint, bool) {
	now := time.Now().UTC()
	switch {
	case failure == nil:
		return Endpoint{At: now, State: Healthy}, e.State != "" && e.State != Healthy
	case !counts(failure):
		return e, false
	case e.State == "" || e.State == Healthy:
		return Endpoint{At: now, LastError: redact.Clip(failure.Error(), maxError), Since: now, State: Failing}, true
	case !e.Others && !e.isOf(m.RecipientType, m.UserID): // it has failed for one recipient until now
		return Endpoint{At: now, LastError: redact.Clip(failure.Error(), maxError), Others: true, Since: now, State: Failing}, true
	case e.State == Failing && now.Sub(e.Since) >= s.cfg.DisableAfter:
		return Endpoint{At: now, LastError: redact.Clip(failure.Error(), maxError), Others: e.Others, Since: e.Since, State: Disabled}, true
	}
	return e, false
}

// counts reports whether a failure is the endpoint's.
func counts(failure *channel.Error) bool {
	switch failure.Kind {
	case channel.KindRejected, channel.KindTimeout, channel.KindUnavailable, channel.KindUnknown:
		return true
	case channel.KindBounced, channel.KindGone, channel.KindInterrupted, channel.KindMisconfigured,
		channel.KindNoAddress, channel.KindRateLimited:
	}
	return false
}

// put writes a record over the known one, and learns the record that is then stored.
func (s *Store) put(ctx context.Context, e Endpoint, over kvrecord.Record) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	write := kvrecord.Write{Subject: s.subject(e.Channel, e.ID), Data: data, Over: over}
	if e.State != Disabled {
		write.TTL = keep
	}
	e.over, err = s.records.Put(ctx, write)
	conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
	if !ok {
		if err == nil {
			s.learn(e)
		}
		return err
	}
	there, decodeErr := decode(conflict.Found)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case conflict.Found.Revision == 0: // the record was removed
		delete(s.known, write.Subject)
	case decodeErr != nil:
		return decodeErr
	default: // also of a healthy endpoint: the next write needs its revision
		s.known[write.Subject] = there
	}
	return err
}

// List returns the endpoints that are not healthy, of a channel, "" for all, and in a state, "" for both, in the order in which
// they entered their states: at most limit, from a revision on. next is the revision from which to continue, 0 at the end. It
// costs the same as Open.
func (s *Store) List(ctx context.Context, name string, state State, from uint64, limit int) (found []Endpoint, next uint64, err error) {
	if err := s.read(ctx); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.known {
		selected := (name == "" || name == e.Channel) && (state == "" || state == e.State)
		if selected && e.State != Healthy && e.over.Revision >= from {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(x, y Endpoint) int { return cmp.Compare(x.over.Revision, y.over.Revision) })
	if len(found) > limit {
		found, next = found[:limit], found[limit].over.Revision
	}
	return found, next, nil
}

// Held calls tell with the number of endpoints of each channel that this process does not call now, because they were
// not reached.
func (s *Store) Held(tell func(channel string, n int)) {
	for name, n := range s.breaker.held(time.Now()) {
		tell(name, n)
	}
}

// Counts calls tell with the number of endpoints of each channel in each state except [Healthy].
func (s *Store) Counts(tell func(channel string, state State, n int)) {
	counts := map[[2]string]int{}
	s.mu.Lock()
	for _, e := range s.known {
		if e.State != Healthy {
			counts[[2]string{e.Channel, string(e.State)}]++
		}
	}
	s.mu.Unlock()
	for of, n := range counts {
		tell(of[0], State(of[1]), n)
	}
}

// Enable enables an endpoint, and returns its previous state. Other processes learn of it within a few seconds. Two round
// trips.
func (s *Store) Enable(ctx context.Context, name, endpoint string) (was Endpoint, err error) {
	for {
		there, err := s.records.Latest(ctx, s.subject(name, endpoint))
		if err != nil {
			return was, fmt.Errorf("notifier: %w", err)
		}
		if there.Revision == 0 {
			return was, fmt.Errorf("%w: %.80q on %.80q", ErrUnknown, endpoint, name)
		}
		if was, err = decode(there); err != nil {
			return was, err
		}
		if was.State == Healthy {
			return was, nil
		}
		err = s.put(ctx, Endpoint{Channel: name, ID: endpoint, At: time.Now().UTC(), State: Healthy}, there)
		if errors.Is(err, kvrecord.ErrConflict) {
			continue
		}
		if err != nil {
			return was, fmt.Errorf("notifier: %w", err)
		}
		s.breaker.mu.Lock()
		delete(s.breaker.known, s.subject(name, endpoint))
		s.breaker.mu.Unlock()
		return was, nil
	}
}

func decode(r kvrecord.Record) (e Endpoint, err error) {
	if err := json.Unmarshal(r.Data, &e); err != nil {
		return e, fmt.Errorf("notifier: the health of an endpoint at %d: %w", r.Revision, err)
	}
	e.over = r
	return e, nil
}

// id returns the id of an endpoint: short, the same in all processes, and without revealing the address.
func id(name, address string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + address))
	return hex.EncodeToString(sum[:16])
}

// subject returns the subject of an endpoint's record. No encoded id equals its first token.
func (s *Store) subject(name, id string) string { return s.records.Key("/endpoint." + name + "." + id) }
