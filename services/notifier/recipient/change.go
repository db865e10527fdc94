package recipient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/record"
)

// conflicts are the server's error codes of a write that expected another revision; a replicated stream has one of its own.
var conflicts = []jetstream.ErrorCode{
	jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant,
}

// tryTimeout bounds one request, so that one lost answer leaves time for another.
const tryTimeout = 2 * time.Second

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
// something to change; what was done but not answered is found done. It tries until nobody else writes in between. The first
// read is answered by any replica, which may not have heard of what was written a moment ago: that there is nothing to do, and
// what a write has lost to, the leader says.
func (d *Directory) change(
	ctx context.Context, kind contracts.RecipientType, userID string, f func(r *contracts.Recipient) bool,
) (changed bool, err error) {
	key, err := contracts.DirectoryKey(kind, userID)
	if err != nil {
		return false, permanent(err)
	}
	for atLeader := false; ; atLeader = true {
		read := d.store.Get
		if atLeader {
			read = d.store.Latest
		}
		data, revision, err := read(ctx, "$KV."+contracts.BucketDirectory+"."+key)
		if err != nil && !errors.Is(err, record.ErrNotFound) {
			return false, temporary(fmt.Errorf("read %s of the directory: %w", key, err))
		}
		r := contracts.Recipient{RecipientType: kind, UserID: userID}
		if len(data) == 0 { // there is none, or a marker of one that was deleted
			data, revision = []byte("{}"), 0
		} else if r, err = contracts.Decode[contracts.Recipient](data); err != nil {
			return false, permanent(fmt.Errorf("%s of the directory: %w", key, err))
		}
		if !f(&r) {
			if atLeader {
				return false, nil
			}
			continue
		}
		if data, err = overlay(data, r); err != nil {
			return false, permanent(fmt.Errorf("%s of the directory: %w", key, err))
		}
		if written, err := d.write(ctx, key, data, revision); written || err != nil {
			return written, err
		}
	}
}

// write writes a record over the revision that was read, 0 for none, and reports false when somebody else wrote, or no answer
// came: a leader that dies takes it along.
func (d *Directory) write(ctx context.Context, key string, data []byte, revision uint64) (written bool, err error) {
	once, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if revision == 0 {
		_, err = d.kv.Create(once, key, data)
	} else {
		_, err = d.kv.Update(once, key, data, revision)
	}
	api, _ := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return true, nil
	case once.Err() != nil && ctx.Err() == nil:
		return false, nil
	case errors.Is(err, jetstream.ErrKeyExists), api != nil && slices.Contains(conflicts, api.ErrorCode):
		return false, nil
	}
	return false, temporary(fmt.Errorf("write %s of the directory: %w", key, err))
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
