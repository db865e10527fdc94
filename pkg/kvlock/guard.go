package kvlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Guard keeps values that are written under a lock, and refuses a write whose fencing token is smaller than that of the
// last one: a holder that was paused and lost its lease changes nothing. Make one for each bucket and process with [NewGuard]; it
// is safe for concurrent use.
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
	records  *kvrecord.Stream
	bucket   string
	instance string
	timeout  time.Duration
}

// GuardConfig configures a [Guard]. Only Bucket is required.
type GuardConfig struct {
	// Bucket is the KV bucket that keeps the values. It has to exist. It may be the bucket of the locks if no key has the name of a lock:
	// see [CreateBucket] and [StreamConfig].
	Bucket string

	// Instance names this process in the records of values, where people read it: at most 256 bytes. Defaults to the
	// host's name and the process id.
	Instance string

	// OpTimeout bounds each operation beside its context. Defaults to 2 seconds.
	OpTimeout time.Duration
}

// NewGuard binds to the bucket, as [NewLocker] does. Close ends it. One round trip.
func NewGuard(ctx context.Context, js jetstream.JetStream, cfg GuardConfig) (*Guard, error) {
	base := kv.Config{Bucket: cfg.Bucket, Instance: cfg.Instance, OpTimeout: cfg.OpTimeout}.WithDefaults()
	if err := base.Validate(); err != nil {
		return nil, err
	}
	records, err := openRecords(ctx, js, base)
	if err != nil {
		return nil, err
	}
	return &Guard{records: records.Bucket(base.Bucket), bucket: base.Bucket, instance: base.Instance, timeout: base.OpTimeout}, nil
}

// Close ends the operations under way. Calling it again does nothing.
func (g *Guard) Close() { g.records.Close() }

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
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	over, err := g.latest(ctx, key)
	for unknown := false; err == nil; {
		switch order := over.token.Compare(token); {
		case order > 0:
			return &FencedError{Key: key, Token: token, Stored: over.token, Unknown: unknown}
		case order == 0 && unknown: // another try could undo a later write of the same holder
			return fmt.Errorf("kvlock: put %q with token %s: %w: the outcome is unknown, and the token has written again",
				key, token, ErrUnavailable)
		}
		err = g.write(ctx, key, token, over, value)
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if !ok {
			break
		}
		unknown = conflict.Unknown
		over, err = g.decode(key, conflict.Found)
	}
	return err
}

// stateFenced is the state of the record of a guarded value. The claim of the record is the token.
const stateFenced = "fenced"

// guarded is the record of a key of a Guard.
type guarded struct {
	record kvrecord.Record
	token  Token
	value  []byte
}

func (g *Guard) decode(key string, r kvrecord.Record) (guarded, error) {
	v := guarded{record: r}
	if r.Revision == 0 || r.Deleted() {
		return v, nil
	}
	var h kv.Head
	value, err := kv.Decode(r.Data, &h, kv.GuardedStates)
	if err == nil {
		v.token, err = ParseToken(h.Claim)
	}
	switch {
	case kv.IsForeign(err):
		return v, fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", key, g.bucket, r.Revision, err)
	case err != nil: // the record stays: without its token any holder could write
		return v, fmt.Errorf("kvlock: key %q in bucket %q at revision %d: record is corrupt: %w", key, g.bucket, r.Revision, err)
	}
	v.value = value
	return v, nil
}

// latest reads a key from the stream's leader.
func (g *Guard) latest(ctx context.Context, key string) (guarded, error) {
	r, err := g.records.Latest(ctx, g.records.Key(key))
	if err != nil {
		return guarded{}, g.failed("read", key, err)
	}
	return g.decode(key, r)
}

func (g *Guard) write(ctx context.Context, key string, token Token, over guarded, value []byte) error {
	data, err := kv.Encode(kv.Head{
		Version: kv.Version, State: stateFenced, Claim: token.String(), Owner: nuid.Next(), Instance: g.instance,
	}, value)
	if err != nil {
		return err
	}
	_, err = g.records.Put(ctx, kvrecord.Write{Subject: g.records.Key(key), Data: data, Over: over.record})
	return g.failed("write", key, err)
}

// failed returns err with this package's error for it.
func (g *Guard) failed(op, key string, err error) error {
	var as error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kvrecord.ErrClosed):
		as = ErrClosed
	case errors.Is(err, kvrecord.ErrTooLarge):
		as = ErrTooLarge
	case errors.Is(err, kvrecord.ErrUnavailable):
		as = ErrUnavailable
	default:
		return fmt.Errorf("kvlock: %s %q in bucket %q: %w", op, key, g.bucket, err)
	}
	return fmt.Errorf("kvlock: %s %q in bucket %q: %w: %w", op, key, g.bucket, as, err)
}

// Get returns the value that the last Put stored. The value is read from the stream's leader, and may be old all the same: only Put
// decides. One round trip.
func (g *Guard) Get(ctx context.Context, key string) (Guarded, error) {
	if err := kv.CheckKey(key); err != nil {
		return Guarded{}, err
	}
	now, err := g.latest(ctx, key)
	if err != nil {
		return Guarded{}, err
	}
	return Guarded{Value: now.value, Token: now.token, Revision: now.record.Revision}, nil
}

// Token orders the holders of one key: a later lease or claim has a greater token. A writer passes its token to the system that it writes
// to. That system refuses a smaller token than the greatest it has seen. Tokens of different keys are not ordered.
//
// Epoch is the time at which the bucket was created, in nanoseconds since 1970, so that tokens still grow when a bucket
// is deleted and recreated; Revision is the stream sequence at which the lease or claim was taken.
type Token struct {
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
}

// Compare returns -1, 0 or +1 as t is before, equal to or after u.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Revision, u.Revision))
}

// String returns the token as "epoch-revision".
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Epoch, t.Revision) }

// ParseToken parses a token in the form that [Token.String] returns.
func ParseToken(s string) (Token, error) {
	epoch, revision, _ := strings.Cut(s, "-")
	e, epochErr := strconv.ParseUint(epoch, 10, 64)
	r, revisionErr := strconv.ParseUint(revision, 10, 64)
	if err := errors.Join(epochErr, revisionErr); err != nil {
		return Token{}, fmt.Errorf("kvlock: %s is not a token: want two numbers and a hyphen between them", redact.Quote(s))
	}
	return Token{Epoch: e, Revision: r}, nil
}
