package kvlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Guard keeps values that are written under a lock, and refuses a write whose fencing token is smaller than that of the
// last one: a holder that was paused, lost its lease without knowing, and wakes up, changes nothing. Make one for each
// bucket and process with [NewGuard]; it is safe for concurrent use.
//
// The same rule elsewhere. A token has two parts that are compared one after the other. In SQL, of a row that has them
// in two columns, one statement both checks and writes; no row affected means that the writer is fenced off:
//
//	UPDATE accounts SET balance = $3, fence_epoch = $1, fence_revision = $2
//	WHERE id = $4 AND (fence_epoch, fence_revision) <= ($1, $2)
//
// Over HTTP the client sends the token in a header, and the server keeps the greatest that it has accepted for each
// resource, in the same transaction as the resource: it answers 412 Precondition Failed to a smaller one, and 428
// Precondition Required to none. [Token.String] and [ParseToken] are the text of it:
//
//	PUT /accounts/7
//	Fencing-Token: 1792454400000000000-42
type Guard struct {
	*store

	closing sync.Once
}

// GuardConfig configures a [Guard]. Only Bucket is required.
type GuardConfig struct {
	// Bucket is the KV bucket that keeps the values. It has to exist, and may be that of the locks if no key has the name
	// of one: see [CreateBucket] and [StreamConfig].
	Bucket string

	// Instance names this process in values, for people who look at them, in at most 256 bytes. Defaults to the host's
	// name and the process id.
	Instance string

	// Logger gets what nobody else is told: corrupt records. Defaults to slog.Default().
	Logger *slog.Logger

	// OpTimeout bounds each operation beside its context. Defaults to 2 seconds.
	OpTimeout time.Duration
}

// NewGuard binds to the bucket, as [NewLocker] does. Close ends it. One round trip.
func NewGuard(ctx context.Context, js jetstream.JetStream, cfg GuardConfig) (*Guard, error) {
	base := Config{
		Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout,
	}.withDefaults()
	if err := base.validate(); err != nil {
		return nil, err
	}
	s, err := openStore(ctx, js, storeConfig{
		bucket: base.Bucket, instance: base.Instance, kind: fenced, log: base.Logger, opTimeout: base.OpTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &Guard{store: s}, nil
}

// Close ends the operations under way. Calling it again does nothing.
func (g *Guard) Close() {
	g.closing.Do(func() {
		g.ending.end(ErrClosed)
		g.close()
	})
}

// Guarded is a value of a [Guard].
type Guarded struct {
	Value    []byte
	Token    Token  // of the last write; zero when there was none
	Revision uint64 // of the record; 0 when there is none
}

// Put stores value if token is not smaller than that of the last write, and otherwise returns a [FencedError] that names
// both. Of writes with different tokens, from any number of processes, none is accepted after one with a greater token.
// A Put that returns nil was stored, though a greater token may have written since. One that returns ErrUnavailable, or a
// FencedError with Unknown set, may have been stored. Two round trips.
func (g *Guard) Put(ctx context.Context, key string, token Token, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if token == (Token{}) {
		return fmt.Errorf("kvlock: put %q: a zero token is nobody's", key)
	}
	ctx, cancel := g.bound(ctx)
	defer cancel()
	writer := nuid.Next()
	now, err := g.ask(ctx, key)
	if err == nil && now.in().fence.Compare(token) > 0 {
		return &FencedError{Key: key, Token: token, Stored: now.in().fence}
	}
	for err == nil {
		_, _, err = g.write(ctx, change{key: key, expect: now.Revision, value: value, record: record{
			Version: recordVersion, State: fenced.String(), Claim: token.String(), Owner: writer, Instance: g.instance,
			Replaced: now.ref(),
		}})
		var conflict *conflictError
		if err == nil || !errors.As(err, &conflict) {
			return err
		}
		before := now
		now, err = conflict.slot, nil
		order, became := now.in().fence.Compare(token), now.tells(before, writer)
		switch {
		case became == wasApplied:
			return nil
		case order > 0:
			return &FencedError{Key: key, Token: token, Stored: now.in().fence, Unknown: became == isUnknown}
		case order == 0 && became == isUnknown: // once more could undo a later write of the same holder
			return fmt.Errorf("kvlock: put %q with token %s: %w: the outcome is unknown, and the token has written again",
				key, token, ErrUnavailable)
		}
	}
	return err
}

// outcome is what became of a write.
type outcome int

const (
	isUnknown outcome = iota
	wasApplied
	wasRefused
)

// ref names the record in its history: its revision and its writer.
func (s *Slot) ref() string { return strconv.FormatUint(s.Revision, 10) + "." + s.in().writer }

// tells says what became of a write over before, of which no acknowledgement came, from what the key holds now. Each
// guarded value names the record that it replaced, and a record is replaced once.
func (s *Slot) tells(before Slot, writer string) outcome {
	_, replaced, _ := strings.Cut(s.in().replaced, ".")
	switch {
	case replaced == writer:
		return wasApplied
	case s.in().replaced == before.ref():
		return wasRefused
	default:
		return isUnknown
	}
}

// Get returns what the last Put stored. It is read from the stream's leader, and may be old all the same: only Put
// decides. One round trip.
func (g *Guard) Get(ctx context.Context, key string) (Guarded, error) {
	if err := checkKey(key); err != nil {
		return Guarded{}, err
	}
	slot, err := g.ask(ctx, key)
	if err != nil {
		return Guarded{}, err
	}
	return Guarded{Value: slot.Value, Token: slot.in().fence, Revision: slot.Revision}, nil
}

// FencedError says that a write was refused because somebody with a greater token has written.
type FencedError struct {
	Key    string
	Token  Token // of the write that was refused
	Stored Token // of the one that was accepted before

	// Unknown reports whether the write may have been stored all the same: before the greater token's, until which it
	// refused smaller ones. Its acknowledgement was lost, or it was refused while the leader changed, and several others
	// wrote before the key was read back.
	Unknown bool
}

// Error names the key and both tokens.
func (e *FencedError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("kvlock: write of %q with token %s may have been stored: it was not acknowledged, and %s has written since",
			e.Key, e.Token, e.Stored)
	}
	return fmt.Sprintf("kvlock: write of %q with token %s is refused: %s has written", e.Key, e.Token, e.Stored)
}

// Unwrap makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Unwrap() error { return ErrFenced }

// ParseToken reads what [Token.String] wrote.
func ParseToken(s string) (Token, error) {
	epoch, revision, _ := strings.Cut(s, "-")
	e, epochErr := strconv.ParseUint(epoch, 10, 64)
	r, revisionErr := strconv.ParseUint(revision, 10, 64)
	if err := errors.Join(epochErr, revisionErr); err != nil {
		return Token{}, fmt.Errorf("kvlock: %q is not a token: want two numbers and a hyphen between them", truncate(s, maxClaimBytes))
	}
	return Token{Epoch: e, Revision: r}, nil
}
