package recipient

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Directory is the bucket of recipients. Each recipient has a record, and an entry for each aggregate whose events concern it.
type Directory struct {
	js      jetstream.JetStream
	records *kvrecord.Stream // the stream of the bucket

	together together
}

// NewDirectory returns the directory of the bucket. records stays the caller's to close. No round trip.
func NewDirectory(js jetstream.JetStream, records *kvrecord.Client) *Directory {
	return &Directory{
		js: js, records: records.Bucket(contracts.BucketDirectory), together: together{turn: make(chan struct{}, 1)},
	}
}

// read reads the record of a recipient, from any replica. One round trip.
func (d *Directory) read(ctx context.Context, kind contracts.RecipientType, userID string) (kvrecord.Record, error) {
	records, err := d.readMany(ctx, []contracts.Recipient{{RecipientType: kind, UserID: userID}})
	if err != nil {
		return kvrecord.Record{}, err
	}
	return records[0], nil
}

// readMany reads the records of recipients, from any replica. A recipient that occurs twice is read once. One round trip for each 512
// recipients.
func (d *Directory) readMany(ctx context.Context, all []contracts.Recipient) ([]kvrecord.Record, error) {
	records := make([]kvrecord.Record, len(all))
	at := make(map[string][]int, len(all)) // the places of the subjects
	subjects := make([]string, 0, len(all))
	for i, r := range all {
		key, err := keys.Recipient(r.RecipientType, r.UserID)
		if err != nil {
			return nil, permanent(err)
		}
		subject := d.records.Key(key)
		if records[i].Subject = subject; at[subject] == nil {
			subjects = append(subjects, subject)
		}
		at[subject] = append(at[subject], i)
	}
	if len(subjects) == 0 {
		return records, nil
	}
	found, err := d.records.GetMany(ctx, subjects)
	if err != nil {
		return nil, temporary(fmt.Errorf("read %s of the directory: %w", subjects[0], err))
	}
	for _, r := range found {
		for _, i := range at[r.Subject] {
			records[i] = r
		}
	}
	return records, nil
}

// Get returns a recipient; found is false when the directory has no record of it. A record that cannot be read is a permanent error:
// its opt-outs are not known. The error matches [ErrForgotten] for some time after [Directory.Forget]. One round trip, which calls at
// the same time share.
func (d *Directory) Get(ctx context.Context, kind contracts.RecipientType, userID string) (r contracts.Recipient, found bool, err error) {
	record, err := d.readShared(ctx, kind, userID)
	switch {
	case err != nil:
		return r, false, err
	case isForgotten(record):
		return r, false, permanent(ErrForgotten)
	case isAbsent(record):
		return r, false, nil
	}
	if r, err = contracts.Decode[contracts.Recipient](record.Data); err != nil {
		return contracts.Recipient{}, false, permanent(fmt.Errorf("%s: %w", record.Subject, err))
	}
	return r, true, nil
}

// isAbsent reports whether a record means that its key does not exist, or was deleted.
func isAbsent(r kvrecord.Record) bool { return r.Revision == 0 || r.Deleted() }

// Resolve implements [Resolver]. It yields ids only: the other fields of a recipient are read when a notification is sent. A list takes
// one consumer while it is read, and a round trip for each recipient that is written in the meantime. Its cost is linear in the audience.
func (d *Directory) Resolve(ctx context.Context, q Query) iter.Seq2[contracts.Recipient, error] {
	switch q.Scope {
	case rules.ScopeUser:
		if q.Event.UserID == "" {
			return failed(permanent(ErrNoUser))
		}
		return one(contracts.Recipient{RecipientType: q.Type, UserID: q.Event.UserID})
	case rules.ScopeAggregate:
		kind, id := Aggregate(q.Event)
		if id == "" {
			return failed(permanent(ErrNoAggregate))
		}
		pattern, err := keys.Members(kind, id, q.Type)
		if err != nil {
			return failed(permanent(err))
		}
		return d.list(ctx, pattern, q.Type)
	case rules.ScopeAll:
		pattern, err := keys.Recipients(q.Type)
		if err != nil {
			return failed(permanent(err))
		}
		return d.list(ctx, pattern, q.Type)
	default:
		return failed(permanent(fmt.Errorf("there is no scope %q", q.Scope)))
	}
}

// prefix precedes the key in the subjects of the directory.
const prefix = "$KV." + contracts.BucketDirectory + "."

const (
	// ahead is the number of keys of a list that are on their way at a time.
	ahead = 500

	// listIdle is the time after which the server deletes the consumer of a list that is no longer read.
	listIdle = 30 * time.Second

	// listResets is the number of times that a list continues after it broke off.
	listResets = 3

	// listSilence is the time without a message after which a list fails, because its consumer was lost with the server,
	// or the answers were lost. A caller that repeats the list gets a new consumer.
	listSilence = 5 * time.Second

	// listEnd bounds the request to delete the consumer of a list that has ended.
	listEnd = 2 * time.Second
)

// errSilent is the error of a list without a message for listSilence.
var errSilent = errors.New("the server has sent nothing more")

// list yields a recipient for each key, once.
//
// A consumer alone does not find all keys: it ends when no message is pending, and a record that is written in the meantime is for a
// moment pending at neither its old nor its new position. So list then asks the leader for the records after the consumer's last
// message. (Listing all keys would be too slow: a server took 3 to 5 seconds to name 100,000 of a million.)
func (d *Directory) list(ctx context.Context, pattern string, kind contracts.RecipientType) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		l := listing{Directory: d, keys: pattern, kind: kind, seed: maphash.MakeSeed(), yield: yield}
		more, err := l.shown(ctx)
		if more && err == nil {
			more, err = l.written(ctx)
		}
		if more && err != nil {
			yield(contracts.Recipient{}, err)
		}
	}
}

// listing is a list that is being read. It holds eight bytes for each key.
type listing struct {
	*Directory

	begun    uint64 // the position of the stream before the list: up to it each key occurs once
	keys     string
	kind     contracts.RecipientType
	position uint64          // the position of the last message
	seed     maphash.Seed    // of the hashes of keys: a new key has the hash of one of a million others with a probability of 5e-14
	early    []uint64        // the hashes of the keys up to begun, sorted once late is there
	late     map[uint64]bool // the hashes of the other keys
	yield    func(contracts.Recipient, error) bool
}

// shown yields the recipients that a consumer delivers. more is false when the caller wants no more. The consumer delivers
// only requested keys, because a watch would hold all keys that the server can send in the meantime. Three round trips, and one for
// some hundred keys.
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
	l.early = make([]uint64, 0, consumer.CachedInfo().NumPending)
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

// forget deletes a consumer. When the request fails, the server deletes it a little later by itself.
func (l *listing) forget(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listEnd)
	defer cancel()
	_ = l.js.DeleteConsumer(ctx, "KV_"+contracts.BucketDirectory, consumer.CachedInfo().Name) // see above
}

// removed reports whether a message marks its key as deleted, or its recipient as not in the directory.
func removed(header nats.Header) bool {
	return header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != "" || header.Get(headerUnlisted) != ""
}

// written yields the recipients that were written since the position of the consumer, some of which the consumer may have
// shown. It reads in the order of the stream, and a record that is written in the meantime comes later, so it misses none. One round
// trip for each recipient, and one more.
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
		if isAbsent(r) || isUnlisted(r) {
			continue
		}
		if more, err := l.one(r.Subject); !more || err != nil {
			return more, err
		}
	}
}

// one yields the recipient of the subject at the position, unless it was yielded before.
func (l *listing) one(subject string) (more bool, err error) {
	key := strings.TrimPrefix(subject, prefix)
	hash := maphash.String(l.seed, key)
	if l.position <= l.begun {
		l.early = append(l.early, hash)
	} else {
		if l.late == nil {
			slices.Sort(l.early)
			l.late = map[uint64]bool{}
		}
		if _, again := slices.BinarySearch(l.early, hash); again || l.late[hash] {
			return true, nil
		}
		l.late[hash] = true
	}
	userID, err := contracts.DecodeToken(key[strings.LastIndexByte(key, '.')+1:])
	if err != nil {
		return true, permanent(fmt.Errorf("key %s of the directory: %w", key, err))
	}
	return l.yield(contracts.Recipient{RecipientType: l.kind, UserID: userID}, nil), nil
}
