package recipient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

const (
	// MaxMemberships bounds the aggregates of one entry or one change.
	MaxMemberships = 1000

	// writers is the number of recipients that are written at a time.
	writers = 64
)

// Member names an aggregate whose events concern a recipient.
type Member struct {
	// Type is the aggregate's type, such as RESTAURANT.
	Type string `json:"type"`

	// ID is the id of the aggregate.
	ID string `json:"id"`
}

// Entry is a recipient to put. Stored fields that the entry does not name stay. Make it with [ParseEntry].
type Entry struct {
	contracts.Recipient

	// Memberships are aggregates whose events concern the recipient.
	Memberships []Member `json:"memberships,omitempty"`

	patch    json.RawMessage // a merge patch of the fields that are not added to others
	unlisted bool            // adds no recipient to the directory
}

// memberships is the field of an entry.
type memberships struct {
	Memberships []Member `json:"memberships"`
}

// Validate implements [contracts.Message].
func (m memberships) Validate() error {
	return ValidateMembers(map[string][]Member{"/memberships": m.Memberships})
}

// ValidateMembers returns an error that names all mistakes in lists of aggregates, by the paths of the lists.
func ValidateMembers(lists map[string][]Member) error {
	var mistakes contracts.Mistakes
	for _, path := range slices.Sorted(maps.Keys(lists)) {
		if n := len(lists[path]); n > MaxMemberships {
			mistakes.Add(true, path, fmt.Sprintf("has %d items, at most %d", n, MaxMemberships))
			continue
		}
		for i, m := range lists[path] {
			if _, err := keys.Member(m.Type, m.ID, "one", "one"); err != nil {
				mistakes.Add(true, fmt.Sprintf("%s/%d", path, i), "is no aggregate: "+err.Error())
			}
		}
	}
	return mistakes.In("memberships")
}

// apart are the fields of an entry that are added to those of the recipient. All others are merged.
var apart = []string{"addresses", "digest", "endpoints", "memberships", "mute", "opt_out", "recipient_type", "unlisted", "user_id"}

// ParseEntry reads an entry: a JSON object with the fields of [contracts.Recipient], memberships, and the application's own fields. An
// entry with "unlisted": true adds no recipient to the directory. The error names all mistakes.
func ParseEntry(data []byte) (e Entry, err error) {
	if len(data) > MaxDocument {
		return e, ErrTooLarge
	}
	r, err := contracts.Decode[contracts.Recipient](data)
	m, more := contracts.Decode[memberships](data)
	if err := withMistakes(err, more); err != nil {
		return e, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return e, err
	}
	e = Entry{Recipient: r, Memberships: m.Memberships, unlisted: string(fields["unlisted"]) == "true"}
	for _, name := range apart {
		delete(fields, name)
	}
	e.patch, err = json.Marshal(fields)
	return e, err
}

// Outcome is the outcome of an entry.
type Outcome struct {
	// Changed reports whether a record was written.
	Changed bool

	// Err is the reason why the entry was not, or not wholly, put.
	Err error
}

// withMistakes joins the mistakes of two checks.
func withMistakes(err, more error) error {
	mistakes, ok := errors.AsType[*contracts.ValidationError](err)
	added, again := errors.AsType[*contracts.ValidationError](more)
	if !ok || !again {
		return errors.Join(err, more)
	}
	for _, field := range added.Fields {
		if !slices.Contains(mistakes.Fields, field) {
			mistakes.Fields = append(mistakes.Fields, field)
		}
	}
	return err
}

// Put is [Directory.PutMany] for one recipient, and the aggregates whose events concern it.
func (d *Directory) Put(ctx context.Context, r contracts.Recipient, members ...Member) error {
	data, err := contracts.Encode(r)
	if err != nil {
		return permanent(err)
	}
	e, err := ParseEntry(data)
	if err != nil {
		return permanent(err)
	}
	e.Memberships = members
	return d.PutMany(ctx, []Entry{e})[0].Err
}

// PutMany puts entries, the entries of one recipient in their order. Opt-outs are added to the present ones.
// Addresses replace the addresses of the same channels; [Directory.Write] removes one. Other fields are merged (RFC 7396), and an erased
// recipient is known again. One round trip for each 512 recipients, and one for each record that is written; one or two more for a
// record that needs no change, or that other processes write at the same time.
func (d *Directory) PutMany(ctx context.Context, entries []Entry) []Outcome {
	done := make([]Outcome, len(entries))
	places := map[[2]string]int{}
	var all []contracts.Recipient
	var of [][]int // the entries of each recipient
	for i, e := range entries {
		name := [2]string{string(e.RecipientType), e.UserID}
		at, known := places[name]
		if !known {
			at = len(all)
			places[name], all, of = at, append(all, e.Recipient), append(of, nil)
		}
		of[at] = append(of[at], i)
	}
	records, err := d.readMany(ctx, all)
	var group errgroup.Group
	group.SetLimit(writers)
	for at, indexes := range of {
		group.Go(func() error {
			for _, i := range indexes {
				if done[i].Err = err; err == nil {
					done[i].Changed, done[i].Err = d.put(ctx, records[at], entries[i])
				}
			}
			return nil
		})
	}
	_ = group.Wait() // each outcome has its error
	return done
}

// put puts an entry over the record of its recipient.
func (d *Directory) put(ctx context.Context, found kvrecord.Record, e Entry) (changed bool, err error) {
	who := contracts.Recipient{RecipientType: e.RecipientType, UserID: e.UserID}
	changed, err = d.changeFound(ctx, found, who, !e.unlisted, func(p *person) error { return p.add(e) })
	for _, m := range e.Memberships {
		if err != nil {
			break
		}
		var wrote bool
		wrote, err = d.member(ctx, e.RecipientType, e.UserID, m, join)
		changed = changed || wrote
	}
	return changed, err
}

// add adds an entry.
func (p *person) add(e Entry) error {
	data, err := p.patched(e.patch, true)
	if err == nil {
		err = p.decode(data)
	}
	if err != nil {
		return err
	}
	p.listed = p.listed || !e.unlisted
	var added contracts.Recipient // a copy, since the entry may be added again to a newer record
	for at, endpoint := range endpoints(e.Recipient) {
		setEndpoint(&added, at, endpoint)
	}
	stamp(p.Recipient, &added)
	p.Addresses = over(p.Addresses, e.Addresses)
	for at, endpoint := range endpoints(added) {
		setEndpoint(&p.Recipient, at, newer(p.Endpoints[at.channel][at.id], endpoint))
	}
	for category, channels := range e.OptOut {
		for _, channel := range channels {
			refuse(&p.Recipient, category, channel)
		}
	}
	p.Digest, p.Mute = over(p.Digest, e.Digest), over(p.Mute, e.Mute)
	return p.Validate()
}

// Join adds an aggregate whose events concern a recipient. One round trip, three when the recipient has the aggregate
// already.
func (d *Directory) Join(ctx context.Context, kind contracts.RecipientType, userID string, m Member) error {
	_, err := d.member(ctx, kind, userID, m, join)
	return err
}

// Leave removes an aggregate whose events no longer concern a recipient. Two round trips, more when other processes
// write at the same time.
func (d *Directory) Leave(ctx context.Context, kind contracts.RecipientType, userID string, m Member) error {
	_, err := d.member(ctx, kind, userID, m, func(over kvrecord.Record) (*kvrecord.Write, error) {
		if isAbsent(over) {
			return nil, nil
		}
		return deleted(over, nats.Header{}, 0), nil
	})
	return err
}

func join(over kvrecord.Record) (*kvrecord.Write, error) {
	if !isAbsent(over) {
		return nil, nil
	}
	return &kvrecord.Write{Subject: over.Subject, Over: over}, nil
}

// member changes the record of a membership.
func (d *Directory) member(
	ctx context.Context, kind contracts.RecipientType, userID string, m Member, f func(over kvrecord.Record) (*kvrecord.Write, error),
) (changed bool, err error) {
	key, err := keys.Member(m.Type, m.ID, kind, userID)
	if err != nil {
		return false, permanent(err)
	}
	subject := d.records.Key(key)
	changed, err = d.try(ctx, kvrecord.Record{Subject: subject}, f)
	if !changed && err == nil {
		_, changed, err = d.rewrite(ctx, subject, f)
	}
	return changed, err
}

// Memberships returns the aggregates whose events concern a recipient, in the order of their types and ids. Two round trips; the
// server searches all memberships of the directory, which takes it 10 ms for a million.
func (d *Directory) Memberships(ctx context.Context, kind contracts.RecipientType, userID string) ([]Member, error) {
	pattern, err := keys.Memberships(kind, userID)
	if err != nil {
		return nil, permanent(err)
	}
	all := []Member{}
	for subjects, err := range d.records.All(ctx, d.records.Key(pattern)) {
		var found []kvrecord.Record
		if err == nil && len(subjects) > 0 {
			found, err = d.records.GetMany(ctx, subjects)
		}
		if err != nil {
			return nil, temporary(fmt.Errorf("list %s of the directory: %w", pattern, err))
		}
		for _, r := range found {
			m, err := memberOf(r.Subject)
			switch {
			case err != nil:
				return nil, err
			case !isAbsent(r):
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// memberOf returns the aggregate that the subject of a membership names.
func memberOf(subject string) (Member, error) {
	tokens := strings.Split(strings.TrimPrefix(subject, prefix), ".")
	if len(tokens) != 5 {
		return Member{}, permanent(fmt.Errorf("key %s of the directory is no membership", subject))
	}
	id, err := contracts.DecodeToken(tokens[2])
	if err != nil {
		return Member{}, permanent(fmt.Errorf("key %s of the directory: %w", subject, err))
	}
	return Member{Type: tokens[1], ID: id}, nil
}

// Remove is [Directory.Forget] for a revision of the record, and also removes the memberships. The error matches [ErrUnknown]
// when there is no record to remove, or [ErrChanged]. It may be repeated after an error.
func (d *Directory) Remove(ctx context.Context, kind contracts.RecipientType, userID string, revision *uint64) error {
	found, err := d.read(ctx, kind, userID)
	if err != nil {
		return err
	}
	members, err := d.Memberships(ctx, kind, userID)
	if err != nil {
		return err
	}
	if isAbsent(found) && len(members) == 0 {
		return permanent(ErrUnknown)
	}
	if _, err := d.forget(ctx, kind, userID, revision); err != nil {
		return err
	}
	for _, m := range members {
		if err := d.Leave(ctx, kind, userID, m); err != nil {
			return err
		}
	}
	return nil
}
