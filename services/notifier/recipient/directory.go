package recipient

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Directory is the bucket of recipients. Each recipient has a profile, which other programs may write; addresses and preferences,
// which no write of the profile changes; and an entry for each aggregate whose events concern it.
type Directory struct {
	js      jetstream.JetStream
	records *kvrecord.Stream // the stream of the bucket
	warner  *warner

	together together
}

// OpenDirectory binds the bucket. records stays the caller's to close. logger gets the mistakes of profiles, at most one line a
// minute; it defaults to slog.Default(). One round trip; while a cluster is not ready it tries again, for up to [jsretry.Wait].
func OpenDirectory(ctx context.Context, js jetstream.JetStream, records *kvrecord.Client, logger *slog.Logger) (*Directory, error) {
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := js.KeyValue(ctx, contracts.BucketDirectory)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("recipients: open bucket %s: %w", contracts.BucketDirectory, err)
	}
	return &Directory{
		js: js, records: records.Bucket(contracts.BucketDirectory), together: together{turn: make(chan struct{}, 1)}, warner: newWarner(logger),
	}, nil
}

// file is the bucket's records of one recipient.
type file struct {
	absent    bool // there is no profile
	forgotten bool
	own       [2]kvrecord.Record  // records of the sections
	profile   contracts.Recipient // as far as it can be read, or the ids alone
	record    kvrecord.Record     // of the profile
	who       contracts.Recipient // the ids alone
	wrong     error               // the reason why the profile cannot be read
	ignored   []contracts.FieldError
}

// take sets the profile from its record.
func (f *file) take(profile kvrecord.Record) {
	f.record = profile
	f.absent, f.forgotten, f.profile, f.ignored, f.wrong = isAbsent(profile), isForgotten(profile), f.who, nil, nil
	if f.absent {
		return
	}
	r, ignored, err := readProfile(profile.Data, f.who)
	if err != nil {
		f.wrong = fmt.Errorf("%s: %w", profile.Subject, err)
		return
	}
	f.profile, f.ignored = r, ignored
}

// unknown reports whether the directory has no record of a recipient.
func (f *file) unknown() bool { return f.absent && isAbsent(f.own[0]) && isAbsent(f.own[1]) }

// read reads all records of a recipient, from any replica. One round trip.
func (d *Directory) read(ctx context.Context, kind contracts.RecipientType, userID string) (*file, error) {
	files, err := d.readMany(ctx, []contracts.Recipient{{RecipientType: kind, UserID: userID}})
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// readMany reads all records of recipients, from any replica. A recipient that occurs twice is read once, as one file. One round trip
// for each 170 recipients.
func (d *Directory) readMany(ctx context.Context, all []contracts.Recipient, read ...kvrecord.Record) ([]*file, error) {
	have := make(map[string]kvrecord.Record, len(read))
	for _, r := range read {
		have[r.Subject] = r
	}
	files := make([]*file, len(all))
	known := make(map[[2]string]*file, len(all))
	records := make(map[string]*kvrecord.Record, len(all)*(1+len(sections))) // by their subjects
	var subjects []string
	want := func(into *kvrecord.Record, key string, err error) error {
		into.Subject = d.records.Key(key)
		if r, ok := have[into.Subject]; ok {
			*into = r
			return err
		}
		if records[into.Subject] = into; err != nil {
			return permanent(err)
		}
		subjects = append(subjects, into.Subject)
		return nil
	}
	for i, r := range all {
		name := [2]string{string(r.RecipientType), r.UserID}
		if files[i] = known[name]; files[i] != nil {
			continue
		}
		f := &file{who: contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID}}
		files[i], known[name] = f, f
		key, err := contracts.DirectoryKey(r.RecipientType, r.UserID)
		if err := want(&f.record, key, err); err != nil {
			return nil, err
		}
		for _, s := range sections {
			key, err := s.key(r.RecipientType, r.UserID)
			if err := want(&f.own[s.at], key, err); err != nil {
				return nil, err
			}
		}
	}
	if len(subjects) > 0 {
		found, err := d.records.GetMany(ctx, subjects)
		if err != nil {
			return nil, temporary(fmt.Errorf("read %s of the directory: %w", subjects[0], err))
		}
		for _, r := range found {
			*records[r.Subject] = r
		}
	}
	for _, f := range known {
		f.take(f.record)
	}
	return files, nil
}

// Get returns a recipient; found is false when the directory has no record of it. An invalid field of the profile counts as absent
// and is logged; an opt-out that cannot be read is a permanent error. The error matches [ErrForgotten] for some time after
// [Directory.Forget]. One round trip, which calls at the same time share, and a write when the profile has new addresses or
// preferences.
func (d *Directory) Get(ctx context.Context, kind contracts.RecipientType, userID string) (r contracts.Recipient, found bool, err error) {
	f, err := d.readShared(ctx, kind, userID)
	switch {
	case err != nil:
		return r, false, err
	case f.forgotten:
		return r, false, permanent(ErrForgotten)
	case f.wrong != nil:
		return r, false, permanent(f.wrong)
	}
	d.warner.ignored(ctx, f.who, f.ignored)
	d.adopt(ctx, f, sections...)
	r, found = f.profile, !f.absent
	r.Addresses, r.Digest, r.Endpoints, r.Mute, r.OptOut = nil, nil, nil, nil, nil
	for _, s := range sections {
		own, _, err := s.read(f)
		if err != nil {
			return contracts.Recipient{}, false, err
		}
		s.add(&r, own)
		found = found || !isAbsent(f.own[s.at])
	}
	if !found {
		return contracts.Recipient{}, false, nil
	}
	return r, true, nil
}

// adopt stores sections that are new in the profile in their own records. When that fails, or another process was
// faster, the next read tries again.
func (d *Directory) adopt(ctx context.Context, f *file, parts ...section) {
	if f.forgotten || f.absent {
		return
	}
	for _, s := range parts {
		w, err := s.alter(f, func(kvrecord.Record, *contracts.Recipient) (bool, error) { return false, nil })
		if err == nil && w != nil {
			_, err = d.records.PutOnce(ctx, *w)
		}
		if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
			d.warner.warn(ctx, "addresses and preferences of a profile are not stored in their own records yet", f.who, err)
		}
	}
}

// isAbsent reports whether a record means that its key does not exist, or was deleted.
func isAbsent(r kvrecord.Record) bool { return r.Revision == 0 || r.Deleted() }

// Resolve implements [Resolver]. It yields ids only: the other fields of a recipient are read when a row is sent. A list takes one
// consumer while it is read, and a round trip for each recipient that is written meanwhile. Its cost is linear in the audience.
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
		keys, err := contracts.DirectoryMembersKeys(kind, id, q.Type)
		if err != nil {
			return failed(permanent(err))
		}
		return d.list(ctx, keys, q.Type)
	case rules.ScopeAll:
		keys, err := contracts.DirectoryKeys(q.Type)
		if err != nil {
			return failed(permanent(err))
		}
		return d.list(ctx, keys, q.Type)
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
// A consumer alone does not find all keys: it ends when no message is pending, and a record that is written meanwhile is for a
// moment pending at neither its old nor its new position. So list then asks the leader for the records after the consumer's last
// message. (Listing all keys would be too slow: a server took 3 to 5 seconds to name 100,000 of a million.)
func (d *Directory) list(ctx context.Context, keys string, kind contracts.RecipientType) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		l := listing{Directory: d, keys: keys, kind: kind, seed: maphash.MakeSeed(), yield: yield}
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
// only requested keys, because a watch would hold all keys that the server can send meanwhile. Three round trips, and one for
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
	_ = l.js.DeleteConsumer(ctx, "KV_"+contracts.BucketDirectory, consumer.CachedInfo().Name) //nolint:errcheck // see above
}

// removed reports whether a message marks its key as deleted.
func removed(header nats.Header) bool {
	return header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != ""
}

// written yields the recipients that were written since the position of the consumer, some of which the consumer may have
// shown. It reads in the order of the stream, and a record that is written meanwhile comes later, so it misses none. One round
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
		if isAbsent(r) { // the key was deleted
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
