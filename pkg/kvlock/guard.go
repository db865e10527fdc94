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

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/record"
)

// Guard keeps values that are written under a lock, and refuses a write whose fencing token is smaller than that of the
// last one: a holder that was paused and lost its lease meanwhile changes nothing. Make one for each bucket and process with [NewGuard];
// it is safe for concurrent use.
//
// The same rule elsewhere: a token has two parts that are compared one after the other. In SQL, with the parts in two columns of a row,
// one statement both checks and writes. If it affects no row, the writer is fenced off:
//
//	UPDATE accounts SET balance = $3, fence_epoch = $1, fence_revision = $2
//	WHERE id = $4 AND (fence_epoch, fence_revision) <= ($1, $2)
//
// Over HTTP the client sends the token in a header, and the server keeps the greatest accepted token of each resource, in the same
// transaction as the resource. It answers 412 Precondition Failed to a smaller token, and 428 Precondition Required to a request without
// one. [Token.String] and [ParseToken] write and read the header:
//
//	PUT /accounts/7
//	Fencing-Token: 1792454400000000000-42
type Guard struct {
	store   *kv.Store
	closing sync.Once
}

// GuardConfig configures a [Guard]. Only Bucket is required.
type GuardConfig struct {
	// Bucket is the KV bucket that keeps the values. It has to exist. It may be the bucket of the locks if no key has the name of a lock:
	// see [CreateBucket] and [StreamConfig].
	Bucket string

	// Instance names this process in the records of values, where people read it: at most 256 bytes. Defaults to the
	// host's name and the process id.
	Instance string

	// Logger gets the faults that no caller gets as an error: corrupt records. Defaults to slog.Default().
	Logger *slog.Logger

	// OpTimeout bounds each operation beside its context. Defaults to 2 seconds.
	OpTimeout time.Duration
}

// NewGuard binds to the bucket, as [NewLocker] does. Close ends it. One round trip.
func NewGuard(ctx context.Context, js jetstream.JetStream, cfg GuardConfig) (*Guard, error) {
	base := kv.Config{Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout}.WithDefaults()
	if err := base.Validate(); err != nil {
		return nil, err
	}
	s, err := kv.Open(ctx, js, base)
	if err != nil {
		return nil, err
	}
	return &Guard{store: s}, nil
}

// Close ends the operations under way. Calling it again does nothing.
func (g *Guard) Close() {
	g.closing.Do(func() {
		g.store.BeginClose()
		g.store.Close()
	})
}

// Guarded is a value of a [Guard].
type Guarded struct {
	Value    []byte
	Token    Token  // the token of the last write; zero when there was none
	Revision uint64 // the revision of the record; 0 when there is none
}

// Put stores value if token is not smaller than that of the last write, and otherwise returns a [FencedError] that
// names both. Of writes with different tokens, from any number of processes, none is accepted after one with a greater
// token. A value whose Put returns nil was stored, though a holder with a greater token may have written since. A value
// whose Put returns ErrUnavailable, or a FencedError with Unknown set, may have been stored. Two round trips.
func (g *Guard) Put(ctx context.Context, key string, token Token, value []byte) error {
	if err := kv.CheckKey(key); err != nil {
		return err
	}
	if token == (Token{}) {
		return fmt.Errorf("kvlock: put %q: a zero token belongs to no holder", key)
	}
	ctx, cancel := g.store.Bound(ctx)
	defer cancel()
	w := guardWriter{guard: g, owner: nuid.Next()}
	now, err := g.ask(ctx, key)
	if err == nil && now.token.Compare(token) > 0 {
		return &FencedError{Key: key, Token: token, Stored: now.token}
	}
	for err == nil {
		err = w.write(ctx, key, token, now, value)
		var conflict *kv.ConflictError
		if err == nil || !errors.As(err, &conflict) {
			return err
		}
		before := now
		now, err = w.found, nil
		order, became := now.token.Compare(token), now.tells(before, w.owner)
		switch {
		case became == wasApplied:
			return nil
		case order > 0:
			return &FencedError{Key: key, Token: token, Stored: now.token, Unknown: became == isUnknown}
		case order == 0 && became == isUnknown: // another try could undo a later write of the same holder
			return fmt.Errorf("kvlock: put %q with token %s: %w: the outcome is unknown, and the token has written again",
				key, token, ErrUnavailable)
		}
	}
	return err
}

// stateFenced is the state of the record of a guarded value.
const stateFenced = "fenced"

// guardedHead is the first line of the record of a guarded value; the value follows. Its claim is the token.
type guardedHead struct {
	record.Head

	Replaced string `json:"replaced,omitempty"` // the ref of the replaced record
}

// guarded is the entry of a key of a Guard.
type guarded struct {
	revision uint64
	token    Token
	value    []byte
	writer   string
	replaced string
}

// ref names the record in its history: its revision and its writer.
func (v guarded) ref() string { return strconv.FormatUint(v.revision, 10) + "." + v.writer }

// outcome is the outcome of a write.
type outcome int

const (
	isUnknown outcome = iota
	wasApplied
	wasRefused
)

// tells returns the outcome of an unacknowledged write over before, from the key's present entry, v. Each guarded value names the record
// that it replaced, and a record is replaced once.
func (v guarded) tells(before guarded, writer string) outcome {
	_, replaced, _ := strings.Cut(v.replaced, ".")
	switch {
	case replaced == writer:
		return wasApplied
	case v.replaced == before.ref():
		return wasRefused
	default:
		return isUnknown
	}
}

// errCorrupt is returned for a record that cannot be read. The record stays: without its token any holder could write.
var errCorrupt = errors.New("record is corrupt")

// decode reads an entry.
func (g *Guard) decode(e kv.Entry) (guarded, error) {
	v := guarded{revision: e.Revision}
	if e.Deleted() || e.Purged() {
		return v, nil
	}
	h, value, err := record.Decode[guardedHead](e.Data, record.Guarded)
	if err == nil {
		v.token, err = ParseToken(h.Claim)
	}
	switch {
	case record.IsForeign(err):
		return v, fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", e.Key, g.store.Bucket, e.Revision, err)
	case err != nil:
		return v, fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w: %w", e.Key, g.store.Bucket, e.Revision, errCorrupt, err)
	}
	v.value, v.writer, v.replaced = value, h.Owner, h.Replaced
	return v, nil
}

func (g *Guard) ask(ctx context.Context, key string) (guarded, error) {
	e, err := g.store.Ask(ctx, key)
	if err != nil {
		return guarded{}, err
	}
	return g.decode(e)
}

// guardWriter is one Put.
type guardWriter struct {
	guard *Guard
	owner string
	found guarded // the entry that was found instead
}

func (w *guardWriter) write(ctx context.Context, key string, token Token, now guarded, value []byte) error {
	data, err := record.Encode(guardedHead{
		Head: record.Head{
			Version: record.Version, State: stateFenced, Claim: token.String(), Owner: w.owner, Instance: w.guard.store.Instance,
		},
		Replaced: now.ref(),
	}, value)
	if err != nil {
		return err
	}
	_, _, err = w.guard.store.Write(ctx, kv.Change{Key: key, Expect: now.revision, Data: data, State: stateFenced, Writer: w})
	if conflict, ok := errors.AsType[*kv.ConflictError](err); ok {
		w.found.revision = conflict.Revision
	}
	return err
}

// Found reports whether the entry is the one that this Put wrote.
func (w *guardWriter) Found(_ context.Context, e kv.Entry) kv.Found {
	var err error
	w.found, err = w.guard.decode(e)
	return kv.Found{Revision: e.Revision, Ours: w.found.writer != "" && w.found.writer == w.owner, Err: err}
}

// Pushed returns nothing: values of a Guard are not watched.
func (w *guardWriter) Pushed() kv.Found { return kv.Found{} }

// Get returns the value that the last Put stored. The value is read from the stream's leader, and may be old all the same: only Put
// decides. One round trip.
func (g *Guard) Get(ctx context.Context, key string) (Guarded, error) {
	if err := kv.CheckKey(key); err != nil {
		return Guarded{}, err
	}
	now, err := g.ask(ctx, key)
	if err != nil {
		return Guarded{}, err
	}
	return Guarded{Value: now.value, Token: now.token, Revision: now.revision}, nil
}

// Token orders the holders of one key: a later lease or claim has a greater token. A writer passes its token to the system that it writes
// to. That system refuses a smaller token than the greatest it has seen. Tokens of different keys are not ordered.
//
// Epoch is the time at which the bucket was created, in nanoseconds since 1970, so that tokens still grow when a bucket
// is deleted and made anew; Revision is the stream sequence at which the lease or claim was taken.
type Token struct {
	Epoch    uint64
	Revision uint64
}

// Compare returns -1, 0 or +1 as t is before, equal to or after u.
func (t Token) Compare(u Token) int {
	switch {
	case t == u:
		return 0
	case t.Epoch < u.Epoch || t.Epoch == u.Epoch && t.Revision < u.Revision:
		return -1
	default:
		return 1
	}
}

// String returns the token as "epoch-revision".
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Epoch, t.Revision) }

// ParseToken parses a token in the form that [Token.String] returns.
func ParseToken(s string) (Token, error) {
	epoch, revision, _ := strings.Cut(s, "-")
	e, epochErr := strconv.ParseUint(epoch, 10, 64)
	r, revisionErr := strconv.ParseUint(revision, 10, 64)
	if err := errors.Join(epochErr, revisionErr); err != nil {
		s = record.Truncate(s, record.MaxIDBytes)
		return Token{}, fmt.Errorf("kvlock: %q is not a token: want two numbers and a hyphen between them", s)
	}
	return Token{Epoch: e, Revision: r}, nil
}
