package recipient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// headerStated is a header in the record of a section: the hash of the section's fields in the profile at the time when they
// were added to the record.
const headerStated = "Expediter-Stated"

// section is a part of a recipient with a record of its own, which no write of the profile changes. Another program, or an
// earlier version of this package, may write its fields into the profile. They are added to the record when they are first read,
// and again when they have changed. Fields that the profile omits stay.
type section struct {
	at     int // in sections
	part   Part
	fields []string // the names of the fields of its record
	key    func(contracts.RecipientType, string) (string, error)

	// add adds the section of a recipient to that of another one.
	add func(to *contracts.Recipient, from contracts.Recipient)
}

// The sections. A profile can add opt-outs, but never remove one. Of other fields the last write counts.
var (
	addresses = section{
		at: 0, part: Addresses, fields: []string{"addresses", "endpoints"}, key: contracts.DirectoryAddressesKey,
		add: func(to *contracts.Recipient, from contracts.Recipient) {
			to.Addresses = over(to.Addresses, from.Addresses)
			for at, e := range endpoints(from) {
				setEndpoint(to, at, newer(to.Endpoints[at.channel][at.id], e))
			}
		},
	}
	preferences = section{
		at: 1, part: Preferences, fields: []string{"digest", "mute", "opt_out", "quiet_hours"}, key: contracts.DirectoryPreferencesKey,
		add: func(to *contracts.Recipient, from contracts.Recipient) {
			for category, channels := range from.OptOut {
				for _, channel := range channels {
					refuse(to, category, channel)
				}
			}
			to.Digest, to.Mute = over(to.Digest, from.Digest), over(to.Mute, from.Mute)
			if from.QuietHours != nil {
				to.QuietHours = from.QuietHours
			}
		},
	}
	sections = []section{addresses, preferences}
)

// over copies the members of a map into another one, in place of members of the same name.
func over[T any](to, from map[string]T) map[string]T {
	if to == nil && len(from) > 0 {
		to = map[string]T{}
	}
	maps.Copy(to, from)
	return to
}

// refuse adds an opt-out, and reports whether it is new.
func refuse(r *contracts.Recipient, category, channel string) bool {
	if slices.Contains(r.OptOut[category], channel) {
		return false
	}
	if r.OptOut == nil {
		r.OptOut = map[string][]string{}
	}
	r.OptOut[category] = append(r.OptOut[category], channel)
	return true
}

// of returns the fields of the section in a profile, and their hash, "" for none. Quiet hours stay in the profile; the quiet
// hours of the preferences override them.
func (s section) of(r contracts.Recipient) (only contracts.Recipient, name string) {
	r.QuietHours = nil
	s.add(&only, r)
	if reflect.DeepEqual(only, contracts.Recipient{}) {
		return only, ""
	}
	data, _ := json.Marshal(only) //nolint:errcheck,errchkjson // texts
	sum := sha256.Sum256(data)
	return only, hex.EncodeToString(sum[:8])
}

// read returns the section from its record and the profile, and the hash of its fields in the profile.
func (s section) read(f *file) (r contracts.Recipient, stated string, err error) {
	own := f.own[s.at]
	r = f.who
	if len(own.Data) > 0 {
		if r, err = contracts.Decode[contracts.Recipient](own.Data); err != nil {
			return r, "", permanent(fmt.Errorf("%s: %w", own.Subject, err))
		}
	}
	var said contracts.Recipient
	if !f.absent {
		said, stated = s.of(f.profile)
	}
	known := own.Header.Get(headerStated)
	if stated == "" || stated == known {
		return r, known, nil
	}
	s.add(&r, said)
	return r, stated, nil
}

// alter returns the write that applies change to a section, or nil when its record has the result already.
func (s section) alter(f *file, change func(own kvrecord.Record, r *contracts.Recipient) (bool, error)) (*kvrecord.Write, error) {
	own := f.own[s.at]
	r, stated, err := s.read(f)
	if err != nil {
		return nil, err
	}
	changed, err := change(own, &r)
	if err != nil {
		return nil, err
	}
	if !changed && stated == own.Header.Get(headerStated) {
		return nil, nil //nolint:nilnil // nothing is to be written
	}
	data := own.Data
	if len(data) == 0 {
		data = []byte("{}")
	}
	if data, err = overlay(data, r, s.fields...); err != nil {
		return nil, permanent(err)
	}
	w := &kvrecord.Write{Subject: own.Subject, Data: data, Over: own}
	if stated != "" {
		w.Header = nats.Header{headerStated: {stated}}
	}
	return w, nil
}

// overlay writes the fields of a recipient over a record. Fields that this package does not know stay. The fields named
// in without are first removed from the record.
func overlay(data []byte, r contracts.Recipient, without ...string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err //nolint:wrapcheck // by the caller
	}
	for _, name := range without {
		delete(fields, name)
	}
	known, err := contracts.Encode(r)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(known, &fields); err != nil { // adds to the map
		return nil, err //nolint:wrapcheck // by the caller
	}
	return json.Marshal(fields) //nolint:wrapcheck // by the caller
}

// readProfile decodes a recipient that another program wrote. An invalid field counts as absent and is returned in wrong, so
// that it does not cost the recipient every notification. An opt-out that cannot be read is an error, and so is anything but a
// JSON object, because the opt-outs are then unknown. who has the ids, if they are known.
func readProfile(data []byte, who contracts.Recipient) (r contracts.Recipient, wrong []contracts.FieldError, err error) {
	r, err = contracts.Decode[contracts.Recipient](data)
	invalid, ok := errors.AsType[*contracts.ValidationError](err)
	var fields map[string]json.RawMessage
	if !ok || json.Unmarshal(data, &fields) != nil {
		return r, nil, err
	}
	for _, field := range invalid.Fields {
		name, _, _ := strings.Cut(strings.TrimPrefix(field.Path, "/"), "/")
		switch name {
		case "opt_out":
			return r, nil, err
		case "addresses":
			fields[name] = validAddresses(fields[name])
		default:
			delete(fields, name)
		}
	}
	if ids, err := contracts.Encode(who); err == nil {
		_ = json.Unmarshal(ids, &fields) //nolint:errcheck // adds to the map what was encoded
	}
	mended, err := json.Marshal(fields)
	if err != nil {
		return r, nil, err //nolint:wrapcheck // by the caller
	}
	if r, err = contracts.Decode[contracts.Recipient](mended); err != nil {
		return r, nil, invalid
	}
	return r, invalid.Fields, nil
}

// validAddresses returns the addresses without those that are invalid.
func validAddresses(data json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	valid := map[string]json.RawMessage{}
	_ = json.Unmarshal(data, &all) //nolint:errcheck // not an object: no addresses
	for name, address := range all {
		one := map[string]any{"user_id": "u", "recipient_type": "t", "addresses": map[string]json.RawMessage{name: address}}
		if text, err := json.Marshal(one); err == nil {
			if _, err := contracts.Decode[contracts.Recipient](text); err == nil {
				valid[name] = address
			}
		}
	}
	data, _ = json.Marshal(valid) //nolint:errcheck,errchkjson // it was decoded
	return data
}

// warnEvery bounds the log: in this time, one line is written about mistakes of profiles.
const warnEvery = time.Minute

// warner logs mistakes of profiles, at a limited rate: a program may write the same mistake for every recipient.
type warner struct {
	logger *slog.Logger
	some   rate.Sometimes
}

func newWarner(logger *slog.Logger) *warner {
	logger = cmp.Or(logger, slog.Default())
	return &warner{logger: logger, some: rate.Sometimes{Interval: warnEvery}}
}

// ignored logs which fields of a recipient are ignored, if any.
func (w *warner) ignored(ctx context.Context, r contracts.Recipient, wrong []contracts.FieldError) {
	if len(wrong) > 0 {
		w.warn(ctx, "fields of a recipient are ignored because they are invalid", r, &contracts.ValidationError{Type: "Recipient", Fields: wrong})
	}
}

func (w *warner) warn(ctx context.Context, text string, r contracts.Recipient, err error) {
	w.some.Do(func() {
		w.logger.WarnContext(ctx, "notifier: "+text, //nolint:sloglint // begins with the service's name
			"recipient_type", r.RecipientType, "user_id", r.UserID, "error", err, "silent_for", warnEvery)
	})
}
