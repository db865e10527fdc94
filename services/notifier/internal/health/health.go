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
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/record"
)

// State is how an endpoint is.
type State string

// The states of an endpoint.
const (
	// Disabled means: it is not called.
	Disabled State = "disabled"
	// Failing means: it has failed, and not taken anything since.
	Failing State = "failing"
	// Healthy means: it works, or has been put back to work.
	Healthy State = "healthy"
)

const (
	// maxError bounds what is kept of an error, in bytes.
	maxError = 512

	// writeTimeout bounds the write of a transition. One that is not written is written with the next call.
	writeTimeout = 5 * time.Second

	// page is how many records are read at a time.
	page = 1000
)

// ErrUnknown is returned for an endpoint of which nothing is kept.
var ErrUnknown = errors.New("nothing is kept of such an endpoint")

// Endpoint is what is kept of one. The address is not: it may hold secrets.
type Endpoint struct {
	// Channel is the channel's name, and ID a hash of channel and address.
	Channel string `json:"channel"`
	ID      string `json:"id"`

	// At is when it came into its state.
	At time.Time `json:"at"`

	// LastError is what was wrong when it came into its state.
	LastError string `json:"last_error,omitempty"`

	// RecipientType and UserID are whose message that was.
	RecipientType contracts.RecipientType `json:"recipient_type,omitempty"`
	UserID        string                  `json:"user_id,omitempty"`

	// Since is when it began to fail.
	Since time.Time `json:"since,omitzero"`

	// State is how it is.
	State State `json:"state"`

	// Write is another for each write, by which a writer knows its own.
	Write string `json:"write,omitempty"`

	revision uint64
}

// Config says how patient the book is.
type Config struct {
	// DisableAfter is for how long an endpoint has to have failed to be disabled. Defaults to 5 days.
	DisableAfter time.Duration

	// Every is how often is read what other processes wrote. Defaults to 5 seconds.
	Every time.Duration

	// Logger gets the log. Defaults to slog.Default().
	Logger *slog.Logger
}

// Book is the health of all endpoints. It may be used by many at once, in any number of processes.
type Book struct {
	breaker breaker
	cfg     Config
	store   *record.Store

	mu    sync.Mutex
	known map[string]Endpoint // by key, all that are not healthy
	next  uint64              // where to read on
}

// Open reads what is kept. A round trip for each thousand endpoints that have ever failed, and one more.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Book, error) {
	cfg.DisableAfter = cmp.Or(cfg.DisableAfter, 5*24*time.Hour)
	cfg.Every = cmp.Or(cfg.Every, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	store, err := record.Open(ctx, js, "KV_"+contracts.BucketDeliveries)
	if err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	b := &Book{cfg: cfg, store: store, known: map[string]Endpoint{}, next: 1}
	if err := b.read(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Run reads what other processes write, until ctx ends. One round trip each time.
func (b *Book) Run(ctx context.Context) error {
	ticker := time.NewTicker(b.cfg.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := b.read(ctx); err != nil && ctx.Err() == nil {
			b.cfg.Logger.WarnContext(ctx, "notifier: the health of endpoints is not up to date", "error", err)
		}
	}
}

// read reads what was written since the last time: each write has a higher revision than all before it.
func (b *Book) read(ctx context.Context) error {
	b.mu.Lock()
	from := b.next
	b.mu.Unlock()
	for more := true; more; {
		found, next, err := b.store.Scan(ctx, subject("*", "*"), from, page)
		if err != nil {
			return fmt.Errorf("notifier: read the health of endpoints: %w", err)
		}
		for _, m := range found {
			from = m.Revision + 1
			if e, err := decode(m.Data, m.Revision); err == nil {
				b.learn(e)
			}
		}
		more = next > 0
	}
	b.mu.Lock()
	b.next = max(b.next, from)
	b.mu.Unlock()
	return nil
}

// learn remembers a record, unless a newer one is known.
func (b *Book) learn(e Endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := subject(e.Channel, e.ID)
	switch old, ok := b.known[key]; {
	case ok && old.revision >= e.revision:
	case e.State == Healthy:
		delete(b.known, key)
	default:
		b.known[key] = e
	}
}

// Gate says whether an endpoint may be called: not when it is disabled, and only after a wait when it was not reached lately.
// Who may call it tells what came of it by Called, or by Left that nothing did. It costs no round trip.
func (b *Book) Gate(name, address string, timeout time.Duration) (disabled bool, wait time.Duration) {
	key := subject(name, id(name, address))
	b.mu.Lock()
	known := b.known[key]
	b.mu.Unlock()
	if known.State == Disabled {
		return true, 0
	}
	return false, b.breaker.enter(key, time.Now(), timeout)
}

// Called tells what came of a call, nil for a success. It writes when that changes the endpoint's state.
func (b *Book) Called(ctx context.Context, m channel.Message, name string, failure *channel.Error) {
	key := subject(name, id(name, m.Address))
	b.breaker.called(key, time.Now(), failure)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for {
		b.mu.Lock()
		there := b.known[key]
		b.mu.Unlock()
		next, changed := b.after(there, failure)
		if !changed {
			return
		}
		next.Channel, next.ID, next.RecipientType, next.UserID = name, id(name, m.Address), m.RecipientType, m.UserID
		err := b.put(ctx, next, there.revision)
		switch {
		case errors.Is(err, record.ErrTaken): // what is there is known now
			continue
		case err != nil:
			b.cfg.Logger.WarnContext(ctx, "notifier: the health of an endpoint is not kept", "channel", name, "endpoint", next.ID, "error", err)
		case next.State == Disabled:
			b.cfg.Logger.WarnContext(ctx, "notifier: an endpoint is disabled", "channel", name, "endpoint", next.ID,
				"recipient_type", m.RecipientType, "user_id", m.UserID, "since", next.Since, "error", failure)
		}
		return
	}
}

// Left tells that a call that Gate let through was not made.
func (b *Book) Left(name, address string) {
	b.breaker.left(subject(name, id(name, address)), time.Now())
}

// after says what a call makes of an endpoint, and whether that is something else.
func (b *Book) after(e Endpoint, failure *channel.Error) (Endpoint, bool) {
	now := time.Now().UTC()
	switch {
	case failure == nil:
		return Endpoint{At: now, State: Healthy}, e.State != "" && e.State != Healthy
	case !counts(failure):
		return e, false
	case e.State == "" || e.State == Healthy:
		return Endpoint{At: now, LastError: clip(failure.Error()), Since: now, State: Failing}, true
	case e.State == Failing && now.Sub(e.Since) >= b.cfg.DisableAfter:
		return Endpoint{At: now, LastError: clip(failure.Error()), Since: e.Since, State: Disabled}, true
	}
	return e, false
}

// counts reports whether a failure is one of the endpoint.
func counts(failure *channel.Error) bool {
	switch failure.Kind {
	case channel.KindRejected, channel.KindTimeout, channel.KindUnavailable, channel.KindUnknown:
		return true
	case channel.KindBounced, channel.KindGone, channel.KindInterrupted, channel.KindMisconfigured, channel.KindNoAddress,
		channel.KindRateLimited:
	}
	return false
}

// put writes a record over the revision that is known, and learns what is there then.
func (b *Book) put(ctx context.Context, e Endpoint, revision uint64) error {
	e.Write = nuid.Next()
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	e.revision, err = b.store.Put(ctx, subject(e.Channel, e.ID), nil, data, revision)
	if taken, ok := errors.AsType[*record.TakenError](err); ok {
		there, decodeErr := decode(taken.Data, taken.Revision)
		if decodeErr != nil {
			return decodeErr
		}
		b.remember(there)
		return err
	}
	if err == nil {
		b.learn(e)
	}
	return err
}

// remember is learn for a writer who has to know the revision, also of what is healthy.
func (b *Book) remember(e Endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[subject(e.Channel, e.ID)] = e
}

// List returns the endpoints that are not healthy, of a channel, "" for all, and in a state, "" for both, in the order in which
// they came into it: at most limit, from a revision on. next is where to go on, 0 when there is no more.
func (b *Book) List(ctx context.Context, name string, state State, from uint64, limit int) (found []Endpoint, next uint64, err error) {
	messages, next, err := b.store.Scan(ctx, subject(cmp.Or(name, "*"), "*"), from, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("notifier: read the health of endpoints: %w", err)
	}
	for _, m := range messages {
		e, err := decode(m.Data, m.Revision)
		if err == nil && e.State != Healthy && (state == "" || state == e.State) {
			e.Write = ""
			found = append(found, e)
		}
	}
	return found, next, nil
}

// Enable puts an endpoint back to work, and returns how it was. The others hear of it within Config.Every. Two round trips.
func (b *Book) Enable(ctx context.Context, name, endpoint string) (was Endpoint, err error) {
	for {
		data, revision, err := b.store.Latest(ctx, subject(name, endpoint))
		if errors.Is(err, record.ErrNotFound) {
			return was, fmt.Errorf("%w: %.80q on %.80q", ErrUnknown, endpoint, name)
		}
		if err != nil {
			return was, fmt.Errorf("notifier: %w", err)
		}
		if was, err = decode(data, revision); err != nil {
			return was, err
		}
		was.Write = ""
		if was.State == Healthy {
			return was, nil
		}
		err = b.put(ctx, Endpoint{Channel: name, ID: endpoint, At: time.Now().UTC(), State: Healthy}, revision)
		if errors.Is(err, record.ErrTaken) {
			continue
		}
		if err != nil {
			return was, fmt.Errorf("notifier: %w", err)
		}
		b.breaker.forget(subject(name, endpoint))
		return was, nil
	}
}

func decode(data []byte, revision uint64) (e Endpoint, err error) {
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("notifier: the health of an endpoint at %d: %w", revision, err)
	}
	e.revision = revision
	return e, nil
}

// id is short, the same everywhere, and does not tell the address.
func id(name, address string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + address))
	return hex.EncodeToString(sum[:16])
}

// subject is where an endpoint is kept: it begins with what no id becomes.
func subject(name, id string) string {
	return "$KV." + contracts.BucketDeliveries + "./endpoint." + name + "." + id
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxError)], "") }
