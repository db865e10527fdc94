package recipient

import (
	"context"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Directory is the bucket of recipients: one key for each, and one for each aggregate whose events concern them.
type Directory struct {
	js      jetstream.JetStream
	kv      jetstream.KeyValue
	records *kvrecord.Stream // the stream under it
}

// Member names an aggregate whose events concern a recipient.
type Member struct {
	// Type is the aggregate's type, such as RESTAURANT.
	Type string

	// ID is which one.
	ID string
}

// OpenDirectory binds the bucket. records stays the caller's to close. One round trip.
func OpenDirectory(ctx context.Context, js jetstream.JetStream, records *kvrecord.Client) (*Directory, error) {
	kv, err := js.KeyValue(ctx, contracts.BucketDirectory)
	if err != nil {
		return nil, fmt.Errorf("recipients: open bucket %s: %w", contracts.BucketDirectory, err)
	}
	return &Directory{js: js, kv: kv, records: records.Bucket(contracts.BucketDirectory)}, nil
}

// Get returns what the directory knows of a recipient; found is false when that is nothing. The error matches [ErrForgotten] for
// some time after [Directory.Forget]. One round trip.
func (d *Directory) Get(ctx context.Context, kind contracts.RecipientType, userID string) (r contracts.Recipient, found bool, err error) {
	key, err := contracts.DirectoryKey(kind, userID)
	if err != nil {
		return r, false, permanent(err)
	}
	stored, err := d.records.Get(ctx, d.records.Key(key))
	switch {
	case err != nil:
		return r, false, temporary(fmt.Errorf("read %s of the directory: %w", key, err))
	case isForgotten(stored):
		return r, false, permanent(ErrForgotten)
	case isAbsent(stored):
		return r, false, nil
	}
	if r, err = contracts.Decode[contracts.Recipient](stored.Data); err != nil {
		return r, false, permanent(fmt.Errorf("%s of the directory: %w", key, err))
	}
	return r, true, nil
}

// isAbsent reports whether a record says that its key is not there, or not any more.
func isAbsent(r kvrecord.Record) bool { return r.Revision == 0 || r.Deleted() }

// Put stores a recipient and adds the aggregates whose events concern it. One round trip for each.
func (d *Directory) Put(ctx context.Context, r contracts.Recipient, members ...Member) error {
	data, err := contracts.Encode(r)
	if err != nil {
		return permanent(err)
	}
	key, err := contracts.DirectoryKey(r.RecipientType, r.UserID)
	if err != nil {
		return permanent(err)
	}
	if _, err := d.kv.Put(ctx, key, data); err != nil {
		return temporary(fmt.Errorf("write %s of the directory: %w", key, err))
	}
	for _, m := range members {
		if key, err = contracts.DirectoryMemberKey(m.Type, m.ID, r.RecipientType, r.UserID); err != nil {
			return permanent(err)
		}
		if _, err := d.kv.Put(ctx, key, nil); err != nil {
			return temporary(fmt.Errorf("write %s of the directory: %w", key, err))
		}
	}
	return nil
}

// Leave removes an aggregate whose events no longer concern a recipient. One round trip.
func (d *Directory) Leave(ctx context.Context, kind contracts.RecipientType, userID string, m Member) error {
	key, err := contracts.DirectoryMemberKey(m.Type, m.ID, kind, userID)
	if err != nil {
		return permanent(err)
	}
	if err := d.kv.Delete(ctx, key); err != nil {
		return temporary(fmt.Errorf("remove %s of the directory: %w", key, err))
	}
	return nil
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
