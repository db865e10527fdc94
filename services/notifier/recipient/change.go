package recipient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// putProfile writes the profile of a recipient, or only creates it if it is missing.
func (d *Directory) putProfile(ctx context.Context, f *file, patch json.RawMessage, anew bool) (changed bool, err error) {
	alter := func(over kvrecord.Record) (*kvrecord.Write, error) {
		if !anew && !isAbsent(over) {
			return nil, nil //nolint:nilnil // nothing is to be written
		}
		return alterProfile(over, f.who, &Edit{Body: patch, Merge: true})
	}
	if _, changed, err = d.try(ctx, f.record, alter); changed || err != nil {
		return changed, err
	}
	_, changed, err = d.rewrite(ctx, f.record.Subject, alter)
	return changed, err
}

// SetAddress sets the address at which a channel reaches a recipient, such as a browser's subscription to webpush. "" removes it.
// All other fields of the recipient stay. A recipient that is not in the directory is added. Three round trips, even if the
// address is set already; more when other processes write at the same time.
func (d *Directory) SetAddress(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) error {
	f, err := d.change(ctx, addresses, kind, userID, address != "", func(r *contracts.Recipient) bool {
		if r.Addresses[channel] == address {
			return false
		}
		if address == "" {
			delete(r.Addresses, channel)
			return true
		}
		addresses.add(r, contracts.Recipient{Addresses: map[string]string{channel: address}})
		return true
	})
	if err == nil && address != "" {
		_, err = d.putProfile(ctx, f, nil, false)
	}
	return err
}

// Drop removes an address that is never to be used again, if the channel still has it, and reports whether it had. A new
// address in its place stays, and so do all others. Two round trips, more when other processes write at the same time.
func (d *Directory) Drop(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) (dropped bool, err error) {
	_, err = d.change(ctx, addresses, kind, userID, false, func(r *contracts.Recipient) bool {
		dropped = false
		for _, id := range r.EndpointIDs(channel) {
			switch {
			case r.Endpoint(channel, id).Address != address:
				continue
			case id == contracts.MainEndpoint:
				delete(r.Addresses, channel)
			default:
				delete(r.Endpoints[channel], id)
			}
			dropped = true
		}
		return dropped
	})
	return dropped && err == nil, err
}

// OptOut records that a recipient no longer wants a category on a channel; contracts.Anything stands for every
// category, or every channel. Two round trips, one of them a conditional write; more when other processes write at
// the same time.
func (d *Directory) OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error {
	_, err := d.change(ctx, preferences, kind, userID, false, func(r *contracts.Recipient) bool { return refuse(r, category, channel) })
	return err
}

// OptIn takes back exactly one opt-out, at the recipient's own request. It costs what OptOut does.
func (d *Directory) OptIn(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error {
	_, err := d.change(ctx, preferences, kind, userID, false, func(r *contracts.Recipient) bool {
		refused := r.OptOut[category]
		kept := slices.DeleteFunc(slices.Clone(refused), func(name string) bool { return name == channel })
		if len(kept) == len(refused) {
			return false
		}
		if r.OptOut[category] = kept; len(kept) == 0 {
			delete(r.OptOut, category)
		}
		return true
	})
	return err
}

// change changes a section of a recipient, and returns the recipient as it was read. It writes nothing for a recipient whose data
// was erased, unless revive is set.
func (d *Directory) change(
	ctx context.Context, s section, kind contracts.RecipientType, userID string, revive bool, f func(r *contracts.Recipient) bool,
) (*file, error) {
	found, err := d.read(ctx, kind, userID)
	if err != nil {
		return nil, err
	}
	d.adopt(ctx, found, slices.DeleteFunc(slices.Clone(sections), func(other section) bool { return other.at == s.at })...)
	_, _, err = d.changeFound(ctx, s, found, revive, func(_ kvrecord.Record, r *contracts.Recipient) (bool, error) { return f(r), nil })
	return found, err
}

// changeFound changes a section, over exactly the record that was read, and reports whether it has written. found is from any
// replica, which may lag behind. So when there seems to be nothing to do, or a write is refused, it reads the records of the
// leader.
func (d *Directory) changeFound(
	ctx context.Context, s section, found *file, revive bool, f func(own kvrecord.Record, r *contracts.Recipient) (bool, error),
) (stored kvrecord.Record, changed bool, err error) {
	alter := func(own kvrecord.Record) (*kvrecord.Write, error) {
		if found.forgotten && !revive {
			return nil, nil //nolint:nilnil // nothing is to be written
		}
		found.own[s.at] = own
		return s.alter(found, f)
	}
	if stored, changed, err = d.try(ctx, found.own[s.at], alter); changed || err != nil {
		return stored, changed, err
	}
	profile, err := d.records.Latest(ctx, found.record.Subject)
	if err != nil {
		return stored, false, unwritten(found.record.Subject, err)
	}
	found.take(profile)
	return d.rewrite(ctx, found.own[s.at].Subject, alter)
}

// try replaces a record, which any replica has returned, by the write that f returns for it, and reports whether it has. One
// round trip, none when nothing is to be written.
func (d *Directory) try(
	ctx context.Context, over kvrecord.Record, f func(over kvrecord.Record) (*kvrecord.Write, error),
) (stored kvrecord.Record, changed bool, err error) {
	w, unwritable := f(over)
	if unwritable != nil || w == nil {
		return stored, false, nil //nolint:nilerr // the leader may have another record
	}
	if stored, err = d.records.Put(ctx, *w); errors.Is(err, kvrecord.ErrConflict) {
		return stored, false, nil
	}
	return stored, err == nil, unwritten(over.Subject, err)
}

// rewrite reads the record of a subject from the leader, replaces it by the write that f returns, or leaves it when that is nil,
// and reports whether it has written. It recognises a write that was stored but not acknowledged. It tries again each time
// another process writes in between. Two round trips, one when nothing is to be written.
func (d *Directory) rewrite(
	ctx context.Context, subject string, f func(over kvrecord.Record) (*kvrecord.Write, error),
) (stored kvrecord.Record, changed bool, err error) {
	over, err := d.records.Latest(ctx, subject)
	for err == nil {
		w, unwritable := f(over)
		if _, known := errors.AsType[*Error](unwritable); unwritable != nil && !known {
			unwritable = permanent(unwritable)
		}
		if unwritable != nil || w == nil {
			return over, false, unwritable
		}
		stored, err = d.records.Put(ctx, *w)
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if err == nil {
			return stored, true, nil
		}
		if ok {
			over, err = conflict.Found, nil
		}
	}
	return stored, false, unwritten(subject, err)
}

// unwritten returns the error for a record that could not be written, or nil.
func unwritten(subject string, err error) error {
	if err == nil {
		return nil
	}
	return temporary(fmt.Errorf("write %s of the directory: %w", strings.TrimPrefix(subject, prefix), err))
}

const (
	// headerForgotten is in the mark of a recipient whose data was erased.
	headerForgotten = "Expediter-Forgotten"

	// forgotten is the time for which the mark stays: longer than a plan and its rows, which may name the recipient.
	forgotten = 40 * 24 * time.Hour
)

// Forget removes a recipient's profile, addresses and preferences, but not the memberships, and reports whether there was a
// profile. A mark takes its place for 40 days: the notifier sends nothing to the recipient, not even rows that were planned
// before. For other readers of the bucket the keys are deleted. Put and SetAddress make the recipient known again. Two round
// trips, one for each of the addresses and the preferences, and one more if there are any; more when other processes write at
// the same time.
func (d *Directory) Forget(ctx context.Context, kind contracts.RecipientType, userID string) (known bool, err error) {
	return d.forget(ctx, kind, userID, nil)
}

func (d *Directory) forget(ctx context.Context, kind contracts.RecipientType, userID string, revision *uint64) (known bool, err error) {
	profile := section{key: contracts.DirectoryKey}
	for _, s := range append([]section{profile}, sections...) {
		key, err := s.key(kind, userID)
		if err != nil {
			return false, permanent(err)
		}
		isProfile := s.add == nil
		if _, _, err := d.rewrite(ctx, d.records.Key(key), func(over kvrecord.Record) (*kvrecord.Write, error) {
			if isProfile {
				known = !isAbsent(over)
				if err := unchanged(over, revision); err != nil {
					return nil, err
				}
			} else if isAbsent(over) {
				return nil, nil //nolint:nilnil // nothing is to be written
			}
			return deleted(over, nats.Header{headerForgotten: {"true"}}, forgotten), nil
		}); err != nil {
			return false, err
		}
	}
	return known, nil
}

// deleted returns the write that deletes a key.
func deleted(over kvrecord.Record, header nats.Header, ttl time.Duration) *kvrecord.Write {
	header.Set("KV-Operation", "DEL")
	return &kvrecord.Write{Subject: over.Subject, Header: header, Over: over, TTL: ttl}
}

func isForgotten(r kvrecord.Record) bool { return r.Header.Get(headerForgotten) != "" }
