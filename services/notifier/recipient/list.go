package recipient

import (
	"context"
	"errors"
	"fmt"
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

// list yields a recipient for each key, once.
//
// A consumer alone does not find all: it says that it has seen everything when no message is pending, and a record that is
// written while it reads is neither pending at its old place nor yet at its new one for a moment. So the leader is asked afterwards for
// what is behind the consumer's last message. (All keys at once are no way to find who is missing: a server took 3 to 5 seconds to name
// 100,000 of a million.)
func (d *Directory) list(ctx context.Context, keys string, kind contracts.RecipientType) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		l := listing{Directory: d, keys: keys, kind: kind, yield: yield}
		more, err := l.shown(ctx)
		if more && err == nil {
			more, err = l.written(ctx)
		}
		if more && err != nil {
			yield(contracts.Recipient{}, err)
		}
	}
}

// listing is a list that is being read. It holds twelve bytes for each key.
type listing struct {
	*Directory

	begun    uint64 // the position of the stream before the list: each key is shown once up to there
	keys     string
	kind     contracts.RecipientType
	position uint64 // of the last message
	seen     keySet
	yield    func(contracts.Recipient, error) bool
}

// shown yields the recipients that a consumer delivers. more is false when the caller wants no more. The consumer delivers
// only as many as were requested: a watch would hold everything that the server can send meanwhile. Three round trips, and one
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
	stream, err := l.js.Stream(ctx, "KV_"+contracts.BucketDirectory)
	if err != nil {
		return true, broken(err)
	}
	l.begun = stream.CachedInfo().State.LastSeq
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{prefix + l.keys}, HeadersOnly: true,
		InactiveThreshold: listIdle, MaxResetAttempts: listResets,
	})
	if err != nil {
		return true, broken(err)
	}
	defer l.forget(ctx, consumer)
	l.seen = newKeySet(consumer.CachedInfo().NumPending)
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
		l.position = meta.Sequence.Stream
		if !removed(msg.Headers()) {
			if more, err := l.one(msg.Subject()); !more || err != nil {
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

// written yields those who were written since the position of the consumer, some of whom it has shown. Its reads are in the order of the
// stream, and a record that is written meanwhile comes behind: none escapes them. One round trip for each, and one.
func (l *listing) written(ctx context.Context) (more bool, err error) {
	for {
		r, err := l.records.Next(ctx, prefix+l.keys, l.position+1)
		if err != nil {
			return true, temporary(fmt.Errorf("list %s of the directory: %w", l.keys, err))
		}
		if r.Revision == 0 {
			return true, nil
		}
		l.position = r.Revision
		if isAbsent(r) { // it has been deleted
			continue
		}
		if more, err := l.one(r.Subject); !more || err != nil {
			return more, err
		}
	}
}

// one yields the recipient of the subject at the position, unless it has come before.
func (l *listing) one(subject string) (more bool, err error) {
	key := strings.TrimPrefix(subject, prefix)
	if again := l.seen.add(key); again && l.position > l.begun {
		return true, nil
	}
	userID, err := contracts.DecodeToken(key[strings.LastIndexByte(key, '.')+1:])
	if err != nil {
		return true, permanent(fmt.Errorf("key %s of the directory: %w", key, err))
	}
	return l.yield(contracts.Recipient{RecipientType: l.kind, UserID: userID}, nil), nil
}
