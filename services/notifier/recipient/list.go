package recipient

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// prefix is what the subjects of the directory begin with, before the key.
const prefix = "$KV." + contracts.BucketDirectory + "."

const (
	// ahead is how many keys of a list are on their way at a time.
	ahead = 500

	// listIdle is after how long the server forgets a list that is no longer read.
	listIdle = 30 * time.Second

	// listResets is how often a list that breaks off goes on where it was.
	listResets = 3

	// listSilence is after how long a list without a message fails. Its consumer was lost with the server, or the answers
	// were: a caller that repeats the list gets one that continues.
	listSilence = 5 * time.Second

	// listEnd bounds the wait for the server to forget a list that has ended.
	listEnd = 2 * time.Second
)

// errSilent is why a list is given up that brings nothing.
var errSilent = errors.New("the server has sent nothing more")

// list yields a recipient for each key.
//
// A consumer alone does not find all: it says that it has seen everything when no message is pending, and a record that is
// written while it reads is neither pending at its old place nor yet at its new one for a moment. What the bucket has keys of
// is known at one point in time, so those that the consumer did not show are looked for afterwards.
func (d *Directory) list(ctx context.Context, keys string, kind contracts.RecipientType) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		l := listing{Directory: d, keys: keys, kind: kind, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, yield: yield}
		more, err := l.shown(ctx)
		if more && err == nil {
			more, err = l.missed(ctx)
		}
		if more && err != nil {
			yield(contracts.Recipient{}, err)
		}
	}
}

// listing is a list that is being read. It holds eight bytes of each key that it has seen. That of two keys of a million which
// are the same in them the consumer shows only one has no chance worth a name.
type listing struct {
	*Directory

	keys  string
	kind  contracts.RecipientType
	seed  maphash.Seed
	seen  map[uint64]struct{}
	yield func(contracts.Recipient, error) bool
}

// shown yields the recipients that a consumer delivers. more is false when the caller wants no more. The consumer delivers
// only as many as were requested: a watch would hold everything that the server can send meanwhile. Two round trips, and one
// for some hundred keys.
func (l *listing) shown(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(listSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	broken := func(errs ...error) error {
		err := errors.Join(append(errs, context.Cause(ctx))...)
		return temporary(fmt.Errorf("%w: list %s of the directory: %w", kvrecord.ErrUnavailable, l.keys, err))
	}
	consumer, err := l.js.OrderedConsumer(ctx, "KV_"+contracts.BucketDirectory, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{prefix + l.keys}, HeadersOnly: true,
		InactiveThreshold: listIdle, MaxResetAttempts: listResets,
	})
	if err != nil {
		return true, broken(err)
	}
	defer l.forget(ctx, consumer)
	if consumer.CachedInfo().NumPending == 0 {
		return true, nil
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(ahead))
	if err != nil {
		return true, broken(err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)() // Next looks at ctx only while it waits for a message
	for {
		silence.Reset(listSilence)
		msg, err := messages.Next(jetstream.NextContext(ctx))
		silence.Stop() // the caller of the list may be slow
		if err != nil {
			return true, broken(ErrIncomplete, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return true, broken(ErrIncomplete, err)
		}
		key := strings.TrimPrefix(msg.Subject(), prefix)
		l.seen[maphash.String(l.seed, key)] = struct{}{}
		if !removed(msg.Headers()) {
			if more, err := l.one(key); !more || err != nil {
				return more, err
			}
		}
		if meta.NumPending == 0 {
			return true, nil
		}
	}
}

// forget has the server forget a consumer. When it cannot be told, it does so by itself a little later.
func (l *listing) forget(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listEnd)
	defer cancel()
	_ = l.js.DeleteConsumer(ctx, "KV_"+contracts.BucketDirectory, consumer.CachedInfo().Name) //nolint:errcheck // see above
}

// removed reports whether a message says that its key is no more.
func removed(header nats.Header) bool {
	return header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != ""
}

// missed yields those whom the consumer did not show. One round trip for each 100,000 keys, and one for each of them.
func (l *listing) missed(ctx context.Context) (more bool, err error) {
	for offset := 0; ; {
		subjects, next, err := l.records.Subjects(ctx, prefix+l.keys, offset)
		if err != nil {
			return true, temporary(fmt.Errorf("list %s of the directory: %w", l.keys, err))
		}
		for _, subject := range subjects {
			key := strings.TrimPrefix(subject, prefix)
			if _, seen := l.seen[maphash.String(l.seed, key)]; seen {
				continue
			}
			stored, err := l.records.Get(ctx, subject)
			switch {
			case err != nil:
				return true, temporary(fmt.Errorf("read %s of the directory: %w", key, err))
			case isAbsent(stored): // it has been deleted
				continue
			}
			if more, err := l.one(key); !more || err != nil {
				return more, err
			}
		}
		if next == 0 {
			return true, nil
		}
		offset = next
	}
}

// one yields the recipient of a key.
func (l *listing) one(key string) (more bool, err error) {
	userID, err := contracts.DecodeToken(key[strings.LastIndexByte(key, '.')+1:])
	if err != nil {
		return true, permanent(fmt.Errorf("key %s of the directory: %w", key, err))
	}
	return l.yield(contracts.Recipient{RecipientType: l.kind, UserID: userID}, nil), nil
}
