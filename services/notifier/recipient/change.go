package recipient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// SetAddress says where a channel reaches a recipient, such as a browser's subscription to webpush. "" is nowhere. What else is
// known of the recipient stays; one who is not known comes to be. Two round trips, also for what is so already; more when others
// write at the same time.
func (d *Directory) SetAddress(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) error {
	_, err := d.change(ctx, kind, userID, func(r *contracts.Recipient) bool {
		if r.Addresses[channel] == address {
			return false
		}
		if address == "" {
			delete(r.Addresses, channel)
			return true
		}
		if r.Addresses == nil {
			r.Addresses = map[string]string{}
		}
		r.Addresses[channel] = address
		return true
	})
	return err
}

// Drop removes an address that is never to be used again, if the channel still has it, and reports that: one that has taken
// its place stays. Two round trips, more when others write at the same time.
func (d *Directory) Drop(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) (dropped bool, err error) {
	return d.change(ctx, kind, userID, func(r *contracts.Recipient) bool {
		there, found := r.Addresses[channel]
		if !found || there != address {
			return false
		}
		delete(r.Addresses, channel)
		return true
	})
}

// OptOut says that a recipient does not want a category on a channel any more; contracts.Anything is every one. Two round trips,
// more when others write at the same time.
func (d *Directory) OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error {
	_, err := d.change(ctx, kind, userID, func(r *contracts.Recipient) bool {
		if slices.Contains(r.OptOut[category], channel) {
			return false
		}
		if r.OptOut == nil {
			r.OptOut = map[string][]string{}
		}
		r.OptOut[category] = append(r.OptOut[category], channel)
		return true
	})
	return err
}

// change changes addresses and opt-outs of a record, over exactly the record that was read, and reports whether there was
// something to change; what was done but not acknowledged is found done. It tries again each time another process writes in
// between. The first read is answered by any replica, which may not have what was written a moment ago: that there is
// nothing to do, and what a write has lost to, the leader says.
func (d *Directory) change(
	ctx context.Context, kind contracts.RecipientType, userID string, f func(r *contracts.Recipient) bool,
) (changed bool, err error) {
	key, err := contracts.DirectoryKey(kind, userID)
	if err != nil {
		return false, permanent(err)
	}
	over, err := d.records.Get(ctx, d.records.Key(key))
	for atLeader := false; err == nil; atLeader = true {
		data, unreadable := altered(over, contracts.Recipient{RecipientType: kind, UserID: userID}, f)
		switch {
		case unreadable != nil:
			return false, permanent(fmt.Errorf("%s of the directory: %w", key, unreadable))
		case data == nil && atLeader:
			return false, nil
		case data == nil:
			over, err = d.records.Latest(ctx, d.records.Key(key))
		default:
			_, err = d.records.Put(ctx, kvrecord.Write{Subject: d.records.Key(key), Data: data, Over: over})
			conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
			if err == nil {
				return true, nil
			}
			if ok {
				over, err = conflict.Found, nil
			}
		}
	}
	return false, temporary(fmt.Errorf("change %s of the directory: %w", key, err))
}

// altered returns what f makes of the recipient in a record, or of one who is not known, and nil when that changes nothing. A
// recipient whose data was erased is known again once there is an address.
func altered(over kvrecord.Record, r contracts.Recipient, f func(r *contracts.Recipient) bool) (data []byte, err error) {
	data = []byte("{}")
	if len(over.Data) > 0 {
		data = over.Data
		if r, err = contracts.Decode[contracts.Recipient](data); err != nil {
			return nil, err
		}
	}
	if !f(&r) || isForgotten(over) && len(r.Addresses) == 0 {
		return nil, nil
	}
	return overlay(data, r)
}

// overlay writes a recipient over a record, with what others keep there and we do not know.
func overlay(data []byte, r contracts.Recipient) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err //nolint:wrapcheck // by the caller
	}
	delete(fields, "addresses")
	delete(fields, "opt_out")
	known, err := contracts.Encode(r)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(known, &fields); err != nil { // adds to the map
		return nil, err //nolint:wrapcheck // by the caller
	}
	return json.Marshal(fields) //nolint:wrapcheck // by the caller
}
