package recipient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Drop removes an address that is never to be used again, if the channel still has it, and reports whether it had. A new
// address in its place stays, and so do all others. Two round trips, more when other processes write at the same time.
func (d *Directory) Drop(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) (dropped bool, err error) {
	err = d.change(ctx, kind, userID, func(p *person) error {
		dropped = false
		for _, id := range p.EndpointIDs(channel) {
			switch {
			case p.Endpoint(channel, id).Address != address:
				continue
			case id == contracts.MainEndpoint:
				delete(p.Addresses, channel)
			default:
				delete(p.Endpoints[channel], id)
			}
			dropped = true
		}
		return nil
	})
	return dropped && err == nil, err
}

// OptOut records that a recipient no longer wants a category on a channel; contracts.Anything stands for every
// category, or every channel. Two round trips, one of them a conditional write; more when other processes write at
// the same time.
func (d *Directory) OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error {
	return d.change(ctx, kind, userID, func(p *person) error {
		refuse(&p.Recipient, category, channel)
		return nil
	})
}

// Prefer replaces a recipient's own preferences by those of r, over a revision of the record:
// opt-outs that r leaves out are taken back. The error matches [ErrChanged] or [ErrForgotten]. Two
// round trips.
func (d *Directory) Prefer(ctx context.Context, r contracts.Recipient, revision uint64) error {
	who := contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID}
	_, err := d.rewriteOf(ctx, who, func(over kvrecord.Record) (*kvrecord.Write, error) {
		if isForgotten(over) {
			return nil, ErrForgotten
		}
		if err := unchanged(over, &revision); err != nil {
			return nil, err
		}
		return alter(over, who, func(p *person) error {
			p.Digest, p.Mute, p.OptOut, p.QuietHours = r.Digest, r.Mute, r.OptOut, r.QuietHours
			return p.Validate()
		})
	})
	return err
}

// over copies the members of a map into another one, in place of members of the same name.
func over[T any](to, from map[string]T) map[string]T {
	if to == nil && len(from) > 0 {
		to = map[string]T{}
	}
	maps.Copy(to, from)
	return to
}

// OptedOut reports whether opt-outs refuse a category, or all categories, on a channel or on all channels.
func OptedOut(optOut map[string][]string, category, channel string) bool {
	for _, name := range []string{category, contracts.Anything} {
		for _, refused := range []string{channel, contracts.Anything} {
			if name != "" && slices.Contains(optOut[name], refused) {
				return true
			}
		}
	}
	return false
}

// refuse adds an opt-out.
func refuse(r *contracts.Recipient, category, channel string) {
	if slices.Contains(r.OptOut[category], channel) {
		return
	}
	if r.OptOut == nil {
		r.OptOut = map[string][]string{}
	}
	r.OptOut[category] = append(r.OptOut[category], channel)
}

// change changes a recipient. It writes nothing for a recipient whose data was erased.
func (d *Directory) change(ctx context.Context, kind contracts.RecipientType, userID string, f func(*person) error) error {
	found, err := d.read(ctx, kind, userID)
	if err == nil {
		_, err = d.changeFound(ctx, found, contracts.Recipient{RecipientType: kind, UserID: userID}, false, f)
	}
	return err
}

// changeFound changes a recipient, whose data may have been erased if revive is set, over a record that was read, and reports whether
// it has written. found is from any replica, which may lag behind. So when there seems to be nothing to do, or the write is refused, it
// reads the record of the leader.
func (d *Directory) changeFound(
	ctx context.Context, found kvrecord.Record, who contracts.Recipient, revive bool, f func(*person) error,
) (changed bool, err error) {
	apply := func(over kvrecord.Record) (*kvrecord.Write, error) {
		if isForgotten(over) && !revive {
			return nil, nil
		}
		return alter(over, who, f)
	}
	if changed, err = d.try(ctx, found, apply); changed || err != nil {
		return changed, err
	}
	_, changed, err = d.rewrite(ctx, found.Subject, apply)
	return changed, err
}

// try replaces a record, which any replica has returned, by the write that f returns for it, and reports whether it has. One
// round trip, none when nothing is to be written.
func (d *Directory) try(
	ctx context.Context, over kvrecord.Record, f func(over kvrecord.Record) (*kvrecord.Write, error),
) (changed bool, err error) {
	w, unwritable := f(over)
	if unwritable != nil || w == nil {
		return false, nil //nolint:nilerr // the leader may have another record
	}
	if _, err = d.records.Put(ctx, *w); errors.Is(err, kvrecord.ErrConflict) {
		return false, nil
	}
	return err == nil, unwritten(over.Subject, err)
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

// rewriteOf is rewrite for the record of a recipient.
func (d *Directory) rewriteOf(
	ctx context.Context, who contracts.Recipient, f func(over kvrecord.Record) (*kvrecord.Write, error),
) (stored kvrecord.Record, err error) {
	key, err := keys.Recipient(who.RecipientType, who.UserID)
	if err != nil {
		return stored, permanent(err)
	}
	stored, _, err = d.rewrite(ctx, d.records.Key(key), f)
	return stored, err
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

	// forgotten is the time for which the mark stays: longer than a plan and its notifications, which may name the recipient.
	forgotten = 40 * 24 * time.Hour
)

// Forgotten reports of each recipient whether its data was erased, see [Directory.Forget]. One round trip for each 512.
func (d *Directory) Forgotten(ctx context.Context, all []contracts.Recipient) ([]bool, error) {
	records, err := d.readMany(ctx, all)
	forgotten := make([]bool, len(records))
	for i, r := range records {
		forgotten[i] = isForgotten(r)
	}
	return forgotten, err
}

// Forget removes a recipient, but not the memberships, and reports whether there was one. A mark takes its place for 40 days: the
// notifier sends nothing to the recipient, not even notifications that were planned before. For other readers of the bucket the key is
// deleted. Put and Write make the recipient known again. Two round trips, more when other processes write at the same
// time.
func (d *Directory) Forget(ctx context.Context, kind contracts.RecipientType, userID string) (known bool, err error) {
	return d.forget(ctx, kind, userID, nil)
}

func (d *Directory) forget(ctx context.Context, kind contracts.RecipientType, userID string, revision *uint64) (known bool, err error) {
	_, err = d.rewriteOf(ctx, contracts.Recipient{RecipientType: kind, UserID: userID}, func(over kvrecord.Record) (*kvrecord.Write, error) {
		known = !isAbsent(over)
		if err := unchanged(over, revision); err != nil {
			return nil, err
		}
		return deleted(over, nats.Header{headerForgotten: {"true"}}, forgotten), nil
	})
	return known && err == nil, err
}

// deleted returns the write that deletes a key.
func deleted(over kvrecord.Record, header nats.Header, ttl time.Duration) *kvrecord.Write {
	header.Set("KV-Operation", "DEL")
	return &kvrecord.Write{Subject: over.Subject, Header: header, Over: over, TTL: ttl}
}

func isForgotten(r kvrecord.Record) bool { return r.Header.Get(headerForgotten) != "" }
