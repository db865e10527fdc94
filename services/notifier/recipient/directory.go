package recipient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Directory is the bucket of recipients. Each has a profile, which other programs write, too; addresses and preferences, which no
// write of the profile touches; and an entry for each aggregate whose events concern it.
type Directory struct {
	js      jetstream.JetStream
	records *kvrecord.Stream // the stream of the bucket
	warner  *warner
}

// Member names an aggregate whose events concern a recipient.
type Member struct {
	// Type is the aggregate's type, such as RESTAURANT.
	Type string

	// ID is which one.
	ID string
}

// OpenDirectory binds the bucket. records stays the caller's to close. logger gets what is wrong with profiles, at most one line
// a minute; it defaults to slog.Default(). One round trip.
func OpenDirectory(ctx context.Context, js jetstream.JetStream, records *kvrecord.Client, logger *slog.Logger) (*Directory, error) {
	if _, err := js.KeyValue(ctx, contracts.BucketDirectory); err != nil {
		return nil, fmt.Errorf("recipients: open bucket %s: %w", contracts.BucketDirectory, err)
	}
	return &Directory{js: js, records: records.Bucket(contracts.BucketDirectory), warner: newWarner(logger)}, nil
}

// file is what the bucket has of one recipient.
type file struct {
	absent    bool // there is no profile
	forgotten bool
	own       [2]kvrecord.Record  // records of the sections
	profile   contracts.Recipient // as far as it can be read; else the ids alone
	subject   string              // of the profile
	who       contracts.Recipient // the ids alone
	wrong     error               // why the profile cannot be read
	ignored   []contracts.FieldError
}

// take takes what a record says of the profile.
func (f *file) take(profile kvrecord.Record) {
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

// read reads all that there is of a recipient, from any replica. One round trip.
func (d *Directory) read(ctx context.Context, kind contracts.RecipientType, userID string) (*file, error) {
	f := &file{who: contracts.Recipient{RecipientType: kind, UserID: userID}}
	key, err := contracts.DirectoryKey(kind, userID)
	if err != nil {
		return nil, permanent(err)
	}
	f.subject = d.records.Key(key)
	subjects := []string{f.subject}
	for _, s := range sections {
		if key, err = s.key(kind, userID); err != nil {
			return nil, permanent(err)
		}
		f.own[s.at].Subject = d.records.Key(key)
		subjects = append(subjects, f.own[s.at].Subject)
	}
	found, err := d.records.GetMany(ctx, subjects)
	if err != nil {
		return nil, temporary(fmt.Errorf("read %s of the directory: %w", f.subject, err))
	}
	var profile kvrecord.Record
	for _, r := range found {
		if i := slices.Index(subjects, r.Subject); i > 0 {
			f.own[i-1] = r
		} else {
			profile = r
		}
	}
	f.take(profile)
	return f, nil
}

// Get returns what the directory knows of a recipient; found is false when that is nothing. An invalid field of the profile counts
// as absent and is logged; an opt-out that cannot be read is a permanent error. The error matches [ErrForgotten] for some time after
// [Directory.Forget]. One round trip, and a write when the profile says something new of addresses or preferences.
func (d *Directory) Get(ctx context.Context, kind contracts.RecipientType, userID string) (r contracts.Recipient, found bool, err error) {
	f, err := d.read(ctx, kind, userID)
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
	r.Addresses, r.OptOut = nil, nil
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

// adopt stores what the profile says anew of sections in their records. When that fails, or another process was faster,
// the next read does it.
func (d *Directory) adopt(ctx context.Context, f *file, parts ...section) {
	for _, s := range parts {
		if f.forgotten {
			return
		}
		w, err := s.alter(f, func(*contracts.Recipient) bool { return false })
		if err == nil && w != nil {
			_, err = d.records.PutOnce(ctx, *w)
		}
		if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
			d.warner.warn(ctx, "what a profile says of addresses and preferences is not stored apart from it yet", f.who, err)
		}
	}
}

// isAbsent reports whether a record says that its key is not there, or not any more.
func isAbsent(r kvrecord.Record) bool { return r.Revision == 0 || r.Deleted() }

// Leave removes an aggregate whose events no longer concern a recipient. Two round trips, more when
// others write at the same time.
func (d *Directory) Leave(ctx context.Context, kind contracts.RecipientType, userID string, m Member) error {
	key, err := contracts.DirectoryMemberKey(m.Type, m.ID, kind, userID)
	if err != nil {
		return permanent(err)
	}
	return d.rewrite(ctx, key, func(over kvrecord.Record) (*kvrecord.Write, error) {
		if isAbsent(over) {
			return nil, nil
		}
		return deleted(over, nats.Header{}, 0), nil
	})
}

// Resolve implements [Resolver]. It yields ids only: what else is known of a recipient is read when they are told.
// A list costs one consumer, for as long as it is read, and a round trip for each 100,000; it is linear in the audience.
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
