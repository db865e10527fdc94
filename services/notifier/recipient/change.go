package recipient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Put stores a recipient and adds the aggregates whose events concern it. Locale, time zone and quiet hours become those of r; what
// others keep in the record stays. Opt-outs of r are added to those that there are, see OptIn for taking one back. Its addresses
// replace those of the same channels, see SetAddress for removing one. Two round trips for the recipient, for its addresses if there
// are any, for its preferences likewise, and for each aggregate; more when others write at the same time.
func (d *Directory) Put(ctx context.Context, r contracts.Recipient, members ...Member) error {
	if err := r.Validate(); err != nil {
		return permanent(err)
	}
	for _, s := range sections {
		only, name := s.of(r)
		if name == "" {
			continue
		}
		if err := d.change(ctx, s, r.RecipientType, r.UserID, true, func(own *contracts.Recipient) bool {
			s.add(own, only)
			return true
		}); err != nil {
			return err
		}
	}
	if err := d.putProfile(ctx, r, true); err != nil {
		return err
	}
	for _, m := range members {
		key, err := contracts.DirectoryMemberKey(m.Type, m.ID, r.RecipientType, r.UserID)
		if err != nil {
			return permanent(err)
		}
		if err := d.rewrite(ctx, key, func(over kvrecord.Record) (*kvrecord.Write, error) {
			if !isAbsent(over) {
				return nil, nil //nolint:nilnil // nothing is to be written
			}
			return &kvrecord.Write{Subject: over.Subject, Over: over}, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// putProfile writes the profile of a recipient, or only makes sure that there is one.
func (d *Directory) putProfile(ctx context.Context, r contracts.Recipient, anew bool) error {
	key, err := contracts.DirectoryKey(r.RecipientType, r.UserID)
	if err != nil {
		return permanent(err)
	}
	profile := r
	profile.Addresses, profile.OptOut = nil, nil
	return d.rewrite(ctx, key, func(over kvrecord.Record) (*kvrecord.Write, error) {
		if !anew && !isAbsent(over) {
			return nil, nil
		}
		data, err := overlay(over.Data, profile, "locale", "quiet_hours", "time_zone")
		if err != nil { // there is none, or one that nobody can read
			data, err = contracts.Encode(profile)
		}
		return &kvrecord.Write{Subject: over.Subject, Data: data, Over: over}, err
	})
}

// SetAddress says where a channel reaches a recipient, such as a browser's subscription to webpush. "" is nowhere. What else is
// known of the recipient stays; one who is not known comes to be. Three round trips, also for what is so already; more when others
// write at the same time.
func (d *Directory) SetAddress(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) error {
	err := d.change(ctx, addresses, kind, userID, address != "", func(r *contracts.Recipient) bool {
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
		err = d.putProfile(ctx, contracts.Recipient{RecipientType: kind, UserID: userID}, false)
	}
	return err
}

// Drop removes an address that is never to be used again, if the channel still has it, and reports that: one that has taken
// its place stays. Two round trips, more when others write at the same time.
func (d *Directory) Drop(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) (dropped bool, err error) {
	err = d.change(ctx, addresses, kind, userID, false, func(r *contracts.Recipient) bool {
		there, found := r.Addresses[channel]
		if dropped = found && there == address; dropped {
			delete(r.Addresses, channel)
		}
		return dropped
	})
	return dropped && err == nil, err
}

// OptOut says that a recipient does not want a category on a channel any more; contracts.Anything is every one. Two round trips, of
// which one is a conditional write; more when others write at the same time.
func (d *Directory) OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error {
	return d.change(ctx, preferences, kind, userID, false, func(r *contracts.Recipient) bool { return refuse(r, category, channel) })
}

// OptIn takes back exactly one opt-out, at the recipient's own request. It costs what OptOut does.
func (d *Directory) OptIn(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error {
	return d.change(ctx, preferences, kind, userID, false, func(r *contracts.Recipient) bool {
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
}

// change changes a section of a recipient, over exactly the record that was read. Of a recipient whose data was erased nothing is
// written, unless revive is set. The first read is answered by any replica, which may not have what was written a moment ago: that
// there is nothing to do, and what a write has lost to, the leader says.
func (d *Directory) change(
	ctx context.Context, s section, kind contracts.RecipientType, userID string, revive bool, f func(r *contracts.Recipient) bool,
) error {
	key, err := s.key(kind, userID)
	if err != nil {
		return permanent(err)
	}
	found, err := d.read(ctx, kind, userID)
	if err != nil {
		return err
	}
	d.adopt(ctx, found, slices.DeleteFunc(slices.Clone(sections), func(other section) bool { return other.at == s.at })...)
	alter := func(own kvrecord.Record) (*kvrecord.Write, error) {
		if found.forgotten && !revive {
			return nil, nil //nolint:nilnil // nothing is to be written
		}
		found.own[s.at] = own
		return s.alter(found, f)
	}
	w, err := alter(found.own[s.at])
	if err != nil {
		return err
	}
	if w != nil {
		if _, err = d.records.Put(ctx, *w); !errors.Is(err, kvrecord.ErrConflict) {
			return unwritten(key, err)
		}
	}
	profile, err := d.records.Latest(ctx, found.subject)
	if err != nil {
		return unwritten(key, err)
	}
	found.take(profile)
	return d.rewrite(ctx, key, alter)
}

// rewrite replaces the record of a key by what f makes of it, as the leader has it, or leaves it when that is nil. What was done but
// not acknowledged is found done. It tries again each time another process writes in between. Two round trips, one when nothing is
// to be written.
func (d *Directory) rewrite(ctx context.Context, key string, f func(over kvrecord.Record) (*kvrecord.Write, error)) error {
	over, err := d.records.Latest(ctx, d.records.Key(key))
	for err == nil {
		w, unwritable := f(over)
		if unwritable != nil {
			return permanent(unwritable)
		}
		if w == nil {
			return nil
		}
		_, err = d.records.Put(ctx, *w)
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if err == nil {
			return nil
		}
		if ok {
			over, err = conflict.Found, nil
		}
	}
	return unwritten(key, err)
}

// unwritten explains why a key could not be written, if it could not.
func unwritten(key string, err error) error {
	if err == nil {
		return nil
	}
	return temporary(fmt.Errorf("write %s of the directory: %w", key, err))
}

const (
	// headerForgotten is in the mark of a recipient whose data was erased.
	headerForgotten = "Expediter-Forgotten"

	// forgotten is how long the mark stays: longer than a plan, and the rows of a plan, which may name the recipient.
	forgotten = 40 * 24 * time.Hour
)

// Forget removes what the directory knows of a recipient, but for the aggregates whose events concern the recipient, and
// reports whether there was a profile. A mark takes its place for 40 days: the notifier sends nothing to the recipient, also not
// what was planned before. For other readers of the bucket the keys are deleted. Put and SetAddress make the recipient known
// again. Two round trips, one for each of the addresses and the preferences and another one if there are any; more when others
// write at the same time.
func (d *Directory) Forget(ctx context.Context, kind contracts.RecipientType, userID string) (known bool, err error) {
	profile := section{key: contracts.DirectoryKey}
	for _, s := range append([]section{profile}, sections...) {
		key, err := s.key(kind, userID)
		if err != nil {
			return false, permanent(err)
		}
		isProfile := s.add == nil
		if err := d.rewrite(ctx, key, func(over kvrecord.Record) (*kvrecord.Write, error) {
			if isProfile {
				known = !isAbsent(over)
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
